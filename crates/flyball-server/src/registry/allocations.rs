//! Index of the addresses and ports of services.
//!
//! Takes the stored services and the allocations that are not stored yet, returns whether another service has an
//! address or a port. It does not depend on the ranges. Invariants: a service is decoded once for each of its
//! revisions, outside of the lock under which allocations are made; a count is the number of allocations with that
//! address or port.

use crate::kinds::SERVICE;
use crate::storage::{Entry, Event, Revision, Snapshot, Store};
use flyball_core::time::{SignedDuration, Timestamp};
use flyball_core::{Object, ObjectKey};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::Ipv4Addr;
use std::sync::Arc;

/// Timeout of a write, after which its allocation is free if it was not stored.
const IN_FLIGHT: SignedDuration = SignedDuration::from_secs(60);

/// The address and the node ports of a service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Allocation {
    pub(super) address: Option<Ipv4Addr>,
    pub(super) ports: BTreeSet<i64>,
}

/// The fields of a service with its allocation, so that the rest of it is not decoded.
#[derive(Default, Deserialize)]
struct Service {
    spec: Option<Spec>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    #[serde(rename = "clusterIP", default)]
    cluster_ip: Value,
    #[serde(default)]
    ports: Option<Vec<Port>>,
    #[serde(default)]
    health_check_node_port: Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Port {
    #[serde(default)]
    node_port: Value,
}

impl Allocation {
    /// Returns the allocation of a service.
    pub(super) fn of(service: &Object) -> Self {
        let ports = service.at(&["spec", "ports"]).and_then(Value::as_array).into_iter().flatten();
        let health = service.at(&["spec", "healthCheckNodePort"]);
        Self::new(service.at(&["spec", "clusterIP"]), ports.map(|port| &port["nodePort"]).chain(health))
    }

    /// Decodes the allocation of a stored service.
    fn read(entry: &Entry) -> Self {
        let Spec { cluster_ip, ports, health_check_node_port } =
            serde_json::from_slice::<Service>(&entry.body).ok().and_then(|service| service.spec).unwrap_or_default();
        let ports = ports.iter().flatten().map(|port| &port.node_port);
        Self::new(Some(&cluster_ip), ports.chain([&health_check_node_port]))
    }

    fn new<'v>(address: Option<&Value>, ports: impl Iterator<Item = &'v Value>) -> Self {
        let address = address.and_then(Value::as_str).and_then(|address| address.parse().ok());
        Self { address, ports: ports.filter_map(Value::as_i64).filter(|port| *port != 0).collect() }
    }
}

/// The allocations of all services.
#[derive(Default)]
pub(super) struct Allocations {
    /// The revision up to which the services are read.
    position: Revision,
    stored: BTreeMap<ObjectKey, (Revision, Allocation)>,
    /// Recent allocations, whose services may not be stored yet.
    recent: BTreeMap<ObjectKey, Vec<(Timestamp, Allocation)>>,
    /// The services of recent allocations, in the order of time.
    expiry: VecDeque<(Timestamp, ObjectKey)>,
    addresses: BTreeMap<Ipv4Addr, usize>,
    ports: BTreeMap<i64, usize>,
}

/// Stored services at a revision.
enum Services {
    /// Changed services, with their last event.
    Changed(Vec<Arc<Event>>),
    /// All services, since the changes are compacted.
    All(Vec<Arc<Entry>>),
}

/// Allocations other than those of one service.
pub(super) struct OtherAllocations<'a> {
    all: &'a Allocations,
    own: Vec<&'a Allocation>,
}

impl OtherAllocations<'_> {
    /// Returns true if another service has the address.
    pub(super) fn has_address(&self, address: Ipv4Addr) -> bool {
        let own = self.own.iter().filter(|own| own.address == Some(address)).count();
        self.all.addresses.get(&address).is_some_and(|count| *count > own)
    }

    /// Returns true if another service has the port.
    pub(super) fn has_port(&self, port: i64) -> bool {
        let own = self.own.iter().filter(|own| own.ports.contains(&port)).count();
        self.all.ports.get(&port).is_some_and(|count| *count > own)
    }

    /// Returns the ports of other services.
    pub(super) fn ports(&self) -> BTreeSet<i64> {
        let mut counts = self.all.ports.clone();
        self.own.iter().flat_map(|own| &own.ports).for_each(|port| decrement(&mut counts, port));
        counts.into_keys().collect()
    }

    /// Returns true if another service has the address or one of the ports.
    fn overlap(&self, allocation: &Allocation) -> bool {
        allocation.address.is_some_and(|address| self.has_address(address))
            || allocation.ports.iter().any(|port| self.has_port(*port))
    }
}

impl Allocations {
    /// Reads the services that changed since the last call; returns how many were decoded.
    pub(super) fn read(this: &Mutex<Self>, store: &Store) -> usize {
        let (table, position) = (SERVICE.table(), this.lock().position);
        let (services, revision) = match store.events_after(&table, position, usize::MAX) {
            Ok((events, revision)) => (Services::Changed(events), revision.unwrap_or(position)),
            Err(_) => {
                let Snapshot { revision, entries } = store.list(&table, None);
                (Services::All(entries), revision)
            }
        };
        if revision <= position {
            return 0;
        }
        let changed: BTreeMap<ObjectKey, (Revision, Option<Arc<Entry>>)> = match &services {
            // The last event of each service counts.
            Services::Changed(events) => events.iter().map(change).collect(),
            Services::All(entries) => {
                let known = this.lock();
                let is_new = |entry: &&Arc<Entry>| {
                    known.stored.get(&entry.key).is_none_or(|(revision, _)| *revision != entry.revision)
                };
                entries.iter().filter(is_new).map(|e| (e.key.clone(), (e.revision, Some(e.clone())))).collect()
            }
        };
        let count = changed.values().filter(|(_, entry)| entry.is_some()).count();
        let decoded: Vec<_> = changed
            .into_iter()
            .map(|(key, (revision, entry))| (key, revision, entry.map(|entry| Allocation::read(&entry))))
            .collect();
        let mut this = this.lock();
        // Otherwise another thread has read more.
        if revision > this.position {
            if let Services::All(entries) = services {
                this.retain(&entries.iter().map(|entry| &entry.key).collect());
            }
            for (key, revision, allocation) in decoded {
                this.store(key, revision, allocation);
            }
            this.position = revision;
        }
        count
    }

    /// Removes the services that are not stored any more.
    fn retain(&mut self, keys: &BTreeSet<&ObjectKey>) {
        let removed: Vec<ObjectKey> = self.stored.keys().filter(|key| !keys.contains(key)).cloned().collect();
        for key in removed {
            self.store(key, Revision::MAX, None);
        }
    }

    /// Replaces the allocation of a stored service, unless it is included already.
    fn store(&mut self, key: ObjectKey, revision: Revision, allocation: Option<Allocation>) {
        if revision <= self.position {
            return;
        }
        if let Some((_, before)) = self.stored.remove(&key) {
            self.subtract(&before);
        }
        if let Some(allocation) = allocation {
            self.add(&allocation);
            self.stored.insert(key, (revision, allocation));
        }
    }

    fn add(&mut self, allocation: &Allocation) {
        allocation.address.into_iter().for_each(|address| *self.addresses.entry(address).or_default() += 1);
        allocation.ports.iter().for_each(|port| *self.ports.entry(*port).or_default() += 1);
    }

    fn subtract(&mut self, allocation: &Allocation) {
        allocation.address.iter().for_each(|address| decrement(&mut self.addresses, address));
        allocation.ports.iter().for_each(|port| decrement(&mut self.ports, port));
    }

    /// Removes the allocations of writes that have ended.
    pub(super) fn expire(&mut self, now: Timestamp) {
        let is_over = |at: Timestamp| now.duration_since(at) >= IN_FLIGHT;
        while let Some((_, service)) = self.expiry.pop_front_if(|(at, _)| is_over(*at)) {
            let Some(recent) = self.recent.get_mut(&service) else { continue };
            let expired: Vec<_> = recent.extract_if(.., |(at, _)| is_over(*at)).collect();
            if recent.is_empty() {
                self.recent.remove(&service);
            }
            expired.iter().for_each(|(_, allocation)| self.subtract(allocation));
        }
    }

    /// Reserves an allocation until its service is stored; returns false if another service has a part of `chosen`
    /// meanwhile.
    pub(super) fn reserve(
        &mut self,
        now: Timestamp,
        service: &ObjectKey,
        allocation: Allocation,
        chosen: &Allocation,
    ) -> bool {
        if self.of_others(service).overlap(chosen) {
            return false;
        }
        self.expiry.push_back((now, service.clone()));
        let recent = self.recent.entry(service.clone()).or_default();
        match recent.iter_mut().find(|(_, known)| *known == allocation) {
            Some((at, _)) => *at = now,
            None => {
                recent.push((now, allocation.clone()));
                self.add(&allocation);
            }
        }
        true
    }

    /// Returns the allocations of other services than this one.
    pub(super) fn of_others(&self, service: &ObjectKey) -> OtherAllocations<'_> {
        let stored = self.stored.get(service).map(|(_, allocation)| allocation);
        let recent = self.recent.get(service).into_iter().flatten().map(|(_, allocation)| allocation);
        OtherAllocations { all: self, own: stored.into_iter().chain(recent).collect() }
    }
}

/// Returns the state of a service after an event; without an entry if it was removed.
fn change(event: &Arc<Event>) -> (ObjectKey, (Revision, Option<Arc<Entry>>)) {
    (event.after.key.clone(), (event.revision, (!event.removed).then(|| event.after.clone())))
}

fn decrement<K: Ord>(counts: &mut BTreeMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::{Limits, SelectableFields};
    use futures_util::FutureExt;
    use serde_json::json;

    fn put(store: &Store, n: usize, port: i64) {
        let spec = json!({"clusterIP": format!("10.96.1.{n}"), "ports": [{"port": 80, "nodePort": port}]});
        let object = json!({"metadata": {"name": format!("s{n}"), "namespace": "a"}, "spec": spec});
        let object = Object::try_from(object).expect("an object");
        let (table, key) = (SERVICE.table(), object.key());
        let make = |revision| Ok(Entry::new(key.clone(), object, revision, SelectableFields::default(), 0));
        let current = store.get(&table, &key);
        store.put(&table, &key, current.as_ref(), make).now_or_never().expect("no journal").expect("stored");
    }

    fn remove(store: &Store, n: usize) {
        let (table, key) = (SERVICE.table(), ObjectKey::new(Some("a"), &format!("s{n}")));
        let current = store.get(&table, &key).expect("stored");
        let last = |revision| {
            let object = current.object().expect("an object");
            Entry::new(key.clone(), object, revision, SelectableFields::default(), 0)
        };
        store.remove(&table, &key, &current, last).now_or_never().expect("no journal").expect("removed");
    }

    #[test]
    fn each_revision_of_a_service_is_decoded_once() {
        let limits = Limits { events: 4, ..Limits::of(&crate::Bounds::default()) };
        let store = Store::new(limits);
        (0..100).for_each(|n| put(&store, n, 30_000));
        let allocations = Mutex::new(Allocations::default());
        let read = || Allocations::read(&allocations, &store);
        let ports = |n: usize| {
            let allocations = allocations.lock();
            let others = allocations.of_others(&ObjectKey::new(Some("a"), "other"));
            let address = Ipv4Addr::new(10, 96, 1, u8::try_from(n).expect("small"));
            let ports: Vec<i64> = (30_000..30_010).filter(|port| others.has_port(*port)).collect();
            (others.has_address(address), ports)
        };
        assert_eq!([read(), read()], [100, 0]);
        put(&store, 7, 30_001);
        assert_eq!([read(), read()], [1, 0]);
        assert_eq!(ports(7), (true, vec![30_000, 30_001]));
        remove(&store, 7);
        assert_eq!(read(), 0);
        assert_eq!(ports(7), (false, vec![30_000]));
        // These changes are compacted: others are not decoded again.
        (10..20).for_each(|n| put(&store, n, 30_002));
        (20..30).for_each(|n| remove(&store, n));
        assert_eq!([read(), read()], [10, 0]);
        assert_eq!((ports(15), ports(25)), ((true, vec![30_000, 30_002]), (false, vec![30_000, 30_002])));
        (0..100).filter(|n| *n != 7 && !(20..30).contains(n)).for_each(|n| remove(&store, n));
        read();
        let left = allocations.lock();
        assert!(left.stored.is_empty() && left.addresses.is_empty() && left.ports.is_empty());
    }

    #[test]
    fn reservations_of_a_service_do_not_block_itself() {
        let (mut allocations, now) = (Allocations::default(), flyball_core::Clock::system().now());
        let [ann, bob] = ["ann", "bob"].map(|name| ObjectKey::new(Some("a"), name));
        let address = Ipv4Addr::new(10, 96, 1, 1);
        let allocation = Allocation { address: Some(address), ports: BTreeSet::from([30_000]) };
        assert!(allocations.reserve(now, &ann, allocation.clone(), &allocation));
        assert!(allocations.reserve(now, &ann, allocation.clone(), &allocation));
        assert!(!allocations.reserve(now, &bob, allocation.clone(), &allocation));
        assert_eq!(allocations.of_others(&ann).ports(), BTreeSet::new());
        assert_eq!(allocations.of_others(&bob).ports(), allocation.ports);
        let taken = |allocations: &Allocations, by: &ObjectKey| {
            let others = allocations.of_others(by);
            (others.has_address(address), others.has_port(30_000))
        };
        assert_eq!((taken(&allocations, &ann), taken(&allocations, &bob)), ((false, false), (true, true)));
        allocations.expire(now + IN_FLIGHT);
        assert_eq!(taken(&allocations, &bob), (false, false));
        assert!(allocations.addresses.is_empty() && allocations.recent.is_empty() && allocations.expiry.is_empty());
    }
}
