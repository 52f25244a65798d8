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

/// A reference to an owner, in little memory: an object may have very many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reference {
    uid: Arc<str>,
    /// API version, kind and name.
    coordinates: Box<str>,
    kind_at: u32,
    name_at: u32,
    blocks_deletion: bool,
}

impl Reference {
    fn new(uid: Arc<str>, owner: &OwnerReference) -> Self {
        let end = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
        Self {
            uid,
            coordinates: [&*owner.api_version, &*owner.kind, &*owner.name].concat().into(),
            kind_at: end(owner.api_version.len()),
            name_at: end(owner.api_version.len() + owner.kind.len()),
            blocks_deletion: owner.block_owner_deletion == Some(true),
        }
    }

    fn coordinates(&self) -> Coordinates<'_> {
        let (kind_at, name_at) = (self.kind_at as usize, self.name_at as usize);
        Coordinates {
            api_version: &self.coordinates[..kind_at],
            kind: &self.coordinates[kind_at..name_at],
            name: &self.coordinates[name_at..],
            uid: &self.uid,
        }
    }
}

/// The coordinates of a referenced object, besides its namespace.
#[derive(Clone, Copy)]
pub(super) struct Coordinates<'r> {
    api_version: &'r str,
    kind: &'r str,
    name: &'r str,
    uid: &'r str,
}

impl<'r> From<&'r OwnerReference> for Coordinates<'r> {
    fn from(owner: &'r OwnerReference) -> Self {
        let OwnerReference { api_version, kind, name, uid, .. } = owner;
        Self { api_version, kind, name, uid }
    }
}

/// One object.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) kind: Arc<ServedResource>,
    pub(super) key: ObjectKey,
    pub(super) owners: Box<[Reference]>,
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
    pub(super) fn is_referenced_by(&self, reference: Coordinates<'_>, namespace: Option<&str>) -> bool {
        self.kind.is_of(reference.api_version, reference.kind)
            && self.key.name() == reference.name
            && (self.key.namespace().is_none() || self.key.namespace() == namespace)
    }

    /// Returns true if a reference, from an object in `namespace`, blocks the deletion of this one. References from
    /// other namespaces are invalid.
    fn is_blocked_by(&self, reference: &Reference, namespace: Option<&str>) -> bool {
        reference.blocks_deletion && self.is_referenced_by(reference.coordinates(), namespace)
    }
}

/// The most recent absent references, up to a limit.
#[derive(Debug, Default)]
struct AbsentReferences {
    known: BTreeSet<String>,
    order: VecDeque<String>,
}

impl AbsentReferences {
    const MAX_NAMES: usize = 500;

    fn name(reference: Coordinates<'_>, namespace: Option<&str>) -> String {
        let Coordinates { api_version, kind, name, uid } = reference;
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
    /// Nodes are shared, since an object may have very many owners.
    nodes: BTreeMap<Arc<str>, Arc<Node>>,
    /// The UIDs of owners, whether or not they exist, with those of their dependents.
    dependents: BTreeSet<(Arc<str>, Arc<str>)>,
    /// The objects that wait for their dependents, with the number of references that block their deletion.
    blocking: BTreeMap<Arc<str>, usize>,
    queue: Queue,
    served: BTreeSet<ServedResource>,
    /// Kinds that were not listed yet, with the time until which others wait for them.
    awaited: BTreeMap<GroupResource, Instant>,
    /// Objects with owners of kinds that are not served.
    unresolved: BTreeSet<String>,
    /// Recent references to owners that do not exist; UIDs are never reused.
    absent: AbsentReferences,
}

impl Graph {
    /// Records the current state of an object.
    pub(super) fn put(&mut self, kind: &Arc<ServedResource>, key: ObjectKey, meta: &ObjectMeta) {
        let Some(uid) = meta.uid.as_deref().map(|uid| self.shared_uid(uid)) else { return };
        let has = |finalizer: &str| meta.finalizers.iter().flatten().any(|known| known == finalizer);
        let owners = meta.owner_references.iter().flatten();
        let node = Arc::new(Node {
            kind: kind.clone(),
            key,
            owners: owners.map(|owner| Reference::new(self.shared_uid(&owner.uid), owner)).collect(),
            deleting: meta.deletion_timestamp.is_some(),
            foreground: has(FOREGROUND),
            orphan: has(ORPHAN),
        });
        let old = self.nodes.get(&uid).cloned();
        let begins_to_wait = node.waits() && !old.as_ref().is_some_and(|old| old.waits());
        let owners_changed = old.as_ref().is_none_or(|old| old.owners != node.owners);
        if owners_changed {
            self.unlink(&uid);
        }
        let is_due = node.waits() || node.orphans() || (owners_changed && !self.is_held(&node));
        self.nodes.insert(uid.clone(), node.clone());
        if owners_changed {
            self.link(&uid, &node);
        }
        if begins_to_wait {
            self.blocking.insert(uid.clone(), self.count_blocking(&uid, &node));
        } else if !node.waits() {
            self.blocking.remove(&uid);
        }
        if is_due {
            self.enqueue(uid.to_string());
        }
        if begins_to_wait {
            self.queue_dependents(&uid);
        }
    }

    /// Returns a UID, in the memory of an equal one if there is one.
    fn shared_uid(&self, uid: &str) -> Arc<str> {
        if let Some((uid, _)) = self.nodes.get_key_value(uid) {
            return uid.clone();
        }
        let new: Arc<str> = uid.into();
        self.links(&new).next().map_or_else(|| new.clone(), |(owner, _)| owner.clone())
    }

    /// Returns the UIDs of the dependents of an owner.
    fn links(&self, owner: &Arc<str>) -> impl Iterator<Item = &(Arc<str>, Arc<str>)> + use<'_> {
        let owner = owner.clone();
        let first = (owner.clone(), Arc::from(""));
        self.dependents.range(first..).take_while(move |(of, _)| *of == owner)
    }

    /// Counts the references that block the deletion of an object.
    fn count_blocking(&self, uid: &Arc<str>, owner: &Node) -> usize {
        let dependents = self.links(uid).filter_map(|(_, dependent)| self.nodes.get(dependent));
        let blocks = |node: &Arc<Node>| {
            let namespace = node.key.namespace();
            let named = node.owners.iter().filter(|reference| reference.uid == *uid);
            named.filter(|reference| owner.is_blocked_by(reference, namespace)).count()
        };
        dependents.map(blocks).sum()
    }

    /// Records that an object was deleted. Its kind may be removed too, and can then no longer be queried.
    pub(super) fn remove(&mut self, uid: &str) {
        let uid: Arc<str> = uid.into();
        if let Some(node) = self.nodes.get(&uid) {
            let dependents = self.links(&uid).filter_map(|(_, dependent)| self.nodes.get(dependent));
            let mut absent = Vec::new();
            for dependent in dependents {
                let namespace = dependent.key.namespace();
                let named = dependent.owners.iter().filter(|owner| owner.uid == uid).map(Reference::coordinates);
                let valid = named.filter(|owner| node.is_referenced_by(*owner, namespace));
                absent.extend(valid.map(|owner| AbsentReferences::name(owner, namespace)));
            }
            absent.into_iter().for_each(|name| self.absent.insert(name));
        }
        self.remove_node(&uid);
    }

    /// Drops an object, and queues its dependents.
    fn remove_node(&mut self, uid: &Arc<str>) {
        if self.nodes.contains_key(uid) {
            self.unlink(uid);
            self.nodes.remove(uid);
        }
        self.blocking.remove(uid);
        self.unresolved.remove(&**uid);
        self.queue_dependents(uid);
    }

    /// Adds the owner references of an object.
    fn link(&mut self, uid: &Arc<str>, node: &Node) {
        for owner in &node.owners {
            self.dependents.insert((owner.uid.clone(), uid.clone()));
            if let (Some(blocking), Some(known)) = (self.blocking.get_mut(&owner.uid), self.nodes.get(&owner.uid))
                && known.is_blocked_by(owner, node.key.namespace())
            {
                *blocking += 1;
            }
        }
    }

    /// Removes the owner references of an object, and queues owners that have waited for it.
    fn unlink(&mut self, uid: &Arc<str>) {
        let Some(node) = self.nodes.get(uid).cloned() else { return };
        for owner in &node.owners {
            self.dependents.remove(&(owner.uid.clone(), uid.clone()));
            let Some(known) = self.nodes.get(&owner.uid) else { continue };
            if known.is_blocked_by(owner, node.key.namespace())
                && let Some(blocking) = self.blocking.get_mut(&owner.uid)
            {
                *blocking -= 1;
                if *blocking == 0 {
                    self.enqueue(owner.uid.to_string());
                }
            }
        }
    }

    /// Returns true if all owners of an object exist and are not being deleted.
    fn is_held(&self, node: &Node) -> bool {
        let stays = |owner: &Reference| {
            let (known, reference) = (self.nodes.get(&owner.uid), owner.coordinates());
            known.is_some_and(|known| known.is_referenced_by(reference, node.key.namespace()) && !known.waits())
        };
        node.owners.iter().all(stays)
    }

    /// Returns an object.
    pub(super) fn get(&self, uid: &str) -> Option<&Arc<Node>> {
        self.nodes.get(uid)
    }

    /// Returns true if an object has dependents.
    pub(super) fn has_dependents(&self, uid: &str) -> bool {
        self.links(&uid.into()).next().is_some()
    }

    /// Returns the dependents of an object.
    pub(super) fn dependents(&self, uid: &str) -> Vec<(Arc<str>, Arc<Node>)> {
        let uids = self.links(&uid.into()).map(|(_, dependent)| dependent);
        uids.filter_map(|uid| Some((uid.clone(), self.nodes.get(uid)?.clone()))).collect()
    }

    /// Returns true if a dependent blocks the deletion of an object that waits for its dependents.
    pub(super) fn is_blocked(&self, uid: &str) -> bool {
        self.blocking.get(uid).is_some_and(|blocking| *blocking > 0)
    }

    /// Returns true if a reference, from an object in `namespace`, is known to refer to no object. UIDs are never
    /// reused.
    pub(super) fn is_absent(&self, reference: &OwnerReference, namespace: Option<&str>) -> bool {
        self.absent.known.contains(&AbsentReferences::name(reference.into(), namespace))
    }

    /// Records that the owner of a reference does not exist.
    pub(super) fn found_absent(&mut self, reference: &OwnerReference, namespace: Option<&str>) {
        self.absent.insert(AbsentReferences::name(reference.into(), namespace));
    }

    /// Queues an object.
    pub(super) fn enqueue(&mut self, uid: String) {
        let namespace = self.nodes.get(&*uid).and_then(|node| node.key.namespace()).unwrap_or_default();
        self.queue.add(namespace, uid);
    }

    fn queue_dependents(&mut self, uid: &Arc<str>) {
        let dependents: Vec<Arc<str>> = self.links(uid).map(|(_, dependent)| dependent.clone()).collect();
        dependents.into_iter().for_each(|dependent| self.enqueue(dependent.to_string()));
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
        for uid in removed.collect::<Vec<Arc<str>>>() {
            self.remove_node(&uid);
        }
        self.served = served;
        for uid in std::mem::take(&mut self.unresolved) {
            self.enqueue(uid);
        }
    }

    /// Returns the kind that a reference names.
    pub(super) fn kind(&self, reference: &OwnerReference) -> Option<ServedResource> {
        self.served.iter().find(|kind| kind.is_of(&reference.api_version, &reference.kind)).cloned()
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

#[cfg(test)]
mod tests {
    use super::*;
    use flyball_core::GroupVersionKind;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use k8s_openapi::jiff::Timestamp;
    use proptest::prelude::*;

    fn reference(uid: &str, name: &str, blocks: bool) -> OwnerReference {
        OwnerReference {
            api_version: "v1".into(),
            kind: "Thing".into(),
            name: name.into(),
            uid: uid.into(),
            block_owner_deletion: Some(blocks),
            controller: None,
        }
    }

    fn put(graph: &mut Graph, namespace: &str, uid: &str, waits: bool, owners: Vec<OwnerReference>) {
        let kind = Arc::new(ServedResource::new(GroupVersionKind::new("", "v1", "Thing"), "things"));
        let meta = ObjectMeta {
            uid: Some(uid.into()),
            finalizers: waits.then(|| vec![FOREGROUND.into()]),
            deletion_timestamp: waits.then_some(Time(Timestamp::UNIX_EPOCH)),
            owner_references: Some(owners),
            ..ObjectMeta::default()
        };
        graph.put(&kind, ObjectKey::new(Some(namespace), uid), &meta);
    }

    /// Empties the queue; returns its objects.
    fn queued(graph: &mut Graph) -> Vec<String> {
        std::iter::from_fn(|| {
            let uid = graph.next()?;
            graph.done(&uid);
            Some(uid)
        })
        .collect()
    }

    #[test]
    fn references_take_little_memory() {
        assert!(size_of::<Reference>() <= 48);
        let mut graph = Graph::default();
        for uid in ["a", "b"] {
            put(&mut graph, "n", uid, false, vec![reference("absent", "absent", true)]);
        }
        let [a, b] = ["a", "b"].map(|uid| graph.get(uid).unwrap().owners[0].uid.clone());
        assert!(Arc::ptr_eq(&a, &b), "a UID is in memory once");
        let links: Vec<_> = graph.links(&a).cloned().collect();
        assert!(links.iter().all(|(owner, _)| Arc::ptr_eq(owner, &a)) && links.len() == 2);
        let (uid, _) = graph.nodes.get_key_value("b").unwrap();
        assert!(Arc::ptr_eq(uid, &links[1].1));
    }

    #[test]
    fn owner_is_checked_again_when_nothing_blocks_it() {
        let mut graph = Graph::default();
        for n in 0..100 {
            put(&mut graph, "n", &format!("d{n}"), false, vec![reference("o", "o", n % 2 == 0)]);
            put(&mut graph, "m", &format!("e{n}"), false, vec![reference("o", "o", true)]);
        }
        put(&mut graph, "n", "o", true, Vec::new());
        assert!(graph.is_blocked("o") && queued(&mut graph).contains(&"o".to_owned()));
        for n in 0..98 {
            graph.remove(&format!("d{n}"));
            graph.remove(&format!("e{n}"));
        }
        assert!(graph.is_blocked("o") && !queued(&mut graph).contains(&"o".to_owned()));
        put(&mut graph, "n", "d98", false, vec![reference("o", "o", false)]);
        assert!(!graph.is_blocked("o") && queued(&mut graph).contains(&"o".to_owned()));
        put(&mut graph, "n", "d98", false, vec![reference("o", "o", true), reference("d1", "d1", true)]);
        assert!(graph.is_blocked("o"));
    }

    /// Returns true if a dependent blocks an object, by comparison with all references.
    fn is_blocked(graph: &Graph, uid: &str) -> bool {
        let Some(owner) = graph.get(uid).filter(|owner| owner.waits()) else { return false };
        graph.nodes.values().any(|node| {
            let mut named = node.owners.iter().filter(|reference| *reference.uid == *uid);
            named.any(|reference| owner.is_blocked_by(reference, node.key.namespace()))
        })
    }

    /// Owner references: their UIDs, names, and whether they block the deletion.
    fn references() -> impl Strategy<Value = Vec<(u8, u8, bool)>> {
        proptest::collection::vec((0..6u8, 0..6u8, any::<bool>()), 0..3)
    }

    proptest! {
        #[test]
        fn blocked_owners_are_those_with_blocking_references(
            steps in proptest::collection::vec(
                (0..6u8, any::<bool>(), any::<bool>(), references()),
                1..80,
            ),
        ) {
            let mut graph = Graph::default();
            for (uid, exists, waits, owners) in steps {
                let name = |n: u8| n.to_string();
                if exists {
                    // Most references have the name of their owner.
                    let owners = owners.into_iter().map(|(of, named, blocks)| {
                        reference(&name(of), &name(if named == 0 { 0 } else { of }), blocks)
                    });
                    put(&mut graph, if uid == 0 { "m" } else { "n" }, &name(uid), waits, owners.collect());
                } else {
                    graph.remove(&name(uid));
                }
                for uid in (0..6).map(name) {
                    prop_assert_eq!(graph.is_blocked(&uid), is_blocked(&graph, &uid), "{}", uid);
                    let dependents = graph.nodes.iter().filter(|(_, node)| {
                        node.owners.iter().any(|owner| *owner.uid == *uid)
                    });
                    let dependents: Vec<_> = dependents.map(|(dependent, _)| dependent.clone()).collect();
                    let known: Vec<_> = graph.dependents(&uid).into_iter().map(|(dependent, _)| dependent).collect();
                    prop_assert_eq!(known, dependents);
                }
            }
        }
    }
}
