//! The declaration of a controller, independent of the type of its reconciler, and its start.

use super::admission::Admission;
use super::failures::Failures;
use super::metrics::ControllerMetrics;
use super::predicate::Filter;
use super::source::{SourceContext, SourceKind};
use super::sources::{Map, Sources};
use super::start::StartGate;
use super::unconfirmed::Unconfirmed;
use super::worker::{Reconciler, Worker};
use crate::backoff::Backoff;
use crate::cache::{Caches, DeclaredIndex, Store, Writer};
use crate::context::{DeclaredTypes, Environment, StatusSchema, StatusWriter};
use crate::error::Result;
use crate::kind::{Kind, Type};
use crate::ledger::Ledger;
use crate::memory::MemoryBudget;
use crate::queue::{Queue, RetryRate, Workers};
use crate::rbac::Grant;
use flyball_core::Rng;
use futures_util::future::BoxFuture;
use k8s_openapi::api::rbac::v1::PolicyRule;
use std::borrow::Cow;
use std::fmt;
use std::mem;
use std::sync::Arc;
use std::time::Duration;
use tower::BoxError;

/// The declaration of a controller.
pub(crate) struct Declaration {
    pub(crate) name: String,
    /// The kind that is reconciled.
    pub(crate) primary: Kind,
    /// The types that need a cache.
    pub(crate) types: Vec<(Type, Kind)>,
    pub(crate) grants: Vec<Grant>,
    pub(crate) rules: Vec<PolicyRule>,
    /// True if it runs on replicas that do not lead.
    pub(crate) on_all_replicas: bool,
    /// Creates the reconciler; `None` afterwards.
    make: Option<Box<Make>>,
    reconciler: Option<Box<dyn Reconciler>>,
    pub(super) finalizer: Option<Cow<'static, str>>,
    /// True if only metadata is decoded.
    metadata: bool,
    pub(super) maps: Vec<(Kind, Map)>,
    pub(super) filters: Vec<(Kind, Filter)>,
    /// The types that the filters decode.
    pub(super) filtered: Vec<Type>,
    pub(super) indexes: Vec<(Kind, DeclaredIndex)>,
    pub(super) source_kinds: Vec<SourceKind>,
    declared: DeclaredTypes,
    pub(crate) concurrency: usize,
    /// True if namespaces share the workers before there is a second one.
    pub(super) shares_workers: bool,
    pub(super) deadline: Duration,
    pub(super) own_write_timeout: Duration,
    pub(super) backoff: Backoff,
    pub(super) retry_rate: RetryRate,
    pub(super) while_deleting: bool,
    /// The memory budget of reconciles, and the limit of one.
    pub(super) memory: Option<(MemoryBudget, usize)>,
    pub(super) client: Option<kube::Client>,
}

/// A function that creates a reconciler.
pub(super) type Make = dyn FnOnce() -> Result<Box<dyn Reconciler>, BoxError> + Send;

impl Declaration {
    pub(super) fn new(
        ty: Type,
        primary: Kind,
        make: Box<Make>,
        finalizer: Option<&'static str>,
        metadata: bool,
    ) -> Self {
        let grants =
            vec![Grant::new(&primary, "", &["get", "list", "watch"]), Grant::new(&primary, "status", &["patch"])];
        let mut declaration = Self {
            name: primary.name().to_lowercase(),
            types: vec![(ty.clone(), primary.clone())],
            grants,
            rules: Vec::new(),
            on_all_replicas: false,
            make: Some(make),
            reconciler: None,
            finalizer: None,
            metadata,
            maps: vec![(primary.clone(), Map::Primary)],
            primary,
            filters: Vec::new(),
            filtered: Vec::new(),
            indexes: Vec::new(),
            source_kinds: Vec::new(),
            declared: DeclaredTypes { cached: [ty].into(), ..DeclaredTypes::default() },
            concurrency: 16,
            shares_workers: false,
            deadline: Duration::from_secs(300),
            own_write_timeout: Duration::from_secs(10),
            backoff: Backoff::default(),
            retry_rate: RetryRate::default(),
            while_deleting: false,
            memory: None,
            client: None,
        };
        if let Some(finalizer) = finalizer {
            declaration.finalizes(finalizer.into());
        }
        declaration
    }

    /// Adds a finalizer to every object.
    pub(super) fn finalizes(&mut self, finalizer: Cow<'static, str>) {
        self.finalizer = Some(finalizer);
        self.declared.finalizes = true;
        self.grants.push(Grant::new(&self.primary, "", &["patch"]));
    }

    /// Declares the need for a cache of a type.
    pub(super) fn caches(&mut self, ty: &Type, kind: &Kind) {
        self.types.push((ty.clone(), kind.clone()));
        self.declared.cached.insert(ty.clone());
        self.grants.push(Grant::new(kind, "", &["get", "list", "watch"]));
    }

    pub(super) fn owns(&mut self, ty: Type, kind: Kind) {
        self.caches(&ty, &kind);
        self.grants.push(Grant::new(&kind, "", &["create", "patch", "delete"]));
        // Required in clusters with the admission plugin OwnerReferencesPermissionEnforcement.
        self.grants.push(Grant::new(&self.primary, "finalizers", &["update"]));
        self.declared.owned.insert(ty);
        self.maps.push((kind, Map::Owner));
    }

    /// Declares objects that are created without an owner, and neither changed nor deleted.
    pub(super) fn creates(&mut self, ty: Type, kind: &Kind) {
        self.caches(&ty, kind);
        self.grants.push(Grant::new(kind, "", &["create"]));
        self.declared.owned.insert(ty);
    }

    pub(super) fn replaces(&mut self, ty: Type, kind: &Kind) {
        self.caches(&ty, kind);
        self.grants.push(Grant::new(kind, "", &["update"]));
        self.grants.push(Grant::new(kind, "status", &["update"]));
        self.declared.replaced.insert(ty);
    }

    pub(super) fn reads(&mut self, ty: Type, kind: Kind) {
        self.grants.push(Grant::new(&kind, "", &["get", "list"]));
        self.declared.read.insert(ty, kind);
    }

    /// Returns true if it replaces objects of a kind.
    pub(crate) fn does_replace(&self, kind: &Kind) -> bool {
        let replaced = |ty: &Type| self.declared.replaced.contains(ty);
        self.types.iter().any(|(ty, declared)| declared == kind && replaced(ty))
    }

    /// Creates the reconciler, unless it exists already.
    pub(crate) fn set_up(&mut self) -> Result<(), BoxError> {
        for (kind, _) in &self.filters {
            if !self.maps.iter().any(|(declared, _)| declared == kind) {
                return Err(
                    format!("filter of {kind}: the controller neither reconciles, owns nor watches this kind").into()
                );
            }
        }
        // A kind without another use may be cached without the fields that the filter reads.
        let is_kept = |ty: &Type| ty.is_metadata() || self.declared.cached.contains(ty);
        if let Some(ty) = self.filtered.iter().find(|ty| !is_kept(ty)) {
            return Err(format!("filter of {ty}: the controller neither reconciles, owns nor watches this type").into());
        }
        let replaced = |ty: &Type| self.declared.replaced.contains(ty);
        if let Some((_, kind)) = self.types.iter().find(|(ty, _)| replaced(ty) && ty.is_metadata()) {
            return Err(format!(
                "replacement of {kind}: the type has only metadata, so all other fields would be dropped"
            )
            .into());
        }
        if let Some(make) = self.make.take() {
            self.reconciler = Some(make()?);
        }
        Ok(())
    }

    /// Applies the status with a field manager of its own, because several controllers write the status of the kind.
    pub(crate) fn shares_status(&mut self, writer: StatusWriter) {
        self.declared.status = Some(writer);
    }

    /// Adapts the status to the schema in the cluster.
    pub(super) fn adapts_status(&mut self, own_conditions: &'static [&'static str]) {
        self.declared.status_schema = Some(StatusSchema::new(own_conditions));
    }

    /// Creates the queue of the controller.
    pub(crate) fn queue(&self, rng: &Rng) -> Queue {
        let workers = Workers { count: self.concurrency, are_shared: self.shares_workers };
        Queue::new(self.backoff, self.retry_rate, self.own_write_timeout, workers, &rng.fork(&self.name))
    }

    /// Returns the caches that it waits for.
    pub(crate) fn required_stores(&self, caches: &Caches) -> Vec<Arc<Store>> {
        caches.stores_among(&self.declared.cached).cloned().collect()
    }

    /// Connects the queue with the caches, and returns the futures of workers and sources.
    pub(crate) fn start(
        mut self,
        env: &Arc<Environment>,
        metrics: &ControllerMetrics,
        (queue, ledger): (Arc<Queue>, Arc<Ledger>),
        writers: &mut [Writer],
    ) -> Vec<BoxFuture<'static, ()>> {
        let env = match self.client.take() {
            Some(client) => Arc::new(env.acting_as(client, &self.name)),
            None => env.clone(),
        };
        let admission = self.memory.take().map(|(budget, max_bytes)| Arc::new(Admission::new(budget, max_bytes)));
        let (name, caches, errors) = (self.name.clone(), env.caches.clone(), metrics.map_errors(&self.name));
        let primary = self.primary.clone();
        let mut sources = Sources::new(name, queue.clone(), caches, primary, &self.maps, &self.filters, errors);
        sources.admission.clone_from(&admission);
        sources.ledger = Some((ledger.clone(), env.clock.clone()));
        let sources = Arc::new(sources);
        // Includes caches without triggers, since writes to them must be observed, and reads must wait until they are
        // filled.
        let stores = self.required_stores(&env.caches);
        for writer in writers.iter_mut().filter(|writer| stores.iter().any(|store| store.id() == writer.store().id())) {
            self.subscribe(&sources, writer);
        }
        let tasks = self.source_tasks(&sources, &env);
        let count = self.concurrency;
        let unconfirmed = sources.unconfirmed.clone();
        let gate = StartGate::new(self.worker(env, metrics, (admission, unconfirmed), queue, ledger), stores);
        (0..count).map(|_| gate.work()).chain(tasks.into_iter().map(|task| gate.delay(task))).collect()
    }

    /// Connects the sources and indexes with a cache.
    fn subscribe(&self, sources: &Arc<Sources>, writer: &mut Writer) {
        writer.subscribe(sources.clone());
        for (kind, index) in &self.indexes {
            if kind == writer.store().kind() {
                writer.index(index);
            }
        }
    }

    /// Attaches the channels, and returns the tasks that trigger reconciles.
    fn source_tasks(&mut self, sources: &Arc<Sources>, env: &Environment) -> Vec<BoxFuture<'static, ()>> {
        let mut tasks: Vec<BoxFuture<'static, ()>> = Vec::new();
        if sources.may_fail() {
            let (sources, rng) = (sources.clone(), env.rng.fork("unmapped"));
            tasks.push(Box::pin(async move { sources.wake_for_unmapped(&rng).await }));
        }
        for source_kind in mem::take(&mut self.source_kinds) {
            match source_kind {
                // Connected before anything is reconciled, so that no later change is missed.
                SourceKind::Channel(ends) => ends.attach(sources),
                SourceKind::Task(task) => tasks.push(task(SourceContext {
                    sources: sources.clone(),
                    caches: env.caches.clone(),
                    rng: env.rng.fork(&self.name),
                    deadline: self.deadline,
                })),
            }
        }
        tasks
    }

    fn worker(
        self,
        env: Arc<Environment>,
        metrics: &ControllerMetrics,
        (admission, unconfirmed): (Option<Arc<Admission>>, Arc<Unconfirmed>),
        queue: Arc<Queue>,
        ledger: Arc<Ledger>,
    ) -> Worker {
        Worker {
            reconciler: self.reconciler.expect("the reconciler has been created"),
            finalizer: self.finalizer,
            metadata: self.metadata,
            metrics: metrics.of(&self.name, self.concurrency),
            controller: self.name,
            kind: self.primary,
            deadline: self.deadline,
            while_deleting: self.while_deleting,
            admission,
            unconfirmed,
            env,
            declared: Arc::new(self.declared),
            queue,
            ledger,
            failures: Failures::default(),
        }
    }
}

impl fmt::Debug for Declaration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Declaration").field("name", &self.name).field("primary", &self.primary).finish_non_exhaustive()
    }
}
