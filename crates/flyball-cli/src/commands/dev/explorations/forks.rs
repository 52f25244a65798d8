//! Forks of the control plane: copies in the state of a moment, to try changes on.

use crate::cluster::embedded::EmbeddedCluster;
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
    forks: Vec<(ForkedCluster, EmbeddedCluster)>,
}

impl Forks {
    pub(super) fn new(cluster: Arc<EmbeddedCluster>, folder: PathBuf, clock: Clock) -> Self {
        Self { cluster, folder, clock, state: Mutex::default() }
    }

    /// Describes the forks, the newest first.
    pub(super) fn all(&self) -> Vec<ForkedCluster> {
        self.state.lock().forks.iter().rev().map(|(fork, _)| fork.clone()).collect()
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

    async fn fork(&self, number: u32) -> Result<(ForkedCluster, EmbeddedCluster)> {
        let name = format!("flyball-dev-fork-{number}");
        let folder = self.folder.join(format!("fork-{number}"));
        DirBuilder::new().recursive(true).mode(0o700).create(&folder).context("cannot create a directory")?;
        let time = rfc3339_micro(self.clock.now());
        let cluster = self.cluster.fork(&name, folder.join("kubeconfig")).await?;
        let (url, kubeconfig) = (cluster.url.clone(), cluster.kubeconfig.display().to_string());
        Ok((ForkedCluster { number, time, url, kubeconfig }, cluster))
    }

    /// Ends a fork.
    pub(super) fn remove(&self, number: u32) -> Result<(), ExploreError> {
        let mut state = self.state.lock();
        let found = state.forks.iter().position(|(fork, _)| fork.number == number);
        let found = found.ok_or_else(|| ExploreError::Invalid(format!("there is no fork {number}")))?;
        let removed = state.forks.remove(found);
        drop(state);
        drop(removed);
        Ok(())
    }
}
