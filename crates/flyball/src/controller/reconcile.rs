//! The trait that authors implement, and its result.

use crate::context::Context;
use crate::error::Result;
use crate::kind::AnyResource;
use crate::queue::NextStep;
use flyball_core::memory;
use serde_json::Value;
use std::time::Duration;

/// Reconciles objects of one kind: compares the desired state in the spec with the actual state, and makes the
/// changes that are missing.
///
/// ```
/// # use flyball::{Action, Context, Reconcile, Result};
/// # use kube::{CustomResource, ResourceExt};
/// # use std::time::Duration;
/// # #[derive(CustomResource, serde::Deserialize, serde::Serialize, Clone, Debug, schemars::JsonSchema)]
/// # #[kube(group = "example.com", version = "v1", kind = "Bucket", namespaced)]
/// # struct BucketSpec { size: u64 }
/// # struct Store;
/// # impl Store {
/// #     async fn ensure(&self, _: &str, _: u64) -> std::io::Result<()> { Ok(()) }
/// #     async fn remove(&self, _: &str) -> std::io::Result<()> { Ok(()) }
/// # }
/// struct Buckets(Store);
///
/// impl Reconcile for Buckets {
///     type Resource = Bucket;
///     const FINALIZER: Option<&'static str> = Some("example.com/bucket");
///
///     async fn reconcile(&self, bucket: &Bucket, _: &Context<Bucket>) -> Result<Action> {
///         self.0.ensure(&bucket.name_any(), bucket.spec.size).await?;
///         Ok(Action::requeue_after(Duration::from_secs(300))) // changes in the store trigger no event
///     }
///
///     async fn finalize(&self, bucket: &Bucket, _: &Context<Bucket>) -> Result<Action> {
///         self.0.remove(&bucket.name_any()).await?;
///         Ok(Action::done())
///     }
/// }
/// ```
///
/// # Guarantees
///
/// - `reconcile` receives the newest object in the cache, and is called again for later changes. Changes are not
///   counted: ten of them may cause one call. One object is in one call at a time.
/// - It is not called for its own writes, not on a cache that has not observed its own writes, and not for an object
///   that is being deleted (but see [`Controller::while_deleting`](crate::Controller::while_deleting)).
/// - With a [`FINALIZER`](Self::FINALIZER), no `reconcile` runs before the finalizer is stored, so that no external
///   resource is left behind; and nothing runs after the finalizer was removed.
/// - An error, a panic or a missed deadline affects its own object only, which is retried with backoff.
/// - An object with the annotation `flyball.dev/paused` set to `true` is not reconciled or finalized until it is
///   removed.
///
/// All reconciles share one thread, unless the operator runs with `--threads`. Blocking or long computations belong
/// into [`spawn_blocking`](tokio::task::spawn_blocking); otherwise they delay all other reconciles and the renewal of
/// the lease.
///
/// Derive the next step from what can be read: do not keep state between calls in memory, and return
/// [`Action::requeue_after`] for external systems that have to be checked again.
#[doc(alias = "Reconciler")]
#[doc(alias = "kopf")]
pub trait Reconcile: Send + Sync + 'static {
    /// Type of the objects: a [`Resource`](crate::Resource), or [`DynamicObject`](kube::core::DynamicObject) for a
    /// [kind](crate::Kind) that is known at run time only.
    type Resource: AnyResource;

    /// Finalizer of every object, such as `vmgroups.example.com/cleanup`; with one, [`finalize`](Self::finalize) runs
    /// before an object is removed.
    ///
    /// Other finalizers are never changed. See
    /// <https://kubernetes.io/docs/concepts/overview/working-with-objects/finalizers/>.
    #[doc(alias = "finalizer")]
    #[doc(alias = "finalizer::finalizer")]
    #[doc(alias = "AddFinalizer")]
    #[doc(alias = "ContainsFinalizer")]
    #[doc(alias = "RemoveFinalizer")]
    #[doc(alias = "controllerutil")]
    const FINALIZER: Option<&'static str> = None;

    /// Compares the desired state in `object` with the actual state, and makes the missing changes.
    #[doc(alias = "on.create")]
    #[doc(alias = "on.update")]
    #[doc(alias = "on.resume")]
    fn reconcile(
        &self,
        object: &Self::Resource,
        cx: &Context<Self::Resource>,
    ) -> impl Future<Output = Result<Action>> + Send;

    /// Cleans up external resources, and others that are not garbage collected, before the object is removed.
    ///
    /// The object is read from the API server, not from the cache, since the cleanup cannot be undone. The finalizer
    /// is removed when this returns [`Action::done`]; with any other action or an error it is called again. It may be
    /// called again after a success, so a resource that does not exist any more has to count as cleaned up.
    ///
    /// When it fails twice in a row, an event `CleanupFailed` reports it, and so does the condition `CleanedUp` if the
    /// status of the kind has a list of conditions that is merged by `type`. It is retried with backoff.
    #[doc(alias = "on.delete")]
    #[doc(alias = "cleanup")]
    fn finalize(
        &self,
        object: &Self::Resource,
        cx: &Context<Self::Resource>,
    ) -> impl Future<Output = Result<Action>> + Send {
        let _ = (object, cx);
        async { Ok(Action::done()) }
    }

    /// Returns the estimated memory in bytes of a call for an object with this JSON, which is charged to the
    /// [memory budget](crate::Controller::memory_budget). By default it is that of the JSON after decoding.
    fn estimate_memory(&self, json: &str, is_deleting: bool) -> usize {
        let _ = is_deleting;
        memory::of_text(json.as_bytes())
    }

    /// Returns the status for an object that exceeds the memory limit and is not reconciled. By default the status is
    /// not changed.
    fn rejected_status(&self, problem: &str) -> Option<Value> {
        let _ = problem;
        None
    }
}

/// The result of a successful reconcile: whether and when to requeue the object.
///
/// ```
/// # use flyball::Action;
/// # use std::time::Duration;
/// # fn next(is_ready: bool) -> Action {
/// if is_ready { Action::done() } else { Action::requeue_after(Duration::from_secs(5)) }
/// # }
/// ```
#[doc(alias = "Result")]
#[doc(alias = "ReconcileResult")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Action(pub(crate) NextStep);

impl Action {
    /// Requests no requeue: the next reconcile follows a change.
    #[doc(alias = "await_change")]
    pub fn done() -> Self {
        Self(NextStep::Rest)
    }

    /// Requeues the object with the backoff of failures.
    #[doc(alias = "Requeue")]
    pub fn requeue() -> Self {
        Self(NextStep::Retry)
    }

    /// Requeues the object after this time, a year at most, unless a change triggers it before. Zero is the same as
    /// [`requeue`](Self::requeue).
    #[doc(alias = "requeue")]
    #[doc(alias = "RequeueAfter")]
    #[doc(alias = "TemporaryError")]
    pub fn requeue_after(time: Duration) -> Self {
        if time.is_zero() { Self::requeue() } else { Self(NextStep::After(time)) }
    }
}
