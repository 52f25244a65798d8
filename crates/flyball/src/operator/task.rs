//! Background tasks of an operator.

use crate::cache::Caches;
use crate::context::Environment;
use crate::latch::Latch;
use flyball_core::{Rng, time::Timestamp};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use std::fmt;
use std::sync::Arc;
use tower::BoxError;

/// A background task that runs alongside the controllers of an operator, such as a poller, a server or a cleanup.
///
/// It starts with the operator; if replicas [elect a leader](crate::LeaderElection), it starts when this one leads,
/// unless it runs [on every replica](Self::on_every_replica). If it fails or panics, the operator ends with its error;
/// if it returns `Ok`, the others continue. When leadership is lost, it is canceled immediately. On shutdown it has the
/// operator's [grace](crate::Operator::grace) to end, and is canceled then.
///
/// ```
/// use flyball::{Operator, Task};
/// use std::time::Duration;
///
/// let task = Task::new("heartbeat", |cx| async move {
///     loop {
///         tokio::select! {
///             () = cx.stopped() => return Ok(()),
///             () = tokio::time::sleep(Duration::from_secs(60)) => println!("still here at {}", cx.now()),
///         }
///     }
/// });
/// let operator = Operator::new("site-operator").task(task.on_every_replica());
/// ```
#[doc(alias = "Runnable")]
#[doc(alias = "kopf.daemon")]
#[doc(alias = "daemon")]
pub struct Task {
    pub(super) name: String,
    pub(super) on_all_replicas: bool,
    run: Box<dyn FnOnce(TaskContext) -> BoxFuture<'static, Result<(), BoxError>> + Send>,
}

impl Task {
    /// Creates a task with a name for errors.
    pub fn new<F>(name: impl Into<String>, run: impl FnOnce(TaskContext) -> F + Send + 'static) -> Self
    where
        F: Future<Output = Result<(), BoxError>> + Send + 'static,
    {
        Self { name: name.into(), on_all_replicas: false, run: Box::new(|cx| run(cx).boxed()) }
    }

    /// Runs the task whether or not this replica leads.
    pub fn on_every_replica(mut self) -> Self {
        self.on_all_replicas = true;
        self
    }

    /// Waits for leadership if necessary, and runs.
    pub(super) async fn run(self, env: Arc<Environment>, stop: Arc<Latch>) -> (String, Result<(), BoxError>) {
        tokio::select! {
            biased;
            () = stop.wait() => return (self.name, Ok(())),
            () = env.leads.wait() => {}
        }
        let ended = (self.run)(TaskContext { env, stop }).await;
        (self.name, ended)
    }
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task")
            .field("name", &self.name)
            .field("on_all_replicas", &self.on_all_replicas)
            .finish_non_exhaustive()
    }
}

/// The context of a [`Task`]: client, caches, time and randomness.
#[derive(Clone, Debug)]
pub struct TaskContext {
    env: Arc<Environment>,
    stop: Arc<Latch>,
}

impl TaskContext {
    /// Waits until the operator shuts down. The task may continue for the operator's [grace](crate::Operator::grace),
    /// and is canceled then.
    pub async fn stopped(&self) {
        self.stop.wait().await;
    }

    /// Returns the client, which counts requests and retries when the API server is busy. The client of a task that
    /// waits for leadership writes only while this replica leads.
    pub fn client(&self) -> &kube::Client {
        self.env.client.kube()
    }

    /// Returns the caches of the controllers, which may not be filled yet.
    pub fn caches(&self) -> &Caches {
        &self.env.caches
    }

    /// Returns the time.
    pub fn now(&self) -> Timestamp {
        self.env.clock.now()
    }

    /// Returns the source of randomness, which repeats in a simulation.
    pub fn rng(&self) -> &Rng {
        &self.env.rng
    }
}
