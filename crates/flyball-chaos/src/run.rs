//! A run: experiments one after the other, each injected, observed, judged and undone.
//!
//! Whatever ends an experiment, its undo follows: the end of the observation, an error, a panic, or the future that
//! stops the run. If the undo fails, no further experiment begins, and the state file stays.

use crate::api::{Cluster, Reference};
use crate::change::Change;
use crate::error::{Error, Result};
use crate::experiment::{Check, Expectation, Experiment, Risk};
use crate::inject::{inject, lift, undo};
use crate::journal::Journal;
use crate::network::Network;
use crate::operator::Operator;
use crate::plan::{Plan, ProcessFault, plan};
use crate::process::Process;
use crate::repair::RepairCheck;
use crate::report::{Outcome, Report};
use crate::steady::{Difference, Snapshot, Volatile};
use crate::text::clean;
use crate::verdict::{Observation, Verdict};
use futures_util::FutureExt;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Limits of a run; an experiment may have its own.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Duration of a fault that the operator has to survive.
    pub hold: Duration,
    /// Time to recover, for the result Resilient.
    pub recovery: Duration,
    /// Time to recover, for the result Degraded.
    pub failure: Duration,
    /// Interval of observations.
    pub interval: Duration,
    /// Time between the observations from which fields are learned that change without a fault.
    pub settle: Duration,
    /// Highest accepted risk.
    pub risk: Risk,
}

impl Default for Limits {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            hold: seconds(30),
            recovery: seconds(60),
            failure: seconds(180),
            interval: seconds(1),
            settle: seconds(3),
            risk: Risk::Medium,
        }
    }
}

/// Progress of a run, for its listener.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// An experiment begins.
    Started(&'a Experiment),
    /// A change is about to be made.
    Changing(&'a Change),
    /// The fault is in place.
    Injected,
    /// The fault has ended.
    Lifted,
    /// An experiment has ended.
    Ended(&'a Outcome),
}

/// A run of experiments against one operator.
#[doc(alias("ChaosEngine", "chaos engineering"))]
pub struct Run<'a> {
    cluster: &'a Cluster,
    operator: Operator,
    limits: Limits,
    listener: &'a mut (dyn FnMut(Event<'_>) + Send),
    volatile: Volatile,
    baseline: Option<Snapshot>,
    repair_check: Option<RepairCheck>,
    notes: Vec<String>,
    process: Option<(Process, Network)>,
}

impl fmt::Debug for Run<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").field("operator", &self.operator.label()).finish_non_exhaustive()
    }
}

/// Observations until an experiment ends, kept outside of the future that may be dropped.
#[derive(Default)]
struct Record {
    changes: Vec<String>,
    effects: Vec<String>,
}

impl<'a> Run<'a> {
    /// Creates a run.
    pub fn new(
        cluster: &'a Cluster,
        operator: Operator,
        limits: Limits,
        listener: &'a mut (dyn FnMut(Event<'_>) + Send),
    ) -> Self {
        Self {
            cluster,
            operator,
            limits,
            listener,
            volatile: Volatile::new(),
            baseline: None,
            repair_check: None,
            notes: Vec::new(),
            process: None,
        }
    }

    /// Observes and disturbs an operator that runs as a process behind a [proxy](crate::Proxy) with this network.
    #[must_use]
    pub fn process(mut self, process: Process, network: Network) -> Self {
        self.process = Some((process, network));
        self
    }

    /// Runs experiments until the last one has ended or the future is ready. All changes are undone then, unless an
    /// outcome has an error of the undo.
    pub async fn run(
        mut self,
        journal: &mut Journal,
        experiments: &[Experiment],
        stop: impl Future<Output = ()> + Send,
    ) -> Report {
        let mut stop = pin!(stop);
        let mut report = Report {
            operator: self.operator.label(),
            run: journal.state().run.clone(),
            started: journal.state().started.clone(),
            outcomes: Vec::new(),
            notes: Vec::new(),
            interrupted: false,
        };
        let prepared = tokio::select! {
            biased;
            () = stop.as_mut() => None,
            prepared = AssertUnwindSafe(self.prepare(journal)).catch_unwind() => Some(prepared),
        };
        let mut failure = match undo(self.cluster, journal, 0).await {
            Ok(_) => None,
            Err(error) => Some(format!("cannot undo: {}", error.text())),
        };
        match prepared {
            None => report.interrupted = true,
            Some(Ok(Ok(()))) => {}
            Some(Ok(Err(error))) => failure = failure.or(Some(error.text())),
            Some(Err(_)) => failure = failure.or(Some("a panic of this program".to_owned())),
        }
        for experiment in experiments {
            if report.interrupted {
                break;
            }
            let outcome = match &failure {
                Some(reason) => Outcome {
                    reasons: vec![reason.clone()],
                    verdict: Verdict::Inconclusive,
                    ..empty_outcome(experiment)
                },
                None => {
                    (self.listener)(Event::Started(experiment));
                    self.run_one(journal, experiment, stop.as_mut(), &mut report.interrupted).await
                }
            };
            if let Some(error) = &outcome.undo_error {
                failure = Some(format!("the changes of an earlier experiment are not undone: {error}"));
            }
            (self.listener)(Event::Ended(&outcome));
            report.outcomes.push(outcome);
        }
        report.notes = self.notes;
        report
    }

    /// Learns the steady state, and finds a repair check.
    async fn prepare(&mut self, journal: &mut Journal) -> Result<()> {
        let began = Instant::now();
        let first = loop {
            let snapshot = self.snapshot(&[]).await?;
            match snapshot.unready().first() {
                None => break snapshot,
                Some(problem) if began.elapsed() > self.limits.recovery => {
                    return Err(Error::NotApplicable(format!("not in a steady state before: {problem}")));
                }
                Some(_) => sleep(self.limits.interval).await,
            }
        };
        sleep(self.limits.settle).await;
        let mut baseline = self.snapshot(&[]).await?;
        first.learn(&baseline, &mut self.volatile);
        baseline.retain_common(&first);
        self.baseline = Some(baseline);
        if self.process.as_ref().is_some_and(|(_, network)| network.requests() == 0) {
            let problem = "the process sends no requests: check that it reads the variable KUBECONFIG";
            return Err(Error::NotApplicable(problem.to_owned()));
        }
        if self.operator.resources.is_empty() {
            self.notes.push(
                "no custom resource found: only the operator itself is observed; create samples, or pass \
                 --workload-namespace and --kind"
                    .to_owned(),
            );
        }
        for check in RepairCheck::candidates(&self.operator) {
            let Some(change) = check.change(&self.operator, &[]) else { continue };
            let first = journal.len();
            inject(self.cluster, journal, REPAIR_CHECK, &[change]).await?;
            let (repaired, _) = self.wait(Instant::now(), self.limits.recovery).await?;
            undo(self.cluster, journal, first).await?;
            if repaired.is_some() {
                self.repair_check = Some(check);
                return Ok(());
            }
        }
        if !self.operator.children.is_empty() {
            let note = "the operator does not repair changes of its children: only its state determines the results";
            self.notes.push(note.to_owned());
        }
        Ok(())
    }

    /// Runs an experiment and undoes its changes.
    async fn run_one(
        &mut self,
        journal: &mut Journal,
        experiment: &Experiment,
        stop: impl Future<Output = ()>,
        interrupted: &mut bool,
    ) -> Outcome {
        let (first, mut record) = (journal.len(), Record::default());
        let attempt = tokio::select! {
            biased;
            () = stop => None,
            result = AssertUnwindSafe(self.observe(journal, experiment, &mut record)).catch_unwind() => Some(result),
        };
        self.clear_network();
        let undone = undo(self.cluster, journal, first).await;
        let mut outcome = Outcome { changes: record.changes, effects: record.effects, ..empty_outcome(experiment) };
        match attempt {
            None => {
                *interrupted = true;
                outcome.reasons.push("interrupted".to_owned());
            }
            Some(Err(_)) => outcome.reasons.push("a panic of this program".to_owned()),
            Some(Ok(Err(error))) => {
                if let Error::NotApplicable(_) | Error::Refused { .. } = error
                    && outcome.changes.is_empty()
                {
                    outcome.verdict = Verdict::Skipped;
                }
                outcome.reasons.push(error.text());
            }
            Some(Ok(Ok(observation))) => {
                outcome.recovery_seconds = observation.recovered;
                (outcome.verdict, outcome.reasons) = observation.verdict();
            }
        }
        match undone {
            Ok(notes) => self.notes.extend(notes),
            Err(error) => outcome.undo_error = Some(error.text()),
        }
        outcome
    }

    /// Injects the fault and observes the operator.
    async fn observe(
        &mut self,
        journal: &mut Journal,
        experiment: &Experiment,
        record: &mut Record,
    ) -> Result<Observation> {
        let (spec, limits) = (&experiment.spec, self.limits.clone());
        if spec.fault.risk() > limits.risk {
            return Err(Error::refused("its risk is higher than accepted: pass --risk high"));
        }
        let (_, remaining) = self.wait_for(Instant::now(), limits.recovery, &spec.steady_state).await?;
        if let Some(problem) = remaining.first() {
            let reason = format!("not in the steady state before: {problem}");
            return Ok(self.observation(experiment, None, Vec::new(), Vec::new(), Some(reason)));
        }
        let before = self.snapshot(&spec.steady_state).await?;
        let run = journal.state().run.clone();
        let planned = plan(self.cluster, &self.operator, experiment, &run).await?;
        for change in &planned.changes {
            (self.listener)(Event::Changing(change));
            record.changes.push(change.to_string());
        }
        record.changes.extend(planned.process.iter().map(ToString::to_string));
        let (first, injected) = (journal.len(), Instant::now());
        inject(self.cluster, journal, &experiment.name, &planned.changes).await?;
        self.inject_process(planned.process.as_ref());
        (self.listener)(Event::Injected);
        let (began, ineffective) = match spec.expect.unwrap_or_else(|| spec.fault.expectation()) {
            Expectation::Repair => {
                self.inject_check(journal, &planned).await?;
                (injected, None)
            }
            Expectation::Survive => {
                let ineffective = self.hold(journal, first, &planned, record).await?;
                (Instant::now(), ineffective)
            }
        };
        let failure = spec.failure.unwrap_or(limits.failure);
        let (recovered, remaining) = self.wait_for(began, failure, &spec.steady_state).await?;
        let after = self.snapshot(&spec.steady_state).await?;
        let touched: Vec<Reference> = planned.changes.iter().chain(&planned.later).map(Change::object).collect();
        let mut collateral: Vec<String> = before.collateral(&after, &touched).iter().map(ToString::to_string).collect();
        if after.restarts > before.restarts && !spec.fault.replaces_pods() {
            collateral.push(format!("the operator restarted {} times", after.restarts - before.restarts));
        }
        Ok(self.observation(experiment, recovered, remaining, collateral, ineffective))
    }

    /// Waits while a fault is in place, and ends it. Returns the reason if it had no effect.
    async fn hold(
        &mut self,
        journal: &mut Journal,
        first: usize,
        planned: &Plan,
        record: &mut Record,
    ) -> Result<Option<String>> {
        let experiment = &planned.experiment;
        let (spec, hold) = (&experiment.spec, experiment.spec.hold.unwrap_or(self.limits.hold));
        sleep(hold / 4).await;
        let has_check = self.inject_check(journal, planned).await?;
        if !planned.later.is_empty() {
            record.changes.extend(planned.later.iter().map(ToString::to_string));
            inject(self.cluster, journal, &experiment.name, &planned.later).await?;
        }
        sleep(hold - hold / 4).await;
        let during = self.differences(&spec.steady_state).await?;
        record.effects.extend(during.iter().map(ToString::to_string));
        self.clear_network();
        // The operator has to repair the child.
        lift(self.cluster, journal, first, |experiment| experiment != REPAIR_CHECK).await?;
        (self.listener)(Event::Lifted);
        let is_ineffective = during.is_empty() && has_check && spec.fault.stops_writes();
        let reason = "the fault had no effect: the operator repaired a child while it was in place";
        Ok(is_ineffective.then(|| reason.to_owned()))
    }

    /// Injects the repair check if the fault interrupts the operator. Returns false without one.
    async fn inject_check(&self, journal: &mut Journal, planned: &Plan) -> Result<bool> {
        let check = self.repair_check.as_ref().filter(|_| planned.experiment.spec.fault.interrupts());
        let Some(change) = check.and_then(|check| check.change(&self.operator, &planned.changes)) else {
            return Ok(false);
        };
        match inject(self.cluster, journal, REPAIR_CHECK, &[change]).await {
            // The fault or the operator has changed the child meanwhile.
            Err(Error::NotApplicable(_)) => Ok(false),
            injected => injected.map(|()| true),
        }
    }

    fn inject_process(&self, fault: Option<&ProcessFault>) {
        match (fault, &self.process) {
            (Some(ProcessFault::Kill), Some((process, _))) => process.kill(),
            (Some(ProcessFault::Network(fault)), Some((_, network))) => network.inject(fault.clone()),
            _ => {}
        }
    }

    fn clear_network(&self) {
        if let Some((_, network)) = &self.process {
            network.clear();
        }
    }

    fn observation(
        &self,
        experiment: &Experiment,
        recovered: Option<Duration>,
        remaining: Vec<Difference>,
        collateral: Vec<String>,
        ineffective: Option<String>,
    ) -> Observation {
        let spec = &experiment.spec;
        Observation {
            expectation: spec.expect.unwrap_or_else(|| spec.fault.expectation()),
            recovered,
            recovery: spec.recovery.unwrap_or(self.limits.recovery),
            remaining: remaining.iter().map(ToString::to_string).collect(),
            collateral,
            ineffective,
        }
    }

    async fn snapshot(&mut self, checks: &[Check]) -> Result<Snapshot> {
        let snapshot = Snapshot::read(self.cluster, &mut self.operator, checks).await?;
        Ok(match &self.process {
            Some((process, _)) => snapshot.with_process(process.is_running(), process.crashes()),
            None => snapshot,
        })
    }

    async fn differences(&mut self, checks: &[Check]) -> Result<Vec<Difference>> {
        let now = self.snapshot(checks).await?;
        Ok(self.baseline.as_ref().map(|baseline| baseline.differences(&now, &self.volatile)).unwrap_or_default())
    }

    async fn wait(&mut self, began: Instant, limit: Duration) -> Result<(Option<Duration>, Vec<Difference>)> {
        self.wait_for(began, limit, &[]).await
    }

    /// Waits for the steady state. Returns the time since the beginning, or the remaining differences.
    async fn wait_for(
        &mut self,
        began: Instant,
        limit: Duration,
        checks: &[Check],
    ) -> Result<(Option<Duration>, Vec<Difference>)> {
        loop {
            let elapsed = began.elapsed();
            match self.differences(checks).await {
                Ok(differences) if differences.is_empty() => return Ok((Some(elapsed), differences)),
                Ok(differences) if elapsed >= limit => return Ok((None, differences)),
                // A fault may concern the API server.
                Err(error) if elapsed >= limit => return Err(error),
                _ => sleep(self.limits.interval).await,
            }
        }
    }
}

/// Name of repair checks in the state file.
const REPAIR_CHECK: &str = "repair-check";

fn empty_outcome(experiment: &Experiment) -> Outcome {
    Outcome {
        name: clean(&experiment.name),
        fault: experiment.spec.fault.name().to_owned(),
        verdict: Verdict::Inconclusive,
        recovery_seconds: None,
        reasons: Vec::new(),
        effects: Vec::new(),
        changes: Vec::new(),
        undo_error: None,
    }
}
