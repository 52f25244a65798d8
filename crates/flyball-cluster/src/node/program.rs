//! Programs that run in the containers of pods.

use super::script::Rules;
use flyball_core::Rng;
use flyball_core::time::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Container, Pod};
use std::collections::BTreeMap;

/// Runs the containers of pods: starts, observes and stops them.
///
/// A kubelet asks it about every container whenever it looks at a pod, so the answers must be cheap. It keeps in the
/// status of the pod what it was told, and may ask a program that was made anew about containers that another one
/// started.
pub trait Program: Send + Sync + 'static {
    /// Starts a container, unless it takes a while until it can be started; asked again then.
    ///
    /// # Errors
    ///
    /// When it cannot be started. That is told in the status of the pod, and tried again.
    fn start(&self, launch: &Launch<'_>) -> Result<Start, StartError>;

    /// Returns the state of a started container.
    fn observe(&self, running: &Running<'_>, now: Timestamp) -> Observed;

    /// Stops a container, which was asked to stop at `since` and has the grace period `grace`. Called repeatedly until
    /// it has stopped.
    fn stop(&self, running: &Running<'_>, since: Timestamp, grace: SignedDuration, now: Timestamp) -> Observed;
}

/// A container that is to be started.
#[derive(Clone, Debug)]
pub struct Launch<'a> {
    /// The pod, as the API server knows it.
    pub pod: &'a Pod,
    /// The container, which may be an init container.
    pub container: &'a Container,
    /// Number of earlier starts.
    pub attempt: i32,
    /// Its environment, with everything resolved that it takes from elsewhere.
    pub env: &'a BTreeMap<String, String>,
    /// Since when it could be started.
    pub since: Timestamp,
    /// The time.
    pub now: Timestamp,
}

/// Result of starting a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// It runs, and is known by this name from now on, such as `containerd://8a7f…`.
    Started(String),
    /// A dependency is not available before this time.
    NotYet(Timestamp),
}

/// A container that was started.
#[derive(Clone, Copy, Debug)]
pub struct Running<'a> {
    /// The pod, as the API server knows it.
    pub pod: &'a Pod,
    /// The container.
    pub container: &'a Container,
    /// Number of earlier starts.
    pub attempt: i32,
    /// The name that [`Program::start`] gave.
    pub id: &'a str,
    /// When it was started, in whole seconds.
    pub started: Timestamp,
}

/// Why a container does not start.
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
pub enum Observed {
    /// It runs.
    Running {
        /// Readiness.
        is_ready: bool,
        /// When it is to be looked at again, if that is known.
        until: Option<Timestamp>,
    },
    /// It has ended.
    Exited(Exit),
}

/// Exit of a container.
#[derive(Clone, Debug, PartialEq)]
pub struct Exit {
    /// Its exit code.
    pub code: i32,
    /// When it ended.
    pub at: Timestamp,
}

/// The exit code of what was ended by SIGTERM.
pub(super) const TERMINATED: i32 = 143;
/// The exit code of what was ended by SIGKILL.
pub(super) const KILLED: i32 = 137;
const SCHEME: &str = "simulated://";

/// Containers in which nothing runs: they become ready and end as their pods' annotations and [rules](super::Rule) say.
///
/// It remembers nothing, so that what it says of a container follows from the pod alone.
#[derive(Debug)]
pub struct Simulated {
    rules: Rules,
    seed: u64,
}

impl Simulated {
    pub(crate) fn new(rules: Rules, rng: &Rng) -> Self {
        Self { rules, seed: rng.next() }
    }

    /// Draws for one purpose and one start of a container, whenever it is asked for.
    fn rng(&self, running: &Running<'_>, what: &str) -> Rng {
        let uid = running.pod.metadata.uid.as_deref().unwrap_or_default();
        Rng::from_seed(self.seed).fork(&format!("{uid}/{}/{}/{what}", running.container.name, running.attempt))
    }

    /// Returns the exit of the container, if it has one.
    fn ending(&self, running: &Running<'_>) -> Option<Exit> {
        let script = self.rules.script(running.pod, &running.container.name);
        let (after, code) = script.ending(running.pod, running.container, running.attempt)?;
        let after = after.draw(&self.rng(running, "complete"))?;
        Some(Exit { code, at: began(running) + after })
    }
}

/// Returns the exact time of a start, which is part of the name.
fn began(running: &Running<'_>) -> Timestamp {
    let digits = running.id.strip_prefix(SCHEME).and_then(|id| id.get(..16));
    let micros = digits.and_then(|digits| i64::from_str_radix(digits, 16).ok());
    micros.and_then(|micros| Timestamp::from_microsecond(micros).ok()).unwrap_or(running.started)
}

impl Program for Simulated {
    fn start(&self, launch: &Launch<'_>) -> Result<Start, StartError> {
        let uid = launch.pod.metadata.uid.as_deref().unwrap_or_default();
        let whose = format!("{uid}/{}/{}", launch.container.name, launch.attempt);
        let rng = Rng::from_seed(self.seed).fork(&whose);
        // What was pulled once is there when it starts again.
        if launch.attempt == 0 {
            let script = self.rules.script(launch.pod, &launch.container.name);
            let due = script.start_after.draw(&rng.fork("start")).map(|after| launch.since + after);
            match due {
                Some(due) if due <= launch.now => {}
                // Whatever never comes is looked for once a day.
                due => return Ok(Start::NotYet(due.unwrap_or(launch.now + SignedDuration::from_hours(24)))),
            }
        }
        let micros = launch.now.as_microsecond();
        Ok(Start::Started(format!("{SCHEME}{micros:016x}{:016x}{:016x}{:016x}", rng.next(), rng.next(), rng.next())))
    }

    fn observe(&self, running: &Running<'_>, now: Timestamp) -> Observed {
        let ending = self.ending(running);
        if let Some(exit) = ending.clone().filter(|exit| exit.at <= now) {
            return Observed::Exited(exit);
        }
        let script = self.rules.script(running.pod, &running.container.name);
        let after = script.ready(running.container).draw(&self.rng(running, "ready"));
        let ready = after.map(|after| began(running) + after);
        let is_ready = ready.is_some_and(|ready| ready <= now);
        let until = ready.filter(|_| !is_ready).into_iter().chain(ending.map(|exit| exit.at)).min();
        Observed::Running { is_ready, until }
    }

    fn stop(&self, running: &Running<'_>, since: Timestamp, grace: SignedDuration, now: Timestamp) -> Observed {
        if let Some(exit) = self.ending(running).filter(|exit| exit.at <= since) {
            return Observed::Exited(exit);
        }
        let script = self.rules.script(running.pod, &running.container.name);
        let wanted = script.stop_after.draw(&self.rng(running, "stop"));
        let is_killed = wanted.is_none_or(|wanted| wanted > grace);
        let at = since + if is_killed { grace } else { wanted.unwrap_or(grace) };
        match at <= now {
            true => Observed::Exited(Exit { code: if is_killed { KILLED } else { TERMINATED }, at }),
            false => Observed::Running { is_ready: false, until: Some(at) },
        }
    }
}
