//! An exploration: the waves of the search, and the report.

use crate::evaluate::{Evaluation, Evaluator};
use crate::fault::Fault;
use crate::oracle::{Oracle, Violation};
use crate::report::{CoverageRow, Finding, Report, timeline};
use crate::schedule::{Injection, Schedule};
use crate::search::{self, Coverage, WAVE};
use crate::shrink::Shrinker;
use flyball_core::Rng;
use flyball_core::time::parse_unsigned_duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

/// Further runs that confirm a violation of an operator in another process.
pub(crate) const CONFIRMATIONS: usize = 2;
/// Limit of the crossings of one read by an operator in another process, which may poll.
const MAX_READS: u32 = 3;
/// Limit of the findings of one exploration.
const MAX_FINDINGS: usize = 3;
/// Number of pairs and random schedules that are drawn at once.
const BATCH: usize = 16 * WAVE;

/// The end of an exploration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Budget {
    /// A number of schedules.
    Schedules(usize),
    /// A time.
    Time(Duration),
}

impl Budget {
    /// Ends after this number of schedules.
    pub fn schedules(count: usize) -> Self {
        Self::Schedules(count)
    }

    /// Ends after this time.
    pub fn time(time: Duration) -> Self {
        Self::Time(time)
    }
}

/// Error of parsing a [`Budget`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is neither a duration such as 60s nor a number of schedules such as 500")]
pub struct BudgetError(String);

impl FromStr for Budget {
    type Err = BudgetError;

    fn from_str(text: &str) -> Result<Self, BudgetError> {
        let count = text.parse().ok().map(Self::Schedules);
        let time = || parse_unsigned_duration(text).map(Self::Time);
        count.or_else(time).ok_or_else(|| BudgetError(text.to_owned()))
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Schedules(count) => write!(f, "{count}"),
            Self::Time(time) => write!(f, "{}ms", time.as_millis()),
        }
    }
}

/// The settings of an exploration.
pub(crate) struct ExplorationSettings {
    /// Names of the scenarios.
    pub(crate) scenarios: Vec<String>,
    /// Schedules to try first.
    pub(crate) regressions: Vec<String>,
    pub(crate) budget: Budget,
    pub(crate) seed: u64,
    pub(crate) threads: usize,
    /// True if the operator is another process, whose runs differ.
    pub(crate) is_process: bool,
    pub(crate) on_progress: Option<Arc<OnProgress>>,
}

/// An exploration under way.
pub(crate) struct Exploration<'a> {
    settings: &'a ExplorationSettings,
    evaluator: &'a Evaluator,
    watch: Stopwatch,
    /// The start of the search, after the undisturbed runs.
    searching_since: Stopwatch,
    tried: BTreeSet<Schedule>,
    singles: Vec<Evaluation>,
    coverage: Coverage,
    /// The first schedule of each violation, and the number of schedules before it.
    found: Vec<(Violation, Schedule, usize, Duration)>,
    /// Violations that did not happen again.
    unconfirmed: Vec<String>,
}

impl<'a> Exploration<'a> {
    pub(crate) fn new(settings: &'a ExplorationSettings, evaluator: &'a Evaluator, watch: Stopwatch) -> Self {
        Self {
            settings,
            evaluator,
            watch,
            searching_since: watch,
            tried: BTreeSet::new(),
            singles: Vec::new(),
            coverage: Coverage::default(),
            found: Vec::new(),
            unconfirmed: Vec::new(),
        }
    }

    pub(crate) fn run(mut self, report: &mut Report) {
        self.search(report);
        report.schedules = self.tried.len();
        if !self.found.is_empty() {
            self.report_progress(true);
        }
        for (violation, original, schedules, found_after) in std::mem::take(&mut self.found) {
            let mut found = self.shrunk(&violation, &original);
            (found.schedules, found.found_after) = (schedules, found_after);
            if !report.findings.iter().any(|known| known.oracle == found.oracle && known.object == found.object) {
                report.findings.push(found);
            }
        }
        report.warnings.append(&mut self.unconfirmed);
        (report.runs, report.cost) = (self.evaluator.runs(), self.evaluator.cost());
        (report.traces, report.states) = (self.coverage.traces(), self.coverage.states());
        let mut rows: BTreeMap<&'static str, CoverageRow> = BTreeMap::new();
        for ((fault, port), sites) in &self.coverage.cells {
            let row = rows.entry(fault).or_insert(CoverageRow { fault, sites: Vec::new() });
            row.sites.push((port.name(), sites.len()));
        }
        report.coverage = rows.into_values().collect();
    }

    /// Searches until the first findings, or until the budget ends.
    fn search(&mut self, report: &mut Report) {
        let settings = self.settings;
        let undisturbed: Vec<Schedule> =
            settings.scenarios.iter().map(|name| Schedule::undisturbed(name, settings.seed)).collect();
        let regressions: Result<Vec<Schedule>, _> = self.settings.regressions.iter().map(|line| line.parse()).collect();
        let regressions: Vec<Schedule> = match regressions {
            Ok(schedules) => schedules,
            Err(error) => {
                report.error = Some(format!("a kept schedule is invalid: {error}"));
                return;
            }
        };
        let is_known = |schedule: &&Schedule| self.evaluator.stage.scenarios.contains_key(&schedule.scenario);
        let (known, unknown): (Vec<&Schedule>, Vec<&Schedule>) = regressions.iter().partition(is_known);
        report.warnings.extend(unknown.iter().map(|line| format!("a kept schedule has an unknown scenario: {line}")));
        let known: Vec<Schedule> = known.into_iter().cloned().collect();
        for schedule in &undisturbed {
            let evaluation = self.evaluator.evaluate(schedule);
            self.tried.insert(schedule.clone());
            self.record(evaluation);
        }
        if !self.found.is_empty() || self.wave(&known) {
            return;
        }
        // References of operators in other processes take real time.
        self.searching_since = Stopwatch::start();
        let stage = &self.evaluator.stage;
        let mut singles = VecDeque::new();
        for schedule in &undisturbed {
            let reference = self.evaluator.reference(schedule);
            report.warnings.extend(reference.warnings.iter().cloned());
            singles.extend(search::singles(schedule, &reference.outcome, &|name| stage.is_custom(name)));
        }
        let mut generated: VecDeque<Schedule> = search::generated(self.evaluator, self.settings.seed).into();
        let mut late: VecDeque<Schedule> = search::late_requests(singles.make_contiguous()).into();
        while !(generated.is_empty() && singles.is_empty() && late.is_empty()) {
            for queue in [&mut generated, &mut singles, &mut late] {
                let wave: Vec<Schedule> = queue.drain(..WAVE.min(queue.len())).collect();
                if self.wave(&wave) {
                    return;
                }
            }
        }
        let pairs = search::pairs(&self.singles);
        for batch in pairs.chunks(BATCH) {
            if self.wave(batch) {
                return;
            }
        }
        let rng = Rng::from_seed(self.settings.seed).fork("search");
        let mut before = 0;
        while self.tried.len() > before {
            before = self.tried.len();
            for schedule in &undisturbed {
                let reference = self.evaluator.reference(schedule);
                let drawn = search::random(schedule, &reference.outcome, &rng, BATCH / undisturbed.len().max(1));
                if self.wave(&drawn) {
                    return;
                }
            }
        }
    }

    /// Evaluates schedules. Returns true if the exploration ends.
    fn wave(&mut self, schedules: &[Schedule]) -> bool {
        let is_new = |schedule: &&Schedule| !self.tried.contains(schedule) && self.suits(schedule);
        let new: Vec<Schedule> = schedules.iter().filter(is_new).cloned().collect();
        for chunk in new.chunks(self.wave_size()) {
            let left = self.left();
            let fitting = &chunk[..chunk.len().min(left)];
            for evaluation in self.evaluator.evaluate_all(fitting, self.settings.threads) {
                self.tried.insert(evaluation.schedule.clone());
                self.record(evaluation);
            }
            self.report_progress(false);
            if !self.found.is_empty() || left < chunk.len() {
                return true;
            }
        }
        self.left() == 0
    }

    /// Returns the number of schedules that the budget leaves.
    fn left(&self) -> usize {
        match self.settings.budget {
            _ if self.evaluator.is_stopped() => 0,
            Budget::Schedules(count) => count.saturating_sub(self.tried.len()),
            Budget::Time(time) if self.searching_since.elapsed() < time => usize::MAX,
            Budget::Time(_) => 0,
        }
    }

    /// Returns the number of schedules between two checks of the budget.
    fn wave_size(&self) -> usize {
        if self.settings.is_process { 4 * self.settings.threads } else { WAVE }
    }

    /// Returns false for faults that have no effect on an operator in another process, or repeat others.
    fn suits(&self, schedule: &Schedule) -> bool {
        let is_in_process = !self.settings.is_process;
        let mut injections = schedule.injections.iter();
        is_in_process
            || injections.all(|Injection { at, fault }| {
                let repeats = at.port.is_request() && !at.port.is_write() && at.occurrence > MAX_READS;
                !repeats && !matches!(fault, Fault::Skew(_))
            })
    }

    fn report_progress(&self, is_shrinking: bool) {
        let Some(callback) = &self.settings.on_progress else { return };
        let text = |violation: &Violation| format!("{}: {}: {}", violation.oracle, violation.object, violation.text);
        callback(&Progress {
            schedules: self.tried.len(),
            findings: self.found.len(),
            sites: self.coverage.cells.values().map(BTreeSet::len).sum(),
            elapsed: self.watch.elapsed(),
            violations: self.found.iter().map(|(violation, ..)| text(violation)).collect(),
            is_shrinking,
        });
    }

    /// Returns true if a violation happens again. Runs of operators in this process are equal.
    fn is_confirmed(&mut self, violation: &Violation, schedule: &Schedule) -> bool {
        if !self.settings.is_process {
            return true;
        }
        let again = vec![schedule.clone(); CONFIRMATIONS];
        let again = self.evaluator.evaluate_all(&again, self.settings.threads);
        let is_confirmed = again.iter().any(|run| run.violations.iter().any(|other| other.is_like(violation)));
        if !is_confirmed {
            let Violation { oracle, object, text, .. } = violation;
            let seen = format!("seen in 1 of {} runs, not reported: {oracle}: {object}: {text}; in", 1 + CONFIRMATIONS);
            self.unconfirmed.push(format!("{seen} {schedule}"));
        }
        is_confirmed
    }

    fn record(&mut self, evaluation: Evaluation) {
        self.coverage.add(&evaluation);
        if let Some(violation) = evaluation.violations.first() {
            let is_known = self.found.iter().any(|(known, ..)| known.is_like(violation));
            if !is_known && self.found.len() < MAX_FINDINGS && self.is_confirmed(violation, &evaluation.schedule) {
                let place = (self.tried.len(), self.watch.elapsed());
                self.found.push((violation.clone(), evaluation.schedule.clone(), place.0, place.1));
            }
        }
        if evaluation.schedule.injections.len() == 1 {
            self.singles.push(evaluation);
        }
    }

    /// Runs a schedule three times, and reports how often it shows the violation.
    fn repeated(&self, violation: &Violation, schedule: &Schedule, original: &Schedule) -> Finding {
        let (mut seen, mut runs, mut shown) = (0, 0, None);
        while runs <= CONFIRMATIONS && (runs == 0 || !self.evaluator.is_stopped()) {
            runs += 1;
            let (outcome, violations) = self.evaluator.assess(schedule, false);
            if let Some(again) = violations.iter().find(|known| known.is_like(violation)) {
                seen += 1;
                shown = shown.or_else(|| Some(finding(again, schedule, original, timeline(&outcome, again))));
            }
        }
        let mut found = shown.unwrap_or_else(|| finding(violation, schedule, original, Vec::new()));
        found.rate = Some((seen, runs));
        found
    }

    /// Shrinks a schedule, and runs the result twice.
    fn shrunk(&self, violation: &Violation, original: &Schedule) -> Finding {
        let mut shrinker = Shrinker::new(self.evaluator, violation);
        let schedule = shrinker.shrink(original);
        if self.settings.is_process {
            let mut found = self.repeated(violation, &schedule, original);
            if found.rate.is_none_or(|(seen, _)| seen == 0) {
                found = self.repeated(violation, original, original);
            }
            found.shrink_runs = shrinker.runs;
            return found;
        }
        let (first, violations) = self.evaluator.assess(&schedule, true);
        let (second, _) = self.evaluator.assess(&schedule, true);
        let shown = violations.iter().find(|known| known.is_like(violation)).unwrap_or(violation);
        let mut found = finding(shown, &schedule, original, timeline(&first, shown));
        found.shrink_runs = shrinker.runs;
        if first.hash != second.hash {
            let differ = first.trace.iter().zip(&second.trace).find(|(one, other)| one != other);
            let (one, other) = differ.map(|(one, other)| (one.clone(), other.clone())).unwrap_or_default();
            found.oracle = Oracle::Determinism;
            found.text = format!("{}; but a second run differs: {one:.300} instead of {other:.300}", found.text);
        }
        found
    }
}

/// The progress of an exploration.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Progress {
    /// Number of different schedules that were tried.
    pub schedules: usize,
    /// Number of violations.
    pub findings: usize,
    /// Number of pairs of a fault and a site at which it occurred.
    pub sites: usize,
    /// Time since the start.
    pub elapsed: Duration,
    /// The violations, as rule, object and text.
    pub violations: Vec<String>,
    /// True after the search, while the schedules of the violations are shrunk.
    pub is_shrinking: bool,
}

/// Callback for the progress.
pub(crate) type OnProgress = dyn Fn(&Progress) + Send + Sync;

pub(crate) fn finding(
    violation: &Violation,
    schedule: &Schedule,
    original: &Schedule,
    timeline: Vec<String>,
) -> Finding {
    Finding {
        oracle: violation.oracle,
        object: violation.object.clone(),
        field: violation.field.clone(),
        text: violation.text.clone(),
        schedule: schedule.clone(),
        original: original.clone(),
        schedules: 1,
        found_after: Duration::ZERO,
        shrink_runs: 0,
        rate: None,
        timeline,
    }
}

/// Measures real time, for budgets and throughput only.
#[derive(Clone, Copy)]
pub(crate) struct Stopwatch(std::time::Instant);

impl Stopwatch {
    #[expect(clippy::disallowed_methods, reason = "budgets are in real time; runs do not read it")]
    pub(crate) fn start() -> Self {
        Self(std::time::Instant::now())
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}
