//! Input and outcome of a run, for both executors.

use crate::metrics::RoleMetrics;
use crate::names::Names;
use crate::playbook::Kinds;
use crate::template::Vars;
use crate::watches::{LogEvents, Watch};
use flyball::Context;
use kube::core::DynamicObject;
use serde::Serialize;
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::Duration;

/// Length limit of a message, in characters.
const MAX_MESSAGE_CHARS: usize = 4096;

/// Minimum delay of a requeue that a task requests, since users may influence it.
pub(crate) const MIN_REQUEUE: Duration = Duration::from_secs(1);

/// The outcome of a run.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) ok: u64,
    pub(crate) changed: u64,
    pub(crate) skipped: u64,
    pub(crate) failures: u64,
    /// The error of the failed task.
    pub(crate) failure: Option<TaskError>,
    /// Delay until the next reconcile, if a task requested a requeue.
    pub(crate) requeue_after: Option<Duration>,
    /// Status fields set by tasks, besides the conditions of the operator.
    pub(crate) status: Map<String, Value>,
    /// True if objects were written.
    pub(crate) wrote: bool,
    /// True if the run has to be repeated later, since it had no [share](crate::shares) of the workers.
    pub(crate) is_deferred: bool,
}

/// The error of a task.
#[derive(Debug)]
pub(crate) struct TaskError {
    pub(crate) message: String,
    /// The task and its file.
    pub(crate) task: String,
    /// The error of the API server, if it is the cause.
    pub(crate) error: Option<flyball::Error>,
    /// True if the run is not retried before something changes.
    pub(crate) is_rejected: bool,
    /// True if the run cannot wait now, see [`Outcome::is_deferred`].
    pub(crate) is_deferred: bool,
}

/// The input of a run.
pub(crate) struct Job<'r> {
    pub(crate) kinds: &'r Arc<Kinds>,
    pub(crate) object: &'r DynamicObject,
    /// Variables from the object and `watches.yaml`.
    pub(crate) extra: Arc<Vars>,
    pub(crate) cx: &'r Context<DynamicObject>,
    pub(crate) watch: &'r Arc<Watch>,
    /// Rules for the names of fields that become variables.
    pub(crate) names: &'r Arc<Names>,
    /// Field manager of patches.
    pub(crate) manager: &'r str,
    /// Verbosity of Ansible.
    pub(crate) verbosity: u8,
    pub(crate) role_metrics: &'r RoleMetrics,
}

/// Logs the result of a task; `output` is `None` if it is hidden.
pub(crate) fn log_task(log: LogEvents, task: &str, is_debug: bool, result: &str, output: Option<&impl Serialize>) {
    let output = output.filter(|_| is_debug || log == LogEvents::Everything);
    // As in Ansible, its fields are sorted. Its length is limited like that of a message.
    let sorted = |output| serde_json::to_value(output).unwrap_or_default().to_string();
    let text = |output| TaskError::new(sorted(output)).message;
    match (log, output) {
        (LogEvents::Nothing, Some(output)) => tracing::debug!("{}", text(output)),
        (LogEvents::Nothing, None) => {}
        (LogEvents::Tasks | LogEvents::Everything, Some(output)) => tracing::info!(task, result, "{}", text(output)),
        (LogEvents::Tasks | LogEvents::Everything, None) => tracing::info!(task, "{result}"),
    }
}

impl TaskError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        let mut message = message.into();
        if let Some((end, _)) = message.char_indices().nth(MAX_MESSAGE_CHARS) {
            message.truncate(end);
            message.push('…');
        }
        Self { message, task: String::new(), error: None, is_rejected: false, is_deferred: false }
    }

    /// Creates a permanent failure: the object or the role requests something forbidden or unknown.
    pub(crate) fn rejected(message: impl Into<String>) -> Self {
        Self { is_rejected: true, ..Self::new(message) }
    }

    /// Ends a run that cannot wait now.
    pub(crate) fn deferred() -> Self {
        Self { is_deferred: true, ..Self::new(String::new()) }
    }

    pub(crate) fn of(error: flyball::Error) -> Self {
        Self { error: Some(error), ..Self::new(String::new()) }.with_error_message()
    }

    /// Names the kind of an object if the API server does not serve it, since its error does not.
    pub(crate) fn of_kind(self, definition: &Value) -> Self {
        let status = self.error.as_ref().and_then(flyball::Error::status);
        let is_nameless = |status: &kube::core::Status| status.details.as_ref().is_none_or(|of| of.name.is_empty());
        if !status.is_some_and(|status| status.code == 404 && is_nameless(status)) {
            return self;
        }
        let of = |field: &str| definition[field].as_str().unwrap_or_default();
        let message = format!("the cluster has no kind {} of {}: install its CRD", of("kind"), of("apiVersion"));
        Self { message, ..self }
    }

    /// Sets the message to that of the API server's error.
    pub(crate) fn with_error_message(self) -> Self {
        match &self.error {
            Some(error) => Self { message: Self::new(error.to_string()).message, ..self },
            None => self,
        }
    }
}
