//! Controller for `IpPool`: it reports the state of the pool, and audits its allocation table.
//!
//! Claims allocate and release their addresses themselves, see [`super::ipclaim`]. The audit releases the address of a
//! claim that was removed without its finalizer.

use crate::allocations;
use crate::api::ipclaim_v1alpha1::IpClaim;
use crate::api::ippool_v1alpha1::{ClaimReference, IpPool};
use crate::cloud::{BoxError, Cloud};
use flyball::{Action, Condition, Context, Controller, ObjectKey, Reconcile, Result};
use kube::{Api, ResourceExt};
use serde::Serialize;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Interval at which a pool that is being deleted is checked for claims.
const RETRY: Duration = Duration::from_secs(10);

/// The part of the status that this controller sets.
#[derive(Serialize)]
struct PoolStatus {
    capacity: usize,
    conditions: [Condition; 1],
}

/// Reconciles each `IpPool`.
#[derive(Debug)]
pub struct IpPoolReconciler<C> {
    cloud: Arc<C>,
}

/// Returns the controller. The operator's RBAC rules are derived from this declaration.
pub fn controller<C: Cloud, E: Into<BoxError>>(
    connect: impl FnOnce() -> Result<Arc<C>, E> + Send + 'static,
) -> Controller<IpPoolReconciler<C>> {
    Controller::deferred(|| connect().map(|cloud| IpPoolReconciler { cloud }))
        .replaces::<IpPool>()
        .watches::<IpClaim>(|claim, _| Ok(vec![ObjectKey::new(None, &claim.spec.pool)]))
}

impl<C: Cloud> IpPoolReconciler<C> {
    /// Releases the addresses of claims that no longer exist; returns the resulting pool.
    async fn audit(&self, pool: &IpPool, cx: &Context<IpPool>) -> Result<IpPool> {
        let mut gone: BTreeSet<&ClaimReference> = BTreeSet::new();
        for allocation in allocations::allocations(pool) {
            if !exists(&allocation.claim, cx).await? {
                tracing::warn!(address = allocation.address, claim = ?allocation.claim, "the claim no longer exists");
                self.cloud.release_address(&allocation.address).await?;
                gone.insert(&allocation.claim);
            }
        }
        match gone.is_empty() {
            true => Ok(pool.clone()),
            false => cx.replace_status(&allocations::release(pool, |claim| gone.contains(claim))).await,
        }
    }
}

impl<C: Cloud> Reconcile for IpPoolReconciler<C> {
    type Resource = IpPool;
    const FINALIZER: Option<&'static str> = Some("compute.flyball.dev/ippool");

    async fn reconcile(&self, pool: &IpPool, cx: &Context<IpPool>) -> Result<Action> {
        let pool = self.audit(pool, cx).await?;
        let outside = allocations::outside(&pool);
        let ready = match outside.is_empty() {
            true => Condition::new("Ready", true, "AddressesListed"),
            false => {
                let why = format!("claims hold addresses that are not in the pool: {}", outside.join(", "));
                Condition::new("Ready", false, "AddressesRemoved").message(why)
            }
        };
        cx.set_status(&PoolStatus { capacity: pool.spec.addresses.len(), conditions: [ready] }).await?;
        Ok(Action::done())
    }

    async fn finalize(&self, pool: &IpPool, cx: &Context<IpPool>) -> Result<Action> {
        let pool = self.audit(pool, cx).await?;
        let Some(first) = allocations::allocations(&pool).first() else { return Ok(Action::done()) };
        let why = format!("{} is held by claim {}/{}", first.address, first.claim.namespace, first.claim.name);
        let ready = Condition::new("Ready", false, "InUse").message(why);
        cx.set_status(&PoolStatus { capacity: pool.spec.addresses.len(), conditions: [ready] }).await?;
        Ok(Action::requeue_after(RETRY))
    }
}

/// Returns true if a claim exists: the API server decides if the cache does not have it.
async fn exists(claim: &ClaimReference, cx: &Context<IpPool>) -> Result<bool> {
    let is_it = |found: Option<IpClaim>| found.is_some_and(|found| found.uid().as_ref() == Some(&claim.uid));
    if is_it(cx.get(&ObjectKey::new(Some(&claim.namespace), &claim.name)).await?) {
        return Ok(true);
    }
    let claims = Api::<IpClaim>::namespaced(cx.client().clone(), &claim.namespace);
    Ok(is_it(claims.get_opt(&claim.name).await?))
}
