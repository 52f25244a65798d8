//! The tasks of a running operator, and its shutdown.

use super::RunError;
use crate::election::ElectionOutcome;
use crate::events::Recorder;
use crate::latch::Latch;
use crate::queue::Queue;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tower::BoxError;

/// Time for each step of the shutdown after all reconciles have ended.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// The tasks of a running operator. Dropping it cancels all of them.
#[derive(Default)]
pub(super) struct OperatorTasks {
    /// The workers of the controllers.
    pub(super) workers: JoinSet<()>,
    /// The operator's own tasks, with names.
    pub(super) tasks: JoinSet<(String, Result<(), BoxError>)>,
    /// The election of a leader, if there is one.
    pub(super) elections: JoinSet<ElectionOutcome>,
    /// Namespace and name of the lease.
    pub(super) lease: String,
    /// The senders of events.
    pub(super) events: JoinSet<()>,
    /// Tasks that run until the end: watches, health and metrics servers, webhooks.
    pub(super) others: JoinSet<()>,
    pub(super) queues: Vec<Arc<Queue>>,
    pub(super) recorders: Vec<Arc<Recorder>>,
    /// Opens when the operator shuts down.
    pub(super) stop: Arc<Latch>,
    /// Opens when all work has ended, so that another replica may lead.
    pub(super) release: Arc<Latch>,
}

impl OperatorTasks {
    /// Waits until a task fails that the operator depends on.
    pub(super) async fn failed(&mut self) -> RunError {
        let panicked = |result: Result<(), _>| result.err().map(RunError::Stopped);
        loop {
            let error = tokio::select! {
                biased;
                // These only end by a panic: without them, the others would work on stale data.
                Some(result) = self.others.join_next() => panicked(result),
                Some(result) = self.workers.join_next() => panicked(result),
                Some(result) = self.elections.join_next() => match result {
                    Ok(ElectionOutcome::Lost(why)) => Some(RunError::LeadershipLost { lease: self.lease.clone(), why }),
                    Ok(ElectionOutcome::Stopped) => None,
                    Err(error) => Some(RunError::Stopped(error)),
                },
                Some(result) = self.tasks.join_next() => match result {
                    Ok((_, Ok(()))) => None,
                    Ok((name, Err(source))) => Some(RunError::Task { name, source }),
                    Err(error) => Some(RunError::Stopped(error)),
                },
                else => pending().await,
            };
            if let Some(error) = error {
                return error;
            }
        }
    }

    /// Cancels everything, since another replica may lead; pending events have a short time to be sent.
    pub(super) async fn end_at_once(mut self) {
        self.workers.abort_all();
        self.tasks.abort_all();
        self.recorders.iter().for_each(|recorder| recorder.close());
        let sent = async { while self.events.join_next().await.is_some() {} };
        let _ = timeout(STOP_TIMEOUT / 4, sent).await;
    }

    /// Shuts down in order. Tasks that exceed `grace` are canceled.
    pub(super) async fn end(mut self, grace: Duration) {
        self.stop.open();
        self.queues.iter().for_each(|queue| queue.close());
        let (workers, tasks) = (&mut self.workers, &mut self.tasks);
        let drained = async {
            while workers.join_next().await.is_some() {}
            while let Some(result) = tasks.join_next().await {
                if let Ok((task, Err(error))) = result {
                    tracing::warn!(task, error, "task failed during shutdown");
                }
            }
        };
        // Meanwhile the lease is renewed. If it is lost, the shutdown is immediate.
        let drained = tokio::select! {
            biased;
            Some(_) = self.elections.join_next() => false,
            drained = timeout(grace, drained) => drained.is_ok(),
        };
        let mut idle = true;
        if !drained {
            let (workers, tasks) = (&mut self.workers, &mut self.tasks);
            tracing::warn!(
                reconciles = workers.len(),
                tasks = tasks.len(),
                "shutdown grace period exceeded, canceling"
            );
            workers.abort_all();
            tasks.abort_all();
            let join = async {
                while workers.join_next().await.is_some() {}
                while tasks.join_next().await.is_some() {}
            };
            idle = timeout(STOP_TIMEOUT, join).await.is_ok();
        }
        self.recorders.iter().for_each(|recorder| recorder.close());
        // Events only get a short time.
        let sent = async { while self.events.join_next().await.is_some() {} };
        let _ = timeout(2 * STOP_TIMEOUT, sent).await;
        // Tasks that cannot be canceled may still act, until the lease expires.
        if idle {
            self.release.open();
            let _ = timeout(2 * STOP_TIMEOUT, self.elections.join_next()).await;
        }
    }
}
