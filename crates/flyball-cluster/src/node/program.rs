//! Programs that run in the containers of pods.

use super::script::Rules;
use flyball_core::Rng;
use flyball_core::time::{SignedDuration, Timestamp, saturating_add};
use k8s_openapi::api::core::v1::{Container, Pod};
use std::collections::BTreeMap;

/// Runs the containers of pods: starts, observes and stops them.
///
/// A kubelet calls it for every container in each sync of a pod, so the calls must be cheap. The results are stored in
/// the status of the pod, and a program may be called for containers that an earlier instance started.
pub trait Program: Send + Sync + 'static {
    /// Starts a container. If it cannot start yet, the call is repeated later.
    ///
    /// # Errors
    ///
    /// If it cannot be started. The error is written to the status of the pod, and the start is retried.
    fn start(&self, launch: &Launch<'_>) -> Result<StartResult, StartError>;

    /// Returns the state of a started container.
    fn observe(&self, running: &RunningContainer<'_>, now: Timestamp) -> ProgramState;

    /// Stops a container, which was asked to stop at `since` and has the grace period `grace`. Called repeatedly until
    /// it has stopped.
    fn stop(
        &self,
        running: &RunningContainer<'_>,
        since: Timestamp,
        grace: SignedDuration,
        now: Timestamp,
    ) -> ProgramState;
}

/// A container to start.
#[derive(Clone, Debug)]
pub struct Launch<'a> {
    /// The pod on the API server.
    pub pod: &'a Pod,
    /// The container, which may be an init container.
    pub container: &'a Container,
    /// Number of earlier starts.
    pub attempt: i32,
    /// Its environment, with all references resolved.
    pub env: &'a BTreeMap<String, String>,
    /// Time from which the container could start.
    pub since: Timestamp,
    /// The time.
    pub now: Timestamp,
}

/// Result of starting a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartResult {
    /// The container runs under this ID, such as `containerd://8a7f…`.
    Started(String),
    /// A dependency is not available before this time.
    NotYet(Timestamp),
}

/// A container that was started.
#[derive(Clone, Copy, Debug)]
pub struct RunningContainer<'a> {
    /// The pod on the API server.
    pub pod: &'a Pod,
    /// The container.
    pub container: &'a Container,
    /// Number of earlier starts.
    pub attempt: i32,
    /// The container ID that [`Program::start`] returned.
    pub id: &'a str,
    /// Start time, in whole seconds.
    pub started: Timestamp,
}

/// Error of starting a container.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct StartError {
    /// The reason in one word, such as `ErrImagePull`.
    pub reason: String,
    /// Error message.
    pub message: String,
}

/// State of a container.
#[derive(Clone, Debug, PartialEq)]
pub enum ProgramState {
    /// The container runs.
    Running {
        /// Readiness.
        is_ready: bool,
        /// Time of the next change, if it is known.
        until: Option<Timestamp>,
    },
    /// The container has ended.
    Exited(Exit),
}

/// Exit of a container.
#[derive(Clone, Debug, PartialEq)]
pub struct Exit {
    /// Its exit code.
    pub code: i32,
    /// End time.
    pub at: Timestamp,
}

/// The exit code after SIGTERM.
pub(super) const TERMINATED: i32 = 143;
/// The exit code after SIGKILL.
pub(super) const KILLED: i32 = 137;
const SCHEME: &str = "simulated://";

/// A program that simulates containers, without processes: they become ready and exit according to their pods'
/// annotations and [rules](super::ContainerRule).
///
/// It is stateless: the state of a container depends on the pod alone.
#[derive(Debug)]
pub struct SimulatedProgram {
    rules: Rules,
    seed: u64,
}

impl SimulatedProgram {
    pub(crate) fn new(rules: Rules, rng: &Rng) -> Self {
        Self { rules, seed: rng.next() }
    }

    /// Returns the random source for one purpose and one start of a container, equal in each call.
    fn rng(&self, running: &RunningContainer<'_>, what: &str) -> Rng {
        let uid = running.pod.metadata.uid.as_deref().unwrap_or_default();
        Rng::from_seed(self.seed).fork(&format!("{uid}/{}/{}/{what}", running.container.name, running.attempt))
    }

    /// Returns the exit of the container, if it has one.
    fn ending(&self, running: &RunningContainer<'_>) -> Option<Exit> {
        let script = self.rules.script(running.pod, &running.container.name);
        let (after, code) = script.ending(running.pod, running.container, running.attempt)?;
        let after = after.draw(&self.rng(running, "complete"))?;
        Some(Exit { code, at: saturating_add(began(running), after) })
    }
}

/// Returns the exact time of a start, which is part of the name.
fn began(running: &RunningContainer<'_>) -> Timestamp {
    let digits = running.id.strip_prefix(SCHEME).and_then(|id| id.get(..16));
    let micros = digits.and_then(|digits| i64::from_str_radix(digits, 16).ok());
    micros.and_then(|micros| Timestamp::from_microsecond(micros).ok()).unwrap_or(running.started)
}

impl Program for SimulatedProgram {
    fn start(&self, launch: &Launch<'_>) -> Result<StartResult, StartError> {
        let uid = launch.pod.metadata.uid.as_deref().unwrap_or_default();
        let whose = format!("{uid}/{}/{}", launch.container.name, launch.attempt);
        let rng = Rng::from_seed(self.seed).fork(&whose);
        // The image is not pulled again for restarts.
        if launch.attempt == 0 {
            let script = self.rules.script(launch.pod, &launch.container.name);
            let due = script.start_after.draw(&rng.fork("start")).map(|after| saturating_add(launch.since, after));
            match due {
                Some(due) if due <= launch.now => {}
                // A start that is never due is checked once a day.
                due => return Ok(StartResult::NotYet(due.unwrap_or(launch.now + SignedDuration::from_hours(24)))),
            }
        }
        let micros = launch.now.as_microsecond();
        Ok(StartResult::Started(format!(
            "{SCHEME}{micros:016x}{:016x}{:016x}{:016x}",
            rng.next(),
            rng.next(),
            rng.next()
        )))
    }

    fn observe(&self, running: &RunningContainer<'_>, now: Timestamp) -> ProgramState {
        let ending = self.ending(running);
        if let Some(exit) = ending.clone().filter(|exit| exit.at <= now) {
            return ProgramState::Exited(exit);
        }
        let script = self.rules.script(running.pod, &running.container.name);
        let after = script.ready(running.container).draw(&self.rng(running, "ready"));
        let ready = after.map(|after| saturating_add(began(running), after));
        let is_ready = ready.is_some_and(|ready| ready <= now);
        let until = ready.filter(|_| !is_ready).into_iter().chain(ending.map(|exit| exit.at)).min();
        ProgramState::Running { is_ready, until }
    }

    fn stop(
        &self,
        running: &RunningContainer<'_>,
        since: Timestamp,
        grace: SignedDuration,
        now: Timestamp,
    ) -> ProgramState {
        if let Some(exit) = self.ending(running).filter(|exit| exit.at <= since) {
            return ProgramState::Exited(exit);
        }
        let script = self.rules.script(running.pod, &running.container.name);
        let delay = script.stop_after.draw(&self.rng(running, "stop"));
        let is_killed = delay.is_none_or(|delay| delay > grace);
        let at = saturating_add(since, if is_killed { grace } else { delay.unwrap_or(grace) });
        match at <= now {
            true => ProgramState::Exited(Exit { code: if is_killed { KILLED } else { TERMINATED }, at }),
            false => ProgramState::Running { is_ready: false, until: Some(at) },
        }
    }
}
