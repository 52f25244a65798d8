//! Allocation of addresses and ports of services.
//!
//! The stored services are the only record of allocations.

use super::allocations::{Allocation, Allocations, OtherAllocations};
use crate::admission::Attributes;
use crate::kinds::{Part, Service as Kind};
use crate::storage::Store;
use flyball_core::field::FieldError;
use flyball_core::{Clock, Object, Rng, Status};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;

/// The first address of the range of services, and its size.
const RANGE: (Ipv4Addr, u32) = (Ipv4Addr::new(10, 96, 0, 0), 1 << 20);
const PORTS: std::ops::RangeInclusive<i64> = 30_000..=32_767;

/// Allocates addresses and ports of services.
pub(super) struct Addresses {
    store: Arc<Store>,
    clock: Clock,
    rng: Rng,
    /// The index of the allocations. It is locked for a moment only, neither while services are decoded nor while the
    /// ports of one are chosen.
    allocations: Mutex<Allocations>,
}

impl Addresses {
    pub(super) fn new(store: Arc<Store>, clock: Clock, rng: Rng) -> Self {
        Self { store, clock, rng, allocations: Mutex::default() }
    }

    /// Reads the stored services, so that the first write does not.
    pub(super) fn read(&self) {
        Allocations::read(&self.allocations, &self.store);
    }

    /// Allocates the missing addresses and ports of a service, and keeps existing ones.
    ///
    /// The store is the only record of allocations. Until the service is stored, they are reserved for the duration of
    /// a write, also if another write of the same service allocates meanwhile.
    pub(super) fn allocate(&self, attributes: &Attributes<'_>, service: &mut Object) -> Result<(), Status> {
        if attributes.part != Part::Whole {
            return Ok(());
        }
        let old = attributes.old;
        let invalid = |errors: &[FieldError]| Status::invalid(&attributes.resource.kind, attributes.name, errors);
        Kind::keep(service, old);
        if Kind::is_external_name(service) {
            return Ok(());
        }
        Kind::families(service, old).map_err(|errors| invalid(&errors))?;
        self.read();
        let (name, now) = (service.key(), self.clock.now());
        loop {
            let mut allocated = service.clone();
            let (address, taken) = {
                let mut allocations = self.allocations.lock();
                allocations.expire(now);
                let others = allocations.of_others(&name);
                let address = match old.is_some_and(Kind::has_address) {
                    true => Ok(None),
                    false => address(&self.rng, &mut allocated, &others),
                };
                (address.map_err(|error| invalid(&[error]))?, others.ports())
            };
            // A service may have very many ports.
            let ports = ports(&self.rng, &mut allocated, &taken, attributes.dry_run);
            let chosen = Allocation { address, ports: ports.map_err(|error| invalid(&[error]))? };
            let allocation = Allocation::of(&allocated);
            // The store rejects the write if the old service has released them meanwhile.
            let is_kept = old.is_some_and(|old| Allocation::of(old) == allocation);
            // Another write may have reserved a part of it meanwhile.
            let is_reserved = || self.allocations.lock().reserve(now, &name, allocation, &chosen);
            if attributes.dry_run || is_kept || is_reserved() {
                *service = allocated;
                return Ok(());
            }
        }
    }
}

fn spec(service: &mut Object) -> Option<&mut Map<String, Value>> {
    service.get_mut("spec")?.as_object_mut()
}

/// Chooses the address of a service, or checks the requested one; `None` if it needs none.
fn address(rng: &Rng, service: &mut Object, others: &OtherAllocations<'_>) -> Result<Option<Ipv4Addr>, FieldError> {
    let Some(spec) = spec(service) else { return Ok(None) };
    let cluster_ip =
        spec.get("clusterIPs").and_then(|ips| ips.get(0)).and_then(Value::as_str).unwrap_or_default().to_owned();
    if cluster_ip == "None" || spec.get("ipFamilies").is_none() {
        return Ok(None);
    }
    let first = u32::from(RANGE.0);
    if cluster_ip.is_empty() {
        // The lower part of the range is reserved for requested addresses.
        let (low, all) = (256, RANGE.1 - 257);
        let start = u32::try_from(rng.below(u64::from(all))).unwrap_or(0);
        let free =
            (0..all).map(|step| Ipv4Addr::from(first + low + (start + step) % all)).find(|ip| !others.has_address(*ip));
        let Some(ip) = free else {
            return Err(FieldError::invalid("spec.clusterIPs", json!([""]), "failed to allocate IP: range is full"));
        };
        let text = ip.to_string();
        spec.insert("clusterIPs".into(), json!([text]));
        spec.insert("clusterIP".into(), text.into());
        return Ok(Some(ip));
    }
    let reject = |why: String| {
        let shown = spec.get("clusterIPs").cloned().unwrap_or_default();
        Err(FieldError::invalid("spec.clusterIPs", shown, format!("failed to allocate IP {cluster_ip}: {why}")))
    };
    let is_inside = |ip: &Ipv4Addr| u32::from(*ip) > first && u32::from(*ip) - first < RANGE.1 - 1;
    let Some(ip) = cluster_ip.parse().ok().filter(is_inside) else {
        return reject(format!(
            "the provided IP ({cluster_ip}) is not in the valid range. The range of valid IPs is {}/12",
            RANGE.0
        ));
    };
    if others.has_address(ip) { reject("provided IP is already allocated".into()) } else { Ok(Some(ip)) }
}

/// Chooses the missing node ports of a service, and checks the requested ones; returns them. `taken` are those of other
/// services.
fn ports(rng: &Rng, service: &mut Object, taken: &BTreeSet<i64>, dry_run: bool) -> Result<BTreeSet<i64>, FieldError> {
    // Ports of this service.
    let mut own: BTreeSet<i64> = BTreeSet::new();
    let is_taken = |port: i64, own: &BTreeSet<i64>| own.contains(&port) || taken.contains(&port);
    let (exposed, balanced) = (Kind::is_exposed(service), Kind::needs_health_check(service));
    let Some(spec) = spec(service).filter(|_| exposed) else { return Ok(own) };
    let allocates = spec.get("type").is_some_and(|ty| ty == "NodePort")
        || spec.get("allocateLoadBalancerNodePorts") != Some(&Value::Bool(false));
    let check = |port: i64, own: &BTreeSet<i64>| {
        // A dry run allocates nothing, and therefore cannot be rejected.
        if !PORTS.contains(&port) && !dry_run {
            return Some(format!(
                "provided port is not in the valid range. The range of valid ports is {}-{}",
                PORTS.start(),
                PORTS.end()
            ));
        }
        is_taken(port, own).then(|| "provided port is already allocated".to_owned())
    };
    let numbers = |port: &Value| (port["port"].as_i64().unwrap_or(0), port["nodePort"].as_i64().unwrap_or(0));
    let list: Vec<(i64, i64)> =
        spec.get("ports").and_then(Value::as_array).into_iter().flatten().map(numbers).collect();
    // Two protocols on the same port share a node port: the one that is assigned or requested first.
    let (mut assigned, mut requests) = (BTreeMap::new(), BTreeMap::new());
    for (number, requested) in list.iter().filter(|(_, requested)| *requested != 0) {
        requests.entry(*number).or_insert(*requested);
    }
    let mut chosen: Vec<i64> = Vec::new();
    for (i, (number, requested)) in list.into_iter().enumerate() {
        let same = assigned.get(&number).copied();
        let node_port = match requested {
            0 => same.or_else(|| requests.get(&number).copied()).unwrap_or(0),
            requested => requested,
        };
        let node_port = if node_port == 0 {
            if !allocates {
                chosen.push(0);
                continue;
            }
            free(rng, |port| is_taken(port, &own))
                .ok_or_else(|| FieldError::internal("spec.ports", "failed to allocate a nodePort: range is full"))?
        } else {
            if same != Some(node_port)
                && let Some(why) = check(node_port, &own)
            {
                return Err(FieldError::invalid(format!("spec.ports[{i}].nodePort"), node_port, why));
            }
            node_port
        };
        own.insert(node_port);
        assigned.entry(number).or_insert(node_port);
        chosen.push(node_port);
    }
    for (port, chosen) in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten().zip(chosen) {
        if chosen != 0
            && let Some(port) = port.as_object_mut()
        {
            port.insert("nodePort".into(), chosen.into());
        }
    }
    if balanced
        && spec.get("healthCheckNodePort").and_then(Value::as_i64).unwrap_or(0) == 0
        && let Some(port) = free(rng, |port| is_taken(port, &own))
    {
        spec.insert("healthCheckNodePort".into(), port.into());
        own.insert(port);
    }
    Ok(own)
}

/// Chooses a free port.
fn free(rng: &Rng, is_taken: impl Fn(i64) -> bool) -> Option<i64> {
    let count = PORTS.end() - PORTS.start() + 1;
    let start = i64::try_from(rng.below(count.unsigned_abs())).unwrap_or(0);
    (0..count).map(|step| PORTS.start() + (start + step) % count).find(|port| !is_taken(*port))
}
