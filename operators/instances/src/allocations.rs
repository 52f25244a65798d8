//! The allocation table of a pool: its addresses and their holders. Plain data, no I/O.
//!
//! Invariant: an address has at most one holder, and a holder at most one address. Each change is based on a state of
//! the pool, and has to be written under the condition that the pool is still in that state.

use crate::api::ippool_v1alpha1::{Allocation, ClaimReference, IpPool};
use std::collections::BTreeSet;

/// Returns the allocated addresses of a pool.
pub fn allocations(pool: &IpPool) -> &[Allocation] {
    pool.status.as_ref().map_or(&[], |status| &status.allocations)
}

/// Returns the address that a claim holds, by the UID of the claim.
pub fn address_of<'a>(pool: &'a IpPool, uid: &str) -> Option<&'a str> {
    allocations(pool).iter().find(|allocation| allocation.claim.uid == uid).map(|allocation| &*allocation.address)
}

/// Returns the free addresses, in the order of the specification.
pub fn free(pool: &IpPool) -> Vec<&str> {
    let held: BTreeSet<&str> = allocations(pool).iter().map(|allocation| &*allocation.address).collect();
    pool.spec.addresses.iter().map(String::as_str).filter(|address| !held.contains(address)).collect()
}

/// Returns the allocated addresses that are not in the specification.
pub fn outside(pool: &IpPool) -> Vec<&str> {
    let allocated = allocations(pool).iter().map(|allocation| &allocation.address);
    allocated.filter(|address| !pool.spec.addresses.contains(address)).map(String::as_str).collect()
}

/// Returns the pool after the allocation of a free address to a claim that holds none.
pub fn allocate(pool: &IpPool, address: &str, claim: ClaimReference) -> IpPool {
    let mut pool = pool.clone();
    let status = pool.status.get_or_insert_default();
    status.allocations.push(Allocation { address: address.to_owned(), claim });
    status.allocations.sort_by(|one, other| one.address.cmp(&other.address));
    counted(pool)
}

/// Returns the pool without the allocations of some claims.
pub fn release(pool: &IpPool, is_released: impl Fn(&ClaimReference) -> bool) -> IpPool {
    let mut pool = pool.clone();
    pool.status.get_or_insert_default().allocations.retain(|allocation| !is_released(&allocation.claim));
    counted(pool)
}

fn counted(mut pool: IpPool) -> IpPool {
    let status = pool.status.get_or_insert_default();
    (status.capacity, status.allocated) = (pool.spec.addresses.len(), status.allocations.len());
    pool
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ippool_v1alpha1::IpPoolSpec;

    fn claim(name: &str) -> ClaimReference {
        ClaimReference { namespace: "test".into(), name: name.into(), uid: format!("uid-{name}") }
    }

    fn pool(addresses: &[&str]) -> IpPool {
        IpPool::new("public", IpPoolSpec { addresses: addresses.iter().map(|&text| text.to_owned()).collect() })
    }

    #[test]
    fn addresses_are_allocated_and_released() {
        let pool = pool(&["192.0.2.9", "192.0.2.1"]);
        assert_eq!(free(&pool), ["192.0.2.9", "192.0.2.1"]);
        let pool = allocate(&pool, "192.0.2.9", claim("a"));
        assert_eq!((address_of(&pool, "uid-a"), free(&pool)), (Some("192.0.2.9"), vec!["192.0.2.1"]));
        let pool = allocate(&pool, "192.0.2.1", claim("b"));
        let status = pool.status.clone().unwrap();
        assert_eq!((status.capacity, status.allocated, &*status.allocations[0].claim.name), (2, 2, "b"));
        let pool = release(&pool, |claim| claim.uid == "uid-a");
        assert_eq!((address_of(&pool, "uid-a"), free(&pool)), (None, vec!["192.0.2.9"]));
        assert_eq!(pool.status.unwrap().allocated, 1);
    }

    #[test]
    fn address_that_is_removed_from_the_pool_stays_allocated() {
        let mut pool = allocate(&pool(&["192.0.2.1", "192.0.2.2"]), "192.0.2.1", claim("a"));
        pool.spec.addresses.remove(0);
        assert_eq!((address_of(&pool, "uid-a"), outside(&pool)), (Some("192.0.2.1"), vec!["192.0.2.1"]));
        let pool = release(&pool, |_| true);
        assert_eq!((free(&pool), outside(&pool)), (vec!["192.0.2.2"], vec![]));
    }
}
