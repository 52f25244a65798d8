//! Start of the tasks of an operator, in the order in which they depend on each other.

use super::debug::{DebugPages, DebuggedController};
use super::guard::{self, Guard};
use super::health::{self, Pages, Report};
use super::metrics::Metrics;
use super::running::OperatorTasks;
use super::{HealthServer, MetricsServer, Operator, RunError, Task, WebhookServer};
use crate::cache::{Caches, Writer};
use crate::client::{Agent, Endpoint, RetryingClient};
use crate::context::Environment;
use crate::controller::Declaration;
use crate::election::{Election, LeaderElection, LeadershipState};
use crate::events::Recorder;
use crate::latch::Latch;
use crate::ledger::Ledger;
use crate::panics::Hooks;
use crate::queue::{MonitoredQueue, Queue};
use crate::watcher::{Reachability, WatchCounters, Watcher};
use crate::webhook::{self, CertificateRotator, OperatorState, ServingCertificate, Target, WebhookAddress, Webhooks};
use flyball_core::{ObjectKey, Rng};
use std::mem::take;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpListener;

impl Operator {
    /// Starts all tasks.
    pub(super) async fn start(mut self, endpoint: Endpoint) -> Result<OperatorTasks, RunError> {
        self.set_up()?;
        let listeners = self.listen().await?;
        let webhooks = self.webhooks();
        let mut start = Start::new(&mut self, endpoint)?;
        start.controllers(self.controllers);
        start.tasks(self.tasks);
        start.watches();
        if let Some(settings) = self.election {
            start.election(settings);
        }
        // The cell is empty: an operator runs once.
        let _ = self.webhook_live.set(start.live());
        let targets = Target::all(&start.installed, &self.webhooks);
        let serving =
            listeners.webhooks.map(|listener| start.webhooks(listener, webhooks, self.webhook_server, targets));
        let report = start.report(serving, &self.health_server);
        if let Some(listener) = listeners.metrics {
            start.metrics_pages(listener, self.metrics_server, report.clone());
        }
        if let Some(listener) = listeners.health {
            start.running.others.spawn(health::serve(listener, Pages::Health, report));
        }
        start.event_senders();
        start.probes();
        Ok(start.running)
    }

    /// Binds the listeners. The future does not borrow the operator, and is `Send`.
    fn listen(&self) -> impl Future<Output = Result<Listeners, RunError>> + use<> {
        let (metrics, health) = (self.metrics_server.address, self.health_server.address);
        let webhooks = self.webhook_server.address.filter(|_| !self.webhooks.is_empty());
        // A simulation calls webhooks through a handle that it obtained before.
        let is_called_within = Arc::strong_count(&self.webhook_live) > 1;
        if !self.webhooks.is_empty() && webhooks.is_none() && !is_called_within {
            tracing::warn!("webhooks are not served: WebhookServer::address is not set");
        }
        async move {
            Ok(Listeners {
                metrics: listen(metrics).await?,
                health: listen(health).await?,
                webhooks: listen(webhooks).await?,
            })
        }
    }
}

/// The listeners of an operator. They are bound first: an address in use is an error before anything starts.
struct Listeners {
    metrics: Option<TcpListener>,
    health: Option<TcpListener>,
    webhooks: Option<TcpListener>,
}

async fn listen(address: Option<SocketAddr>) -> Result<Option<TcpListener>, RunError> {
    let Some(address) = address else { return Ok(None) };
    TcpListener::bind(address).await.map(Some).map_err(|source| RunError::Listen { address, source })
}

/// The parts that the tasks share, and the tasks started so far.
struct Start {
    /// Name of the installation.
    installed: String,
    /// Namespace of the operator itself.
    namespace: String,
    /// Name of this replica.
    instance: String,
    rng: Rng,
    panics: Hooks,
    metrics: Arc<Metrics>,
    /// Writers of the caches, for their watches.
    writers: Vec<Writer>,
    /// Ledgers of the controllers, in their order.
    ledgers: Vec<Arc<Ledger>>,
    /// The controllers, for the debug pages.
    debugged: Vec<DebuggedController>,
    version: Option<&'static str>,
    /// Environment of controllers and tasks that run on every replica.
    on_all_replicas: Arc<Environment>,
    /// Environment of controllers and tasks that run on the leader.
    leading: Arc<Environment>,
    leadership: Option<Arc<LeadershipState>>,
    reach: Arc<Reachability>,
    has_watches: bool,
    running: OperatorTasks,
}

impl Start {
    fn new(operator: &mut Operator, endpoint: Endpoint) -> Result<Self, RunError> {
        let installed = operator.installed_name().to_owned();
        let namespace = operator.namespace.take().unwrap_or_else(|| endpoint.namespace.clone());
        let instance = operator.instance.take().unwrap_or_else(|| operator.name.clone());
        let leadership = operator.election.as_ref().map(|settings| {
            let lease = ObjectKey::new(Some(&namespace), settings.lease.as_deref().unwrap_or(&installed));
            Arc::new(LeadershipState::new(lease))
        });
        let mut metrics = Metrics::new(take(&mut operator.host));
        // Each part forks the randomness: another order would change the requests of a simulation.
        let rng = operator.rng.clone();

        // Writes of the leader pass the gate of the election.
        let agent = Agent::new(&operator.name, operator.version);
        let requests = metrics.requests.clone();
        let client = |gate| RetryingClient::new(endpoint.clone(), requests.clone(), &rng, gate, agent.clone());
        let gated_client = leadership.as_ref().map(|leadership| client(Some(leadership.gate.clone())));
        let client = client(None);

        let types = operator.controllers.iter().flat_map(|controller| controller.types.clone());
        let planned = Caches::planned(types, &operator.plans, &operator.namespaces);
        let (caches, writers) = planned.map_err(|wrong| RunError::Cache { kind: wrong.kind, why: wrong.why })?;
        let caches = Arc::new(caches);

        let name: Arc<str> = operator.name.as_str().into();
        let recorder = || Arc::new(Recorder::new(name.clone(), instance.clone(), &rng, metrics.events.clone()));
        let (recorder, gated_recorder) = (recorder(), leadership.is_some().then(recorder));
        let recorders = [Some(recorder.clone()), gated_recorder.clone()].into_iter().flatten().collect();

        let queues = queues(&operator.controllers, &rng);
        let has_ledger = operator.has_ledger;
        let ledger = |controller: &Declaration| {
            Arc::new(Ledger::new(metrics.controllers.flaps(&controller.name)).enabled(has_ledger))
        };
        let ledgers: Vec<_> = operator.controllers.iter().map(ledger).collect();
        let parts = queues.iter().zip(&ledgers);
        let debugged = operator.controllers.iter().zip(parts).map(|(controller, (queue, ledger))| {
            DebuggedController::new(controller, queue.clone(), ledger.clone(), &caches)
        });
        let debugged = debugged.collect();
        metrics.collect(monitored(&operator.controllers, &queues), caches.clone());
        take(&mut operator.custom_metrics).into_iter().for_each(|register| metrics.register(register));

        let on_all_replicas = Arc::new(Environment {
            manager: operator.field_manager.take().map_or_else(|| name.clone(), Into::into),
            name,
            client,
            gate: None,
            leads: Arc::new(Latch::opened()),
            caches,
            clock: operator.clock.clone(),
            has_threads: operator.has_threads,
            rng: rng.fork("reconcile"),
            recorder,
            requests: metrics.requests.clone(),
            agent,
            applies: metrics.applies.clone(),
            normalizations: Arc::default(),
            generated_names: Arc::default(),
            on_error: take(&mut operator.on_error).into(),
            on_success: take(&mut operator.on_success).into(),
        });
        let leading = match (&leadership, gated_client, gated_recorder) {
            (Some(leadership), Some(client), Some(recorder)) => {
                let (gate, leads) = (Some(leadership.gate.clone()), leadership.leads.clone());
                Arc::new(Environment { client, gate, leads, recorder, ..(*on_all_replicas).clone() })
            }
            _ => on_all_replicas.clone(),
        };
        Ok(Self {
            installed,
            namespace,
            instance,
            rng,
            panics: take(&mut operator.on_panic).into_iter().collect(),
            metrics: Arc::new(metrics),
            has_watches: !writers.is_empty() || leadership.is_some(),
            running: OperatorTasks { recorders, queues, ..OperatorTasks::default() },
            writers,
            ledgers,
            debugged,
            version: operator.version,
            on_all_replicas,
            leading,
            leadership,
            reach: Arc::default(),
        })
    }

    fn controllers(&mut self, controllers: Vec<Declaration>) {
        for ((controller, queue), ledger) in controllers.into_iter().zip(&self.running.queues).zip(&self.ledgers) {
            let env = if controller.on_all_replicas { &self.on_all_replicas } else { &self.leading };
            let parts = (queue.clone(), ledger.clone());
            for work in controller.start(env, &self.metrics.controllers, parts, &mut self.writers) {
                self.running.workers.spawn(self.panics.within(work));
            }
            let queue = queue.clone();
            self.running.others.spawn(async move { queue.watch_clock().await });
        }
    }

    fn tasks(&mut self, tasks: Vec<Task>) {
        for task in tasks {
            let env = if task.on_all_replicas { &self.on_all_replicas } else { &self.leading };
            self.running.tasks.spawn(self.panics.within(task.run(env.clone(), self.running.stop.clone())));
        }
    }

    fn watches(&mut self) {
        for writer in take(&mut self.writers) {
            let store = writer.store();
            let counters = self.metrics.watches.of(&store.kind().to_string(), store.namespace());
            self.watch(writer, counters);
        }
    }

    fn watch(&mut self, writer: Writer, counters: WatchCounters) {
        let Environment { client, manager, .. } = &*self.on_all_replicas;
        let watcher = Watcher::new(client.clone(), self.reach.clone(), writer, manager.clone(), &self.rng, counters);
        self.running.others.spawn(self.panics.within(watcher.run()));
    }

    /// Starts the election of a leader, which begins once the caches are filled.
    fn election(&mut self, settings: LeaderElection) {
        let Some(leadership) = self.leadership.clone() else { return };
        let leads = self.metrics.elections.leads(leadership.lease.name());
        self.running.lease = leadership.lease.to_string();
        let election = Election::new(&self.on_all_replicas, &self.rng, settings, &self.instance, leadership, leads);
        self.watch(election.watched(), WatchCounters::default());
        let synced = all_synced(self.on_all_replicas.caches.clone());
        self.running.elections.spawn(election.run(synced, self.running.release.clone()));
    }

    /// Returns the parts that webhooks use, also those that are called within the process.
    fn live(&self) -> OperatorState {
        OperatorState {
            caches: self.on_all_replicas.caches.clone(),
            metrics: self.metrics.webhooks.clone(),
            panics: self.panics.clone(),
        }
    }

    /// Starts the server of the webhooks, and the rotation of its certificate.
    fn webhooks(
        &mut self,
        listener: TcpListener,
        webhooks: Webhooks,
        server: WebhookServer,
        targets: Vec<Target>,
    ) -> Arc<ServingCertificate> {
        let serving = Arc::<ServingCertificate>::default();
        let address = listener.local_addr().unwrap_or_else(|_| ([127, 0, 0, 1], webhook::PORT).into());
        let service = || WebhookAddress::Service {
            namespace: self.namespace.clone(),
            name: webhook::service_name(&self.installed),
        };
        let rotator = CertificateRotator {
            client: self.on_all_replicas.client.kube().clone(),
            clock: self.on_all_replicas.clock.clone(),
            rng: self.rng.fork("webhooks"),
            operator: self.installed.clone(),
            address: server.url.map_or_else(service, |url| WebhookAddress::url(&url, address.port())),
            namespace: self.namespace.clone(),
            certificates: server.certificates,
            targets,
            serving: serving.clone(),
            listener: address,
            changed: Arc::default(),
        };
        for writer in rotator.watched() {
            self.watch(writer, WatchCounters::default());
        }
        self.running.others.spawn(rotator.run());
        self.running.others.spawn(webhook::serve(listener, webhooks, serving.clone()));
        serving
    }

    /// Returns the sources of the pages for metrics, health and readiness.
    fn report(&mut self, serving: Option<Arc<ServingCertificate>>, server: &HealthServer) -> Arc<Report> {
        let env = &self.on_all_replicas;
        let debug = DebugPages {
            operator: env.name.clone(),
            instance: self.instance.clone(),
            field_manager: env.manager.clone(),
            version: self.version,
            started: env.clock.now(),
            clock: env.clock.clone(),
            controllers: take(&mut self.debugged),
            caches: env.caches.clone(),
            leadership: self.leadership.clone(),
            stop: self.running.stop.clone(),
        };
        Arc::new(Report {
            debug,
            caches: self.on_all_replicas.caches.clone(),
            metrics: self.metrics.clone(),
            serving,
            leadership: self.leadership.clone(),
            max_watch_staleness: server.max_watch_staleness,
            stop: self.running.stop.clone(),
        })
    }

    fn metrics_pages(&mut self, listener: TcpListener, server: MetricsServer, report: Arc<Report>) {
        if !server.secure {
            self.running.others.spawn(health::serve(listener, Pages::Metrics, report));
            return;
        }
        let Environment { client, clock, name, .. } = &*self.on_all_replicas;
        let (guard, serving) = (Arc::new(Guard::new(client.kube().clone())), Arc::<ServingCertificate>::default());
        let host = format!("{}-metrics.{}.svc", self.installed, self.namespace);
        let names = vec![host, "localhost".into(), "127.0.0.1".into()];
        let (directory, clock) = (server.certificate_dir, clock.clone());
        let certificate = guard::keep_certificate(serving.clone(), directory, clock, name.to_string(), names);
        self.running.others.spawn(certificate);
        self.running.others.spawn(health::serve_guarded(listener, report, guard, serving));
    }

    fn event_senders(&mut self) {
        for (recorder, env) in self.running.recorders.iter().zip([&self.on_all_replicas, &self.leading]) {
            let (recorder, env) = (recorder.clone(), env.clone());
            self.running.events.spawn(async move { recorder.run(env.client.kube()).await });
        }
    }

    /// Starts probes of the API server for the time in which its watches are quiet.
    fn probes(&mut self) {
        if self.has_watches {
            let (rng, reach, client) =
                (self.rng.fork("probe"), self.reach.clone(), self.on_all_replicas.client.clone());
            self.running.others.spawn(async move { reach.probe_when_quiet(&client, rng).await });
        }
    }
}

fn queues(controllers: &[Declaration], rng: &Rng) -> Vec<Arc<Queue>> {
    controllers.iter().map(|controller| Arc::new(controller.queue(rng))).collect()
}

fn monitored(controllers: &[Declaration], queues: &[Arc<Queue>]) -> Vec<MonitoredQueue> {
    let monitored = |(controller, queue): (&Declaration, &Arc<Queue>)| MonitoredQueue {
        controller: controller.name.clone(),
        workers: controller.concurrency,
        queue: queue.clone(),
    };
    controllers.iter().zip(queues).map(monitored).collect()
}

/// Waits until every cache is filled.
async fn all_synced(caches: Arc<Caches>) {
    for store in caches.stores() {
        store.synced().await;
    }
}
