//! The hub of a run: it counts the crossings of all ports, decides by the schedule which faults occur, and records what
//! happens.
//!
//! It sends nothing itself. Ports cross it, and carry out the faults that it returns. All of its state is behind one
//! lock that is never held across an await.

mod process;
mod request;

pub(crate) use request::AdminRequest;

use crate::cost::{Meter, Phase};
use crate::crossing::{Crossing, OnCrossing};
use crate::fault::Fault;
use crate::history::{Actor, Change, Meta, ParsedMeta, counts};
use crate::pace::Pace;
use crate::schedule::Schedule;
use crate::site::{Port, Site, kind_name};
use crate::trace::Trace;
use flyball_cluster::Server;
use flyball_core::time::{SignedDuration, Timestamp};
use flyball_core::{Clock, GroupResource, ObjectKey, Rng};
use parking_lot::{Mutex, MutexGuard};
use process::Process;
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

/// Downtime of an operator after a crash.
pub(crate) const RESTART: Duration = Duration::from_secs(1);
/// Time for which a replica of the API server stays frozen.
pub(crate) const FREEZE: Duration = Duration::from_secs(60);
/// Start of the clock: 2026-01-01.
const EPOCH: i64 = 1_767_225_600;
/// Number of writes at the end of a run that a report shows.
const LAST_WRITES: usize = 12;

/// A fault that occurred.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Occurrence {
    pub(crate) at: Duration,
    /// Number of writes in the history before it.
    pub(crate) writes: usize,
    pub(crate) site: Site,
    pub(crate) fault: Fault,
}

/// An action that an oracle reports, noticed while the run is under way.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Incident {
    pub(crate) kind: IncidentKind,
    pub(crate) at: Duration,
    /// The object or the place.
    pub(crate) object: String,
    pub(crate) text: String,
}

/// The kind of an [`Incident`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum IncidentKind {
    /// The operator panicked.
    Panic,
    /// The operator ended with an error.
    End,
    /// A process deleted an object that it had not observed, under a name that it had.
    BlindDelete,
    /// A process wrote while another one held the lease.
    Trespass,
    /// The operator removed the change of another controller again and again.
    Fight,
    /// A request of the operator was denied.
    Denial,
    /// The deletion of an object by the user did not end in time.
    Stuck,
}

struct State {
    faults: Vec<(Site, Fault)>,
    is_disturbing: bool,
    counters: BTreeMap<(u8, Port, String), u32>,
    visits: Vec<Site>,
    occurrences: Vec<Occurrence>,
    /// The revisions of delivered events.
    revisions: BTreeMap<Site, u64>,
    /// Names of objects with generated names as they are in all runs.
    aliases: BTreeMap<(String, String), String>,
    generated: BTreeMap<String, u32>,
    trace: Trace,
    history: Vec<Change>,
    /// The revision up to which the history is read.
    cursor: u64,
    step: usize,
    processes: Vec<Process>,
    /// Time until which the API server rejects requests.
    restarting: Option<Instant>,
    /// Number of restarts of the API server, which end all watches.
    restarts: u32,
    /// Time until which webhooks do not respond.
    webhooks_silent: Option<Instant>,
    /// The process that holds the lease.
    holder: Option<u8>,
    requests: u64,
    writes: u64,
    in_flight: u32,
    /// The end of the last fault with a duration.
    busy_until: Instant,
    last_writes: VecDeque<String>,
    incidents: Vec<Incident>,
    errors: BTreeMap<String, u32>,
    /// The custom resource: path and object.
    primary: Option<(String, Value)>,
}

impl State {
    fn cross(&mut self, at: Duration, process: u8, port: Port, name: String) -> (Site, Vec<Fault>) {
        let counter = self.counters.entry((process, port, name.clone())).or_default();
        *counter += 1;
        let site = Site { process, port, name, occurrence: *counter };
        self.visits.push(site.clone());
        if !self.is_disturbing {
            return (site, Vec::new());
        }
        let due = self.faults.iter().filter(|(at, _)| *at == site);
        let faults: Vec<Fault> = due.map(|(_, fault)| fault.clone()).collect();
        let writes = self.history.len();
        for fault in &faults {
            self.trace.add(format_args!("{} {site} ✱ {fault}", at.as_micros()), b"");
            self.occurrences.push(Occurrence { at, writes, site: site.clone(), fault: fault.clone() });
        }
        (site, faults)
    }
}

/// The settings of a hub.
pub(crate) struct Settings<'a> {
    pub(crate) server: Server,
    pub(crate) began: Instant,
    /// Time from the start of the clock to the start of the run.
    pub(crate) offset: Duration,
    pub(crate) schedule: &'a Schedule,
    pub(crate) replicas: u8,
    pub(crate) records: bool,
    /// Maximum number of requests of the operator; further ones have no response.
    pub(crate) max_requests: u64,
    pub(crate) pace: Pace,
    pub(crate) meter: Meter,
    pub(crate) on_crossing: Option<Arc<OnCrossing>>,
}

/// The meeting point of all ports of a run.
pub(crate) struct Hub {
    pub(crate) server: Server,
    pub(crate) rng: Rng,
    pub(crate) pace: Pace,
    pub(crate) meter: Meter,
    began: Instant,
    offset: Duration,
    jitter: u32,
    max_requests: u64,
    state: Mutex<State>,
    /// Notified when a block may have ended.
    released: Notify,
    on_crossing: Option<Arc<OnCrossing>>,
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub").finish_non_exhaustive()
    }
}

/// The records of a run.
pub(crate) struct Records {
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
    /// Number of starts of all processes.
    pub(crate) starts: u64,
}

impl Hub {
    pub(crate) fn new(settings: Settings<'_>) -> Self {
        let Settings { server, began, offset, schedule, replicas, records, max_requests, .. } = settings;
        let Settings { pace, meter, on_crossing, .. } = settings;
        let faults = schedule.injections.iter().map(|injection| (injection.at.clone(), injection.fault.clone()));
        let state = State {
            faults: faults.collect(),
            is_disturbing: true,
            counters: BTreeMap::new(),
            visits: Vec::new(),
            occurrences: Vec::new(),
            revisions: BTreeMap::new(),
            aliases: BTreeMap::new(),
            generated: BTreeMap::new(),
            trace: Trace::new(records),
            history: Vec::new(),
            cursor: server.revision(),
            step: 0,
            processes: (0..replicas).map(|_| Process::new()).collect(),
            restarting: None,
            restarts: 0,
            webhooks_silent: None,
            holder: None,
            requests: 0,
            writes: 0,
            in_flight: 0,
            busy_until: began,
            last_writes: VecDeque::new(),
            incidents: Vec::new(),
            errors: BTreeMap::new(),
            primary: None,
        };
        let rng = Rng::from_seed(schedule.seed).fork("hub");
        let jitter = schedule.jitter;
        Self {
            server,
            rng,
            pace,
            meter,
            began,
            offset,
            jitter,
            max_requests,
            state: Mutex::new(state),
            released: Notify::new(),
            on_crossing,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Returns the time since the start of the run.
    pub(crate) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Returns the clock of a process.
    pub(crate) fn clock(self: &Arc<Self>, process: u8) -> Clock {
        let (hub, began, offset) = (self.clone(), self.began, self.offset);
        Clock::new(move || {
            time_at(began, offset) + SignedDuration::from_secs(hub.with(process, |process| process.skew))
        })
    }

    fn with<T>(&self, process: u8, access: impl FnOnce(&mut Process) -> T) -> T {
        access(&mut self.state().processes[usize::from(process)])
    }

    /// Counts a crossing, and returns its site and the faults that occur at it.
    pub(crate) fn cross(&self, process: u8, port: Port, name: String) -> (Site, Vec<Fault>) {
        let at = self.elapsed();
        let (site, faults) = self.state().cross(at, process, port, name);
        if !faults.is_empty() {
            self.meter.pass(Phase::BeforeFault, Phase::AfterFault);
        }
        if let Some(observe) = &self.on_crossing {
            observe(&Crossing { at, site: &site, faults: &faults });
        }
        (site, faults)
    }

    /// Adds a line to the trace.
    pub(crate) fn trace(&self, line: fmt::Arguments<'_>, body: &[u8]) {
        let at = self.elapsed().as_micros();
        self.state().trace.add(format_args!("{at} {line}"), body);
    }

    /// Waits for the latency of a message.
    pub(crate) async fn latency(&self, base: Duration) {
        let jitter = if self.jitter == 0 { 0 } else { self.rng.below(u64::from(self.jitter) + 1) };
        let wait = base + Duration::from_millis(jitter);
        if !wait.is_zero() {
            sleep(wait).await;
        }
    }

    /// Records that a fault lasts for this time, at the pace of the run; returns its end.
    pub(crate) fn lasts(&self, time: Duration) -> Instant {
        let until = Instant::now() + self.pace.of(time);
        let mut state = self.state();
        state.busy_until = state.busy_until.max(until);
        until
    }

    /// Counts a request of the operator. Returns false if there were too many.
    pub(crate) fn count(&self, is_write: bool, what: impl FnOnce() -> String) -> bool {
        let mut state = self.state();
        state.requests += 1;
        if is_write {
            state.writes += 1;
            state.last_writes.truncate(LAST_WRITES - 1);
            state.last_writes.push_front(what());
        }
        state.requests <= self.max_requests
    }

    /// Returns true if the operator sent too many requests.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.state().requests > self.max_requests
    }

    /// Counts a request in flight until the guard is dropped.
    pub(crate) fn begin_request(&self) -> Flight<'_> {
        self.state().in_flight += 1;
        Flight(self)
    }

    /// Returns true if no request is in flight and no fault lasts.
    pub(crate) fn is_calm(&self) -> bool {
        let state = self.state();
        state.in_flight == 0 && state.busy_until <= Instant::now()
    }

    /// Returns the end of the last fault with a duration.
    pub(crate) fn busy_until(&self) -> Instant {
        self.state().busy_until
    }

    /// Ends the phase with faults.
    pub(crate) fn end_faults(&self) {
        let mut state = self.state();
        state.is_disturbing = false;
        state.processes.iter_mut().for_each(|process| process.crashes = 0);
        drop(state);
        self.released.notify_waiters();
    }

    /// Waits for the end of the phase with faults.
    pub(crate) async fn faults_ended(&self) {
        loop {
            let released = self.released.notified();
            if !self.state().is_disturbing {
                return;
            }
            released.await;
        }
    }

    /// Records that a process got an incomplete list of a resource.
    pub(crate) fn record_truncated(&self, process: u8, kind: String) {
        self.with(process, |process| process.truncated.insert(kind));
    }

    /// Returns true if the last list of a resource was incomplete, once.
    pub(crate) fn takes_truncated(&self, process: u8, kind: &str) -> bool {
        self.with(process, |process| process.truncated.remove(kind))
    }

    pub(crate) fn begin_step(&self, step: usize) {
        self.state().step = step;
    }

    /// Returns the revision of an event that was delivered.
    pub(crate) fn revision_of(&self, site: &Site) -> Option<u64> {
        self.state().revisions.get(site).copied()
    }

    pub(crate) fn record_revision(&self, site: Site, revision: u64) {
        self.state().revisions.insert(site, revision);
    }

    /// Sets the custom resource of the scenario.
    pub(crate) fn set_primary(&self, path: String, object: Value) {
        self.state().primary = Some((path, object));
    }

    /// Returns the path and the object of the custom resource.
    pub(crate) fn primary(&self) -> Option<(String, Value)> {
        self.state().primary.clone()
    }

    /// Reads the new part of the history. Writes that `is_own` selects have this actor, others are of the control
    /// plane. Returns the selected ones.
    pub(crate) fn read_history(&self, actor: Actor, is_own: impl Fn(&Change) -> bool) -> Vec<Change> {
        let (at, mut state) = (self.elapsed(), self.state());
        let (step, mut own) = (state.step, Vec::new());
        for stored in self.server.stored_changes(state.cursor) {
            state.cursor = stored.revision;
            if !counts(&stored.resource) {
                continue;
            }
            let mut change = Change {
                at,
                step,
                actor: Actor::ControlPlane,
                revision: stored.revision,
                resource: stored.resource,
                key: stored.key,
                before: stored.before,
                after: stored.after,
                is_removal: stored.is_removal,
                user: stored.user,
                parsed: ParsedMeta::default(),
            };
            if is_own(&change) {
                change.actor = actor;
                own.push(change.clone());
            }
            state.history.push(change);
        }
        own
    }

    /// Returns the number of writes so far.
    pub(crate) fn history_len(&self) -> usize {
        self.state().history.len()
    }

    /// Returns the writes after the first ones.
    pub(crate) fn history_from(&self, first: usize) -> Vec<Change> {
        self.state().history.get(first..).unwrap_or_default().to_vec()
    }

    /// Returns the name of an object as it is in all runs, for sites.
    pub(crate) fn alias(&self, kind: &str, name: &str) -> String {
        self.state().aliases.get(&(kind.to_owned(), name.to_owned())).cloned().unwrap_or_else(|| name.to_owned())
    }

    /// Records the name that was generated for an object.
    pub(crate) fn record_generated(&self, kind: &str, prefix: &str, name: &str) {
        let mut state = self.state();
        let count = state.generated.entry(format!("{kind}/{prefix}")).or_default();
        *count += 1;
        let alias = format!("{prefix}*{count}");
        state.aliases.insert((kind.to_owned(), name.to_owned()), alias);
    }

    /// Records that a process observed an object.
    pub(crate) fn record_observed(&self, process: u8, kind: &str, meta: &Meta) {
        let Some(name) = &meta.name else { return };
        let key = format!("{kind} {} {name}", meta.namespace.as_deref().unwrap_or_default());
        self.with(process, |process| process.observed.entry(key).or_default().insert(meta.uid.clone()));
    }

    /// Returns true if a process has observed an object of this name, but not the one with this UID.
    pub(crate) fn has_observed_another(
        &self,
        process: u8,
        resource: &GroupResource,
        key: &ObjectKey,
        uid: &str,
    ) -> bool {
        let kind = kind_name(&resource.group, &resource.resource);
        let key = format!("{kind} {} {}", key.namespace().unwrap_or_default(), key.name());
        self.with(process, |process| process.observed.get(&key).is_some_and(|uids| !uids.contains(uid)))
    }

    pub(crate) fn record_incident(&self, kind: IncidentKind, object: String, text: String) {
        let at = self.elapsed();
        let mut state = self.state();
        let is_new = !state.incidents.iter().any(|known| known.kind == kind && known.object == object);
        if is_new {
            state.incidents.push(Incident { kind, at, object, text });
        }
    }

    pub(crate) fn record_error(&self, object: String) {
        *self.state().errors.entry(object).or_default() += 1;
    }

    /// Records the holder of the lease; returns the previous one.
    pub(crate) fn set_holder(&self, holder: Option<u8>) -> Option<u8> {
        std::mem::replace(&mut self.state().holder, holder)
    }

    /// Returns the process that holds the lease.
    pub(crate) fn holder(&self) -> Option<u8> {
        self.state().holder
    }

    /// Returns the records at the end of the run.
    pub(crate) fn into_records(self: Arc<Self>) -> Records {
        let is_exhausted = self.is_exhausted();
        let mut state = self.state();
        let trace = std::mem::replace(&mut state.trace, Trace::new(false));
        Records {
            hash: trace.hash(),
            trace: trace.into_lines(),
            visits: std::mem::take(&mut state.visits),
            occurrences: std::mem::take(&mut state.occurrences),
            history: std::mem::take(&mut state.history),
            incidents: std::mem::take(&mut state.incidents),
            errors: std::mem::take(&mut state.errors),
            requests: state.requests,
            writes: state.writes,
            last_writes: state.last_writes.iter().cloned().collect(),
            is_exhausted,
            starts: state.processes.iter().map(|process| process.starts).sum(),
        }
    }
}

/// A request in flight, other than a watch.
pub(crate) struct Flight<'a>(&'a Hub);

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        self.0.state().in_flight -= 1;
    }
}

/// Returns the time of the clock of a run, which follows tokio's time.
pub(crate) fn time_at(began: Instant, offset: Duration) -> Timestamp {
    let epoch = Timestamp::from_second(EPOCH).expect("the year 2026 is in range");
    epoch + SignedDuration::try_from(began.elapsed() + offset).unwrap_or(SignedDuration::MAX)
}

/// Returns the name of a changed object, as it is in all runs.
pub(crate) fn name_of(change: &Change) -> String {
    change.stable_name()
}
