//! Allocates unique addresses.

use flyball::{Caches, Result};
use k8s_openapi::api::core::v1::{Node, Pod};
use parking_lot::Mutex;
use std::net::Ipv4Addr;

/// An allocator of consecutive addresses, which starts after those in use at the first allocation.
///
/// It wraps around at the end of the range, after more than a million addresses.
#[derive(Debug)]
pub(super) struct Addresses {
    first: Ipv4Addr,
    count: u32,
    last_assigned: Mutex<Option<u32>>,
    in_use: fn(&Caches) -> Result<Vec<String>>,
}

impl Addresses {
    /// The addresses of pods: 10.64.0.0/10.
    pub(super) fn of_pods() -> Self {
        let in_use = |caches: &Caches| {
            let address = |key| Ok(caches.get::<Pod>(key)?.and_then(|pod| pod.status?.pod_ip));
            caches.keys::<Pod>(None)?.iter().filter_map(|key| address(key).transpose()).collect()
        };
        Self { first: Ipv4Addr::new(10, 64, 0, 0), count: 1 << 22, last_assigned: Mutex::default(), in_use }
    }

    /// The addresses of nodes: 172.16.0.0/12.
    pub(super) fn of_nodes() -> Self {
        let in_use = |caches: &Caches| {
            let nodes = caches.list::<Node>(None)?.into_iter().flat_map(|node| node.status);
            let addresses = nodes.flat_map(|status| status.addresses.into_iter().flatten());
            Ok(addresses.map(|address| address.address).collect())
        };
        Self { first: Ipv4Addr::new(172, 16, 0, 0), count: 1 << 20, last_assigned: Mutex::default(), in_use }
    }

    pub(super) fn next(&self, caches: &Caches) -> Result<String> {
        let mut last_assigned = self.last_assigned.lock();
        let last = match *last_assigned {
            Some(last) => last,
            None => {
                let number = |text: &String| u32::from(text.parse::<Ipv4Addr>().ok()?).checked_sub(self.first.into());
                let known = (self.in_use)(caches)?;
                known.iter().filter_map(number).filter(|number| *number < self.count).max().unwrap_or(0)
            }
        };
        // The first address of the range is never allocated.
        let next = last % (self.count - 1) + 1;
        *last_assigned = Some(next);
        Ok(Ipv4Addr::from(u32::from(self.first) + next).to_string())
    }
}
