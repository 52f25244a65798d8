//! The declaration of a controller, independent of the type of its reconciler, and its start.

use super::admission::Admission;
use super::metrics::ControllerMetrics;
use super::predicate::Filter;
use super::source::{SourceContext, SourceKind};
use super::sources::{Map, Sources};
use super::worker::{Reconciler, Worker};
use crate::backoff::Backoff;
use crate::cache::{DeclaredIndex, Writer};
use crate::context::{DeclaredTypes, Environment, StatusWriter};
use crate::error::Result;
use crate::kind::{Kind, Type};
use crate::memory::MemoryBudget;
use crate::queue::{Queue, RetryRate, Workers};
use crate::rbac::Grant;
use flyball_core::Rng;
use futures_util::future::BoxFuture;
use k8s_openapi::api::rbac::v1::PolicyRule;
use std::borrow::Cow;
use std::fmt;
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
                return Err(format!("it filters {kind}, which it neither reconciles, owns nor watches").into());
            }
        }
        // A kind without another use may be cached without the fields that the filter reads.
        let is_kept = |ty: &Type| ty.is_metadata() || self.declared.cached.contains(ty);
        if let Some(ty) = self.filtered.iter().find(|ty| !is_kept(ty)) {
            return Err(format!("it filters {}, and neither reconciles, owns nor watches this type", ty).into());
        }
        let replaced = |ty: &Type| self.declared.replaced.contains(ty);
        if let Some((_, kind)) = self.types.iter().find(|(ty, _)| replaced(ty) && ty.is_metadata()) {
            return Err(format!("it replaces {kind} by metadata only, which would drop all other fields").into());
        }
        if let Some(make) = self.make.take() {
            self.reconciler = Some(make()?);
        }
        Ok(())
    }

    /// Makes the controller apply the status as one of several of its kind.
    pub(crate) fn shares_status(&mut self, writer: StatusWriter) {
        self.declared.status = Some(writer);
    }

    /// Creates the queue of the controller.
    pub(crate) fn queue(&self, rng: &Rng) -> Queue {
        let workers = Workers { count: self.concurrency, are_shared: self.shares_workers };
        Queue::new(self.backoff, self.retry_rate, self.own_write_timeout, workers, &rng.fork(&self.name))
    }

    /// Connects the queue with the caches, and returns the futures of workers and sources.
    pub(crate) fn start(
        self,
        env: &Arc<Environment>,
        metrics: &ControllerMetrics,
        queue: Arc<Queue>,
        writers: &mut [Writer],
    ) -> Vec<BoxFuture<'static, ()>> {
        let env = &match self.client {
            Some(client) => Arc::new(env.acting_as(client, &self.name)),
            None => env.clone(),
        };
        let (name, caches, primary) = (self.name.clone(), env.caches.clone(), self.primary.clone());
        let errors = metrics.map_errors(&self.name);
        let admission = self.memory.map(|(budget, max_bytes)| Arc::new(Admission::new(budget, max_bytes)));
        let mut sources = Sources::new(name, queue.clone(), caches, primary, &self.maps, &self.filters, errors);
        sources.admission.clone_from(&admission);
        let sources = Arc::new(sources);
        // Includes caches without triggers, since writes to them must be observed, and reads must wait until they are
        // filled.
        let stores: Vec<_> = env.caches.stores_among(&self.declared.cached).cloned().collect();
        for writer in writers.iter_mut().filter(|writer| stores.iter().any(|store| store.id() == writer.store().id())) {
            writer.subscribe(sources.clone());
            for (kind, index) in &self.indexes {
                if kind == writer.store().kind() {
                    writer.index(index);
                }
            }
        }
        let mut tasks: Vec<BoxFuture<'static, ()>> = Vec::new();
        if sources.may_fail() {
            let (sources, rng) = (sources.clone(), env.rng.fork("unmapped"));
            tasks.push(Box::pin(async move { sources.wake_for_unmapped(&rng).await }));
        }
        for source_kind in self.source_kinds {
            match source_kind {
                // Connected before anything is reconciled, so that no later change is missed.
                SourceKind::Channel(ends) => ends.attach(&sources),
                SourceKind::Task(task) => tasks.push(task(SourceContext {
                    sources: sources.clone(),
                    caches: env.caches.clone(),
                    rng: env.rng.fork(&self.name),
                    deadline: self.deadline,
                })),
            }
        }
        let worker = Arc::new(Worker {
            reconciler: self.reconciler.expect("the reconciler has been created"),
            finalizer: self.finalizer,
            metadata: self.metadata,
            metrics: metrics.of(&self.name, self.concurrency),
            controller: self.name,
            kind: self.primary,
            deadline: self.deadline,
            while_deleting: self.while_deleting,
            admission,
            env: env.clone(),
            declared: Arc::new(self.declared),
            queue,
        });
        // Waits until work may start; returns false if the queue is closed before.
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

impl fmt::Debug for Declaration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Declaration").field("name", &self.name).field("primary", &self.primary).finish_non_exhaustive()
    }
}
