//! Events of a run, in the format of ansible-runner.

use crate::job::{MIN_REQUEUE, Outcome, TaskError, log_task};
use crate::watches::LogEvents;
use flyball_core::time::parse_unsigned_duration;
use serde_json::Value;
use std::sync::Once;

/// Set after the warning about missing protection by the kernel.
static UNRESTRICTED: Once = Once::new();

/// Length limits of the name of a task, which may contain text of users, and of a period.
const MAX_TASK_CHARS: usize = 256;
const MAX_PERIOD_BYTES: usize = 64;

/// The events of a run.
#[derive(Debug, Default)]
pub(crate) struct Events {
    outcome: Outcome,
    /// Message of the last failed task that was not ignored.
    failed: Option<TaskError>,
    /// Number of changes of metrics, which are not a part of the desired state.
    metric_changes: u64,
    complete: bool,
    log: LogEvents,
}

impl Events {
    pub(crate) fn of(log: LogEvents) -> Self {
        Self { log, ..Self::default() }
    }

    /// Parses a line of output. Only lines that start with the secret of the run are events, since users may
    /// influence the others.
    pub(crate) fn read(&mut self, line: &str, secret: &str) {
        if let Some(Ok(event)) = line.split_once(secret).map(|(_, event)| serde_json::from_str(event)) {
            self.record(&event);
        }
    }

    /// Records an event.
    pub(crate) fn record(&mut self, event: &Value) {
        let data = &event["event_data"];
        if let Some(result) = result_of(event) {
            let is_debug = action_of(data) == "debug";
            log_task(self.log, &task_of(data), is_debug, result, Some(&data["res"]));
        }
        let text = |field: &str| data["res"][field].as_str().map(str::to_owned);
        match event["event"].as_str() {
            Some("runner_on_failed" | "runner_on_unreachable") if data["ignore_errors"] != true => {
                let message = text("msg")
                    .filter(|message| !message.is_empty())
                    .unwrap_or_else(|| "unknown playbook failure".to_owned());
                let task = match data["task_action"].as_str() {
                    Some(action) => format!("{} (module {action:.MAX_TASK_CHARS$})", task_of(data)),
                    None => task_of(data),
                };
                self.failed = Some(TaskError { task, ..TaskError::new(message) });
            }
            Some("runner_on_ok") if action_of(data) == "requeue_after" => {
                self.outcome.requeue_after = text("period")
                    .filter(|period| period.len() <= MAX_PERIOD_BYTES)
                    .and_then(|period| parse_unsigned_duration(&period))
                    .map(|period| period.max(MIN_REQUEUE));
            }
            Some("runner_on_ok") if action_of(data) == "osdk_metric" && data["res"]["changed"] == true => {
                self.metric_changes += 1;
            }
            Some("playbook_on_start") if data["is_restricted"] == false => UNRESTRICTED.call_once(|| {
                tracing::warn!(
                    "the kernel does not support Landlock: files are only protected from runs of ansible-playbook by \
                     checks of paths in tasks, and not from programs that tasks start"
                );
            }),
            Some("playbook_on_stats") => {
                let count = |name: &str| -> u64 {
                    data[name].as_object().map_or(0, |hosts| hosts.values().filter_map(Value::as_u64).sum())
                };
                self.outcome.ok = count("ok");
                self.outcome.changed = count("changed");
                self.outcome.skipped = count("skipped");
                self.outcome.failures = count("failures") + count("dark");
                self.complete = true;
            }
            _ => {}
        }
    }

    /// Returns true if the run has finished.
    pub(crate) fn is_complete(&self) -> bool {
        self.complete
    }

    /// Returns true if a task failed that was not ignored.
    pub(crate) fn has_failed(&self) -> bool {
        self.outcome.failures > 0
    }

    /// Returns the outcome of the run. Rescued tasks have not failed.
    pub(crate) fn outcome(self) -> Outcome {
        let failure =
            self.has_failed().then(|| self.failed.unwrap_or_else(|| TaskError::new("unknown playbook failure")));
        let wrote = self.outcome.changed > self.metric_changes;
        Outcome { failure, wrote, ..self.outcome }
    }
}

/// Returns the name of the task of an event.
fn task_of(data: &Value) -> String {
    data["task"].as_str().unwrap_or_default().chars().take(MAX_TASK_CHARS).collect()
}

/// Returns the module of the task of an event, without its collection.
fn action_of(data: &Value) -> &str {
    data["task_action"].as_str().and_then(|action| action.rsplit('.').next()).unwrap_or_default()
}

/// Returns the result of the task of an event in one word.
fn result_of(event: &Value) -> Option<&'static str> {
    Some(match event["event"].as_str()? {
        "runner_on_ok" if event["event_data"]["res"]["changed"] == true => "changed",
        "runner_on_ok" => "ok",
        "runner_on_skipped" => "skipped",
        "runner_on_failed" if event["event_data"]["ignore_errors"] == true => "ignored",
        "runner_on_failed" => "failed",
        "runner_on_unreachable" => "unreachable",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(recorded: &str) -> Outcome {
        let recorded: Vec<Value> = serde_json::from_str(recorded).unwrap();
        let mut events = Events::default();
        recorded.iter().for_each(|event| events.read(&format!("s3cret{event}"), "s3cret"));
        assert!(events.is_complete());
        events.outcome()
    }

    #[test]
    fn events_of_ansible_runner_yield_the_outcome() {
        let good = outcome(include_str!("../../tests/data/ok-run.json"));
        assert_eq!((good.ok, good.changed, good.failures, good.failure.is_none()), (2, 0, 0, true));
        let bad = outcome(include_str!("../../tests/data/failed-run.json"));
        assert_eq!((bad.ok, bad.changed, bad.failures), (5, 1, 1));
        assert_eq!(bad.failure.unwrap().message, "size must be > 1");
    }

    #[test]
    fn names_of_tasks_are_cut() {
        let mut events = Events::default();
        let data = serde_json::json!({"task": "ä".repeat(10_000), "res": {"msg": "a"}});
        events.record(&serde_json::json!({"event": "runner_on_failed", "event_data": data}));
        assert_eq!(events.failed.unwrap().task, "ä".repeat(MAX_TASK_CHARS));
    }

    #[test]
    fn requeue_period_has_a_minimum() {
        for (period, seconds) in [("0s", 1), ("1ns", 1), ("2s", 2)] {
            let mut events = Events::default();
            events.record(&serde_json::json!({"event": "runner_on_ok", "event_data": {"task_action": "requeue_after", "res": {"period": period}}}));
            assert_eq!(events.outcome().requeue_after.map(|period| period.as_secs()), Some(seconds), "{period}");
        }
    }

    #[test]
    fn changed_metrics_do_not_require_another_run() {
        let wrote = |changed: u64| {
            let mut events = Events::default();
            let metric = serde_json::json!({"task_action": "operator_sdk.util.osdk_metric", "res": {"changed": true}});
            events.record(&serde_json::json!({"event": "runner_on_ok", "event_data": metric}));
            let stats = serde_json::json!({"changed": {"localhost": changed}});
            events.record(&serde_json::json!({"event": "playbook_on_stats", "event_data": stats}));
            events.outcome().wrote
        };
        assert!(!wrote(1) && wrote(2));
    }

    #[test]
    fn other_output_is_ignored() {
        let mut events = Events::default();
        for line in ["", "PLAY [localhost]", "{", "[]", "{\"event\": 3}", "null", "{\"event\": \"runner_on_failed\"}"] {
            events.read(&format!("s3cret{line}"), "s3cret");
        }
        events.read("{\"event\": \"playbook_on_stats\", \"event_data\": {\"failures\": {\"localhost\": 1}}}", "s3cret");
        assert!(!events.is_complete() && events.outcome().failure.is_none());
    }
}
