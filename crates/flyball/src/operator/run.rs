//! From a declaration to a running operator: what is made of it, in which order, and how it ends.

use super::election::{Election, Standing};
use super::guard::{self, Guard};
use super::health::{self, Pages, Report};
use super::metrics::{Metrics, WatchMetrics};
use super::running::Running;
use super::{Environment, Operator, RunError};
use crate::apply::{Recorder, StatusWriter};
use crate::cache::Caches;
use crate::client::{Layered, Link};
use crate::kind::Kind;
use crate::latch::Latch;
use crate::panics::Hooks;
use crate::watcher::{Reachability, Watcher};
use crate::webhook::{self, Keeper, Live, Reach, Serving, Target};
use flyball_core::{ObjectKey, names};
use futures_util::future::BoxFuture;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpListener;

impl Operator {
    /// Runs until `shutdown` completes, and then ends in order: it is not ready any more, begins no reconciles, waits for those
    /// under way and for [tasks](Self::task), sends what events there are, and lets another replica lead. If the future is
    /// dropped, all of it ends at once, and the lease has to lapse.
    ///
    /// # Errors
    ///
    /// When the operator is declared wrongly, cannot listen at its addresses, has [lost its lease](crate::LeaderElection), or one of its
    /// tasks failed. The API server being unreachable is no error but a reason to try again.
    pub async fn run(self, client: kube::Client, shutdown: impl Future<Output = ()>) -> Result<(), RunError> {
        self.run_over(client.into(), shutdown).await
    }

    /// Runs as [`run`](Self::run) does, against the API server of a configuration. Requests cost less than by kube's client:
    /// they go over connections of the operator's own, through a [proxy](crate::proxy) where one is configured.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run), and when the configuration is of no use.
    pub async fn run_at(self, config: kube::Config, shutdown: impl Future<Output = ()>) -> Result<(), RunError> {
        let link = Link::to(config).map_err(RunError::Configuration)?;
        self.run_over(link, shutdown).await
    }

    async fn run_over(self, link: Link, shutdown: impl Future<Output = ()>) -> Result<(), RunError> {
        let grace = self.grace;
        let mut running = self.start(link).await?;
        let outcome = tokio::select! {
            biased;
            () = shutdown => Ok(()),
            error = running.failed() => match error {
                RunError::Task { .. } => Err(error),
                RunError::LeadershipLost { .. } => {
                    running.end_at_once().await;
                    return Err(error);
                }
                _ => return Err(error),
            },
        };
        tracing::info!("shutting down");
        running.end(grace).await;
        outcome
    }

    /// Starts all that runs. The future is boxed so that it is compiled here, and not once more with each operator.
    fn start(self, link: Link) -> BoxFuture<'static, Result<Running, RunError>> {
        Box::pin(self.start_all(link))
    }

    async fn start_all(mut self, link: Link) -> Result<Running, RunError> {
        self.set_up()?;
        let metrics_listener = listen(self.metrics_address).await?;
        let health_listener = listen(self.health_address).await?;
        let webhook_listener = listen(self.webhook_address.filter(|_| !self.webhooks.is_empty())).await?;

        let webhooks = self.webhooks();
        let installed = self.installed_name().to_owned();
        let targets = Target::all(&installed, &self.webhooks);
        let mut metrics = Metrics::new(self.host);
        let namespace = self.home.unwrap_or_else(|| link.namespace.clone());
        let elect = self.election.map(|election| {
            let lease = ObjectKey::new(Some(&namespace), election.lease.as_deref().unwrap_or(&installed));
            (election, Arc::new(Standing::new(lease)))
        });
        let standing = elect.as_ref().map(|(_, standing)| standing.clone());
        let gated = standing
            .as_ref()
            .map(|standing| Layered::new(link.clone(), metrics.requests(), &self.rng, Some(standing.gate.clone())));
        let client = Layered::new(link, metrics.requests(), &self.rng, None);
        let types = self.controllers.iter().flat_map(|controller| controller.types.clone());
        let planned = Caches::planned(types, &self.plans, &self.namespaces);
        let (caches, mut writers) = planned.map_err(|wrong| RunError::Cache { kind: wrong.kind, why: wrong.why })?;
        let caches = Arc::new(caches);
        let name: Arc<str> = self.name.as_str().into();
        let manager: Arc<str> = self.field_manager.map_or_else(|| name.clone(), Into::into);
        let instance = self.instance.unwrap_or(self.name);
        let recorder = || Arc::new(Recorder::new(name.clone(), instance.clone(), &self.rng, metrics.events.clone()));
        let (first, second) = (recorder(), standing.is_some().then(recorder));
        let controllers = self.controllers.iter();
        let queues: Vec<_> = controllers.map(|each| (each.name.clone(), Arc::new(each.queue(&self.rng)))).collect();
        metrics.observe(queues.clone(), caches.clone());
        self.figures.into_iter().for_each(|register| metrics.register(register));
        let metrics = Arc::new(metrics);
        let everywhere = Arc::new(Environment {
            name: name.clone(),
            manager: manager.clone(),
            client: client.clone(),
            gate: None,
            leads: Arc::new(Latch::opened()),
            caches: caches.clone(),
            clock: self.clock,
            rng: self.rng.fork("reconcile"),
            recorder: first,
            metrics: metrics.clone(),
            rephrased: Arc::default(),
            drawn_names: Arc::default(),
            on_error: self.on_error.into(),
            on_settled: self.on_settled.into(),
        });
        let leading = match (&standing, gated, second) {
            (Some(standing), Some(client), Some(recorder)) => {
                let (gate, leads) = (Some(standing.gate.clone()), standing.leads.clone());
                Arc::new(Environment { client, gate, leads, recorder, ..(*everywhere).clone() })
            }
            _ => everywhere.clone(),
        };

        let panics: Hooks = self.on_panic.into_iter().collect();
        let mut running = Running {
            queues: queues.iter().map(|(_, queue)| queue.clone()).collect(),
            recorders: vec![everywhere.recorder.clone()],
            ..Running::default()
        };
        if standing.is_some() {
            running.recorders.push(leading.recorder.clone());
        }
        for (controller, (_, queue)) in self.controllers.into_iter().zip(&queues) {
            let env = if controller.everywhere { &everywhere } else { &leading };
            for work in controller.start(env, queue.clone(), &mut writers) {
                running.workers.spawn(panics.within(work));
            }
            let queue = queue.clone();
            running.others.spawn(async move { queue.watch_clock().await });
        }
        for task in self.tasks {
            let env = if task.everywhere { &everywhere } else { &leading };
            running.tasks.spawn(panics.within(task.run(env.clone(), running.stop.clone())));
        }
        let reach = Arc::<Reachability>::default();
        let has_watches = !writers.is_empty() || elect.is_some();
        for writer in writers {
            let store = writer.store();
            let watch = metrics.watch(&store.kind().to_string(), store.namespace());
            let (client, reach, manager) = (client.clone(), reach.clone(), manager.clone());
            running.others.spawn(panics.within(Watcher::new(client, reach, writer, manager, &self.rng, watch).run()));
        }
        if let Some((settings, standing)) = elect {
            let master = metrics.master(standing.lease.name());
            let election = Election::new(&everywhere, &self.rng, settings, &instance, standing.clone(), master);
            let (writer, watch) = (election.watched(), WatchMetrics::default());
            let (client, reach, manager) = (client.clone(), reach.clone(), manager.clone());
            running.others.spawn(Watcher::new(client, reach, writer, manager, &self.rng, watch).run());
            let caches = caches.clone();
            let warm = async move {
                for store in caches.stores() {
                    store.synced().await;
                }
            };
            running.elections.spawn(election.run(warm, running.release.clone()));
        }
        let metrics_names =
            vec![format!("{installed}-metrics.{namespace}.svc"), "localhost".into(), "127.0.0.1".into()];
        let live = Live { caches: caches.clone(), metrics: metrics.webhooks.clone(), panics };
        // It is empty: an operator runs but once.
        let _ = self.webhook_live.set(live);
        let serving = webhook_listener.is_some().then(Arc::<Serving>::default);
        if let (Some(listener), Some(serving)) = (webhook_listener, &serving) {
            let address = listener.local_addr().unwrap_or_else(|_| ([127, 0, 0, 1], webhook::PORT).into());
            let service = || Reach::Service { namespace: namespace.clone(), name: webhook::service_name(&installed) };
            let keeper = Keeper {
                client: client.kube().clone(),
                clock: everywhere.clock.clone(),
                rng: self.rng.fork("webhooks"),
                operator: installed.clone(),
                reach: self.webhook_url.map_or_else(service, |url| Reach::url(&url, address.port())),
                namespace,
                certificates: self.webhook_certificates,
                targets,
                serving: serving.clone(),
                address,
                changed: Arc::default(),
            };
            for writer in keeper.watched() {
                let (client, reach, manager) = (client.clone(), reach.clone(), manager.clone());
                let watch = WatchMetrics::default();
                running.others.spawn(Watcher::new(client, reach, writer, manager, &self.rng, watch).run());
            }
            running.others.spawn(keeper.run());
            running.others.spawn(webhook::serve(listener, webhooks, serving.clone()));
        }
        let (longest_stale, stop) = (self.longest_stale, running.stop.clone());
        let report = Arc::new(Report { caches, metrics, serving, standing: standing.clone(), longest_stale, stop });
        match metrics_listener {
            Some(listener) if self.protects_metrics => {
                let (guard, serving) = (Arc::new(Guard::new(client.kube().clone())), Arc::<Serving>::default());
                let (directory, clock) = (self.metrics_directory, everywhere.clock.clone());
                running.others.spawn(guard::keep_certificate(
                    serving.clone(),
                    directory,
                    clock,
                    name.to_string(),
                    metrics_names,
                ));
                running.others.spawn(health::serve_guarded(listener, report.clone(), guard, serving));
            }
            Some(listener) => drop(running.others.spawn(health::serve(listener, Pages::Metrics, report.clone()))),
            None => {}
        }
        if let Some(listener) = health_listener {
            running.others.spawn(health::serve(listener, Pages::Health, report));
        }
        for (recorder, env) in running.recorders.iter().zip([everywhere, leading]) {
            let recorder = recorder.clone();
            running.events.spawn(async move { recorder.run(env.client.kube()).await });
        }
        if has_watches {
            let rng = self.rng.fork("probe");
            running.others.spawn(async move { reach.probe_when_quiet(&client, rng).await });
        }
        running.lease = standing.map(|standing| standing.lease.to_string()).unwrap_or_default();
        Ok(running)
    }

    /// Finds mistakes that need no cluster to be found, and makes the reconcilers that are not made yet.
    pub(super) fn set_up(&mut self) -> Result<(), RunError> {
        let wrong = names::qualified_name(&self.name);
        if !wrong.is_empty() {
            return Err(RunError::Name { name: self.name.clone(), why: wrong.join("; ") });
        }
        for namespace in &self.namespaces {
            let wrong = names::dns_label(namespace);
            if !wrong.is_empty() {
                return Err(RunError::Namespace { name: namespace.clone(), why: wrong.join("; ") });
            }
        }
        if let Some(election) = &self.election {
            let lease = election.lease.as_deref().unwrap_or(self.installed_name());
            let wrong = names::dns_subdomain(lease);
            let wrong =
                (!wrong.is_empty()).then(|| format!("{lease:?} cannot be the name of a lease: {}", wrong.join("; ")));
            if let Some(why) = wrong.or(election.mistake().map(Into::into)) {
                return Err(RunError::LeaderElection { why });
            }
        }
        let mut seen: BTreeMap<&str, &Kind> = BTreeMap::new();
        for controller in &self.controllers {
            if let Some(first) = seen.insert(&controller.name, &controller.primary) {
                let (name, second) = (controller.name.clone(), controller.primary.to_string());
                return Err(RunError::SameName { name, first: first.to_string(), second });
            }
        }
        let mut kinds = BTreeSet::new();
        if let Some(twice) = self.webhooks.iter().find(|webhook| !kinds.insert(webhook.scope.kind.resource())) {
            return Err(RunError::SameWebhook { kind: twice.scope.kind.to_string() });
        }
        let mut kinds = BTreeSet::new();
        if let Some(twice) = self.policies.iter().find(|policy| !kinds.insert(policy.kind().resource())) {
            return Err(RunError::SamePolicy { kind: twice.kind().to_string() });
        }
        for plan in self.plans.iter().filter(|plan| plan.loses_fields()) {
            if let Some(controller) = self.controllers.iter().find(|controller| controller.does_replace(&plan.kind)) {
                let name = &controller.name;
                let why =
                    format!("controller {name} replaces its objects, which would lose the fields that are not kept");
                return Err(RunError::Cache { kind: plan.kind.to_string(), why });
            }
        }
        let manager = self.field_manager.as_deref().unwrap_or(&self.name);
        let mut of_kind: BTreeMap<Kind, usize> = BTreeMap::new();
        for controller in &self.controllers {
            *of_kind.entry(controller.primary.clone()).or_default() += 1;
        }
        let mut first = BTreeSet::new();
        for controller in &mut self.controllers {
            let (kind, name) = (controller.primary.clone(), controller.name.clone());
            let mut made = controller.set_up();
            if of_kind.get(&kind).is_some_and(|controllers| *controllers > 1) {
                let writer = StatusWriter::new(manager, (!first.insert(kind)).then_some(&*name));
                made = made.and_then(|()| writer.map(|writer| controller.shares_status(writer)));
            }
            made.map_err(|source| RunError::SetUp { controller: name, source })?;
        }
        Ok(())
    }
}

async fn listen(address: Option<SocketAddr>) -> Result<Option<TcpListener>, RunError> {
    let Some(address) = address else { return Ok(None) };
    TcpListener::bind(address).await.map(Some).map_err(|source| RunError::Listen { address, source })
}
