//! Evaluation of schedules: runs them, compares them with their references, and judges them by all oracles.

use crate::campaign::Check;
use crate::cost::{Cost, Phase, thread_cpu};
use crate::crossing::OnCrossing;
use crate::oracle::{self, Invariant, Oracle, Violation};
use crate::reference::Reference;
use crate::run::{Outcome, RunOptions, run};
use crate::schedule::Schedule;
use crate::site::{ELSEWHERE, Site};
use crate::stage::Stage;
use crate::state::abstraction;
use crate::trace::hash_of;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The result of one schedule.
#[derive(Clone, Debug)]
pub(crate) struct Evaluation {
    pub(crate) schedule: Schedule,
    pub(crate) violations: Vec<Violation>,
    /// Hash of the trace.
    pub(crate) hash: u64,
    /// Hash of the abstract final state and the errors.
    pub(crate) abstraction: u64,
    /// Sites that were crossed after the last fault.
    pub(crate) later: Vec<Site>,
    /// Sites and faults that occurred.
    pub(crate) occurred: Vec<(Site, &'static str)>,
}

/// Judges the outcome of a run.
type Judge<'a> = Box<dyn FnOnce(&Outcome) -> Vec<Violation> + 'a>;

/// Runs and judges schedules.
pub(crate) struct Evaluator {
    pub(crate) stage: Stage,
    pub(crate) invariants: Vec<Invariant>,
    /// Rules of generated scenarios.
    pub(crate) checks: BTreeMap<String, Check>,
    references: Mutex<BTreeMap<Schedule, Arc<Reference>>>,
    outcomes: Mutex<BTreeMap<Schedule, Arc<Outcome>>>,
    runs: AtomicUsize,
    /// The cost of all runs of schedules.
    cost: Mutex<Cost>,
    stop: Arc<AtomicBool>,
    /// Observes the crossings of replays.
    on_crossing: Option<Arc<OnCrossing>>,
}

impl Evaluator {
    pub(crate) fn new(stage: Stage, invariants: Vec<Invariant>, checks: BTreeMap<String, Check>) -> Self {
        let (references, outcomes, runs, cost, stop, on_crossing) = Default::default();
        Self { stage, invariants, checks, references, outcomes, runs, cost, stop, on_crossing }
    }

    /// Sets the flag that stops evaluations of several schedules.
    pub(crate) fn with_stop(self, stop: Arc<AtomicBool>) -> Self {
        Self { stop, ..self }
    }

    /// Sets the function that observes the crossings of replays.
    pub(crate) fn with_on_crossing(self, on_crossing: Option<Arc<OnCrossing>>) -> Self {
        Self { on_crossing, ..self }
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Returns the number of runs so far.
    pub(crate) fn runs(&self) -> usize {
        self.runs.load(Ordering::Relaxed)
    }

    /// Returns the cost of the runs of schedules so far.
    pub(crate) fn cost(&self) -> Cost {
        *self.cost.lock()
    }

    /// Returns the reference of a schedule.
    pub(crate) fn reference(&self, schedule: &Schedule) -> Arc<Reference> {
        let key = Schedule { injections: Vec::new(), jitter: 0, ..schedule.clone() };
        if let Some(known) = self.references.lock().get(&key) {
            return known.clone();
        }
        let reference = Arc::new(Reference::new(&self.stage, &key));
        self.runs.fetch_add(3, Ordering::Relaxed);
        self.references.lock().entry(key).or_insert(reference).clone()
    }

    /// Returns the outcome of an undisturbed run of another scenario.
    fn direct(&self, schedule: &Schedule, scenario: &str) -> Arc<Outcome> {
        let key = Schedule { scenario: scenario.to_owned(), injections: Vec::new(), steps: None, ..schedule.clone() };
        if let Some(known) = self.outcomes.lock().get(&key) {
            return known.clone();
        }
        let outcome = Arc::new(run(&self.stage, &key, RunOptions::default()));
        self.runs.fetch_add(1, Ordering::Relaxed);
        self.outcomes.lock().entry(key).or_insert(outcome).clone()
    }

    /// Runs and judges a schedule.
    pub(crate) fn evaluate(&self, schedule: &Schedule) -> Evaluation {
        let (outcome, violations) = self.assess(schedule, false);
        evaluation(schedule, &outcome, violations)
    }

    /// Runs and judges a schedule; returns the outcome. A replay records the text of its trace.
    pub(crate) fn assess(&self, schedule: &Schedule, is_replay: bool) -> (Outcome, Vec<Violation>) {
        self.runs.fetch_add(1, Ordering::Relaxed);
        let on_crossing = self.on_crossing.as_ref().filter(|_| is_replay);
        let options = RunOptions { records: is_replay, on_crossing, ..RunOptions::default() };
        let (mut outcome, judge) = self.run_for(schedule, options);
        let began = thread_cpu();
        let violations = judge(&outcome);
        outcome.cost.spend(Phase::Rules, thread_cpu().saturating_sub(began));
        self.cost.lock().add(&outcome.cost);
        (outcome, violations)
    }

    /// Runs a schedule; returns the outcome, and the function that judges it.
    fn run_for<'a>(&'a self, schedule: &'a Schedule, options: RunOptions<'a>) -> (Outcome, Judge<'a>) {
        if let Some(check) = self.checks.get(&schedule.scenario).filter(|_| schedule.injections.is_empty()) {
            let outcome = run(&self.stage, schedule, options);
            return (outcome, Box::new(move |outcome| self.assess_generated(schedule, outcome, check)));
        }
        let reference = self.reference(schedule);
        if schedule.injections.is_empty() && schedule.jitter == 0 {
            let outcome = run(&self.stage, schedule, RunOptions { restarts: true, ..options });
            let customs = |name: &str| self.stage.is_custom(name);
            return (outcome, Box::new(move |outcome| oracle::check_undisturbed(outcome, &self.invariants, &customs)));
        }
        let expected = Some((&reference.outcome.state, &reference.mask)).filter(|_| !reference.is_stuck());
        let max_requests = reference.max_requests();
        let outcome = run(&self.stage, schedule, RunOptions { expected, max_requests, ..options });
        (outcome, Box::new(move |outcome| oracle::check(schedule, outcome, &reference, &self.invariants)))
    }

    fn assess_generated(&self, schedule: &Schedule, outcome: &Outcome, check: &Check) -> Vec<Violation> {
        let customs = |name: &str| self.stage.is_custom(name);
        let mut violations = oracle::check_undisturbed(outcome, &self.invariants, &customs);
        match check {
            Check::Undisturbed => {}
            Check::Path { direct } if outcome.rejections.is_empty() => {
                let direct = self.direct(schedule, direct);
                if direct.rejections.is_empty() && outcome.is_quiet && direct.is_quiet {
                    violations.extend(oracle::path_differences(Oracle::PathIndependence, outcome, &direct, &customs));
                }
            }
            Check::Path { .. } => {}
            Check::Isolation { healthy } => {
                // Unusual values may be rejected by the operator again and again.
                violations.retain(|violation| !matches!(violation.oracle, Oracle::Conditions | Oracle::Idempotence));
                let healthy = self.direct(schedule, healthy);
                violations.extend(oracle::isolation(outcome, &healthy, &is_neighbor));
            }
        }
        violations
    }

    /// Evaluates schedules on several threads, until it is stopped. The results are in the order of the schedules.
    pub(crate) fn evaluate_all(&self, schedules: &[Schedule], threads: usize) -> Vec<Evaluation> {
        let (next, results) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
        std::thread::scope(|scope| {
            for _ in 0..threads.clamp(1, schedules.len().max(1)) {
                scope.spawn(|| {
                    while !self.is_stopped() {
                        let n = next.fetch_add(1, Ordering::Relaxed);
                        let Some(schedule) = schedules.get(n) else { return };
                        let evaluation = self.evaluate(schedule);
                        results.lock().insert(n, evaluation);
                    }
                });
            }
        });
        results.into_inner().into_values().collect()
    }
}

fn evaluation(schedule: &Schedule, outcome: &Outcome, violations: Vec<Violation>) -> Evaluation {
    let last = outcome.occurrences.last().map(|occurrence| &occurrence.site);
    let position = last.and_then(|last| outcome.visits.iter().position(|site| site == last));
    let later = outcome.visits.get(position.map_or(0, |position| position + 1)..).unwrap_or_default().to_vec();
    let errors: Vec<&String> = outcome.errors.keys().collect();
    let digest = format!("{}{errors:?}", abstraction(&outcome.state));
    Evaluation {
        schedule: schedule.clone(),
        violations,
        hash: outcome.hash,
        abstraction: hash_of(digest.as_bytes()),
        later,
        occurred: outcome.occurrences.iter().map(|one| (one.site.clone(), one.fault.name())).collect(),
    }
}

/// Returns true for the objects of a healthy resource in generated scenarios.
fn is_neighbor(name: &str) -> bool {
    name.contains("-healthy") || name.contains(&format!("/{ELSEWHERE}/"))
}
