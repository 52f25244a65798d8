//! Explorations of the operator under development, and forks of its control plane: the page starts them, and the caller
//! of the console runs them.
//!
//! The console knows neither the engine nor the program: [`Explore`] is implemented by `flyball dev`. Everything that a
//! report contains is data of others, and shown as text.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Runs explorations of the operator under development, one at a time.
pub trait Explore: fmt::Debug + Send + Sync + 'static {
    /// Describes the exploration that runs, the finished ones and the choices.
    fn state(&self) -> ExplorationState;

    /// Starts or stops an exploration or a fork.
    ///
    /// # Errors
    ///
    /// If the request is invalid, or another exploration runs.
    fn request(&self, request: ExploreRequest) -> Result<(), ExploreError>;
}

/// Rejections of a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExploreError {
    /// Another exploration runs.
    #[error("another exploration is running; stop it first")]
    Busy,
    /// The request is invalid, with the reason and the remedy.
    #[error("{0}")]
    Invalid(String),
}

/// A request of the page.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "action", rename_all = "camelCase", deny_unknown_fields)]
pub enum ExploreRequest {
    /// Searches for faults that the operator does not tolerate.
    Search {
        /// Samples to apply, one of [`ExplorationState::samples`]; empty for all.
        #[serde(default)]
        sample: String,
        /// Duration of the search.
        seconds: u32,
    },
    /// Runs the samples without faults, to list the sites at which a fault can be injected.
    ListSites {
        /// Samples to apply.
        #[serde(default)]
        sample: String,
    },
    /// Runs one schedule, such as that of a finding.
    Replay {
        /// Samples to apply.
        #[serde(default)]
        sample: String,
        /// The schedule, as it is in a report.
        schedule: String,
    },
    /// Stops the exploration that runs. Its findings so far are kept.
    Stop {},
    /// Starts a copy of the control plane in its current state.
    Fork {},
    /// Pauses the time of a copy; a step that runs ends.
    PauseFork {
        /// Its number.
        number: u32,
    },
    /// Continues the time of a copy in real time.
    ResumeFork {
        /// Its number.
        number: u32,
    },
    /// Advances the time of a copy, and pauses it.
    StepFork {
        /// Its number.
        number: u32,
        /// Duration such as `1h30m`.
        duration: String,
    },
    /// Ends a copy.
    RemoveFork {
        /// Its number.
        number: u32,
    },
}

/// The purpose of an exploration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Task {
    /// A search.
    Search,
    /// A run without faults.
    ListSites,
    /// A run of one schedule.
    Replay,
}

/// The explorations of a session.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExplorationState {
    /// The program that is explored; empty until it is built.
    pub program: String,
    /// Files with samples.
    pub samples: Vec<String>,
    /// The exploration that runs.
    pub running: Option<RunningExploration>,
    /// Finished explorations, the newest first.
    pub finished: Vec<FinishedExploration>,
    /// The sites of the last run without faults.
    pub sites: Option<Sites>,
    /// Copies of the control plane; none if it cannot be copied.
    pub forks: Option<Vec<ForkedCluster>>,
}

/// A copy of the control plane.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ForkedCluster {
    /// Number of the copy in this session, from 1 on.
    pub number: u32,
    /// Time of the copied state.
    pub time: String,
    /// URL of its API server.
    pub url: String,
    /// Path of its kubeconfig.
    pub kubeconfig: String,
    /// The current time of its control plane.
    pub now: String,
    /// True if its time does not follow real time: it stands still, or is stepped.
    pub is_paused: bool,
    /// Seconds until the end of the step that runs.
    pub remaining: Option<f64>,
    /// Seconds that the last step did not reach, since it took too much real time.
    pub missed: Option<f64>,
}

/// The progress of an exploration.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunningExploration {
    /// Its purpose.
    pub task: Task,
    /// The samples; empty for all.
    pub sample: String,
    /// The schedule of a replay.
    pub schedule: String,
    /// The phase, in words.
    pub phase: String,
    /// Number of different schedules that were tried.
    pub schedules: usize,
    /// Number of pairs of a fault and a site at which it occurred.
    pub sites: usize,
    /// Violations so far: rule, object and text.
    pub violations: Vec<String>,
    /// Time since the start.
    pub seconds: f64,
    /// Duration of a search.
    pub budget: Option<u32>,
    /// True after a request to stop.
    pub is_stopping: bool,
}

/// The result of an exploration.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FinishedExploration {
    /// Number of the exploration in this session, from 1 on.
    pub number: u32,
    /// Its purpose.
    pub task: Task,
    /// The samples; empty for all.
    pub sample: String,
    /// The schedule of a replay.
    pub schedule: String,
    /// Time of the end.
    pub ended: String,
    /// Duration.
    pub seconds: f64,
    /// Number of different schedules that were tried.
    pub schedules: usize,
    /// Number of runs, with those of references and shrinking.
    pub runs: usize,
    /// The reason if the operator cannot be explored.
    pub error: String,
    /// Remarks of the report.
    pub warnings: Vec<String>,
    /// Violated rules.
    pub findings: Vec<FoundViolation>,
    /// Faults that occurred, with the number of their sites.
    pub coverage: Vec<(String, usize)>,
    /// Messages of a replayed run: microseconds since the start, site, and content.
    pub trace: Vec<String>,
    /// Number of further messages.
    pub trace_omitted: usize,
    /// True if the exploration was stopped.
    pub is_stopped: bool,
}

/// A violated rule, with the smallest schedule that shows it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FoundViolation {
    /// Name of the rule.
    pub oracle: String,
    /// The rule in words.
    pub rule: String,
    /// The object.
    pub object: String,
    /// JSON pointer of the field, empty if several are concerned or none.
    pub field: String,
    /// The violation in words.
    pub text: String,
    /// The smallest schedule.
    pub schedule: String,
    /// Number of runs of it that show the violation, and number of runs.
    pub rate: Option<(usize, usize)>,
    /// The run of the smallest schedule.
    pub timeline: Vec<String>,
    /// The command that repeats it in a terminal.
    pub command: String,
}

/// The sites of a run without faults.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Sites {
    /// The samples of the run; empty for all.
    pub sample: String,
    /// Beginning of a schedule, which is followed by a site, a space and a fault.
    pub schedule: String,
    /// The sites, in the order of the run.
    pub sites: Vec<SiteChoice>,
    /// Number of further sites.
    pub omitted: usize,
}

/// A site with the faults that can be injected there.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SiteChoice {
    /// The site, such as `patch:apps/deployments/web#1`.
    pub site: String,
    /// The faults, with their arguments.
    pub faults: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn requests_of_the_page_are_checked() {
        let parse = |value| serde_json::from_value::<ExploreRequest>(value).ok();
        let search = ExploreRequest::Search { sample: "a.yaml".into(), seconds: 60 };
        assert_eq!(parse(json!({"action": "search", "sample": "a.yaml", "seconds": 60})), Some(search));
        let replay = ExploreRequest::Replay { sample: String::new(), schedule: "default; seed=1".into() };
        assert_eq!(parse(json!({"action": "replay", "schedule": "default; seed=1"})), Some(replay));
        assert_eq!(parse(json!({"action": "stop"})), Some(ExploreRequest::Stop {}));
        let step = ExploreRequest::StepFork { number: 1, duration: "1h".into() };
        assert_eq!(parse(json!({"action": "stepFork", "number": 1, "duration": "1h"})), Some(step));
        for invalid in [
            json!({"action": "search"}),
            json!({"action": "stop", "exec": "sh"}),
            json!({"action": "exec"}),
            json!({"action": "stepFork", "number": 1}),
        ] {
            assert_eq!(parse(invalid.clone()), None, "{invalid}");
        }
    }
}
