//! Owners of objects, up to the custom resource at the root.

use crate::observation::OwnerReference;
use crate::store::OwnerRecord;
use std::collections::{BTreeSet, HashMap};

/// Longest chain of owners.
const MAX_DEPTH: usize = 20;
/// Most known owners; beyond it, those of custom kinds are read again.
const MAX_OWNERS: usize = 500_000;

/// The owners of owners: the controller of each, by its UID.
#[derive(Debug, Default)]
pub struct Owners {
    controllers: HashMap<String, Option<OwnerReference>>,
    /// Groups and kinds that are cluster-scoped.
    cluster_scoped: BTreeSet<(String, String)>,
}

/// Returns true for a group of custom resources: those of Kubernetes have no dot, or end in `.k8s.io`.
pub fn is_custom(group: &str) -> bool {
    group.contains('.') && !group.ends_with(".k8s.io")
}

impl Owners {
    /// Records the controller of an object, none if it has none.
    pub fn insert(&mut self, uid: &str, controller: Option<OwnerReference>) {
        if self.controllers.len() >= MAX_OWNERS {
            self.controllers.clear();
        }
        self.controllers.insert(uid.to_owned(), controller);
    }

    /// Records that the objects of a kind are cluster-scoped.
    pub fn set_cluster_scoped(&mut self, group: &str, kind: &str) {
        self.cluster_scoped.insert((group.to_owned(), kind.to_owned()));
    }

    /// Forgets an object.
    pub fn remove(&mut self, uid: &str) {
        self.controllers.remove(uid);
    }

    /// Returns the first owner in a chain whose own owner is unknown.
    pub fn unknown<'o>(&'o self, owner: &'o OwnerReference) -> Option<&'o OwnerReference> {
        let mut owner = owner;
        for _ in 0..MAX_DEPTH {
            match self.controllers.get(&owner.uid) {
                Some(Some(next)) => owner = next,
                Some(None) => return None,
                None => return Some(owner),
            }
        }
        None
    }

    /// Returns the custom resource that is nearest to the root of a chain, none if the chain has none.
    pub fn root(&self, owner: &OwnerReference, namespace: &str) -> Option<OwnerRecord> {
        let (mut owner, mut root) = (owner, None);
        for _ in 0..MAX_DEPTH {
            if is_custom(&owner.group) {
                root = Some(owner);
            }
            match self.controllers.get(&owner.uid) {
                Some(Some(next)) => owner = next,
                Some(None) | None => break,
            }
        }
        root.map(|root| OwnerRecord {
            group: root.group.clone(),
            kind: root.kind.clone(),
            // An owner is in the namespace of its object, or cluster-scoped.
            namespace: match self.cluster_scoped.contains(&(root.group.clone(), root.kind.clone())) {
                true => String::new(),
                false => namespace.to_owned(),
            },
            name: root.name.clone(),
            uid: root.uid.clone(),
        })
    }
}
