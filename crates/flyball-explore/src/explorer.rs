//! The explorer: declarations, replays, and the preparation of explorations.

use crate::campaign;
use crate::cost::Cost;
use crate::crossing::{self, Crossing, OnCrossing};
use crate::evaluate::Evaluator;
use crate::exploration::{
    Budget, CONFIRMATIONS, Exploration, ExplorationSettings, OnProgress, Progress, Stopwatch, finding,
};
use crate::external::{External, ExternalContext, MakeExternal, MakeProgram};
use crate::oracle::Invariant;
use crate::process::OperatorCommand;
use crate::progress_file::ProgressFile;
use crate::report::{Finding, Report, timeline};
use crate::run::on_thread;
use crate::scenario::{Scenario, parse_manifest};
use crate::schedule::Schedule;
use crate::site::NAMESPACE;
use crate::stage::{Stage, StageError, StageSettings};
use crate::subject::Subject;
use crate::trial::{changed_resources, check_trial, collected_resources, needed_controllers, trials};
use crate::world::World;
use flyball::Operator;
use flyball_cluster::{Controller, Controllers, Program};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Once};
use std::time::Duration;

/// Environment variable with the schedule to replay.
const SCHEDULE: &str = "FLYBALL_SCHEDULE";
/// Environment variables of `flyball explore`: the seed, schedules to try first, and the folder for reports.
const SEED: &str = "FLYBALL_EXPLORE_SEED";
const KEPT: &str = "FLYBALL_EXPLORE_KEPT";
const REPORTS: &str = "FLYBALL_EXPLORE_REPORTS";
/// Environment variable that makes a replay wait at each crossing of a port.
const PAUSE: &str = "FLYBALL_EXPLORE_PAUSE";
/// Environment variable with the end of all explorations.
const BUDGET: &str = "FLYBALL_EXPLORE_BUDGET";
/// Name of the scenario that is generated from samples.
const DEFAULT: &str = "default";

/// Explores the faults that an operator has to tolerate.
///
/// Each run forks a simulated control plane on which the operator is installed, plays a scenario, injects faults, and
/// waits until the world is quiet. All rules of [`Oracle`](crate::Oracle) then apply. The first findings end the
/// exploration; each is shrunk to the smallest schedule that shows it.
///
/// ```
/// # use flyball::{Action, Context, Controller, Operator, Reconcile, Result};
/// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
/// # use kube::core::ObjectMeta;
/// # struct Copies;
/// # impl Reconcile for Copies {
/// #     type Resource = Secret;
/// #     async fn reconcile(&self, original: &Secret, cx: &Context<Secret>) -> Result<Action> {
/// #         let metadata = ObjectMeta { name: original.metadata.name.clone(), ..ObjectMeta::default() };
/// #         cx.apply(&ConfigMap { metadata, ..ConfigMap::default() }).await?;
/// #         Ok(Action::done())
/// #     }
/// # }
/// use flyball_explore::{Budget, Explorer};
///
/// fn operator() -> Operator {
///     Operator::new("copies").controller(Controller::new(Copies).owns::<ConfigMap>())
/// }
///
/// let sample = "{apiVersion: v1, kind: Secret, metadata: {name: page}}";
/// Explorer::of(operator).sample(sample).budget(Budget::schedules(100)).run().assert_clean();
/// ```
#[doc(alias("fault injection", "deterministic simulation", "model checking", "Jepsen", "madsim", "turmoil"))]
#[must_use = "an explorer does nothing until it runs"]
#[derive(Clone)]
pub struct Explorer {
    subject: Subject,
    samples: Vec<String>,
    scenarios: Vec<Scenario>,
    prerequisites: Vec<String>,
    nodes: usize,
    controllers: Option<Controllers>,
    replicas: u8,
    externals: Vec<Arc<MakeExternal>>,
    program: Option<Arc<MakeProgram>>,
    invariants: Vec<Invariant>,
    budget: Budget,
    seed: u64,
    threads: usize,
    campaigns: bool,
    unique: Vec<String>,
    schedule: Option<String>,
    regressions: Vec<String>,
    on_progress: Option<Arc<OnProgress>>,
    on_crossing: Option<Arc<OnCrossing>>,
    stop: Arc<AtomicBool>,
}

impl Explorer {
    /// Creates the explorer of an operator, which is constructed at each start.
    pub fn of(operator: impl Fn() -> Operator + Send + Sync + 'static) -> Self {
        Self::around(Subject::Operator(Arc::new(operator)))
    }

    /// Creates the explorer of a program, in any language. It runs as a child process in real time, so that a violation
    /// counts only if it happens in most of three runs. Clocks of other processes are not shifted.
    ///
    /// Schedules are of the samples only, see [`with_campaigns`](Self::with_campaigns).
    pub fn command(command: OperatorCommand) -> Self {
        Self { campaigns: false, ..Self::around(Subject::Process(Box::new(command))) }
    }

    fn around(subject: Subject) -> Self {
        Self {
            subject,
            samples: Vec::new(),
            scenarios: Vec::new(),
            prerequisites: Vec::new(),
            nodes: 1,
            controllers: None,
            replicas: 1,
            externals: Vec::new(),
            program: None,
            invariants: Vec::new(),
            budget: Budget::Time(Duration::from_secs(10)),
            seed: 1,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            campaigns: true,
            unique: Vec::new(),
            schedule: None,
            regressions: Vec::new(),
            on_progress: None,
            on_crossing: None,
            stop: Arc::default(),
        }
    }

    /// Adds objects that a user applies, in YAML. Without a [scenario](Self::scenario), the user applies them, waits,
    /// deletes them, and waits.
    pub fn sample(mut self, manifest: impl Into<String>) -> Self {
        self.samples.push(manifest.into());
        self
    }

    /// Adds a scenario.
    pub fn scenario(mut self, scenario: Scenario) -> Self {
        self.scenarios.push(scenario);
        self
    }

    /// Adds objects that exist before, in YAML, such as definitions of foreign kinds.
    pub fn prerequisites(mut self, manifest: impl Into<String>) -> Self {
        self.prerequisites.push(manifest.into());
        self
    }

    /// Sets the number of simulated nodes. Defaults to 1.
    pub fn nodes(mut self, nodes: usize) -> Self {
        self.nodes = nodes;
        self
    }

    /// Sets the controllers of the control plane. Defaults to those for the resources that an undisturbed run changes,
    /// except for the one of cron jobs, which acts by the clock.
    pub fn controllers(mut self, controllers: Controllers) -> Self {
        self.controllers = Some(controllers);
        self
    }

    /// Sets the number of processes of the operator. Defaults to 1.
    pub fn replicas(mut self, replicas: u8) -> Self {
        self.replicas = replicas.max(1);
        self
    }

    /// Adds an external system. The constructor of the operator gets it by [`external`](crate::external()).
    pub fn external<E: External>(mut self, make: impl Fn(&ExternalContext) -> E + Send + Sync + 'static) -> Self {
        self.externals.push(Arc::new(move |context| Arc::new(make(context))));
        self
    }

    /// Sets the program that the containers of simulated pods run. Its constructor is called for each run, and gets
    /// external systems by [`external`](crate::external()). Not for operators in other processes.
    pub fn program<P: Program>(mut self, make: impl Fn() -> P + Send + Sync + 'static) -> Self {
        self.program = Some(Arc::new(move || -> Arc<dyn Program> { Arc::new(make()) }));
        self
    }

    /// Adds a rule for the objects of each revision.
    pub fn invariant(
        mut self,
        name: impl Into<String>,
        check: impl Fn(&World) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        self.invariants.push(Invariant::new(name.into(), Arc::new(check)));
        self
    }

    /// Sets the end of the exploration. Defaults to 10 seconds.
    pub fn budget(mut self, budget: Budget) -> Self {
        self.budget = budget;
        self
    }

    /// Sets the seed of all randomness. Defaults to 1.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Sets the number of threads. Defaults to that of the machine. It does not change the results.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads.max(1);
        self
    }

    /// Disables the scenarios that are generated from the samples and the schemas of their kinds.
    pub fn without_campaigns(mut self) -> Self {
        self.campaigns = false;
        self
    }

    /// Enables the scenarios that are generated from the samples and the schemas of their kinds. They are the default
    /// for operators in this process.
    pub fn with_campaigns(mut self) -> Self {
        self.campaigns = true;
        self
    }

    /// Declares a text field, as a JSON pointer such as `/spec/deploymentName`, whose value no two resources may share.
    /// Generated scenarios then give another value to a resource beside the sample.
    pub fn unique_field(mut self, pointer: impl Into<String>) -> Self {
        self.unique.push(pointer.into());
        self
    }

    /// Tries these schedules first, as they are in reports.
    pub fn regressions(mut self, lines: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.regressions.extend(lines.into_iter().map(Into::into));
        self
    }

    /// Sets a callback for the progress of the search.
    pub fn on_progress(mut self, callback: impl Fn(&Progress) + Send + Sync + 'static) -> Self {
        self.on_progress = Some(Arc::new(callback));
        self
    }

    /// Calls a function at each crossing of a port in a replay, before it takes effect. The run waits for its return,
    /// and so does the clock of the operator, unless it is a program in another process.
    pub fn on_crossing(mut self, callback: impl Fn(&Crossing<'_>) + Send + Sync + 'static) -> Self {
        self.on_crossing = Some(Arc::new(callback));
        self
    }

    /// Sets a flag that ends the search early, as the end of the budget does. Runs that have begun are finished.
    pub fn stop_flag(mut self, flag: Arc<AtomicBool>) -> Self {
        self.stop = flag;
        self
    }

    /// Explores, or replays the schedule in the environment variable `FLYBALL_SCHEDULE`. The variable
    /// `FLYBALL_EXPLORE_BUDGET` replaces the budget, and `FLYBALL_EXPLORE_PAUSE` makes a replay wait for a line of the
    /// input at each crossing of a port.
    pub fn run(mut self) -> Report {
        match std::env::var(BUDGET).ok().map(|text| text.parse()) {
            None => {}
            Some(Ok(budget)) => self.budget = budget,
            Some(Err(error)) => {
                return Report { error: Some(format!("{BUDGET}: {error}")), ..self.empty_report() };
            }
        }
        if let Some(seed) = std::env::var(SEED).ok().and_then(|text| text.parse().ok()) {
            self.seed = seed;
        }
        let kept = std::env::var(KEPT).unwrap_or_default();
        self.regressions.extend(kept.lines().map(str::to_owned));
        let folder = std::env::var_os(REPORTS);
        if let (Some(folder), None) = (&folder, &self.on_progress) {
            let operator = self.subject.name();
            let file = ProgressFile::new(Path::new(folder), &operator);
            self.on_progress = Some(Arc::new(move |progress| file.write(&operator, progress)));
        }
        let report = self.replay_or_explore();
        match folder.map(|folder| report.write(Path::new(&folder))) {
            Some(Err(error)) if report.error.is_none() => {
                Report { error: Some(format!("cannot write the report to {REPORTS}: {error}")), ..report }
            }
            _ => report,
        }
    }

    fn replay_or_explore(self) -> Report {
        let line = self.schedule.clone().or_else(|| std::env::var(SCHEDULE).ok());
        match line {
            Some(line) if std::env::var_os(PAUSE).is_some() => self.on_crossing(crossing::prompt()).replay(&line),
            Some(line) => self.replay(&line),
            None => self.explore(),
        }
    }

    /// Runs a single schedule, as it is in a report.
    pub fn replay(&self, line: &str) -> Report {
        self.replay_all(&[line]).pop().unwrap_or_else(|| self.empty_report())
    }

    /// Runs schedules one after the other, on one installation of the operator.
    pub fn replay_all<S: AsRef<str>>(&self, lines: &[S]) -> Vec<Report> {
        let prepared = self.prepare().map(|evaluator| evaluator.with_on_crossing(self.on_crossing.clone()));
        let prepared = prepared.map_err(|error| error.to_string());
        lines.iter().map(|line| self.replay_prepared(&prepared, line.as_ref())).collect()
    }

    fn replay_prepared(&self, prepared: &Result<Evaluator, String>, line: &str) -> Report {
        let (watch, mut report) = (Stopwatch::start(), self.empty_report());
        let schedule = line.parse::<Schedule>().map_err(|error| format!("{SCHEDULE}: {error}"));
        let replayed = prepared.as_ref().map_err(Clone::clone).and_then(|evaluator| {
            let schedule = schedule?;
            match evaluator.stage.scenarios.contains_key(&schedule.scenario) {
                true => Ok((evaluator, schedule)),
                false => Err(format!("{SCHEDULE}: there is no scenario {:?}", schedule.scenario)),
            }
        });
        match replayed {
            Ok((evaluator, schedule)) => {
                let before = evaluator.runs();
                let is_process = self.subject.process().is_some();
                let (mut runs, mut assessed) = (1, evaluator.assess(&schedule, true));
                while is_process && assessed.1.is_empty() && runs <= CONFIRMATIONS {
                    (runs, assessed) = (runs + 1, evaluator.assess(&schedule, true));
                }
                let (outcome, violations) = assessed;
                let found = violations.iter().map(|violation| {
                    let rate = is_process.then_some((1, runs));
                    let lines = timeline(&outcome, violation);
                    Finding { rate, ..finding(violation, &schedule, &schedule, lines) }
                });
                report.findings = found.collect();
                (report.schedules, report.runs) = (1, evaluator.runs() - before);
                (report.sites, report.trace, report.cost) = (outcome.visits, outcome.trace, evaluator.cost());
                report.request_counts = outcome.request_counts;
            }
            Err(error) => report.error = Some(error),
        }
        report.elapsed = watch.elapsed();
        report
    }

    fn empty_report(&self) -> Report {
        Report {
            operator: self.subject.name(),
            findings: Vec::new(),
            schedules: 0,
            runs: 0,
            elapsed: Duration::ZERO,
            traces: 0,
            states: 0,
            coverage: Vec::new(),
            warnings: Vec::new(),
            error: None,
            sites: Vec::new(),
            trace: Vec::new(),
            cost: Cost::default(),
            request_counts: BTreeMap::new(),
        }
    }

    fn explore(self) -> Report {
        let watch = Stopwatch::start();
        let mut report = self.empty_report();
        match self.prepare() {
            Ok(evaluator) => Exploration::new(&self.settings(), &evaluator, watch).run(&mut report),
            Err(error) => report.error = Some(error.to_string()),
        }
        report.elapsed = watch.elapsed();
        report
    }

    fn settings(&self) -> ExplorationSettings {
        ExplorationSettings {
            scenarios: self.scenario_names(),
            regressions: self.regressions.clone(),
            budget: self.budget,
            seed: self.seed,
            threads: self.threads,
            is_process: self.subject.process().is_some(),
            on_progress: self.on_progress.clone(),
        }
    }

    /// Installs the operator, and generates the scenarios.
    fn prepare(&self) -> Result<Evaluator, StageError> {
        silence_panics();
        let settings = StageSettings {
            subject: self.subject.clone(),
            externals: self.externals.clone(),
            program: self.program.clone(),
            prerequisites: self.all_prerequisites()?,
            nodes: self.nodes,
            controllers: self.controllers.clone().unwrap_or_else(|| Controllers::all().without(Controller::CronJob)),
            replicas: self.replicas,
            seed: self.seed,
            scenarios: self.scenarios.clone(),
        };
        let mut stage = on_thread(|| Stage::install(settings))?;
        let mut scenarios = self.scenarios.clone();
        if scenarios.is_empty() {
            scenarios.push(self.default_scenario(&stage)?);
        }
        let mut all = scenarios.clone();
        if self.controllers.is_none() || self.subject.process().is_some() {
            insert(&mut stage, &scenarios);
            let trials = trials(&stage, &scenarios, self.seed);
            let resources = changed_resources(&trials);
            if self.controllers.is_none() {
                stage.controllers = needed_controllers(&resources);
                stage.collected = collected_resources(&stage, resources);
            }
            if let Subject::Process(command) = &mut stage.subject {
                trials.iter().try_for_each(check_trial)?;
                command.startup = trials.iter().map(|trial| trial.process.startup).max().unwrap_or_default();
            }
        }
        let mut checks = BTreeMap::new();
        if self.campaigns {
            for case in campaign::cases(&stage, &scenarios, &self.unique) {
                if let Some(check) = case.check {
                    checks.insert(case.scenario.name().to_owned(), check);
                }
                all.push(case.scenario);
            }
        }
        insert(&mut stage, &all);
        Ok(Evaluator::new(stage, self.invariants.clone(), checks).with_stop(self.stop.clone()))
    }

    fn default_scenario(&self, stage: &Stage) -> Result<Scenario, StageError> {
        let mut objects: Vec<Value> = Vec::new();
        for sample in &self.samples {
            objects.extend(parse_manifest(sample).map_err(StageError)?);
        }
        objects.iter().try_for_each(|object| stage.locate(object).map(drop))?;
        let names = campaign::delete_names(stage, &objects);
        Ok(campaign::default_scenario(DEFAULT, &objects, &names))
    }

    /// Returns the prerequisites, with the namespaces of the samples and scenarios.
    fn all_prerequisites(&self) -> Result<Vec<String>, StageError> {
        let mut objects: Vec<Value> = self.scenarios.iter().flat_map(Scenario::objects).cloned().collect();
        for manifest in self.samples.iter().chain(&self.prerequisites) {
            objects.extend(parse_manifest(manifest).map_err(StageError)?);
        }
        let named = objects.iter().filter_map(|object| object["metadata"]["namespace"].as_str());
        let names: BTreeSet<&str> = named.filter(|name| *name != NAMESPACE).collect();
        let namespace = |name| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}).to_string();
        Ok(names.into_iter().map(namespace).chain(self.prerequisites.iter().cloned()).collect())
    }

    fn scenario_names(&self) -> Vec<String> {
        match self.scenarios.is_empty() {
            true => vec![DEFAULT.to_owned()],
            false => self.scenarios.iter().map(|scenario| scenario.name().to_owned()).collect(),
        }
    }
}

fn insert(stage: &mut Stage, scenarios: &[Scenario]) {
    let named = scenarios.iter().map(|scenario| (scenario.name().to_owned(), scenario.clone()));
    stage.scenarios = named.collect();
}

/// Suppresses the messages of panics in runs: reports contain them.
fn silence_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let default = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if std::thread::current().name() != Some("flyball-explore") {
                default(panic);
            }
        }));
    });
}
