//! Controller for `IpClaim`: each one gets an address of its pool, and holds it until it is deleted.
//!
//! The status of the pool contains the allocation table. A change of the table is written only if the pool has not
//! changed since it was read, so that concurrent claims, replicas with old caches and repeated requests cannot allocate
//! an address twice. Waiting claims get free addresses in the order of their creation.

use crate::allocations;
use crate::api::ipclaim_v1alpha1::{IpClaim, IpClaimStatus};
use crate::api::ippool_v1alpha1::{ClaimReference, IpPool};
use crate::cloud::{BoxError, Cloud};
use flyball::{Action, Condition, Context, Controller, Error, Index, ObjectKey, Reconcile, Result};
use kube::{Api, ResourceExt};
use std::sync::Arc;
use std::time::Duration;

/// Limit of attempts at a change of the allocation table before the reconcile fails, and is retried with backoff.
const MAX_ATTEMPTS: usize = 5;
/// Interval at which a claim checks whether the claims before it have got their addresses.
const RETRY: Duration = Duration::from_secs(30);

/// Claims by their pool.
struct ByPool;

impl Index for ByPool {
    type Resource = IpClaim;
    type Value = String;

    fn values(claim: &IpClaim) -> Vec<String> {
        vec![claim.spec.pool.clone()]
    }
}

/// Reconciles each `IpClaim`.
#[derive(Debug)]
pub struct IpClaimReconciler<C> {
    cloud: Arc<C>,
}

/// Returns the controller. The operator's RBAC rules are derived from this declaration.
pub fn controller<C: Cloud, E: Into<BoxError>>(
    connect: impl FnOnce() -> Result<Arc<C>, E> + Send + 'static,
) -> Controller<IpClaimReconciler<C>> {
    Controller::deferred(|| connect().map(|cloud| IpClaimReconciler { cloud }))
        .refers_to::<IpPool>(|claim| vec![ObjectKey::new(None, &claim.spec.pool)])
        .replaces::<IpPool>()
        .index::<ByPool>()
        .concurrency(2)
}

/// The state of a claim that has no address.
enum Obstacle {
    NoPool,
    PoolDeleted,
    Exhausted,
    /// Claims that were created earlier get the free addresses.
    Later,
    /// Another claim holds the address that the claim had.
    AddressTaken(String),
}

impl Obstacle {
    fn condition(&self, pool: &str) -> Condition {
        let (reason, why) = match self {
            Self::NoPool => ("PoolNotFound", format!("there is no pool {pool}")),
            Self::PoolDeleted => ("PoolDeleted", format!("pool {pool} is being deleted")),
            Self::Exhausted => ("PoolExhausted", format!("pool {pool} has no free address")),
            Self::Later => ("Waiting", format!("earlier claims get the free addresses of pool {pool}")),
            Self::AddressTaken(address) => ("AddressTaken", format!("another claim of pool {pool} holds {address}")),
        };
        Condition::new("Bound", false, reason).message(why)
    }
}

impl<C: Cloud> Reconcile for IpClaimReconciler<C> {
    type Resource = IpClaim;
    const FINALIZER: Option<&'static str> = Some("compute.flyball.dev/ipclaim");

    async fn reconcile(&self, claim: &IpClaim, cx: &Context<IpClaim>) -> Result<Action> {
        let uid = claim.uid().unwrap_or_default();
        let mut pool: Option<IpPool> = cx.get(&ObjectKey::new(None, &claim.spec.pool)).await?;
        for _ in 0..MAX_ATTEMPTS {
            let Some(known) = &pool else { return wait(claim, cx, &Obstacle::NoPool).await };
            if let Some(address) = allocations::address_of(known, &uid) {
                return bind(cx, address).await;
            }
            let address = match choose(claim, known, cx).await? {
                Ok(address) => address,
                Err(obstacle) => return wait(claim, cx, &obstacle).await,
            };
            if !cx.confirm_exists().await? {
                return Ok(Action::done());
            }
            let namespace = claim.namespace().unwrap_or_default();
            let reference = ClaimReference { namespace, name: claim.name_any(), uid: uid.clone() };
            match cx.replace_status(&allocations::allocate(known, &address, reference)).await {
                Ok(_) => return bind(cx, &address).await,
                Err(error) if is_conflict(&error) => pool = read_pool(claim, cx).await?,
                Err(error) => return Err(error),
            }
        }
        Err(format!("pool {} has changed {MAX_ATTEMPTS} times in the meantime", claim.spec.pool).into())
    }

    /// Releases the address, which no machine uses any more.
    async fn finalize(&self, claim: &IpClaim, cx: &Context<IpClaim>) -> Result<Action> {
        let uid = claim.uid().unwrap_or_default();
        for _ in 0..MAX_ATTEMPTS {
            let Some(pool) = read_pool(claim, cx).await? else { return Ok(Action::done()) };
            let Some(address) = allocations::address_of(&pool, &uid) else { return Ok(Action::done()) };
            self.cloud.release_address(address).await?;
            match cx.replace_status(&allocations::release(&pool, |claim| claim.uid == uid)).await {
                Ok(_) => return Ok(Action::done()),
                Err(error) if is_conflict(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Err(format!("pool {} has changed {MAX_ATTEMPTS} times in the meantime", claim.spec.pool).into())
    }
}

/// Returns the free address for a claim: the one that it had, or one according to its place in the queue.
async fn choose(claim: &IpClaim, pool: &IpPool, cx: &Context<IpClaim>) -> Result<Result<String, Obstacle>> {
    let free = allocations::free(pool);
    if pool.metadata.deletion_timestamp.is_some() {
        return Ok(Err(Obstacle::PoolDeleted));
    }
    if let Some(address) = address(claim) {
        let is_free = free.contains(&&*address);
        return Ok(if is_free { Ok(address) } else { Err(Obstacle::AddressTaken(address)) });
    }
    let place_of =
        |claim: &IpClaim| (claim.creation_timestamp().map(|time| time.0), claim.namespace(), claim.name_any());
    let place = place_of(claim);
    let earlier = cx.filter_map_by::<ByPool, _>(&claim.spec.pool, |other| {
        let waits = address(&other).is_none()
            && other.metadata.deletion_timestamp.is_none()
            && allocations::address_of(pool, other.metadata.uid.as_deref().unwrap_or_default()).is_none();
        (waits && place_of(&other) < place).then_some(())
    });
    Ok(match (free.get(earlier.await?.len()), free.is_empty()) {
        (Some(address), _) => Ok((*address).to_owned()),
        (None, true) => Err(Obstacle::Exhausted),
        (None, false) => Err(Obstacle::Later),
    })
}

fn address(claim: &IpClaim) -> Option<String> {
    claim.status.as_ref()?.address.clone()
}

async fn bind(cx: &Context<IpClaim>, address: &str) -> Result<Action> {
    let conditions = vec![Condition::new("Bound", true, "Allocated")];
    cx.set_status(&IpClaimStatus { address: Some(address.to_owned()), conditions }).await?;
    Ok(Action::done())
}

/// Reports that a claim has no address. A change of the pool triggers the next reconcile.
async fn wait(claim: &IpClaim, cx: &Context<IpClaim>, obstacle: &Obstacle) -> Result<Action> {
    let conditions = vec![obstacle.condition(&claim.spec.pool)];
    cx.set_status(&IpClaimStatus { address: address(claim), conditions }).await?;
    Ok(if matches!(obstacle, Obstacle::Later) { Action::requeue_after(RETRY) } else { Action::done() })
}

/// Reads the pool of a claim from the API server.
async fn read_pool(claim: &IpClaim, cx: &Context<IpClaim>) -> Result<Option<IpPool>> {
    Ok(Api::<IpPool>::all(cx.client().clone()).get_opt(&claim.spec.pool).await?)
}

fn is_conflict(error: &Error) -> bool {
    error.status().is_some_and(kube::core::Status::is_conflict)
}
