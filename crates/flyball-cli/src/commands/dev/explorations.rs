//! Explorations that the page of `flyball dev --console` starts: the operator runs as a process on simulated control
//! planes, beside the one of `flyball dev`.
//!
//! One exploration runs at a time, on a thread of its own. It runs a copy of the program, so that a rebuild does not
//! change the program in the middle of a search.

mod forks;
mod report;
mod sites;

use crate::cluster::connection::block_on;
use crate::cluster::embedded::EmbeddedCluster;
use crate::error::{Result, ResultExt};
use crate::explore::program::{self, default_jobs};
use crate::explore::scenario;
use crate::files::watcher;
use crate::operator::program::Program;
use flyball_console::{
    ExplorationState, Explore, ExploreError, ExploreRequest, FinishedExploration, RunningExploration, Sites, Task,
};
use flyball_core::Clock;
use flyball_core::time::{Timestamp, rfc3339_micro};
use flyball_explore::{Budget, Explorer, Progress, Report, Schedule};
use forks::Forks;
use parking_lot::Mutex;
use report::{Repetition, finished};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Limit of finished explorations that are kept.
const MAX_FINISHED: usize = 20;
/// Limits of the duration of a search, in seconds.
const MIN_SECONDS: u32 = 5;
const MAX_SECONDS: u32 = 3600;
/// Limit of the length of a schedule.
const MAX_SCHEDULE_BYTES: usize = 4096;
/// Directory for the files of runs.
const RUNS: &str = "runs";
/// The schedule without faults.
const UNDISTURBED: &str = "default; seed=1";

/// A program and its environment variables.
type StartedProgram = (Program, BTreeMap<String, String>);

/// The explorations and forks of a session.
pub(super) struct Explorations {
    session: Arc<Session>,
    /// Copies of the control plane, if it runs in this process.
    forks: Option<Arc<Forks>>,
}

struct Session {
    /// The file or directory with samples.
    samples: Option<PathBuf>,
    /// Arguments of the operator.
    args: Vec<String>,
    /// Private directory for the program and the files of runs.
    folder: PathBuf,
    clock: Clock,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    program: Option<StartedProgram>,
    running: Option<Running>,
    finished: VecDeque<FinishedExploration>,
    sites: Option<Sites>,
    count: u32,
}

/// An exploration under way.
struct Running {
    shown: RunningExploration,
    began: Timestamp,
    stop: Arc<AtomicBool>,
}

/// The inputs of an exploration.
struct Plan {
    task: Task,
    sample: String,
    schedule: String,
    budget: Option<u32>,
}

impl fmt::Debug for Explorations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Explorations").field("samples", &self.session.samples).finish_non_exhaustive()
    }
}

impl Explorations {
    /// Creates a directory in a private one, which outlives the explorations.
    pub(super) fn new(
        private: &Path,
        samples: Option<PathBuf>,
        args: Vec<String>,
        cluster: Option<Arc<EmbeddedCluster>>,
    ) -> Result<Self> {
        let folder = private.join("exploration");
        let runs = folder.join(RUNS);
        fs::create_dir_all(&runs).context(format!("cannot create {}", runs.display()))?;
        let clock = Clock::system();
        let forks = cluster.map(|cluster| Arc::new(Forks::new(cluster, private.to_owned(), clock.clone())));
        let session = Arc::new(Session { samples, args, folder, clock, state: Mutex::default() });
        Ok(Self { session, forks })
    }

    fn forks(&self) -> Result<&Arc<Forks>, ExploreError> {
        let reason = "only the control plane of `flyball dev` can be forked, not an existing cluster";
        self.forks.as_ref().ok_or_else(|| ExploreError::Invalid(reason.to_owned()))
    }

    /// Sets the program of the next exploration.
    pub(super) fn set_program(&self, program: &Program, variables: &BTreeMap<String, String>) {
        self.session.state.lock().program = Some((program.clone(), variables.clone()));
    }
}

impl Explore for Explorations {
    fn state(&self) -> ExplorationState {
        let (session, now) = (&self.session, self.session.clock.now());
        let samples = session.sample_files().iter().map(|path| session.sample_name(path)).collect();
        let state = session.state.lock();
        let running = state.running.as_ref().map(|running| RunningExploration {
            seconds: now.duration_since(running.began).as_secs_f64().max(0.0),
            is_stopping: running.stop.load(Ordering::Relaxed),
            ..running.shown.clone()
        });
        ExplorationState {
            program: state.program.as_ref().map(|(program, _)| display(program)).unwrap_or_default(),
            samples,
            running,
            finished: state.finished.iter().cloned().collect(),
            sites: state.sites.clone(),
            forks: self.forks.as_ref().map(|forks| forks.all()),
        }
    }

    fn request(&self, request: ExploreRequest) -> Result<(), ExploreError> {
        let plan = match request {
            ExploreRequest::Stop {} => {
                if let Some(running) = &self.session.state.lock().running {
                    running.stop.store(true, Ordering::Relaxed);
                }
                return Ok(());
            }
            ExploreRequest::Fork {} => return self.forks()?.start(),
            ExploreRequest::PauseFork { number } => return self.forks()?.pause(number),
            ExploreRequest::ResumeFork { number } => return self.forks()?.resume(number),
            ExploreRequest::StepFork { number, duration } => return self.forks()?.step(number, &duration),
            ExploreRequest::RemoveFork { number } => return self.forks()?.remove(number),
            ExploreRequest::Search { sample, seconds } => {
                let budget = Some(seconds.clamp(MIN_SECONDS, MAX_SECONDS));
                Plan { task: Task::Search, sample, schedule: String::new(), budget }
            }
            ExploreRequest::ListSites { sample } => {
                Plan { task: Task::ListSites, sample, schedule: UNDISTURBED.to_owned(), budget: None }
            }
            ExploreRequest::Replay { sample, schedule } => {
                Plan { task: Task::Replay, sample, schedule: parse_schedule(&schedule)?, budget: None }
            }
        };
        self.session.start(plan)
    }
}

impl Session {
    /// Returns the files with samples.
    fn sample_files(&self) -> Vec<PathBuf> {
        let mut files = Vec::new();
        if let Some(samples) = &self.samples {
            watcher::collect_files(samples, &mut files);
        }
        let is_sample =
            |file: &PathBuf| file.extension().is_some_and(|end| end == "yaml" || end == "yml" || end == "json");
        files.retain(|file| is_sample(file) && file.file_stem().is_none_or(|stem| stem != "kustomization"));
        files.sort();
        files
    }

    /// Returns the name of a file with samples: its path in the directory of samples.
    fn sample_name(&self, path: &Path) -> String {
        let folder = self.samples.as_deref().filter(|samples| samples.is_dir()).unwrap_or(Path::new(""));
        path.strip_prefix(folder).unwrap_or(path).display().to_string()
    }

    /// Returns the paths of selected samples: of one file, or of all.
    fn selected(&self, name: &str) -> Result<Vec<PathBuf>, ExploreError> {
        let invalid = |text: String| Err(ExploreError::Invalid(text));
        match (name, &self.samples) {
            (_, None) => invalid("no samples found: add one to config/samples, or pass --samples PATH".to_owned()),
            ("", Some(all)) => Ok(vec![all.clone()]),
            (name, _) => match self.sample_files().into_iter().find(|path| self.sample_name(path) == name) {
                Some(path) => Ok(vec![path]),
                None => invalid(format!("there is no sample {name:?}; reload the page")),
            },
        }
    }

    /// Starts an exploration on a thread of its own, which does not delay the end of the command.
    fn start(self: &Arc<Self>, plan: Plan) -> Result<(), ExploreError> {
        let samples = self.selected(&plan.sample)?;
        let stop = Arc::new(AtomicBool::new(false));
        let mut state = self.state.lock();
        if state.running.is_some() {
            return Err(ExploreError::Busy);
        }
        let Some(started) = state.program.clone() else {
            return Err(ExploreError::Invalid("the operator is not built yet; wait until it has started".to_owned()));
        };
        let shown = RunningExploration {
            task: plan.task,
            sample: plan.sample.clone(),
            schedule: plan.schedule.clone(),
            phase: "running the operator without faults".to_owned(),
            schedules: 0,
            sites: 0,
            violations: Vec::new(),
            seconds: 0.0,
            budget: plan.budget,
            is_stopping: false,
        };
        state.running = Some(Running { shown, began: self.clock.now(), stop: stop.clone() });
        drop(state);
        let session = self.clone();
        std::thread::spawn(move || {
            let explored = catch_unwind(AssertUnwindSafe(|| session.explore(&plan, &started, &samples, &stop)));
            let explored =
                explored.unwrap_or_else(|_| Err("the exploration has panicked; see the terminal".to_owned()));
            session.end(&plan, &started.0, &samples, explored);
        });
        Ok(())
    }

    /// Runs an exploration to its end; returns the reason if the operator cannot be explored.
    fn explore(
        self: &Arc<Self>,
        plan: &Plan,
        (program, variables): &StartedProgram,
        samples: &[PathBuf],
        stop: &Arc<AtomicBool>,
    ) -> Result<Report, String> {
        let program = self.copy(program).map_err(|error| format!("cannot copy {}: {error}", display(program)))?;
        let command = block_on(program::command(&program, &self.args, variables)).map_err(|error| error.to_string())?;
        let objects = program::samples(samples).map_err(|error| error.to_string())?;
        let seconds = Duration::from_secs(plan.budget.unwrap_or(MIN_SECONDS).into());
        let session = self.clone();
        let explorer = Explorer::command(command.folder(self.folder.join(RUNS)))
            .sample(scenario::manifest(&objects))
            .budget(Budget::time(seconds))
            .threads(default_jobs())
            .stop_flag(stop.clone())
            .on_progress(move |progress| session.show(progress));
        Ok(match plan.task {
            Task::Search => explorer.run(),
            Task::ListSites | Task::Replay => explorer.replay(&plan.schedule),
        })
    }

    /// Copies the file of a program. Charts and roles are read from their files.
    fn copy(&self, program: &Program) -> std::io::Result<Program> {
        match program {
            Program::File(path) => {
                let copy = self.folder.join(path.file_name().unwrap_or_else(|| "operator".as_ref()));
                // A process of an earlier exploration may still execute it.
                let _ = fs::remove_file(&copy);
                fs::copy(path, &copy)?;
                Ok(Program::File(copy))
            }
            other => Ok(other.clone()),
        }
    }

    fn show(&self, progress: &Progress) {
        if let Some(running) = &mut self.state.lock().running {
            let shown = &mut running.shown;
            shown.phase = match progress.is_shrinking {
                true => "reducing the schedules of the findings".to_owned(),
                false => "injecting faults".to_owned(),
            };
            (shown.schedules, shown.sites) = (progress.schedules, progress.sites);
            shown.violations.clone_from(&progress.violations);
        }
    }

    fn end(&self, plan: &Plan, program: &Program, samples: &[PathBuf], explored: Result<Report, String>) {
        let repetition = Repetition { program, samples, args: &self.args };
        let now = self.clock.now();
        let mut state = self.state.lock();
        let Some(running) = state.running.take() else { return };
        state.count += 1;
        if let (Task::ListSites, Ok(report)) = (plan.task, &explored) {
            state.sites = Some(sites::choices(report, &plan.sample, &plan.schedule));
        }
        let shown = RunningExploration {
            seconds: now.duration_since(running.began).as_secs_f64().max(0.0),
            is_stopping: running.stop.load(Ordering::Relaxed),
            ..running.shown
        };
        let finished = finished(&shown, explored, &repetition);
        let (number, ended) = (state.count, rfc3339_micro(now));
        state.finished.push_front(FinishedExploration { number, ended, ..finished });
        state.finished.truncate(MAX_FINISHED);
    }
}

/// Checks a schedule, and returns it in its usual form.
fn parse_schedule(text: &str) -> Result<String, ExploreError> {
    if text.len() > MAX_SCHEDULE_BYTES {
        return Err(ExploreError::Invalid(format!("the schedule is longer than {MAX_SCHEDULE_BYTES} bytes")));
    }
    let parsed = text.parse::<Schedule>().map(|schedule| schedule.to_string());
    parsed.map_err(|error| ExploreError::Invalid(format!("invalid schedule: {error}; copy one from a finding")))
}

/// Returns the path of a program, relative to this directory if it is below it.
fn display(program: &Program) -> String {
    let path = program.to_string();
    let here = std::env::current_dir().unwrap_or_default();
    Path::new(&path).strip_prefix(here).map_or_else(|_| path.clone(), |below| below.display().to_string())
}
