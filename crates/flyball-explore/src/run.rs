//! A run: forks the stage, plays a scenario with the faults of a schedule, and waits until the world is quiet.
//!
//! Each run has an OS thread of its own with a single-threaded runtime, whose time is paused. With equal inputs, two
//! runs are equal. Operators in other processes run in real time, see [`process`].

mod process;

pub(crate) use process::ProcessOutcome;

use crate::cost::{Cost, Meter, Phase};
use crate::crossing::OnCrossing;
use crate::driver::Driver;
use crate::external::{self, External, ExternalContext};
use crate::history::{Actor, Change, Meta, counts, stable_name};
use crate::hub::{Hub, Incident, IncidentKind, Occurrence, Records, Settings, time_at};
use crate::pace::Pace;
use crate::port::Connection;
use crate::schedule::Schedule;
use crate::site::{Port, Site};
use crate::stage::{InstalledObject, OPERATOR_NAMESPACE, Stage};
use crate::state::{Mask, State, differences, state_of_objects};
use crate::subject::{Make, Subject};
use crate::webhook::WebhookPort;
use flyball_cluster::{LocalWebhooks, Options, StoredObject, User};
use flyball_core::{Clock, Rng};
use serde_json::Value;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

/// Maximum number of requests in a run whose reference is unknown.
pub(crate) const MAX_REQUESTS: u64 = 2500;
/// Stack of the thread of a run.
const STACK_BYTES: usize = 4 << 20;

/// The settings of a run beside its schedule.
#[derive(Clone, Copy)]
pub(crate) struct RunOptions<'a> {
    /// Records the text of the trace.
    pub(crate) records: bool,
    /// The state in which the run is expected to end, except for these fields; it gets more time to reach it.
    pub(crate) expected: Option<(&'a State, &'a Mask)>,
    pub(crate) max_requests: u64,
    /// Restarts the operator at the end, to observe its writes.
    pub(crate) restarts: bool,
    pub(crate) on_crossing: Option<&'a Arc<OnCrossing>>,
}

impl Default for RunOptions<'_> {
    fn default() -> Self {
        Self { records: false, expected: None, max_requests: MAX_REQUESTS, restarts: false, on_crossing: None }
    }
}

impl RunOptions<'_> {
    /// Returns true if a run may end in this state.
    pub(crate) fn is_expected(&self, state: &State) -> bool {
        self.expected.is_none_or(|(expected, mask)| differences(expected, state, mask).is_empty())
    }
}

/// The outcome of a run.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) hash: u64,
    pub(crate) trace: Vec<String>,
    pub(crate) visits: Vec<Site>,
    pub(crate) occurrences: Vec<Occurrence>,
    pub(crate) history: Vec<Change>,
    pub(crate) incidents: Vec<Incident>,
    pub(crate) errors: BTreeMap<String, u32>,
    pub(crate) requests: u64,
    pub(crate) writes: u64,
    pub(crate) last_writes: Vec<String>,
    pub(crate) is_exhausted: bool,
    /// False if objects still changed at the end.
    pub(crate) is_quiet: bool,
    /// Steps of the scenario that the API server rejected, and why.
    pub(crate) rejections: Vec<String>,
    /// The final state, without values that differ from run to run.
    pub(crate) state: State,
    /// The final objects that changed in the run.
    pub(crate) objects: Vec<StoredObject>,
    /// The step of the scenario in which each object of the final state was created.
    pub(crate) births: BTreeMap<String, usize>,
    /// Writes of the operator after its restart at the end.
    pub(crate) restart_writes: Vec<String>,
    /// The output of an operator in another process.
    pub(crate) process: ProcessOutcome,
    pub(crate) cost: Cost,
    /// The requests of all clients by verb and resource, if the trace is recorded.
    pub(crate) request_counts: BTreeMap<String, u64>,
}

/// Runs a schedule on a thread of its own.
pub(crate) fn run(stage: &Stage, schedule: &Schedule, options: RunOptions<'_>) -> Outcome {
    match &stage.subject {
        Subject::Operator(make) => on_thread(|| async move { run_on_runtime(stage, make, schedule, options).await }),
        Subject::Process(command) => process::run(stage, command, schedule, options),
    }
}

/// Runs a future on a new thread, on a single-threaded runtime with paused time.
pub(crate) fn on_thread<T: Send, F: Future<Output = T>>(make: impl FnOnce() -> F + Send) -> T {
    let run = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.expect("a runtime without I/O needs no resources").block_on(make())
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("flyball-explore".to_owned()).stack_size(STACK_BYTES);
        let thread = thread.spawn_scoped(scope, run).expect("the system has room for a thread");
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

async fn run_on_runtime(stage: &Stage, make: &Arc<Make>, schedule: &Schedule, options: RunOptions<'_>) -> Outcome {
    let (began, offset, meter) = (Instant::now(), stage.elapsed, Meter::start(Phase::Fork));
    let clock = Clock::new(move || time_at(began, offset));
    let local = LocalWebhooks::default();
    let webhooks = WebhookPort::to(Arc::new(local.clone()));
    let server = Options { webhooks: Arc::new(webhooks.clone()), ..Options::simulated(clock.clone(), schedule.seed) };
    let cluster = stage.fork(server);
    let hub = Arc::new(Hub::new(Settings {
        server: cluster.server().clone(),
        began,
        offset,
        schedule,
        replicas: stage.replicas,
        records: options.records,
        max_requests: options.max_requests,
        pace: Pace::VIRTUAL,
        meter,
        on_crossing: options.on_crossing.cloned(),
    }));
    webhooks.connect(&hub);
    let panicked = hub.clone();
    let cluster = cluster.on_panic(move |place, text| {
        panicked.record_incident(IncidentKind::Panic, format!("control plane, {place}"), text.to_owned());
    });

    let rng = Rng::from_seed(schedule.seed);
    let context = ExternalContext { clock, rng: rng.fork("external") };
    let systems: Vec<Arc<dyn External>> = stage.externals.iter().map(|make| make(&context)).collect();
    let guard = external::enter(hub.clone(), systems.clone());
    let cluster = match &stage.program {
        Some(make) => cluster.with_program(make()),
        None => cluster,
    };
    let (controlled, controllers) = (cluster.clone(), stage.controllers.clone());
    let control_plane = tokio::spawn(async move { controlled.run(&controllers).await });
    let rng = rng.fork("operator");
    let processes: Vec<JoinHandle<()>> = (0..stage.replicas)
        .map(|process| {
            let starter = Starter { hub: hub.clone(), webhooks: local.clone(), rng: rng.clone(), process };
            let (make, operator) = (make.clone(), stage.operator.clone());
            tokio::spawn(async move { starter.run(&*make, &operator).await })
        })
        .collect();

    hub.meter.enter(Phase::BeforeFault);
    let driver = Driver { stage, schedule, hub: &hub, activity: None, noticed: Cell::default() };
    let rejections = driver.play().await;
    let view = || final_state(stage, &hub, &systems);
    // A state that is as expected ends the wait.
    let reached = RefCell::new(None);
    let is_expected = || {
        let seen = view();
        let is_expected = options.is_expected(&seen.0);
        *reached.borrow_mut() = is_expected.then_some(seen);
        is_expected
    };
    hub.meter.enter(Phase::Quiescence);
    let is_quiet = driver.calm_down(options.expected.is_some(), is_expected).await;
    hub.meter.enter(Phase::FinalState);
    let (state, objects) = reached.take().unwrap_or_else(view);
    let restart_writes = if options.restarts { driver.restart().await } else { Vec::new() };
    let time = hub.elapsed();
    hub.meter.enter(Phase::Teardown);
    for task in processes.iter().chain([&control_plane]) {
        task.abort();
    }
    for task in processes.into_iter().chain([control_plane]) {
        // An aborted task returns an error.
        let _ = task.await;
    }
    drop(guard);
    hub.read_history(Actor::ControlPlane, |_| false);
    let server = hub.server.clone();
    let cost = Cost {
        requests: server.request_count(),
        writes: server.revision() - stage.revision,
        clock_steps: Handle::current().metrics().worker_park_count(0),
        time,
        ..Cost::default()
    };
    let records = hub.clone().into_records();
    let mut outcome = outcome(records, (state, objects), is_quiet, rejections, restart_writes);
    if options.records {
        outcome.request_counts = server.request_counts();
    }
    drop((cluster, server));
    outcome.cost.add(&cost);
    outcome.cost.add(&hub.meter.stop());
    outcome
}

pub(crate) fn outcome(
    records: Records,
    (state, objects): (State, Vec<StoredObject>),
    is_quiet: bool,
    rejections: Vec<String>,
    restart_writes: Vec<String>,
) -> Outcome {
    let Records { hash, trace, visits, occurrences, history, incidents, errors, .. } = records;
    let events = visits.iter().filter(|site| site.port == Port::Watch).count();
    let cost = Cost {
        runs: 1,
        operator_requests: records.requests,
        events: u64::try_from(events).unwrap_or(u64::MAX),
        starts: records.starts,
        ..Cost::default()
    };
    let births = history.iter().filter(|change| change.is_creation());
    let births: BTreeMap<String, usize> = births.map(|change| (change.stable_name(), change.step)).collect();
    Outcome {
        hash,
        trace,
        visits,
        occurrences,
        incidents,
        errors,
        requests: records.requests,
        writes: records.writes,
        last_writes: records.last_writes,
        is_exhausted: records.is_exhausted,
        is_quiet: is_quiet && !records.is_exhausted,
        rejections,
        births: births.into_iter().filter(|(name, _)| state.contains_key(name)).collect(),
        state,
        objects,
        history,
        restart_writes,
        process: ProcessOutcome::default(),
        cost,
        request_counts: BTreeMap::new(),
    }
}

/// Returns the final state of the objects that changed in the run, and these objects. An object of the stage that was
/// deleted is null.
pub(crate) fn final_state(stage: &Stage, hub: &Hub, systems: &[Arc<dyn External>]) -> (State, Vec<StoredObject>) {
    let objects = hub.server.stored_objects_after(stage.revision, counts);
    let is_same = |(one, ..): &InstalledObject, (other, ..): &InstalledObject| one == other;
    let is_written = |objects: &&[InstalledObject]| hub.server.last_change_of(&objects[0].0) > stage.revision;
    let is_deleted = |(resource, key, _): &&InstalledObject| !hub.server.contains(resource, key);
    let deleted = stage.installed.chunk_by(is_same).filter(is_written).flatten().filter(is_deleted);
    let mut state = state_of_objects(&objects);
    // Recreated objects of the installation, such as roles, are as before.
    state.retain(|name, value| stage.base.get(name) != Some(value));
    state.extend(deleted.map(|(_, _, name)| (name.clone(), Value::Null)));
    for system in systems {
        state.extend(system.objects().into_iter().map(|(name, value)| (format!("external/{name}"), value)));
    }
    (state, objects)
}

/// Returns the name of a stored object as it is in all runs.
pub(crate) fn stored_name(object: &StoredObject) -> String {
    stable_name(&object.resource, &object.key, &Meta::of(&object.body))
}

/// Starts a process of the operator, again and again.
struct Starter {
    hub: Arc<Hub>,
    webhooks: LocalWebhooks,
    rng: Rng,
    process: u8,
}

impl Starter {
    async fn run(self, make: &Make, name: &str) {
        let host = format!("{name}-webhook.{OPERATOR_NAMESPACE}.svc");
        let user = User::service_account(OPERATOR_NAMESPACE, name);
        loop {
            let (generation, crash, stop) = self.hub.start(self.process);
            let (failed, panicked) = (self.hub.clone(), self.hub.clone());
            let operator = make()
                .namespace(OPERATOR_NAMESPACE)
                .instance(format!("{name}-{}", self.process))
                .clock(self.hub.clock(self.process))
                .rng(self.rng.fork(&format!("process {} start {generation}", self.process)))
                .on_error(move |controller, object, error| {
                    failed.record_error(format!("{controller} {object}: {error}"));
                })
                .on_panic(move |place, text| {
                    panicked.record_incident(IncidentKind::Panic, place.to_owned(), text.to_owned());
                });
            self.webhooks.serve(&host, operator.webhooks());
            let connection = Connection {
                hub: self.hub.clone(),
                process: self.process,
                generation,
                user: user.clone(),
                namespace: OPERATOR_NAMESPACE.to_owned(),
            };
            let stopped = async move { stop.notified().await };
            let mut running = tokio::spawn(operator.run(connection.client(), stopped));
            tokio::select! {
                biased;
                () = crash.notified() => {
                    running.abort();
                    // An aborted task returns an error.
                    let _ = running.await;
                }
                result = &mut running => match result {
                    Ok(Ok(()) | Err(flyball::RunError::LeadershipLost { .. })) => {}
                    Ok(Err(error)) => {
                        let text = format!("{error}");
                        self.hub.record_incident(IncidentKind::End, "the process".to_owned(), text);
                    }
                    Err(error) => {
                        let text = error.to_string();
                        self.hub.record_incident(IncidentKind::Panic, "the process".to_owned(), text);
                    }
                },
            }
            self.webhooks.silence(&host);
            sleep(self.hub.downtime(self.process)).await;
        }
    }
}
