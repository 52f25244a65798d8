//! Owner graph, fed by the watches, and the queue of objects to check.

use super::queue::Queue;
use crate::controllers::discovery::ServedResource;
use flyball_core::{GroupResource, ObjectKey};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use tokio::time::Instant;

/// The finalizer of an owner that waits for its dependents.
pub(super) const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer of an owner whose dependents are orphaned.
pub(super) const ORPHAN: &str = "orphan";

/// One object.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) kind: Arc<ServedResource>,
    pub(super) key: ObjectKey,
    pub(super) owners: Vec<OwnerReference>,
    pub(super) deleting: bool,
    foreground: bool,
    orphan: bool,
}

impl Node {
    /// Returns true if the object waits for the deletion of its dependents.
    pub(super) fn waits(&self) -> bool {
        self.deleting && self.foreground && !self.orphan
    }

    /// Returns true if the object waits for the orphaning of its dependents.
    pub(super) fn orphans(&self) -> bool {
        self.deleting && self.orphan
    }

    /// Returns true if a reference, from an object in `namespace`, has the coordinates of this one.
    pub(super) fn is_referenced_by(&self, reference: &OwnerReference, namespace: Option<&str>) -> bool {
        self.kind.is_of(reference)
            && self.key.name() == reference.name
            && (self.key.namespace().is_none() || self.key.namespace() == namespace)
    }
}

/// The most recent absent references, up to a limit.
#[derive(Debug, Default)]
struct Absent {
    known: BTreeSet<String>,
    order: VecDeque<String>,
}

impl Absent {
    const MAX_NAMES: usize = 500;

    fn name(reference: &OwnerReference, namespace: Option<&str>) -> String {
        let OwnerReference { api_version, kind, name, uid, .. } = reference;
        format!("{api_version} {kind} {} {name} {uid}", namespace.unwrap_or_default())
    }

    fn insert(&mut self, name: String) {
        if self.known.insert(name.clone()) {
            self.order.push_back(name);
        }
        if self.order.len() > Self::MAX_NAMES
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }
}

/// All objects by UID.
#[derive(Debug, Default)]
pub(super) struct Graph {
    nodes: BTreeMap<String, Node>,
    /// Dependents by owner UID, whether or not the owner exists.
    dependents: BTreeMap<String, BTreeSet<String>>,
    queue: Queue,
    served: BTreeSet<ServedResource>,
    /// Kinds that were not listed yet, with the time until which others wait for them.
    awaited: BTreeMap<GroupResource, Instant>,
    /// Objects with owners of kinds that are not served.
    unresolved: BTreeSet<String>,
    /// Recent references to owners that do not exist; UIDs are never reused.
    absent: Absent,
}

impl Graph {
    /// Records the current state of an object.
    pub(super) fn put(&mut self, kind: &Arc<ServedResource>, key: ObjectKey, meta: &ObjectMeta) {
        let Some(uid) = meta.uid.clone() else { return };
        let has = |finalizer: &str| meta.finalizers.iter().flatten().any(|known| known == finalizer);
        let node = Node {
            kind: kind.clone(),
            key,
            owners: meta.owner_references.clone().unwrap_or_default(),
            deleting: meta.deletion_timestamp.is_some(),
            foreground: has(FOREGROUND),
            orphan: has(ORPHAN),
        };
        let old = self.nodes.get(&uid).cloned();
        let begins_to_wait = node.waits() && !old.as_ref().is_some_and(Node::waits);
        let owners_changed = old.as_ref().is_none_or(|old| old.owners != node.owners);
        if owners_changed {
            self.unlink(&uid);
            for owner in &node.owners {
                self.dependents.entry(owner.uid.clone()).or_default().insert(uid.clone());
            }
        }
        let is_due = node.waits() || node.orphans() || (owners_changed && !self.is_held(&node));
        self.nodes.insert(uid.clone(), node);
        if is_due {
            self.look_at(uid.clone());
        }
        if begins_to_wait {
            self.queue_dependents(&uid);
        }
    }

    /// Records that an object was deleted. Its kind may be removed too, and can then no longer be queried.
    pub(super) fn remove(&mut self, uid: &str) {
        if let Some(node) = self.nodes.get(uid) {
            let dependents = self.dependents.get(uid).into_iter().flatten().filter_map(|uid| self.nodes.get(uid));
            for dependent in dependents {
                let namespace = dependent.key.namespace();
                let named = dependent.owners.iter().filter(|owner| owner.uid == uid);
                for owner in named.filter(|owner| node.is_referenced_by(owner, namespace)) {
                    self.absent.insert(Absent::name(owner, namespace));
                }
            }
        }
        self.remove_node(uid);
    }

    /// Drops an object, and queues its dependents.
    fn remove_node(&mut self, uid: &str) {
        if self.nodes.contains_key(uid) {
            self.unlink(uid);
            self.nodes.remove(uid);
        }
        self.unresolved.remove(uid);
        self.queue_dependents(uid);
    }

    /// Removes the owner references of an object, and queues owners that may have waited for it.
    fn unlink(&mut self, uid: &str) {
        let owners = self.nodes.get(uid).map(|node| node.owners.clone()).unwrap_or_default();
        for owner in owners {
            if let Some(dependents) = self.dependents.get_mut(&owner.uid) {
                dependents.remove(uid);
                if dependents.is_empty() {
                    self.dependents.remove(&owner.uid);
                }
            }
            if self.nodes.get(&owner.uid).is_some_and(Node::waits) {
                self.look_at(owner.uid);
            }
        }
    }

    /// Returns true if all owners of an object exist and are not being deleted.
    fn is_held(&self, node: &Node) -> bool {
        let stays = |owner: &OwnerReference| {
            let known = self.nodes.get(&owner.uid);
            known.is_some_and(|known| known.is_referenced_by(owner, node.key.namespace()) && !known.waits())
        };
        node.owners.iter().all(stays)
    }

    /// Returns an object.
    pub(super) fn get(&self, uid: &str) -> Option<&Node> {
        self.nodes.get(uid)
    }

    /// Returns the dependents of an object.
    pub(super) fn dependents(&self, uid: &str) -> Vec<(String, Node)> {
        let uids = self.dependents.get(uid).into_iter().flatten();
        uids.filter_map(|uid| Some((uid.clone(), self.nodes.get(uid)?.clone()))).collect()
    }

    /// Returns true if a dependent blocks the deletion of an object.
    pub(super) fn is_blocked(&self, uid: &str) -> bool {
        let Some(owner) = self.nodes.get(uid) else { return false };
        let dependents = self.dependents.get(uid).into_iter().flatten().filter_map(|uid| self.nodes.get(uid));
        let mut references = dependents.flat_map(|node| node.owners.iter().map(|owner| (owner, node.key.namespace())));
        // References from other namespaces are invalid.
        references.any(|(reference, namespace)| {
            reference.uid == uid
                && reference.block_owner_deletion == Some(true)
                && owner.is_referenced_by(reference, namespace)
        })
    }

    /// Returns true if a reference, from an object in `namespace`, is known to refer to no object. UIDs are never
    /// reused.
    pub(super) fn is_absent(&self, reference: &OwnerReference, namespace: Option<&str>) -> bool {
        self.absent.known.contains(&Absent::name(reference, namespace))
    }

    /// Records that the owner of a reference does not exist.
    pub(super) fn found_absent(&mut self, reference: &OwnerReference, namespace: Option<&str>) {
        self.absent.insert(Absent::name(reference, namespace));
    }

    /// Queues an object.
    pub(super) fn look_at(&mut self, uid: String) {
        let namespace = self.nodes.get(&uid).and_then(|node| node.key.namespace()).unwrap_or_default();
        self.queue.add(namespace, uid);
    }

    pub(super) fn queue_dependents(&mut self, uid: &str) {
        for dependent in self.dependents.get(uid).cloned().unwrap_or_default() {
            self.look_at(dependent);
        }
    }

    /// Removes the next object from the queue, and returns it; it is in progress until it is [`done`](Self::done).
    pub(super) fn next(&mut self) -> Option<String> {
        self.queue.next()
    }

    /// Records that an object was processed.
    pub(super) fn done(&mut self, uid: &str) {
        self.queue.done(uid);
    }

    /// Records the served resources. Objects that could not be processed without them are queued again.
    pub(super) fn serves(&mut self, served: BTreeSet<ServedResource>) {
        self.awaited.retain(|resource, _| served.iter().any(|kind| kind.resource == *resource));
        let removed = self.nodes.iter().filter(|(_, node)| !served.contains(&*node.kind)).map(|(uid, _)| uid.clone());
        for uid in removed.collect::<Vec<_>>() {
            self.remove_node(&uid);
        }
        self.served = served;
        for uid in std::mem::take(&mut self.unresolved) {
            self.look_at(uid);
        }
    }

    /// Returns the kind that a reference names.
    pub(super) fn kind(&self, reference: &OwnerReference) -> Option<ServedResource> {
        self.served.iter().find(|kind| kind.is_of(reference)).cloned()
    }

    /// Defers an object until the set of served kinds changes.
    pub(super) fn defer_object(&mut self, uid: &str) {
        self.unresolved.insert(uid.to_owned());
    }

    /// Marks a kind as not listed yet. Others wait for it until this time.
    pub(super) fn expect(&mut self, resource: &GroupResource, until: Instant) {
        self.awaited.insert(resource.clone(), until);
    }

    /// Records that a kind was listed.
    pub(super) fn listed(&mut self, resource: &GroupResource) {
        self.awaited.remove(resource);
    }

    /// Returns true if every kind was listed, or did not become listed in time.
    pub(super) fn is_complete(&self, now: Instant) -> bool {
        self.awaited.values().all(|until| *until <= now)
    }
}
