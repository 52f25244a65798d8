//! Forks of the control plane: copies in the state of a moment, to try changes on, whose time can be stepped.

use crate::cluster::embedded::EmbeddedCluster;
use crate::cluster::steppable::{SteppableRuntime, TimeState};
use crate::duration::parse_duration;
use crate::error::{Result, ResultExt};
use crate::render::terminal::print_error;
use flyball_console::{ExploreError, ForkedCluster};
use flyball_core::Clock;
use flyball_core::time::rfc3339_micro;
use parking_lot::Mutex;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::Arc;

/// Limit of the forks, each of which has a copy of all objects.
const MAX_FORKS: usize = 8;
/// Limit of the characters of an invalid duration in a message.
const MAX_SHOWN_CHARS: usize = 40;

/// The forks of a control plane.
pub(super) struct Forks {
    cluster: Arc<EmbeddedCluster>,
    /// Private directory for kubeconfigs.
    folder: PathBuf,
    clock: Clock,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    count: u32,
    /// The number of forks that are being started.
    starting: usize,
    forks: Vec<Fork>,
}

/// A running copy.
struct Fork {
    number: u32,
    /// Time of the copied state.
    forked: String,
    cluster: EmbeddedCluster,
    time: SteppableRuntime,
}

impl Fork {
    fn describe(&self) -> ForkedCluster {
        let TimeState { is_paused, remaining, missed } = self.time.state();
        ForkedCluster {
            number: self.number,
            time: self.forked.clone(),
            url: self.cluster.url.clone(),
            kubeconfig: self.cluster.kubeconfig.display().to_string(),
            now: rfc3339_micro(self.time.clock().now()),
            is_paused,
            remaining: remaining.map(|remaining| remaining.as_secs_f64()),
            missed: missed.map(|missed| missed.as_secs_f64()),
        }
    }
}

impl Forks {
    pub(super) fn new(cluster: Arc<EmbeddedCluster>, folder: PathBuf, clock: Clock) -> Self {
        Self { cluster, folder, clock, state: Mutex::default() }
    }

    /// Describes the forks, the newest first.
    pub(super) fn all(&self) -> Vec<ForkedCluster> {
        self.state.lock().forks.iter().rev().map(Fork::describe).collect()
    }

    /// Starts a fork in the background.
    pub(super) fn start(self: &Arc<Self>) -> Result<(), ExploreError> {
        let mut state = self.state.lock();
        if state.forks.len() + state.starting >= MAX_FORKS {
            return Err(ExploreError::Invalid(format!("there are {MAX_FORKS} forks; remove one first")));
        }
        state.count += 1;
        state.starting += 1;
        let number = state.count;
        drop(state);
        let forks = self.clone();
        tokio::spawn(async move {
            let started = forks.fork(number).await;
            let mut state = forks.state.lock();
            state.starting -= 1;
            match started {
                Ok(fork) => state.forks.push(fork),
                Err(error) => print_error(&error),
            }
        });
        Ok(())
    }

    async fn fork(&self, number: u32) -> Result<Fork> {
        let name = format!("flyball-dev-fork-{number}");
        let folder = self.folder.join(format!("fork-{number}"));
        DirBuilder::new().recursive(true).mode(0o700).create(&folder).context("cannot create a directory")?;
        let now = self.clock.now();
        let time = SteppableRuntime::start(now).context("cannot start the runtime of a fork")?;
        let cluster = self.cluster.fork(&name, folder.join("kubeconfig"), &time).await?;
        Ok(Fork { number, forked: rfc3339_micro(now), cluster, time })
    }

    /// Pauses the time of a fork.
    pub(super) fn pause(&self, number: u32) -> Result<(), ExploreError> {
        self.with(number, |time| time.pause())
    }

    /// Continues the time of a fork.
    pub(super) fn resume(&self, number: u32) -> Result<(), ExploreError> {
        self.with(number, |time| time.resume())
    }

    /// Advances the time of a fork by a duration, and pauses it.
    pub(super) fn step(&self, number: u32, duration: &str) -> Result<(), ExploreError> {
        let parsed = parse_duration(duration.trim()).ok_or_else(|| {
            let shown: String = duration.chars().take(MAX_SHOWN_CHARS).collect();
            ExploreError::Invalid(format!("{shown:?} is not a duration; use one such as 90s, 15m or 1h30m"))
        })?;
        let stepped = self.with(number, |time| time.step(parsed))?;
        stepped.map_err(|error| ExploreError::Invalid(format!("cannot step fork {number}: {error}")))
    }

    fn with<T>(&self, number: u32, change: impl FnOnce(&SteppableRuntime) -> T) -> Result<T, ExploreError> {
        let state = self.state.lock();
        let fork = state.forks.iter().find(|fork| fork.number == number);
        fork.map(|fork| change(&fork.time)).ok_or_else(|| absent(number))
    }

    /// Ends a fork.
    pub(super) fn remove(&self, number: u32) -> Result<(), ExploreError> {
        let mut state = self.state.lock();
        let found = state.forks.iter().position(|fork| fork.number == number).ok_or_else(|| absent(number))?;
        let removed = state.forks.remove(found);
        drop(state);
        drop(removed);
        Ok(())
    }
}

fn absent(number: u32) -> ExploreError {
    ExploreError::Invalid(format!("there is no fork {number}"))
}
