//! Controllers: from changes of objects to calls of reconcilers.
//!
//! A [`Controller`] declares the kind to reconcile and the kinds that trigger it. Its [`Sources`] map changes in the
//! caches to keys; its workers take keys from the queue and call [`Reconcile`] with a
//! [`Context`](crate::context::Context). This module is independent of watches and HTTP.
//!
//! [`Controller`] and [`Reconcile`] have the type of the objects. The [`Declaration`] behind them is the same for all
//! types, and compiled once.
//!
//! Invariants: a worker reads the object from the cache when it starts, never from the event that triggered it; all
//! writes of a reconcile are passed to the queue, independent of its outcome; a panic ends one reconcile, not a
//! worker.

mod admission;
mod cleanup;
mod declaration;
mod describe;
mod dynamic;
mod escaped;
mod failures;
mod metrics;
mod predicate;
mod reconcile;
mod source;
mod sources;
mod start;
mod unconfirmed;
mod worker;

pub(crate) use declaration::Declaration;
pub(crate) use metrics::ControllerMetrics;
#[cfg(test)]
pub(crate) use metrics::Outcome;
pub use predicate::Predicate;
pub use reconcile::{Action, Reconcile};
pub use source::{Channel, Source};
pub use sources::ObjectChange;
#[cfg(test)]
pub(crate) use worker::span;

use crate::backoff::Backoff;
use crate::cache::{Caches, DeclaredIndex, DecodedEntry, Index, IndexId};
use crate::error::Result;
use crate::kind::{AnyResource, Kind, Resource, Type, reads_metadata};
use crate::memory::MemoryBudget;
use crate::queue::RetryRate;
use declaration::Make;
use flyball_core::ObjectKey;
use k8s_openapi::api::rbac::v1::PolicyRule;
use sources::Map;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;
use tower::BoxError;

/// A controller: a reconciler with the kinds that it reads, watches and writes.
///
/// The declarations determine the watches, the readable caches, and the [RBAC rules](crate::Operator::rules).
///
/// ```
/// # use flyball::{Action, Context, Controller, ObjectKey, Predicate, Reconcile, Result};
/// # use k8s_openapi::api::{apps::v1::Deployment, core::v1::{ConfigMap, Secret}};
/// # struct Sites;
/// # impl Reconcile for Sites {
/// #     type Resource = ConfigMap;
/// #     async fn reconcile(&self, _: &ConfigMap, _: &Context<ConfigMap>) -> Result<Action> { Ok(Action::done()) }
/// # }
/// let controller = Controller::new(Sites)
///     .owns::<Deployment>()
///     .filter::<Deployment>(Predicate::generation())
///     .watches::<Secret>(|secret, _| {
///         let site = secret.metadata.labels.as_ref().and_then(|labels| labels.get("site"));
///         Ok(site.map(|site| ObjectKey::new(secret.metadata.namespace.as_deref(), site)).into_iter().collect())
///     })
///     .concurrency(4);
/// ```
///
/// # Order of reconciles
///
/// Each controller has its own queue. It holds keys of objects, never the changes that added them.
///
/// - A key is in the queue once, and with one worker at a time. Changes during a reconcile add it once.
/// - Changed objects precede objects without a change: those of the first list, those with a scheduled requeue, and
///   those that failed. One key in sixteen is of the latter, so that they make progress.
/// - Namespaces take turns: a namespace with ten thousand changed objects delays another one by one object. Within a
///   namespace the order is first in, first out.
/// - A key that failed waits for its [`Backoff`], which is reset by a success and grows with failures of retries, not
///   with failures after changes. In addition all failed keys wait for the [`RetryRate`], namespaces in turn. A change
///   ends both waits.
/// - The queue is bounded by the number of objects, and holds nothing for a key that is idle and did not fail. On
///   shutdown no more keys are handed out, and workers finish their running reconciles.
///
/// Cluster-scoped objects count as one namespace. Turns count objects, not the time that they take.
///
/// | Metric | Meaning |
/// |---|---|
/// | `workqueue_depth`, `workqueue_queue_duration_seconds` | keys that are ready, and for how long |
/// | `workqueue_retries_total`, `flyball_queue_throttled` | keys that failed, and those that wait for the rate only |
/// | `workqueue_longest_running_processor_seconds` | duration of the longest running reconcile |
#[doc(alias = "Builder")]
#[doc(alias = "NewControllerManagedBy")]
#[must_use = "a controller does nothing until it is added to an operator"]
pub struct Controller<R: Reconcile> {
    declaration: Declaration,
    reconciler: PhantomData<fn() -> R>,
}

impl<R: Reconcile<Resource: Resource>> Controller<R> {
    /// Creates a controller for the objects of [`Reconcile::Resource`], named after the kind.
    #[doc(alias = "For")]
    #[doc(alias = "EnqueueRequestForObject")]
    pub fn new(reconciler: R) -> Self {
        Self::with(Type::of::<R::Resource>(), Kind::of::<R::Resource>(), reconciler)
    }

    /// Creates a controller whose reconciler is constructed when the operator starts, for example from the environment.
    ///
    /// So the controller can be declared, and return its [rules](crate::Operator::rules), where construction would
    /// fail. An error ends [`Operator::run`](crate::Operator::run), and [`Operator::main`](crate::Operator::main) with
    /// exit code 2.
    pub fn deferred<E: Into<BoxError>>(make: impl FnOnce() -> Result<R, E> + Send + 'static) -> Self {
        let make = || Ok(Box::new(make().map_err(Into::into)?) as _);
        Self::made_by(Type::of::<R::Resource>(), Kind::of::<R::Resource>(), Box::new(make))
    }
}

impl<R: Reconcile> Controller<R> {
    fn with(ty: Type, primary: Kind, reconciler: R) -> Self {
        Self::made_by(ty, primary, Box::new(|| Ok(Box::new(reconciler))))
    }

    fn made_by(ty: Type, primary: Kind, make: Box<Make>) -> Self {
        let declaration = Declaration::new(ty, primary, make, R::FINALIZER, reads_metadata::<R::Resource>());
        Self { declaration, reconciler: PhantomData }
    }

    fn finalizes(mut self, finalizer: String) -> Self {
        self.declaration.finalizes(finalizer.into());
        self
    }

    pub(crate) fn into_declaration(self) -> Declaration {
        self.declaration
    }

    /// Sets the name of the controller in logs and metrics. Two controllers of one kind need different names, and
    /// apply [the status](crate::Context::set_status) under different field managers.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.declaration.name = name.into();
        self
    }

    /// Allows the controller to create, change and delete objects of this kind, and reconciles the owner when one of
    /// them changes.
    ///
    /// The owner is the controller in the owner references of the object, which
    /// [`Context::apply`](crate::Context::apply) sets.
    #[doc(alias = "Owns")]
    #[doc(alias = "EnqueueRequestForOwner")]
    pub fn owns<T: Resource>(self) -> Self {
        self.owns_as(Type::of::<T>(), Kind::of::<T>())
    }

    fn creates_as(mut self, ty: Type, kind: Kind) -> Self {
        self.declaration.creates(ty, &kind);
        self
    }

    fn owns_as(mut self, ty: Type, kind: Kind) -> Self {
        self.declaration.owns(ty, kind);
        self
    }

    /// Reconciles the objects that `map` returns when an object of this kind changes; keys of objects that do not
    /// exist are ignored.
    ///
    /// When an object changes, both its old and its new state are mapped.
    ///
    /// # Errors of the mapping
    ///
    /// If `map` returns an error or panics, the change may affect any object, so all objects are reconciled in the
    /// background, at most once a minute for all such changes together. The metric `flyball_map_errors_total` counts
    /// them.
    #[doc(alias = "Watches")]
    #[doc(alias = "EnqueueRequestsFromMapFunc")]
    pub fn watches<T: Resource>(
        self,
        map: impl Fn(&T, &Caches) -> Result<Vec<ObjectKey>> + Send + Sync + 'static,
    ) -> Self {
        self.watches_as(Type::of::<T>(), Kind::of::<T>(), map)
    }

    fn watches_as<T: AnyResource>(
        mut self,
        ty: Type,
        kind: Kind,
        map: impl Fn(&T, &Caches) -> Result<Vec<ObjectKey>> + Send + Sync + 'static,
    ) -> Self {
        self.declaration.caches(&ty, &kind);
        let map = move |shown: &DecodedEntry<'_>, caches: &Caches| shown.decoded(|object| map(object, caches))?;
        self.declaration.maps.push((kind, Map::Custom(Arc::new(map))));
        self
    }

    /// Reconciles the objects that `map` returns for the key of a changed object of this kind; keys of objects that
    /// do not exist are ignored. An error is [handled as by `watches`](Self::watches).
    ///
    /// Prefer it to [`watches`](Self::watches) if the key is enough: the object is not decoded.
    ///
    /// ```
    /// # use flyball::{Action, Context, Controller, ObjectKey, Reconcile, Result};
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # struct Sites;
    /// # impl Reconcile for Sites {
    /// #     type Resource = ConfigMap;
    /// #     async fn reconcile(&self, _: &ConfigMap, _: &Context<ConfigMap>) -> Result<Action> { Ok(Action::done()) }
    /// # }
    /// // Each site has a secret of its own name.
    /// let controller = Controller::new(Sites).watches_by_key::<Secret>(|secret, _| Ok(vec![secret.clone()]));
    /// ```
    pub fn watches_by_key<T: Resource>(
        self,
        map: impl Fn(&ObjectKey, &Caches) -> Result<Vec<ObjectKey>> + Send + Sync + 'static,
    ) -> Self {
        self.watches_by_key_as(&Type::of::<T>(), Kind::of::<T>(), map)
    }

    fn watches_by_key_as(
        mut self,
        ty: &Type,
        kind: Kind,
        map: impl Fn(&ObjectKey, &Caches) -> Result<Vec<ObjectKey>> + Send + Sync + 'static,
    ) -> Self {
        self.declaration.caches(ty, &kind);
        self.declaration.maps.push((kind, Map::ByKey(Arc::new(map))));
        self
    }

    /// Reconciles the objects that `map` returns for a creation, update or deletion of an object of this kind; keys
    /// of objects that do not exist are ignored. An error is [handled as by `watches`](Self::watches).
    ///
    /// It is for mappings that depend on the type of the change. A reconcile never gets the change: it reads the
    /// current state.
    ///
    /// ```
    /// # use flyball::{Action, Context, Controller, ObjectChange, ObjectKey, Reconcile, Result};
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Node};
    /// # use kube::ResourceExt;
    /// # struct Sites;
    /// # impl Reconcile for Sites {
    /// #     type Resource = ConfigMap;
    /// #     async fn reconcile(&self, _: &ConfigMap, _: &Context<ConfigMap>) -> Result<Action> { Ok(Action::done()) }
    /// # }
    /// // Nodes change every few seconds; what matters is that there are more or fewer of them.
    /// let controller = Controller::new(Sites).watches_changes::<Node>(|change, caches| match change {
    ///     ObjectChange::Created(_) | ObjectChange::Deleted(_) => {
    ///         let sites = caches.list::<ConfigMap>(None)?;
    ///         Ok(sites.iter().map(|site| ObjectKey::new(site.namespace().as_deref(), &site.name_any())).collect())
    ///     }
    ///     ObjectChange::Updated { .. } => Ok(Vec::new()),
    /// });
    /// ```
    #[doc(alias = "EventHandler")]
    #[doc(alias = "handler.Funcs")]
    #[doc(alias = "on.event")]
    pub fn watches_changes<T: Resource>(
        self,
        map: impl Fn(ObjectChange<'_, T>, &Caches) -> Result<Vec<ObjectKey>> + Send + Sync + 'static,
    ) -> Self {
        self.watches_changes_as(&Type::of::<T>(), Kind::of::<T>(), map)
    }

    fn watches_changes_as<T: AnyResource>(
        mut self,
        ty: &Type,
        kind: Kind,
        map: impl Fn(ObjectChange<'_, T>, &Caches) -> Result<Vec<ObjectKey>> + Send + Sync + 'static,
    ) -> Self {
        self.declaration.caches(ty, &kind);
        let map = move |old: Option<&DecodedEntry<'_>>, new: Option<&DecodedEntry<'_>>, caches: &Caches| {
            ObjectChange::show(old, new, |change| map(change, caches))?.unwrap_or_else(|| Ok(Vec::new()))
        };
        self.declaration.maps.push((kind, Map::Changed(Arc::new(map))));
        self
    }

    /// Reconciles the objects that refer to an object of this kind by name when it is created, updated or deleted:
    /// those for which `names` returns its key. A key without a namespace is in the namespace of the referring
    /// object.
    ///
    /// References are indexed, so that a change triggers the referring objects without reading all others. The object
    /// that is referred to need not exist, and its kind need not be installed.
    ///
    /// ```
    /// # use flyball::{Action, Context, Controller, ObjectKey, Reconcile, Result};
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # use kube::ResourceExt;
    /// # struct Sites;
    /// # impl Reconcile for Sites {
    /// #     type Resource = ConfigMap;
    /// #     async fn reconcile(&self, _: &ConfigMap, _: &Context<ConfigMap>) -> Result<Action> { Ok(Action::done()) }
    /// # }
    /// // The secret that an annotation names, in the same namespace.
    /// let controller = Controller::new(Sites).refers_to::<Secret>(|site| {
    ///     site.annotations().get("example.com/key").map(|name| ObjectKey::new(None, name)).into_iter().collect()
    /// });
    /// ```
    pub fn refers_to<T: Resource>(
        self,
        names: impl Fn(&R::Resource) -> Vec<ObjectKey> + Send + Sync + 'static,
    ) -> Self {
        self.refers_to_as(&Type::of::<T>(), Kind::of::<T>(), names)
    }

    fn refers_to_as(
        mut self,
        ty: &Type,
        kind: Kind,
        names: impl Fn(&R::Resource) -> Vec<ObjectKey> + Send + Sync + 'static,
    ) -> Self {
        self.declaration.caches(ty, &kind);
        let (id, namespaced) = (IndexId::Own(Arc::default()), kind.is_namespaced());
        let targets = move |key: &ObjectKey, shown: &DecodedEntry<'_>| {
            let beside = |name: ObjectKey| {
                let namespace = name.namespace().or(key.namespace()).filter(|_| namespaced);
                ObjectKey::new(namespace, name.name())
            };
            let names = shown.decoded(|object| names(object)).unwrap_or_default();
            names.into_iter().map(beside).collect()
        };
        self.declaration.indexes.push((self.declaration.primary.clone(), DeclaredIndex::new(id.clone(), targets)));
        self.declaration.maps.push((kind, Map::Referrers(id)));
        self
    }

    /// Maintains an [index](Index) of the objects of a kind, for [`Context::list_by`](crate::Context::list_by). Their
    /// changes trigger no reconcile, unless the kind is reconciled, owned or watched as well.
    pub fn index<I: Index>(self) -> Self {
        self.index_as(&Type::of::<I::Resource>(), Kind::of::<I::Resource>(), DeclaredIndex::of::<I>())
    }

    fn index_as(mut self, ty: &Type, kind: Kind, index: DeclaredIndex) -> Self {
        self.declaration.caches(ty, &kind);
        self.declaration.indexes.push((kind, index));
        self
    }

    /// Adds a [source](Source) of reconciles other than changes of objects.
    #[doc(alias = "WatchesRawSource")]
    #[doc(alias = "reconcile_on")]
    #[doc(alias = "reconcile_all_on")]
    pub fn source(mut self, source: impl Into<Source<R::Resource>>) -> Self {
        self.declaration.source_kinds.push(source.into().source_kind);
        self
    }

    /// Allows the controller to [replace](crate::Context::replace) objects of this kind, and their status. Their
    /// changes trigger no reconcile, unless the kind is reconciled, owned or watched as well.
    pub fn replaces<T: Resource>(self) -> Self {
        self.replaces_as(Type::of::<T>(), Kind::of::<T>())
    }

    fn replaces_as(mut self, ty: Type, kind: Kind) -> Self {
        self.declaration.replaces(ty, &kind);
        self
    }

    /// Allows the controller to read objects of this kind from the API server, without a cache.
    #[doc(alias = "APIReader")]
    #[doc(alias = "GetAPIReader")]
    pub fn reads<T: Resource>(self) -> Self {
        self.reads_as(Type::of::<T>(), Kind::of::<T>())
    }

    fn reads_as(mut self, ty: Type, kind: Kind) -> Self {
        self.declaration.reads(ty, kind);
        self
    }

    /// Adds an RBAC rule for requests through [`Context::client`](crate::Context::client).
    #[doc(alias = "kubebuilder:rbac")]
    pub fn allows(mut self, rule: PolicyRule) -> Self {
        self.declaration.rules.push(rule);
        self
    }

    /// Ignores updates of objects of this kind for which the predicate is false; of several predicates, all have to
    /// be true. The controller has to reconcile, own or watch the kind by this type, or the type must be that of its
    /// metadata.
    #[doc(alias = "WithEventFilter")]
    #[doc(alias = "WithPredicates")]
    #[doc(alias = "predicate_filter")]
    pub fn filter<T: Resource>(self, predicate: Predicate<T>) -> Self {
        self.filter_as(Type::of::<T>(), Kind::of::<T>(), predicate)
    }

    fn filter_as<T: AnyResource>(mut self, ty: Type, kind: Kind, predicate: Predicate<T>) -> Self {
        self.declaration.filters.push((kind, predicate.erased()));
        self.declaration.filtered.push(ty);
        self
    }

    /// Sets the maximum number of concurrent reconciles: 16 by default, at least 1.
    ///
    /// Namespaces are served round-robin and share the workers: if the controller had objects in several namespaces
    /// since its start, one namespace has at most half of the workers that others leave, so that its slow objects do
    /// not delay others, also those that come later. This remains until a restart, even if the objects of all other
    /// namespaces were deleted. Within a namespace the order is kept. Objects of one namespace alone, and
    /// cluster-scoped ones, use all workers.
    #[doc(alias = "MaxConcurrentReconciles")]
    pub fn concurrency(mut self, workers: usize) -> Self {
        self.declaration.concurrency = workers.max(1);
        self
    }

    /// Charges each reconcile to a budget before its object is decoded, with
    /// [`Reconcile::estimate_memory`].
    ///
    /// A reconcile that does not fit waits in order, without a worker. An object whose estimate exceeds `max_bytes` or
    /// the [share](MemoryBudget::share) of a namespace is not decoded: an event `ObjectTooLarge` and
    /// [`Reconcile::rejected_status`] report it. While an object is being deleted, four
    /// times `max_bytes` and the [largest share](MemoryBudget::largest_share) are the limits.
    pub fn memory_budget(mut self, budget: &MemoryBudget, max_bytes: usize) -> Self {
        self.declaration.memory = Some((budget.clone(), max_bytes));
        self
    }

    /// Shares the [workers](Self::concurrency) among namespaces from the start. Otherwise the first namespace may have
    /// all of them until there are objects in a second one.
    pub fn shares_workers(mut self) -> Self {
        self.declaration.shares_workers = true;
        self
    }

    /// Adapts each [status](crate::Context::set_status) to the schema of the kind in the cluster, for kinds whose CRD
    /// others may write.
    ///
    /// Fields that the schema does not declare are omitted: the API server would drop them from an update, and reject
    /// the apply. Required reasons and messages of conditions are set. If the list of conditions is not merged by type,
    /// it contains those of others as well: those with a type that is not in `own_conditions`.
    pub fn adapts_status(mut self, own_conditions: &'static [&'static str]) -> Self {
        self.declaration.adapts_status(own_conditions);
        self
    }

    /// Sets the time after which a reconcile is canceled and retried: 5 minutes by default.
    #[doc(alias = "ReconciliationTimeout")]
    #[doc(alias = "timeout")]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.declaration.deadline = deadline;
        self
    }

    /// Sets how long the next reconcile of an object waits for the caches to observe its writes; then it reads from
    /// the API server. 10 seconds by default.
    pub fn own_write_timeout(mut self, own_write_timeout: Duration) -> Self {
        self.declaration.own_write_timeout = own_write_timeout;
        self
    }

    /// Sets the backoff of an object after failures.
    #[doc(alias = "RateLimiter")]
    #[doc(alias = "error_policy")]
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.declaration.backoff = backoff;
        self
    }

    /// Sets the rate limit of all retries of the controller: 100 at once, then 10 per second by default.
    #[doc(alias = "RateLimiter")]
    pub fn retry_rate(mut self, rate: RetryRate) -> Self {
        self.declaration.retry_rate = rate;
        self
    }

    /// Reconciles objects that are being deleted as well, for controllers that handle a deletion without a
    /// [finalizer](crate::Reconcile::FINALIZER) of their own.
    pub fn while_deleting(mut self) -> Self {
        self.declaration.while_deleting = true;
        self
    }

    /// Runs the controller on every replica, whether or not it [leads](crate::LeaderElection).
    ///
    /// Several replicas then reconcile an object at the same time, and each observes only its own writes. Use it for
    /// state in memory of each process, and for idempotent writes.
    #[doc(alias = "NeedLeaderElection")]
    pub fn on_every_replica(mut self) -> Self {
        self.declaration.on_all_replicas = true;
        self
    }

    /// Sets a separate client for the controller, with other permissions or another identity than the rest of the
    /// operator.
    ///
    /// Watches use the operator's client, which observes the writes of this one.
    pub fn client(mut self, client: kube::Client) -> Self {
        self.declaration.client = Some(client);
        self
    }
}

impl<R: Reconcile> fmt::Debug for Controller<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Controller").field(&self.declaration).finish()
    }
}
