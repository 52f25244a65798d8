//! One controller: which kind it reconciles, whose changes wake it, and how hard it works.

use super::context::Declared;
use super::predicate::{Filter, Predicate};
use super::source::{Source, Stimulus, Waking};
use super::sources::{Changed, Map, Sources};
use super::worker::Worker;
use super::{Reconcile, Result};
use crate::cache::{Caches, DeclaredIndex, Index, IndexId, Shown, Writer};
use crate::kind::{AnyResource, Kind, Resource, Type};
use crate::operator::rbac::Grant;
use crate::operator::{ControllerDescription, Environment};
use crate::queue::{Backoff, Queue, RetryRate};
use flyball_core::{ObjectKey, Rng};
use futures_util::future::BoxFuture;
use k8s_openapi::api::rbac::v1::PolicyRule;
use std::fmt;
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
    reconciler: Option<R>,
    make: Option<Box<Make<R>>>,
    name: String,
    primary: Kind,
    types: Vec<(Type, Kind)>,
    maps: Vec<(Kind, Map)>,
    filters: Vec<(Kind, Filter)>,
    /// As what the filters see objects.
    filtered: Vec<Type>,
    indexes: Vec<(Kind, DeclaredIndex)>,
    stimuli: Vec<Stimulus>,
    declared: Declared,
    grants: Vec<Grant>,
    rules: Vec<PolicyRule>,
    concurrency: usize,
    deadline: Duration,
    patience: Duration,
    backoff: Backoff,
    retry_rate: RetryRate,
    while_deleting: bool,
    everywhere: bool,
    client: Option<kube::Client>,
}

/// Makes a reconciler.
type Make<R> = dyn FnOnce() -> Result<R, BoxError> + Send;

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
        let bare = Self::bare(Type::of::<R::Resource>(), Kind::of::<R::Resource>());
        Self { make: Some(Box::new(|| make().map_err(Into::into))), ..bare }
    }
}

impl<R: Reconcile> Controller<R> {
    pub(super) fn with(ty: Type, primary: Kind, reconciler: R) -> Self {
        Self { reconciler: Some(reconciler), ..Self::bare(ty, primary) }
    }

    fn bare(ty: Type, primary: Kind) -> Self {
        let mut grants =
            vec![Grant::new(&primary, "", &["get", "list", "watch"]), Grant::new(&primary, "status", &["patch"])];
        if R::FINALIZER.is_some() {
            grants.push(Grant::new(&primary, "", &["patch"]));
        }
        Self {
            reconciler: None,
            make: None,
            name: primary.name().to_lowercase(),
            types: vec![(ty.clone(), primary.clone())],
            maps: vec![(primary.clone(), Map::Primary)],
            primary,
            filters: Vec::new(),
            filtered: Vec::new(),
            indexes: Vec::new(),
            stimuli: Vec::new(),
            declared: Declared { cached: [ty].into(), finalizes: R::FINALIZER.is_some(), ..Declared::default() },
            grants,
            rules: Vec::new(),
            concurrency: 16,
            deadline: Duration::from_secs(300),
            patience: Duration::from_secs(10),
            backoff: Backoff::default(),
            retry_rate: RetryRate::default(),
            while_deleting: false,
            everywhere: false,
            client: None,
        }
    }

    /// Names the controller, in logs and metrics. Two controllers of one kind need two names.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Lets the controller make, change and delete objects of this kind, and reconciles the owner when one of them changes.
    ///
    /// The owner is the one that the controller reference of the object names, which
    /// [`Context::apply`](crate::Context::apply) sets.
    pub fn owns<T: Resource>(self) -> Self {
        self.owns_as(Type::of::<T>(), Kind::of::<T>())
    }

    pub(super) fn owns_as(mut self, ty: Type, kind: Kind) -> Self {
        self.cached(&ty, &kind, &["get", "list", "watch", "create", "patch", "delete"]);
        // Clusters that check who may block the deletion of an owner ask for this.
        self.grants.push(Grant::new(&self.primary, "finalizers", &["update"]));
        self.declared.owned.insert(ty);
        self.maps.push((kind, Map::Owner));
        self
    }

    /// Reconciles the objects that `map` finds when an object of this kind changes; names of what does not exist are
    /// passed over.
    ///
    /// When an object changes, both its old and its new state are mapped. An error is logged, and the change then wakes
    /// nobody.
    pub fn watches<T: Resource>(
        self,
        map: impl Fn(&T, &Caches) -> Result<Vec<ObjectKey>> + Send + Sync + 'static,
    ) -> Self {
        self.watches_as(Type::of::<T>(), Kind::of::<T>(), map)
    }

    pub(super) fn watches_as<T: AnyResource>(
        mut self,
        ty: Type,
        kind: Kind,
        map: impl Fn(&T, &Caches) -> Result<Vec<ObjectKey>> + Send + Sync + 'static,
    ) -> Self {
        self.cached(&ty, &kind, &["get", "list", "watch"]);
        let map = move |shown: &Shown<'_>, caches: &Caches| shown.decoded(|object| map(object, caches))?;
        self.maps.push((kind, Map::Custom(Arc::new(map))));
        self
    }

    /// Reconciles the objects that `map` finds in what became of an object of this kind; names of what does not exist are
    /// passed over. An error is logged, and the change then wakes nobody.
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
        let kind = self.cached_type::<T>(&["get", "list", "watch"]);
        let map = move |old: Option<&Shown<'_>>, new: Option<&Shown<'_>>, caches: &Caches| {
            Changed::show(old, new, |change| map(change, caches))?.unwrap_or_else(|| Ok(Vec::new()))
        };
        self.maps.push((kind, Map::Changed(Arc::new(map))));
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
        mut self,
        names: impl Fn(&R::Resource) -> Vec<ObjectKey> + Send + Sync + 'static,
    ) -> Self {
        let kind = self.cached_type::<T>(&["get", "list", "watch"]);
        let (id, namespaced) = (IndexId::Own(Arc::default()), kind.is_namespaced());
        let targets = move |key: &ObjectKey, shown: &Shown<'_>| {
            let beside = |name: ObjectKey| {
                let namespace = name.namespace().or(key.namespace()).filter(|_| namespaced);
                ObjectKey::new(namespace, name.name())
            };
            let names = shown.decoded(|object| names(object)).unwrap_or_default();
            names.into_iter().map(beside).collect()
        };
        self.indexes.push((self.primary.clone(), DeclaredIndex::new(id.clone(), targets)));
        self.maps.push((kind, Map::Referrers(id)));
        self
    }

    /// Keeps an [index](Index) of the objects of a kind, for [`Context::list_by`](crate::Context::list_by). Their changes wake nobody,
    /// unless the kind is reconciled, owned or watched as well.
    pub fn index<I: Index>(mut self) -> Self {
        let kind = self.cached_type::<I::Resource>(&["get", "list", "watch"]);
        self.indexes.push((kind, DeclaredIndex::of::<I>()));
        self
    }

    /// Reconciles what a [source](Source) wakes, besides what changes.
    pub fn source(mut self, source: impl Into<Source<R::Resource>>) -> Self {
        self.stimuli.push(source.into().stimulus);
        self
    }

    /// Lets the controller [replace](crate::Context::replace) objects of this kind, and their status. Their changes wake nobody, unless the
    /// kind is reconciled, owned or watched as well.
    pub fn replaces<T: Resource>(self) -> Self {
        self.replaces_as(Type::of::<T>(), Kind::of::<T>())
    }

    pub(super) fn replaces_as(mut self, ty: Type, kind: Kind) -> Self {
        self.cached(&ty, &kind, &["get", "list", "watch", "update"]);
        self.grants.push(Grant::new(&kind, "status", &["update"]));
        self.declared.replaced.insert(ty);
        self
    }

    /// Lets the controller read objects of this kind from the API server, without a cache.
    pub fn reads<T: Resource>(self) -> Self {
        self.reads_as(Type::of::<T>(), Kind::of::<T>())
    }

    pub(super) fn reads_as(mut self, ty: Type, kind: Kind) -> Self {
        self.grants.push(Grant::new(&kind, "", &["get", "list"]));
        self.declared.read.insert(ty, kind);
        self
    }

    /// Lets the controller do what it does through [`Context::client`](crate::Context::client).
    pub fn allows(mut self, rule: PolicyRule) -> Self {
        self.rules.push(rule);
        self
    }

    /// Passes over updates of objects of this kind that the predicate finds not worth a reconcile. Of several, all must
    /// find it so. The type must be one as which the controller reconciles, owns or watches the kind, or stand for its metadata.
    pub fn filter<T: Resource>(self, predicate: Predicate<T>) -> Self {
        self.filter_as(Type::of::<T>(), Kind::of::<T>(), predicate)
    }

    pub(super) fn filter_as<T: AnyResource>(mut self, ty: Type, kind: Kind, predicate: Predicate<T>) -> Self {
        self.filters.push((kind, predicate.erased()));
        self.filtered.push(ty);
        self
    }

    /// Reconciles so many objects at the same time: 16 unless told otherwise, 1 at least.
    pub fn concurrency(mut self, workers: usize) -> Self {
        self.concurrency = workers.max(1);
        self
    }

    /// Cuts a reconcile off after this time, and tries again: 5 minutes unless told otherwise.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Waits this long for the caches to show what a reconcile wrote before the next one of the same object, which then
    /// reads past them: 10 seconds unless told otherwise.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Waits like this after failures.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = backoff;
        self
    }

    /// Tries all objects together again no more often than this after failures: 100 at once and then 10 in a second, unless told
    /// otherwise.
    pub fn retry_rate(mut self, rate: RetryRate) -> Self {
        self.retry_rate = rate;
        self
    }

    /// Reconciles objects that are being deleted as well, for controllers that see to deletions which wait for something
    /// other than a [finalizer](crate::Reconcile::FINALIZER) of theirs.
    pub fn while_deleting(mut self) -> Self {
        self.while_deleting = true;
        self
    }

    /// Runs the controller on every replica, whether or not it [leads](crate::LeaderElection).
    ///
    /// Several replicas then reconcile one object at the same time, and each sees its own writes only: this is for what each process
    /// does for itself, such as keeping a picture in memory, and for writes that may come twice.
    pub fn on_every_replica(mut self) -> Self {
        self.everywhere = true;
        self
    }

    /// Lets the controller act through a client of its own, as somebody who may do what others in the operator may not, or
    /// whom the API server is to tell from them.
    ///
    /// Watches stay those of the operator, whose client sees what this one writes.
    pub fn client(mut self, client: kube::Client) -> Self {
        self.client = Some(client);
        self
    }

    fn cached_type<T: Resource>(&mut self, verbs: &'static [&'static str]) -> Kind {
        let kind = Kind::of::<T>();
        self.cached(&Type::of::<T>(), &kind, verbs);
        kind
    }

    fn cached(&mut self, ty: &Type, kind: &Kind, verbs: &'static [&'static str]) {
        self.types.push((ty.clone(), kind.clone()));
        self.declared.cached.insert(ty.clone());
        self.grants.push(Grant::new(kind, "", verbs));
    }
}

impl<R: Reconcile> fmt::Debug for Controller<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller").field("name", &self.name).field("primary", &self.primary).finish_non_exhaustive()
    }
}

/// A controller of whatever type.
pub(crate) trait Declaration: Send {
    fn name(&self) -> &str;
    /// The kind that is reconciled.
    fn primary(&self) -> &Kind;
    /// The types that need a cache.
    fn types(&self) -> &[(Type, Kind)];
    fn grants(&self) -> &[Grant];
    fn rules(&self) -> &[PolicyRule];
    /// Tells whether it replaces objects of a kind.
    fn replaces(&self, kind: &Kind) -> bool;
    /// Tells whether it runs on replicas that do not lead.
    fn runs_everywhere(&self) -> bool;
    fn describe(&self) -> ControllerDescription;
    /// Makes the reconciler, unless it is made already.
    fn set_up(&mut self) -> Result<(), BoxError>;
    /// Makes the queue of the controller.
    fn queue(&self, rng: &Rng) -> Queue;
    /// Connects the queue with the caches, and gives what the workers are to do.
    fn start(
        self: Box<Self>,
        env: &Arc<Environment>,
        queue: Arc<Queue>,
        writers: &mut [Writer],
    ) -> Vec<BoxFuture<'static, ()>>;
}

impl<R: Reconcile> Declaration for Controller<R> {
    fn name(&self) -> &str {
        &self.name
    }

    fn primary(&self) -> &Kind {
        &self.primary
    }

    fn types(&self) -> &[(Type, Kind)] {
        &self.types
    }

    fn grants(&self) -> &[Grant] {
        &self.grants
    }

    fn rules(&self) -> &[PolicyRule] {
        &self.rules
    }

    fn replaces(&self, kind: &Kind) -> bool {
        let replaced = |ty: &Type| self.declared.replaced.contains(ty);
        self.types.iter().any(|(ty, declared)| declared == kind && replaced(ty))
    }

    fn runs_everywhere(&self) -> bool {
        self.everywhere
    }

    fn describe(&self) -> ControllerDescription {
        let kinds = |is: fn(&Map) -> bool| -> Vec<String> {
            self.maps.iter().filter(|(_, map)| is(map)).map(|(kind, _)| kind.qualified()).collect()
        };
        ControllerDescription {
            name: self.name.clone(),
            reconciles: self.primary.qualified(),
            owns: kinds(|map| matches!(map, Map::Owner)),
            watches: kinds(|map| matches!(map, Map::Custom(_) | Map::Referrers(_))),
            finalizer: R::FINALIZER.map(str::to_owned),
            concurrency: self.concurrency,
        }
    }

    fn set_up(&mut self) -> Result<(), BoxError> {
        for (kind, _) in &self.filters {
            if !self.maps.iter().any(|(declared, _)| declared == kind) {
                return Err(format!("it filters {kind}, which it neither reconciles, owns nor watches").into());
            }
        }
        // Of what nobody else deals with, the cache may not hold what the filter looks at.
        let is_kept = |ty: &Type| ty.is_metadata() || self.declared.cached.contains(ty);
        if let Some(ty) = self.filtered.iter().find(|ty| !is_kept(ty)) {
            return Err(format!("it filters {}, and neither reconciles, owns nor watches this type", ty).into());
        }
        let replaced = |ty: &Type| self.declared.replaced.contains(ty);
        if let Some((_, kind)) = self.types.iter().find(|(ty, _)| replaced(ty) && ty.is_metadata()) {
            return Err(format!("it replaces {kind} by metadata, and nothing else would be left of them").into());
        }
        if let Some(make) = self.make.take() {
            self.reconciler = Some(make()?);
        }
        Ok(())
    }

    fn queue(&self, rng: &Rng) -> Queue {
        Queue::new(self.backoff, self.retry_rate, self.patience, &rng.fork(&self.name))
    }

    fn start(
        self: Box<Self>,
        env: &Arc<Environment>,
        queue: Arc<Queue>,
        writers: &mut [Writer],
    ) -> Vec<BoxFuture<'static, ()>> {
        let env = &match self.client {
            Some(client) => Arc::new(env.acting_as(client, &self.name)),
            None => env.clone(),
        };
        let (name, caches, primary) = (self.name.clone(), env.caches.clone(), self.primary.clone());
        let sources = Arc::new(Sources::new(name, queue.clone(), caches, primary, &self.maps, &self.filters));
        // Also those of which no change wakes anybody: what is written there has to be seen, and read once it is filled.
        let stores: Vec<_> = env.caches.stores_among(&self.declared.cached).cloned().collect();
        for writer in writers.iter_mut().filter(|writer| stores.iter().any(|store| store.id() == writer.store().id())) {
            writer.subscribe(sources.clone());
            for (kind, index) in &self.indexes {
                if kind == writer.store().kind() {
                    writer.index(index);
                }
            }
        }
        let mut tasks = Vec::new();
        for stimulus in self.stimuli {
            match stimulus {
                // Before anything is reconciled, so that nothing is missed that happens afterwards.
                Stimulus::Channel(ends) => ends.attach(&sources),
                Stimulus::Task(task) => tasks.push(task(Waking {
                    sources: sources.clone(),
                    caches: env.caches.clone(),
                    rng: env.rng.fork(&self.name),
                    deadline: self.deadline,
                })),
            }
        }
        let worker = Arc::new(Worker {
            reconciler: self.reconciler.expect("the controller was set up"),
            metrics: env.metrics.controller(&self.name, self.concurrency),
            controller: self.name,
            kind: self.primary,
            deadline: self.deadline,
            while_deleting: self.while_deleting,
            env: env.clone(),
            declared: Arc::new(self.declared),
            queue,
        });
        // Tells whether work may begin, or whether it is over before that.
        let begins = || {
            let (worker, stores) = (worker.clone(), stores.clone());
            async move {
                let synced = async {
                    for store in &stores {
                        store.synced().await;
                    }
                    worker.env.leads.wait().await;
                };
                tokio::select! {
                    biased;
                    () = worker.queue.closed() => false,
                    () = synced => true,
                }
            }
        };
        let work = || {
            let (worker, begins) = (worker.clone(), begins());
            let work = async move {
                if begins.await {
                    worker.run().await;
                }
            };
            Box::pin(work) as BoxFuture<'static, ()>
        };
        let wake = |task: BoxFuture<'static, ()>| {
            let (worker, begins) = (worker.clone(), begins());
            let wake = async move {
                if begins.await {
                    tokio::select! {
                        biased;
                        () = worker.queue.closed() => {}
                        () = task => {}
                    }
                }
            };
            Box::pin(wake) as BoxFuture<'static, ()>
        };
        (0..self.concurrency).map(|_| work()).chain(tasks.into_iter().map(wake)).collect()
    }
}
