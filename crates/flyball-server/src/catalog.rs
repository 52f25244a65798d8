//! Catalog: the served resources by group and version.
//!
//! Takes built-in kinds and CRDs, returns [`Resource`]s; decodes bodies as their objects. It does not depend on stored
//! objects. Invariant: a catalog is immutable; a changed CRD replaces the whole catalog.

mod custom;
pub(crate) mod decode;
pub(crate) mod protobuf;
mod resource;
pub(crate) mod scale;
pub(crate) mod scheme;
mod target;

pub(crate) use custom::resources as resources_of_definition;
pub(crate) use resource::Resource;
pub(crate) use target::{Target, undeterminable};

use crate::custom::schema_number;
use crate::kinds::{self, ACTIONS, Kind};
use bytes::Bytes;
use flyball_core::{GroupResource, GroupVersion};
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, OnceLock};

/// The current catalog.
pub(crate) struct CurrentCatalog(RwLock<Arc<Catalog>>);

impl CurrentCatalog {
    pub(crate) fn new(catalog: Arc<Catalog>) -> Self {
        Self(RwLock::new(catalog))
    }

    pub(crate) fn get(&self) -> Arc<Catalog> {
        self.0.read().clone()
    }

    /// Replaces the catalog; returns the one before.
    pub(crate) fn replace(&self, catalog: Arc<Catalog>) -> Arc<Catalog> {
        std::mem::replace(&mut *self.0.write(), catalog)
    }
}

/// All served resources. Immutable: a new CRD results in a new catalog.
pub(crate) struct Catalog {
    groups: BTreeMap<Arc<str>, Group>,
    pub(crate) discovery: DiscoveryDocuments,
}

/// The aggregated discovery documents, encoded at the first request.
#[derive(Default)]
pub(crate) struct DiscoveryDocuments {
    /// That of the core group.
    pub(crate) core: OnceLock<Bytes>,
    /// That of all other groups.
    pub(crate) groups: OnceLock<Bytes>,
}

impl Clone for Catalog {
    /// A copy is about to change, so its documents are encoded again.
    fn clone(&self) -> Self {
        Self { groups: self.groups.clone(), discovery: DiscoveryDocuments::default() }
    }
}

/// The versions of a group, the preferred one first.
#[derive(Clone, Default)]
pub(crate) struct Group {
    pub(crate) versions: Vec<Version>,
    /// True if the group is built in: then the 404 of an unknown resource is a `Status`.
    pub(crate) built_in: bool,
    /// Its position among the built-in groups.
    rank: usize,
}

/// The resources of a group version, by plural name.
#[derive(Clone)]
pub(crate) struct Version {
    pub(crate) name: Arc<str>,
    pub(crate) resources: BTreeMap<Arc<str>, Arc<Resource>>,
}

/// The entry of a catalog for a path.
pub(crate) enum Lookup {
    Found(Arc<Resource>),
    /// The group is served, but the version or the resource is not.
    NotInGroup {
        built_in: bool,
    },
    NoGroup,
}

impl Catalog {
    /// Returns the catalog of a server without CRDs.
    pub(crate) fn built_in() -> Self {
        static BUILT_IN: LazyLock<Catalog> = LazyLock::new(Catalog::read);
        BUILT_IN.clone()
    }

    fn read() -> Self {
        let mut catalog = Self { groups: BTreeMap::new(), discovery: DiscoveryDocuments::default() };
        for (rank, kind) in kinds::built_in().enumerate() {
            catalog.add(Arc::new(Resource::built_in(kind)));
            let group = catalog.groups.get_mut(kind.group).expect("just added");
            if !group.built_in {
                (group.built_in, group.rank) = (true, rank);
            }
        }
        catalog
    }

    /// Returns the resource of a body that is sent to a subresource or returned by it.
    pub(crate) fn action(kind: &str) -> Arc<Resource> {
        static ALL: LazyLock<Vec<Arc<Resource>>> =
            LazyLock::new(|| ACTIONS.iter().map(|kind| Arc::new(Resource::built_in(kind))).collect());
        ALL.iter().find(|known| &*known.kind.kind == kind).expect("the list contains every requested kind").clone()
    }

    /// Adds a resource; its version comes last in its group if it is new. Those of built-in kinds are never replaced.
    pub(crate) fn add(&mut self, resource: Arc<Resource>) {
        let is_taken = |kind: &Kind| *kind.plural == *resource.plural;
        if resource.custom().is_some() && kinds::of_group(&resource.kind.group).any(is_taken) {
            return;
        }
        let group = self.groups.entry(resource.kind.group.clone()).or_default();
        let at = group.versions.iter().position(|version| version.name == resource.kind.version).unwrap_or_else(|| {
            group.versions.push(Version { name: resource.kind.version.clone(), resources: BTreeMap::new() });
            group.versions.len() - 1
        });
        group.versions[at].resources.insert(resource.plural.clone(), resource);
    }

    /// Sorts the versions of custom groups by stability.
    pub(crate) fn sort_versions(&mut self) {
        for group in self.groups.values_mut().filter(|group| !group.built_in) {
            group
                .versions
                .sort_by(|a, b| stability(&b.name).cmp(&stability(&a.name)).then_with(|| a.name.cmp(&b.name)));
        }
    }

    /// Returns the resource of a path.
    pub(crate) fn lookup(&self, group: &str, version: &str, plural: &str) -> Lookup {
        let Some(group) = self.groups.get(group) else { return Lookup::NoGroup };
        let version = group.versions.iter().find(|known| &*known.name == version);
        match version.and_then(|version| version.resources.get(plural)) {
            Some(resource) => Lookup::Found(resource.clone()),
            None => Lookup::NotInGroup { built_in: group.built_in },
        }
    }

    /// Returns a resource, if it is served.
    pub(crate) fn get(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Resource>> {
        match self.lookup(group, version, plural) {
            Lookup::Found(resource) => Some(resource),
            Lookup::NotInGroup { .. } | Lookup::NoGroup => None,
        }
    }

    /// Returns the resource of a built-in kind.
    pub(crate) fn of(&self, kind: &Kind) -> Arc<Resource> {
        self.get(kind.group, kind.version, kind.plural).expect("built-in kinds are always served")
    }

    /// Finds the version of a stored kind that a group version serves.
    pub(crate) fn version_of(&self, table: &GroupResource, version: &GroupVersion) -> Option<&Arc<Resource>> {
        let group = self.groups.get(&version.group)?;
        let version = group.versions.iter().find(|known| known.name == version.version)?;
        version.resources.values().find(|resource| resource.table == *table)
    }

    /// Finds the version in which the objects of a custom resource are stored.
    pub(crate) fn storage_version(&self, resource: &Resource) -> Option<Arc<Resource>> {
        self.get(&resource.kind.group, &resource.custom()?.storage_version, &resource.plural)
    }

    /// Finds the version of a custom resource that an object was written in, by the number of its schema; the storage
    /// version if that one no longer exists.
    pub(crate) fn written_version(&self, resource: &Resource, schema: u64) -> Option<Arc<Resource>> {
        let versions = self.group(&resource.kind.group).into_iter().flat_map(|group| &group.versions);
        let mut resources = versions.filter_map(|version| version.resources.get(&resource.plural));
        let written = resources.find(|known| schema_number::same_version(known.schema_number, schema));
        written.cloned().or_else(|| self.storage_version(resource))
    }

    /// Finds the served resource of a kind.
    pub(crate) fn served(&self, api_version: &str, kind: &str) -> Option<&Arc<Resource>> {
        self.resources().find(|resource| {
            resource.is_served() && resource.kind.api_version() == *api_version && *resource.kind.kind == *kind
        })
    }

    /// Returns all groups: built-in ones first, then the others by name.
    pub(crate) fn groups(&self) -> Vec<(&Arc<str>, &Group)> {
        let mut groups: Vec<_> = self.groups.iter().collect();
        groups.sort_by_key(|(_, group)| (!group.built_in, group.rank));
        groups
    }

    pub(crate) fn group(&self, name: &str) -> Option<&Group> {
        self.groups.get(name)
    }

    /// Returns all resources of all versions.
    pub(crate) fn resources(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.groups.values().flat_map(|group| &group.versions).flat_map(|version| version.resources.values())
    }
}

/// Orders versions: `v2` before `v1` before `v2beta1` before `v1alpha1` before anything else. See
/// <https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definition-versioning/#version-priority>.
pub(crate) fn stability(version: &str) -> (u8, u64, u64) {
    let number = |text: &str| text.parse::<u64>().ok().filter(|_| !text.starts_with('0'));
    let parsed = version.strip_prefix('v').and_then(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let major = number(&rest[..end])?;
        match &rest[end..] {
            "" => Some((3, major, 0)),
            rest if rest.starts_with("beta") => Some((2, major, number(&rest[4..])?)),
            rest if rest.starts_with("alpha") => Some((1, major, number(&rest[5..])?)),
            _ => None,
        }
    });
    parsed.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stable_versions_come_first() {
        let mut versions = ["foo1", "v1alpha1", "v1beta2", "v10", "v1", "v2beta1", "foo10"];
        versions.sort_by(|a, b| stability(b).cmp(&stability(a)).then_with(|| a.cmp(b)));
        assert_eq!(versions, ["v10", "v1", "v2beta1", "v1beta2", "v1alpha1", "foo1", "foo10"]);
    }

    #[test]
    fn catalog_lists_every_built_in_kind() {
        let catalog = Catalog::built_in();
        assert_eq!(catalog.resources().count(), kinds::built_in().count());
        assert!(catalog.get("apps", "v1", "deployments").is_some());
        assert!(matches!(catalog.lookup("apps", "v9", "deployments"), Lookup::NotInGroup { built_in: true }));
        assert!(matches!(catalog.lookup("none", "v1", "x"), Lookup::NoGroup));
    }
}
