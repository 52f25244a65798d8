//! Start, order and shutdown of the tasks of an operator.

use super::guard::{self, Guard};
use super::health::{self, Pages, Report};
use super::metrics::Metrics;
use super::running::Running;
use super::{Operator, RunError};
use crate::cache::Caches;
use crate::client::{Endpoint, RetryingClient};
use crate::context::{Environment, StatusWriter};
use crate::election::{Election, LeadershipState};
use crate::events::Recorder;
use crate::kind::Kind;
use crate::latch::Latch;
use crate::panics::Hooks;
use crate::queue::MonitoredQueue;
use crate::watcher::{Reachability, WatchCounters, Watcher};
use crate::webhook::{self, CertificateRotator, Live, Reach, Serving, Target};
use flyball_core::{ObjectKey, names};
use futures_util::future::BoxFuture;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpListener;

impl Operator {
    /// Runs until `shutdown` completes, and then stops in order: it becomes unready, starts no reconciles, waits for
    /// those under way and for [tasks](Self::task), sends pending events, and releases its lease. If the future is
    /// dropped, everything ends at once, and the lease has to expire.
    ///
    /// # Errors
    ///
    /// When a declaration is invalid, an address cannot be listened on, the [lease](crate::LeaderElection) was lost,
    /// or a task failed. An unreachable API server is not an error: requests are retried.
    #[doc(alias = "Start")]
    pub async fn run(self, client: kube::Client, shutdown: impl Future<Output = ()>) -> Result<(), RunError> {
        self.run_over(client.into(), shutdown).await
    }

    /// Runs as [`run`](Self::run) does, against the API server of a configuration. Requests cost less than with
    /// kube's client: they use the operator's own connections, through a [proxy](crate::proxy) if one is configured.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run), and when the configuration is invalid.
    pub async fn run_at(self, config: kube::Config, shutdown: impl Future<Output = ()>) -> Result<(), RunError> {
        let endpoint = Endpoint::new(config).map_err(RunError::Configuration)?;
        self.run_over(endpoint, shutdown).await
    }

    async fn run_over(self, endpoint: Endpoint, shutdown: impl Future<Output = ()>) -> Result<(), RunError> {
        let grace = self.grace;
        let mut running = self.start(endpoint).await?;
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

    /// Starts all tasks. The future is boxed, so that it is compiled in this crate, and not with each operator.
    fn start(self, endpoint: Endpoint) -> BoxFuture<'static, Result<Running, RunError>> {
        Box::pin(self.start_all(endpoint))
    }

    async fn start_all(mut self, endpoint: Endpoint) -> Result<Running, RunError> {
        self.set_up()?;
        // A simulation calls webhooks through a handle that it obtained before.
        let called_within = Arc::strong_count(&self.webhook_live) > 1;
        let (installed, webhooks) = (self.installed_name().to_owned(), self.webhooks());
        let Self { name, controllers, plans, webhooks: declared_webhooks, webhook_live, rng, election, tasks, .. } =
            self;
        let namespace = self.namespace.unwrap_or_else(|| endpoint.namespace.clone());
        let instance = self.instance.unwrap_or_else(|| name.clone());
        let name: Arc<str> = name.into();
        let manager: Arc<str> = self.field_manager.map_or_else(|| name.clone(), Into::into);
        let panics: Hooks = self.on_panic.into_iter().collect();
        let mut metrics = Metrics::new(self.host);
        let mut running = Running::default();

        // Listeners. An address in use is an error before anything starts.
        let metrics_listener = listen(self.metrics_server.address).await?;
        let health_listener = listen(self.health_server.address).await?;
        let webhook_listener = listen(self.webhook_server.address.filter(|_| !declared_webhooks.is_empty())).await?;

        if !declared_webhooks.is_empty() && webhook_listener.is_none() && !called_within {
            tracing::warn!("webhooks are not served: WebhookServer::address is not set");
        }

        // Leader election: one replica writes.
        let election = election.map(|settings| {
            let lease = ObjectKey::new(Some(&namespace), settings.lease.as_deref().unwrap_or(&installed));
            (settings, Arc::new(LeadershipState::new(lease)))
        });
        let leadership = election.as_ref().map(|(_, leadership)| leadership.clone());

        // Clients: one whose writes pass the gate of the election, and one without a gate.
        let client = |gate| RetryingClient::new(endpoint.clone(), metrics.requests.clone(), &rng, gate);
        let gated_client = leadership.as_ref().map(|leadership| client(Some(leadership.gate.clone())));
        let client = client(None);

        // Caches, and the writers that their watches use.
        let types = controllers.iter().flat_map(|controller| controller.types.clone());
        let planned = Caches::planned(types, &plans, &self.namespaces);
        let (caches, mut writers) = planned.map_err(|wrong| RunError::Cache { kind: wrong.kind, why: wrong.why })?;
        let caches = Arc::new(caches);

        // Events.
        let recorder = || Arc::new(Recorder::new(name.clone(), instance.clone(), &rng, metrics.events.clone()));
        let (recorder, gated_recorder) = (recorder(), gated_client.is_some().then(recorder));

        // Queues, and the metrics that are read from them.
        let queues: Vec<_> = controllers.iter().map(|controller| Arc::new(controller.queue(&rng))).collect();
        let monitored = controllers.iter().zip(&queues).map(|(controller, queue)| MonitoredQueue {
            controller: controller.name.clone(),
            workers: controller.concurrency,
            queue: queue.clone(),
        });
        metrics.collect(monitored.collect(), caches.clone());
        self.custom_metrics.into_iter().for_each(|register| metrics.register(register));
        let metrics = Arc::new(metrics);

        // Environments of controllers and tasks: for every replica, and for the leader.
        let everywhere = Arc::new(Environment {
            name: name.clone(),
            manager: manager.clone(),
            client: client.clone(),
            gate: None,
            leads: Arc::new(Latch::opened()),
            caches: caches.clone(),
            clock: self.clock,
            rng: rng.fork("reconcile"),
            recorder,
            requests: metrics.requests.clone(),
            applies: metrics.applies.clone(),
            normalizations: Arc::default(),
            drawn_names: Arc::default(),
            on_error: self.on_error.into(),
            on_settled: self.on_settled.into(),
        });
        let leading = match (&leadership, gated_client, gated_recorder) {
            (Some(leadership), Some(client), Some(recorder)) => {
                let (gate, leads) = (Some(leadership.gate.clone()), leadership.leads.clone());
                Arc::new(Environment { client, gate, leads, recorder, ..(*everywhere).clone() })
            }
            _ => everywhere.clone(),
        };
        running.recorders = match &leadership {
            Some(_) => vec![everywhere.recorder.clone(), leading.recorder.clone()],
            None => vec![everywhere.recorder.clone()],
        };

        // Controllers.
        for (controller, queue) in controllers.into_iter().zip(&queues) {
            let env = if controller.everywhere { &everywhere } else { &leading };
            for work in controller.start(env, &metrics.controllers, queue.clone(), &mut writers) {
                running.workers.spawn(panics.within(work));
            }
            let queue = queue.clone();
            running.others.spawn(async move { queue.watch_clock().await });
        }
        running.queues = queues;

        // Tasks.
        for task in tasks {
            let env = if task.everywhere { &everywhere } else { &leading };
            running.tasks.spawn(panics.within(task.run(env.clone(), running.stop.clone())));
        }

        // Watches.
        let reach = Arc::<Reachability>::default();
        let has_watches = !writers.is_empty() || election.is_some();
        let watch = |writer, counters| {
            let watcher = Watcher::new(client.clone(), reach.clone(), writer, manager.clone(), &rng, counters);
            panics.within(watcher.run())
        };
        for writer in writers {
            let store = writer.store();
            let counters = metrics.watches.of(&store.kind().to_string(), store.namespace());
            running.others.spawn(watch(writer, counters));
        }

        // The election itself, once the caches are warm.
        if let Some((settings, leadership)) = election {
            let leads = metrics.elections.leads(leadership.lease.name());
            let election = Election::new(&everywhere, &rng, settings, &instance, leadership.clone(), leads);
            running.others.spawn(watch(election.watched(), WatchCounters::default()));
            running.elections.spawn(election.run(all_synced(caches.clone()), running.release.clone()));
            running.lease = leadership.lease.to_string();
        }

        // Webhooks. The cell is empty: an operator runs once.
        let live = Live { caches: caches.clone(), metrics: metrics.webhooks.clone(), panics: panics.clone() };
        let _ = webhook_live.set(live);
        let serving = webhook_listener.is_some().then(Arc::<Serving>::default);
        if let (Some(listener), Some(serving)) = (webhook_listener, &serving) {
            let address = listener.local_addr().unwrap_or_else(|_| ([127, 0, 0, 1], webhook::PORT).into());
            let service = || Reach::Service { namespace: namespace.clone(), name: webhook::service_name(&installed) };
            let rotator = CertificateRotator {
                client: client.kube().clone(),
                clock: everywhere.clock.clone(),
                rng: rng.fork("webhooks"),
                operator: installed.clone(),
                reach: self.webhook_server.url.map_or_else(service, |url| Reach::url(&url, address.port())),
                namespace: namespace.clone(),
                certificates: self.webhook_server.certificates,
                targets: Target::all(&installed, &declared_webhooks),
                serving: serving.clone(),
                address,
                changed: Arc::default(),
            };
            for writer in rotator.watched() {
                running.others.spawn(watch(writer, WatchCounters::default()));
            }
            running.others.spawn(rotator.run());
            running.others.spawn(webhook::serve(listener, webhooks, serving.clone()));
        }

        // Pages: metrics, health and readiness.
        let (max_watch_staleness, stop) = (self.health_server.max_watch_staleness, running.stop.clone());
        let report = Arc::new(Report { caches, metrics, serving, leadership, max_watch_staleness, stop });
        match metrics_listener {
            Some(listener) if self.metrics_server.secure => {
                let (guard, serving) = (Arc::new(Guard::new(client.kube().clone())), Arc::<Serving>::default());
                let host = format!("{installed}-metrics.{namespace}.svc");
                let names = vec![host, "localhost".into(), "127.0.0.1".into()];
                let (directory, clock) = (self.metrics_server.certificate_dir, everywhere.clock.clone());
                let certificate = guard::keep_certificate(serving.clone(), directory, clock, name.to_string(), names);
                running.others.spawn(certificate);
                running.others.spawn(health::serve_guarded(listener, report.clone(), guard, serving));
            }
            Some(listener) => drop(running.others.spawn(health::serve(listener, Pages::Metrics, report.clone()))),
            None => {}
        }
        if let Some(listener) = health_listener {
            running.others.spawn(health::serve(listener, Pages::Health, report));
        }

        // Senders of events, and probes of the API server while its watches are quiet.
        for (recorder, env) in running.recorders.iter().zip([everywhere, leading]) {
            let recorder = recorder.clone();
            running.events.spawn(async move { recorder.run(env.client.kube()).await });
        }
        if has_watches {
            let rng = rng.fork("probe");
            running.others.spawn(async move { reach.probe_when_quiet(&client, rng).await });
        }
        Ok(running)
    }

    /// Validates the declarations, and creates deferred reconcilers.
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
            let wrong = (!wrong.is_empty()).then(|| format!("invalid name {lease:?} of a lease: {}", wrong.join("; ")));
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
                    format!("controller {name} replaces its objects, which would drop the fields that are not cached");
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
            let mut result = controller.set_up();
            if of_kind.get(&kind).is_some_and(|controllers| *controllers > 1) {
                let writer = StatusWriter::new(manager, (!first.insert(kind)).then_some(&*name));
                result = result.and_then(|()| writer.map(|writer| controller.shares_status(writer)));
            }
            result.map_err(|source| RunError::SetUp { controller: name, source })?;
        }
        Ok(())
    }
}

/// Waits until every cache is filled.
async fn all_synced(caches: Arc<Caches>) {
    for store in caches.stores() {
        store.synced().await;
    }
}

async fn listen(address: Option<SocketAddr>) -> Result<Option<TcpListener>, RunError> {
    let Some(address) = address else { return Ok(None) };
    TcpListener::bind(address).await.map(Some).map_err(|source| RunError::Listen { address, source })
}
