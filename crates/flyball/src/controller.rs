//! Brings one object after the other to where its spec wants it.
//!
//! A [`Controller`] says which kind is reconciled and whose changes matter; its [`Sources`] turn what the caches tell into
//! keys; its workers take the keys from the queue and call [`Reconcile`]. What a reconcile sees and does passes its
//! [`Context`]. This station knows nothing of watches and HTTP.
//!
//! Types of objects are known to [`Controller`], [`Context`] and [`Reconcile`] alone. Behind them stand a [`Declaration`] and a [`Pass`], which
//! are the same for all types, and compiled once.
//!
//! What keeps it correct: a worker reads the object from the cache when it begins, never from the event that woke it;
//! whatever a reconcile wrote is handed to the queue, however the reconcile ended; a panic ends one reconcile, not a
//! worker.

mod cleanup;
mod declaration;
mod describe;
mod dynamic;
mod metrics;
mod predicate;
mod reconcile;
mod source;
mod sources;
mod worker;

pub(crate) use declaration::Declaration;
pub use describe::ControllerDescription;
pub(crate) use metrics::ControllerMetrics;
#[cfg(test)]
pub(crate) use metrics::Outcome;
pub use predicate::Predicate;
pub use reconcile::{Action, Reconcile};
pub use source::{Channel, Source};
pub use sources::Changed;
#[cfg(test)]
pub(crate) use worker::span;

use crate::cache::{Caches, DeclaredIndex, Index, IndexId, Shown};
use crate::error::Result;
use crate::kind::{AnyResource, Kind, Resource, Type, reads_metadata};
use crate::queue::{Backoff, RetryRate};
use declaration::Make;
use flyball_core::ObjectKey;
use k8s_openapi::api::rbac::v1::PolicyRule;
use sources::Map;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;
use tower::BoxError;

/// One controller: a [`Reconcile`] with the kinds that it deals with.
///
/// What it declares here is what it may do: the watches that are opened, the caches that can be read, and the [RBAC
/// rules](crate::Operator::rules) all come from it.
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
/// # Which object comes next
///
/// Each controller has a queue of its own, which holds the keys of objects that are to be looked at, never what happened to them.
///
/// - A key is in it once, and with one worker at a time. What changes while a worker has it brings it back once.
/// - What changed goes before what is looked at again without a change: the objects found at start, those whose time has come, and
///   those that failed. Of sixteen keys one is of the latter, so that they are not forgotten.
/// - Namespaces take turns, within both: one with ten thousand changed objects keeps another waiting for one object, not for
///   ten thousand. Within a namespace, who came first goes first.
/// - A key that failed waits by its [`Backoff`], which begins anew when it succeeds and grows with failures that the
///   backoff itself brought about, not with those that follow changes. All that failed wait for the
///   [`RetryRate`] on top, namespaces by turns. A change ends both waits, and never has one.
/// - It holds no more keys than there are objects, and nothing of a key that is idle and did not fail. On shutdown it hands out
///   nothing more, and workers end what they have.
///
/// Objects of kinds without a namespace are as of one. Turns are by number of objects, not by the time that they take.
///
/// | Metric | What it tells |
/// |---|---|
/// | `workqueue_depth`, `workqueue_queue_duration_seconds` | keys that could be worked on, and for how long they could |
/// | `workqueue_retries_total`, `flyball_queue_throttled` | keys that failed, and those that wait for the rate alone |
/// | `workqueue_longest_running_processor_seconds` | how long the slowest reconcile has been under way |
pub struct Controller<R: Reconcile> {
    declaration: Declaration,
    reconciler: PhantomData<fn() -> R>,
}

impl<R: Reconcile<Resource: Resource>> Controller<R> {
    /// Makes a controller for the objects of [`Reconcile::Resource`], named after the kind.
    pub fn new(reconciler: R) -> Self {
        Self::with(Type::of::<R::Resource>(), Kind::of::<R::Resource>(), reconciler)
    }

    /// Makes a controller whose reconciler is made when the operator is about to run, from the environment for instance.
    ///
    /// So it can be declared, and asked for its [rules](crate::Operator::rules), where that would fail. An error ends
    /// [`Operator::run`](crate::Operator::run), and [`Operator::main`](crate::Operator::main) with exit code 2.
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

    /// Names the controller, in logs and metrics. Two controllers of one kind need two names, and set
    /// [the status](crate::Context::set_status) under two.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.declaration.name = name.into();
        self
    }

    /// Lets the controller make, change and delete objects of this kind, and reconciles the owner when one of them changes.
    ///
    /// The owner is the one that the controller reference of the object names, which
    /// [`Context::apply`](crate::Context::apply) sets.
    pub fn owns<T: Resource>(self) -> Self {
        self.owns_as(Type::of::<T>(), Kind::of::<T>())
    }

    fn owns_as(mut self, ty: Type, kind: Kind) -> Self {
        self.declaration.owns(ty, kind);
        self
    }

    /// Reconciles the objects that `map` finds when an object of this kind changes; names of what does not exist are
    /// passed over.
    ///
    /// When an object changes, both its old and its new state are mapped.
    ///
    /// # When the mapping fails
    ///
    /// A change that `map` returns an error for, or panics at, may concern anybody: all objects are reconciled in the
    /// background, at once, and then no more often than once a minute for all such changes together. The metric
    /// `flyball_map_errors_total` counts them.
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
        let map = move |shown: &Shown<'_>, caches: &Caches| shown.decoded(|object| map(object, caches))?;
        self.declaration.maps.push((kind, Map::Custom(Arc::new(map))));
        self
    }

    /// Reconciles the objects that `map` finds for the namespace and name of an object of this kind when it changes; names of what does not
    /// exist are passed over. An error is [treated as by `watches`](Self::watches).
    ///
    /// This is [`watches`](Self::watches) where no more is needed of the object: nothing of it is decoded.
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
        mut self,
        map: impl Fn(&ObjectKey, &Caches) -> Result<Vec<ObjectKey>> + Send + Sync + 'static,
    ) -> Self {
        let kind = Kind::of::<T>();
        self.declaration.caches(&Type::of::<T>(), &kind);
        self.declaration.maps.push((kind, Map::ByKey(Arc::new(map))));
        self
    }

    /// Reconciles the objects that `map` finds in what became of an object of this kind; names of what does not exist are
    /// passed over. An error is [treated as by `watches`](Self::watches).
    ///
    /// This is for a mapping that depends on the kind of change. A reconcile never learns of it: it looks at what there is.
    ///
    /// ```
    /// # use flyball::{Action, Changed, Context, Controller, ObjectKey, Reconcile, Result};
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Node};
    /// # use kube::ResourceExt;
    /// # struct Sites;
    /// # impl Reconcile for Sites {
    /// #     type Resource = ConfigMap;
    /// #     async fn reconcile(&self, _: &ConfigMap, _: &Context<ConfigMap>) -> Result<Action> { Ok(Action::done()) }
    /// # }
    /// // Nodes change every few seconds; what matters is that there are more or fewer of them.
    /// let controller = Controller::new(Sites).watches_changes::<Node>(|change, caches| match change {
    ///     Changed::Created(_) | Changed::Deleted(_) => {
    ///         let sites = caches.list::<ConfigMap>(None)?;
    ///         Ok(sites.iter().map(|site| ObjectKey::new(site.namespace().as_deref(), &site.name_any())).collect())
    ///     }
    ///     Changed::Updated { .. } => Ok(Vec::new()),
    /// });
    /// ```
    pub fn watches_changes<T: Resource>(
        mut self,
        map: impl Fn(Changed<'_, T>, &Caches) -> Result<Vec<ObjectKey>> + Send + Sync + 'static,
    ) -> Self {
        let kind = Kind::of::<T>();
        self.declaration.caches(&Type::of::<T>(), &kind);
        let map = move |old: Option<&Shown<'_>>, new: Option<&Shown<'_>>, caches: &Caches| {
            Changed::show(old, new, |change| map(change, caches))?.unwrap_or_else(|| Ok(Vec::new()))
        };
        self.declaration.maps.push((kind, Map::Changed(Arc::new(map))));
        self
    }

    /// Reconciles the objects that refer to an object of this kind by its name when it changes, comes or goes: those for which
    /// `names` returns it. A name without a namespace is one beside the object that refers to it.
    ///
    /// Who refers to what is kept in an index, so that a change wakes those whom it concerns without a look at all others. The
    /// object that is referred to need not exist, nor need its kind be installed.
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
        let targets = move |key: &ObjectKey, shown: &Shown<'_>| {
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

    /// Keeps an [index](Index) of the objects of a kind, for [`Context::list_by`](crate::Context::list_by). Their changes wake nobody,
    /// unless the kind is reconciled, owned or watched as well.
    pub fn index<I: Index>(self) -> Self {
        self.index_as(&Type::of::<I::Resource>(), Kind::of::<I::Resource>(), DeclaredIndex::of::<I>())
    }

    fn index_as(mut self, ty: &Type, kind: Kind, index: DeclaredIndex) -> Self {
        self.declaration.caches(ty, &kind);
        self.declaration.indexes.push((kind, index));
        self
    }

    /// Reconciles what a [source](Source) wakes, besides what changes.
    pub fn source(mut self, source: impl Into<Source<R::Resource>>) -> Self {
        self.declaration.stimuli.push(source.into().stimulus);
        self
    }

    /// Lets the controller [replace](crate::Context::replace) objects of this kind, and their status. Their changes wake nobody, unless the
    /// kind is reconciled, owned or watched as well.
    pub fn replaces<T: Resource>(self) -> Self {
        self.replaces_as(Type::of::<T>(), Kind::of::<T>())
    }

    fn replaces_as(mut self, ty: Type, kind: Kind) -> Self {
        self.declaration.replaces(ty, &kind);
        self
    }

    /// Lets the controller read objects of this kind from the API server, without a cache.
    pub fn reads<T: Resource>(self) -> Self {
        self.reads_as(Type::of::<T>(), Kind::of::<T>())
    }

    fn reads_as(mut self, ty: Type, kind: Kind) -> Self {
        self.declaration.reads(ty, kind);
        self
    }

    /// Lets the controller do what it does through [`Context::client`](crate::Context::client).
    pub fn allows(mut self, rule: PolicyRule) -> Self {
        self.declaration.rules.push(rule);
        self
    }

    /// Passes over updates of objects of this kind that the predicate finds not worth a reconcile. Of several, all must
    /// find it so. The type must be one as which the controller reconciles, owns or watches the kind, or stand for its metadata.
    pub fn filter<T: Resource>(self, predicate: Predicate<T>) -> Self {
        self.filter_as(Type::of::<T>(), Kind::of::<T>(), predicate)
    }

    fn filter_as<T: AnyResource>(mut self, ty: Type, kind: Kind, predicate: Predicate<T>) -> Self {
        self.declaration.filters.push((kind, predicate.erased()));
        self.declaration.filtered.push(ty);
        self
    }

    /// Reconciles so many objects at the same time: 16 unless told otherwise, 1 at least.
    pub fn concurrency(mut self, workers: usize) -> Self {
        self.declaration.concurrency = workers.max(1);
        self
    }

    /// Cuts a reconcile off after this time, and tries again: 5 minutes unless told otherwise.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.declaration.deadline = deadline;
        self
    }

    /// Waits this long for the caches to show what a reconcile wrote before the next one of the same object, which then
    /// reads past them: 10 seconds unless told otherwise.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.declaration.patience = patience;
        self
    }

    /// Waits like this after failures.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.declaration.backoff = backoff;
        self
    }

    /// Tries all objects together again no more often than this after failures: 100 at once and then 10 in a second, unless told
    /// otherwise.
    pub fn retry_rate(mut self, rate: RetryRate) -> Self {
        self.declaration.retry_rate = rate;
        self
    }

    /// Reconciles objects that are being deleted as well, for controllers that see to deletions which wait for something
    /// other than a [finalizer](crate::Reconcile::FINALIZER) of theirs.
    pub fn while_deleting(mut self) -> Self {
        self.declaration.while_deleting = true;
        self
    }

    /// Runs the controller on every replica, whether or not it [leads](crate::LeaderElection).
    ///
    /// Several replicas then reconcile one object at the same time, and each sees its own writes only: this is for what each process
    /// does for itself, such as keeping a picture in memory, and for writes that may come twice.
    pub fn on_every_replica(mut self) -> Self {
        self.declaration.everywhere = true;
        self
    }

    /// Lets the controller act through a client of its own, as somebody who may do what others in the operator may not, or
    /// whom the API server is to tell from them.
    ///
    /// Watches stay those of the operator, whose client sees what this one writes.
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
