//! The catalogs of a rehearsal: those that this command has loaded.

use flyball_lifecycle::content::PackageBundle;
use flyball_lifecycle::diagnosis::Snapshot;
use flyball_lifecycle::manifests::Manifests;
use flyball_lifecycle::source::{CatalogClient, Loaded, Location, SourceError, Sources};
use futures_util::future::BoxFuture;
use kube::ResourceExt;
use std::collections::BTreeMap;

/// Returns the address of a CatalogSource on the copy.
pub(super) fn address(namespace: &str, name: &str) -> String {
    format!("{name}.{namespace}.rehearsal:50051")
}

/// Contents by their address; bundles in images are pulled.
pub(super) struct LoadedCatalogs {
    contents: BTreeMap<String, Loaded>,
    sources: Sources,
}

impl LoadedCatalogs {
    pub(super) fn new(snapshot: &Snapshot, sources: Sources) -> Self {
        let loaded = snapshot.catalogs.iter().filter_map(|(source, loaded)| {
            let loaded = loaded.as_ref().ok()?;
            let address = address(&source.namespace().unwrap_or_default(), &source.name_any());
            Some((address, Loaded { content: loaded.content.clone(), revision: "rehearsal".to_owned() }))
        });
        Self { contents: loaded.collect(), sources }
    }
}

impl CatalogClient for LoadedCatalogs {
    fn load<'c>(
        &'c self,
        location: &'c Location,
        known: Option<&'c str>,
    ) -> BoxFuture<'c, Result<Option<Loaded>, SourceError>> {
        let found = match location {
            Location::Grpc { address, .. } => self.contents.get(address),
            _ => None,
        };
        match found {
            Some(loaded) => {
                let loaded = (known != Some(&loaded.revision)).then(|| loaded.clone());
                Box::pin(async move { Ok(loaded) })
            }
            None => self.sources.load(location, known),
        }
    }

    fn manifests<'c>(
        &'c self,
        bundle: &'c PackageBundle,
        secrets: &'c [String],
    ) -> BoxFuture<'c, Result<Manifests, SourceError>> {
        self.sources.manifests(bundle, secrets)
    }
}
