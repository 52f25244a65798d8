//! Replacement of ClusterServiceVersions by newer ones.

use crate::api::ClusterServiceVersion;
use kube::ResourceExt;
use std::collections::BTreeSet;

/// The other ClusterServiceVersions of a namespace, without copies.
#[derive(Debug, Default)]
pub(super) struct Siblings(pub(super) Vec<ClusterServiceVersion>);

impl Siblings {
    fn named(&self, name: &str) -> Option<&ClusterServiceVersion> {
        self.0.iter().find(|csv| !name.is_empty() && csv.name_any() == name)
    }

    /// Returns the ClusterServiceVersion that another one replaces, if it exists.
    pub(super) fn replaced_by(&self, csv: &ClusterServiceVersion) -> Option<&ClusterServiceVersion> {
        self.named(&csv.spec.replaces).filter(|replaced| replaced.name_any() != csv.name_any())
    }

    /// Returns the ClusterServiceVersion that replaces another one.
    pub(super) fn replacement_of(&self, csv: &ClusterServiceVersion) -> Option<&ClusterServiceVersion> {
        let name = csv.name_any();
        let replaces =
            |other: &&ClusterServiceVersion| other.spec.replaces == name && other.metadata.deletion_timestamp.is_none();
        self.0.iter().find(replaces)
    }

    /// Returns the last ClusterServiceVersion of a chain of replacements.
    pub(super) fn newest_after(&self, csv: &ClusterServiceVersion) -> Option<&ClusterServiceVersion> {
        let mut seen = BTreeSet::from([csv.name_any()]);
        let mut newest = None;
        let mut next = self.replacement_of(csv);
        // A cycle ends the chain.
        while let Some(found) = next.filter(|found| seen.insert(found.name_any())) {
            newest = Some(found);
            next = self.replacement_of(found);
        }
        newest
    }

    /// Returns the names of the ClusterServiceVersions that one replaces, directly or not.
    pub(super) fn ancestors_of(&self, csv: &ClusterServiceVersion) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        let mut next = self.replaced_by(csv);
        while let Some(replaced) = next.filter(|replaced| found.insert(replaced.name_any())) {
            next = self.replaced_by(replaced);
        }
        found.remove(&csv.name_any());
        found
    }

    /// Returns the names of a ClusterServiceVersion, of those that it replaces and of those that replace it.
    pub(super) fn chain_of(&self, csv: &ClusterServiceVersion) -> BTreeSet<String> {
        let mut chain = self.ancestors_of(csv);
        chain.insert(csv.name_any());
        let mut next = self.replacement_of(csv);
        while let Some(newer) = next.filter(|newer| chain.insert(newer.name_any())) {
            next = self.replacement_of(newer);
        }
        chain
    }

    /// Returns those that belong to the chain of a ClusterServiceVersion and are not being deleted.
    pub(super) fn related_to(&self, csv: &ClusterServiceVersion) -> Vec<&ClusterServiceVersion> {
        let chain = self.chain_of(csv);
        let is_related = |other: &&ClusterServiceVersion| {
            chain.contains(&other.name_any()) && other.metadata.deletion_timestamp.is_none()
        };
        self.0.iter().filter(is_related).collect()
    }

    /// Returns those that do not belong to the chain of a ClusterServiceVersion.
    pub(super) fn unrelated_to(&self, csv: &ClusterServiceVersion) -> Vec<&ClusterServiceVersion> {
        let chain = self.chain_of(csv);
        self.0.iter().filter(|other| !chain.contains(&other.name_any())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn csv(name: &str, replaces: &str) -> ClusterServiceVersion {
        let mut csv = ClusterServiceVersion::new(Some("demo"), name);
        csv.spec.replaces = replaces.into();
        csv
    }

    #[test]
    fn chains_are_followed_in_both_directions() {
        let all = Siblings(vec![csv("v1", ""), csv("v2", "v1"), csv("v3", "v2"), csv("other", "v0")]);
        let names = |set: BTreeSet<String>| set.into_iter().collect::<Vec<_>>().join(" ");
        assert_eq!(all.replaced_by(&csv("v2", "v1")).map(ResourceExt::name_any).as_deref(), Some("v1"));
        assert_eq!(all.replacement_of(&csv("v2", "v1")).map(ResourceExt::name_any).as_deref(), Some("v3"));
        assert_eq!(all.newest_after(&csv("v1", "")).map(ResourceExt::name_any).as_deref(), Some("v3"));
        assert_eq!(names(all.ancestors_of(&csv("v3", "v2"))), "v1 v2");
        assert_eq!(names(all.chain_of(&csv("v2", "v1"))), "v1 v2 v3");
        assert_eq!(all.unrelated_to(&csv("v2", "v1")).len(), 1);
    }

    #[test]
    fn cycles_end() {
        let all = Siblings(vec![csv("a", "b"), csv("b", "a"), csv("self", "self")]);
        assert_eq!(all.chain_of(&csv("a", "b")).len(), 2);
        assert!(all.replaced_by(&csv("self", "self")).is_none());
        assert!(all.newest_after(&csv("self", "self")).is_none());
        assert_eq!(all.newest_after(&csv("a", "b")).map(ResourceExt::name_any).as_deref(), Some("b"));
    }
}
