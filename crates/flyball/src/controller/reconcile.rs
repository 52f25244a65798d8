//! The function that an author writes for a kind, and what follows a call of it.

use crate::context::Context;
use crate::error::Result;
use crate::kind::AnyResource;
use crate::queue::Next;
use std::time::Duration;

/// Brings objects of one kind to where their spec wants them.
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
///         Ok(Action::requeue_after(Duration::from_secs(300))) // nobody tells of changes in the store
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
/// - `reconcile` gets the newest object that the cache knows, and is called again for what changed since. Changes
///   are not counted: ten of them may cause one call. One object is in one call at a time.
/// - It is not called for what it wrote itself, not called on a cache that does not show yet what it wrote itself, and
///   not called for an object that is being deleted (but see [`Controller::while_deleting`]).
/// - With a [`FINALIZER`](Self::FINALIZER), no `reconcile` runs before the finalizer is stored, so that no object with
///   something behind it goes unseen; and nothing runs after the finalizer was removed.
/// - An error, a panic or a call that takes too long concerns its own object only, which is tried again with growing waits.
/// - An object whose annotation `flyball.dev/paused` is `true` is left alone, be it changed or deleted, until it no longer is.
///
/// All reconciles share one thread, unless the operator runs with `--threads`: what blocks or computes for long belongs into
/// [`spawn_blocking`](tokio::task::spawn_blocking), else it holds up the others, and the lease of the leader with them.
///
/// So whatever is to happen next must follow from what can be read: do not keep in memory what the last call did, and return
/// [`Action::requeue_after`] where the world outside has to be looked at again.
pub trait Reconcile: Send + Sync + 'static {
    /// The type of the objects: a [`Resource`](crate::Resource), or
    /// [`DynamicObject`](kube::core::DynamicObject) where the [kind](crate::Kind) is known at run time only.
    type Resource: AnyResource;

    /// The finalizer that is kept on every object, such as `vmgroups.example.com/cleanup`; with one,
    /// [`finalize`](Self::finalize) runs before an object goes.
    ///
    /// Finalizers of others are never touched. See
    /// <https://kubernetes.io/docs/concepts/overview/working-with-objects/finalizers/>.
    const FINALIZER: Option<&'static str> = None;

    /// Compares what `object` wants with what is there, and does what is missing.
    fn reconcile(
        &self,
        object: &Self::Resource,
        cx: &Context<Self::Resource>,
    ) -> impl Future<Output = Result<Action>> + Send;

    /// Removes what is outside of the cluster, or would not go by itself, once the object is to be deleted.
    ///
    /// It gets the object as the API server has it now, not the cache's word: what it does cannot be undone. The
    /// finalizer is removed when it returns [`Action::done`]; with any other action or an error it is called again. It
    /// may be called again after it succeeded, so what is gone already must be taken as success.
    ///
    /// When it fails twice in a row, the object says why: by an event `CleanupFailed`, and by the condition `CleanedUp` of its status,
    /// where the kind has a status with conditions that are merged by `type`. It is tried again with growing waits.
    fn finalize(
        &self,
        object: &Self::Resource,
        cx: &Context<Self::Resource>,
    ) -> impl Future<Output = Result<Action>> + Send {
        let _ = (object, cx);
        async { Ok(Action::done()) }
    }
}

/// What is to follow a reconcile that succeeded.
///
/// ```
/// # use flyball::Action;
/// # use std::time::Duration;
/// # fn next(is_ready: bool) -> Action {
/// if is_ready { Action::done() } else { Action::requeue_after(Duration::from_secs(5)) }
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Action(pub(crate) Next);

impl Action {
    /// Nothing, until something changes.
    pub fn done() -> Self {
        Self(Next::Rest)
    }

    /// Once more soon, with waits that grow from time to time as they do after errors.
    pub fn requeue() -> Self {
        Self(Next::Retry)
    }

    /// Once more after this time, unless something changes before; a year at most. No time at all is the same as
    /// [`requeue`](Self::requeue).
    pub fn requeue_after(time: Duration) -> Self {
        if time.is_zero() { Self::requeue() } else { Self(Next::After(time)) }
    }
}
