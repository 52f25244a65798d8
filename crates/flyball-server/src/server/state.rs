//! Where a server's state comes from other than from nothing: a data directory, or another server.

use super::{Inner, Options, Server};
use crate::auth::{Issuer, Rbac};
use crate::custom::schema_number;
use crate::data_dir::{DataDir, DataDirError};
use crate::registry::{Catalog, Resource};
use crate::storage::{Entry, Facts, Image, Limits, Store};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use flyball_core::GroupResource;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Holds the secret that tokens are signed with.
const KEY: &str = "service-account.key";

/// Goes on with what a directory holds.
pub(super) fn open(options: Options, directory: DataDir) -> Result<Arc<Inner>, DataDirError> {
    let issuer = Issuer::new(&secret(&directory, options.secret)?);
    let (store, kept) = Store::recover(&directory, Limits::of(&options.bounds))?;
    let inner = Inner::of(store, Arc::new(issuer), Rbac::default(), options);
    inner.serve_definitions();
    select(&inner);
    inner.seed();
    inner.store.keep(directory, &kept)?;
    // What was to follow from the last writes to CRDs may not have come to pass.
    inner.definitions_moved.store(true, Ordering::Release);
    Ok(inner)
}

/// Returns the directory's secret, which is this one if it has none yet.
fn secret(directory: &DataDir, new: [u8; 32]) -> Result<[u8; 32], DataDirError> {
    match directory.load(KEY)? {
        Some(text) => {
            let secret = BASE64.decode(text.trim_ascii_end()).ok().and_then(|bytes| bytes.try_into().ok());
            secret.ok_or_else(|| DataDirError::Damaged { path: directory.path().join(KEY), at: 0 })
        }
        None => {
            directory.save(KEY, (BASE64.encode(new) + "\n").as_bytes())?;
            Ok(new)
        }
    }
}

/// Finds out what the objects of a recovered store are selected by.
fn select(inner: &Inner) {
    let catalog = inner.catalog();
    let mut versions: BTreeMap<&GroupResource, Vec<&Resource>> = BTreeMap::new();
    catalog.resources().for_each(|resource| versions.entry(&resource.table).or_default().push(resource));
    inner.store.select_by(|table, entry| {
        let versions = versions.get(table).map_or(&[][..], Vec::as_slice);
        let written = |resource: &&&Resource| match resource.custom() {
            Some(_) => schema_number::same_version(resource.schema_number, entry.schema),
            None => resource.schema_number == entry.schema,
        };
        let stored = |resource: &&&Resource| {
            resource.custom().is_none_or(|custom| *custom.storage_version == *resource.kind.version)
        };
        let resource = versions.iter().find(written).or_else(|| versions.iter().find(stored));
        facts(entry, resource.copied())
    });
}

fn facts(entry: &Entry, resource: Option<&Resource>) -> Facts {
    const LABELS: &[u8] = b"\"labels\"";
    // To read an object takes long where there are many, and most kinds are selected by labels alone.
    let has_fields = resource.is_some_and(|resource| !resource.selectable().is_empty());
    if !has_fields && !entry.body.windows(LABELS.len()).any(|window| window == LABELS) {
        return Facts::default();
    }
    let object = entry.object();
    resource.map_or_else(|| Facts::of(&object, Vec::new()), |resource| resource.facts(&object))
}

/// All that a server holds at one moment. It shares with the servers made of it what none of them has changed.
pub struct Snapshot {
    image: Image,
    catalog: Arc<Catalog>,
    issuer: Arc<Issuer>,
    rbac: Rbac,
    definitions_moved: bool,
}

impl Snapshot {
    /// Makes a server that goes on from here on its own: with the same objects, versions, history, CRDs and tokens, but
    /// with the clock, the randomness and the webhooks of these options. Their secret is not used.
    ///
    /// It is in memory alone, wherever the snapshot was taken.
    pub fn fork(&self, options: Options) -> Server {
        let store = Store::of(self.image.image(), Limits::of(&options.bounds));
        let inner = Inner::of(store, self.issuer.clone(), self.rbac.image(), options);
        *inner.catalog.write().expect("nothing panics while it holds the catalog") = self.catalog.clone();
        inner.definitions_moved.store(self.definitions_moved, Ordering::Release);
        Server(inner)
    }
}

impl Server {
    /// Takes a snapshot. It takes microseconds, however many objects there are; what is written first to a resource
    /// afterwards pays for a copy of that resource's keys.
    ///
    /// What is under way is in it or not, each write as a whole.
    pub fn snapshot(&self) -> Snapshot {
        let Inner { store, catalog, issuer, rbac, definitions_moved, .. } = &*self.0;
        Snapshot {
            catalog: catalog.read().expect("nothing panics while it holds the catalog").clone(),
            image: store.image(),
            issuer: issuer.clone(),
            rbac: rbac.image(),
            definitions_moved: definitions_moved.load(Ordering::Acquire),
        }
    }
}
