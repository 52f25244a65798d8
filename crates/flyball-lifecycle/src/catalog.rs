//! Catalogs: bundles in the channels of packages, with indexes for lookups by package and API.

use crate::bundle::{Api, Bundle};
use crate::version::VersionRange;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

/// The namespace and name of a CatalogSource.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct CatalogKey {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl fmt::Display for CatalogKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.name, self.namespace)
    }
}

/// A bundle in a channel.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The package.
    pub package: String,
    /// The channel.
    pub channel: String,
    /// True if this is the default channel of the package.
    pub is_default_channel: bool,
    /// The name of the bundle that this one upgrades.
    pub replaces: Option<String>,
    /// Names of further bundles that this one upgrades; they are not installed.
    pub skips: Vec<String>,
    /// Versions that this bundle upgrades. In OLM, an invalid range includes no version.
    pub skip_range: Option<VersionRange>,
    /// The bundle.
    pub bundle: Arc<Bundle>,
}

impl Entry {
    /// Returns the name of the bundle.
    pub fn name(&self) -> &str {
        self.bundle.name()
    }

    /// Returns true if this entry directly upgrades a bundle of this name and version.
    pub(crate) fn upgrades(&self, installed: &Bundle) -> bool {
        let skips_version = || {
            let range = self.skip_range.as_ref().zip(installed.version());
            range.is_some_and(|(range, version)| range.includes(version))
        };
        self.replaces.as_deref() == Some(installed.name())
            || self.skips.iter().any(|skipped| skipped == installed.name())
            || skips_version()
    }
}

/// The contents of a CatalogSource.
#[derive(Clone, Debug)]
pub struct Catalog {
    /// Its namespace and name.
    pub key: CatalogKey,
    /// Its priority: bundles of catalogs with higher priority are preferred as dependencies.
    pub priority: i32,
    /// Its bundles.
    pub entries: Vec<Entry>,
}

/// The position of an entry: the index of its catalog, and that in the catalog.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct EntryId(u32, u32);

/// The catalogs that are visible in a namespace.
#[derive(Debug, Default)]
pub struct Catalogs {
    catalogs: Vec<Catalog>,
    by_key: BTreeMap<CatalogKey, usize>,
    by_package: HashMap<String, Vec<EntryId>>,
    by_api: HashMap<Api, Vec<EntryId>>,
}

impl Catalogs {
    /// Indexes catalogs.
    pub fn new(catalogs: Vec<Catalog>) -> Self {
        let mut index = Self::default();
        for (at, catalog) in catalogs.iter().enumerate() {
            index.by_key.insert(catalog.key.clone(), at);
            for (number, entry) in catalog.entries.iter().enumerate() {
                let id = EntryId(at as u32, number as u32);
                index.by_package.entry(entry.package.clone()).or_default().push(id);
                for package in entry.bundle.packages().filter(|package| *package != entry.package) {
                    index.by_package.entry(package.to_owned()).or_default().push(id);
                }
                for api in entry.bundle.apis() {
                    index.by_api.entry(api.clone()).or_default().push(id);
                }
            }
        }
        Self { catalogs, ..index }
    }

    /// Returns the catalog of a key.
    pub fn get(&self, key: &CatalogKey) -> Option<&Catalog> {
        self.by_key.get(key).map(|at| &self.catalogs[*at])
    }

    /// Returns the entries of a package in a catalog.
    pub(crate) fn package(&self, key: &CatalogKey, package: &str) -> Vec<EntryId> {
        let Some(at) = self.by_key.get(key) else { return Vec::new() };
        let entries = self.by_package.get(package).into_iter().flatten().copied();
        entries.filter(|id| id.0 as usize == *at && self.entry(*id).package == package).collect()
    }

    /// Returns the entries of a channel.
    pub(crate) fn channel(&self, key: &CatalogKey, package: &str, channel: &str) -> Vec<EntryId> {
        let mut entries = self.package(key, package);
        entries.retain(|id| self.entry(*id).channel == channel);
        entries
    }

    pub(crate) fn entry(&self, id: EntryId) -> &Entry {
        &self.catalogs[id.0 as usize].entries[id.1 as usize]
    }

    pub(crate) fn catalog_of(&self, id: EntryId) -> &Catalog {
        &self.catalogs[id.0 as usize]
    }

    /// Returns the entries whose bundle declares a package.
    pub(crate) fn declaring(&self, package: &str) -> &[EntryId] {
        self.by_package.get(package).map_or(&[], Vec::as_slice)
    }

    /// Returns the entries that provide an API.
    pub(crate) fn providing(&self, api: &Api) -> &[EntryId] {
        self.by_api.get(api).map_or(&[], Vec::as_slice)
    }

    /// Returns all entries.
    pub(crate) fn all(&self) -> impl Iterator<Item = EntryId> {
        self.catalogs
            .iter()
            .enumerate()
            .flat_map(|(at, catalog)| (0..catalog.entries.len()).map(move |number| EntryId(at as u32, number as u32)))
    }
}
