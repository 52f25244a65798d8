//! Waits, with a timeout, for objects to be ready or deleted.

use super::Run;
use super::modules::Arguments;
use super::tasks::seconds;
use crate::job::TaskError;
use crate::yaml::{to_text, truth};
use flyball::{Kind, ObjectKey};
use serde_json::Value;
use std::time::Duration;

/// The wait settings of a task.
pub(super) struct Wait {
    timeout: Duration,
    sleep: Duration,
    condition: Option<WaitCondition>,
}

/// A condition to wait for.
struct WaitCondition {
    kind: String,
    status: String,
    reason: Option<String>,
}

impl Wait {
    /// Parses the wait settings of a task; `None` if it does not wait.
    pub(super) fn of(arguments: &Arguments) -> Option<Self> {
        arguments.get("wait").and_then(truth).filter(|wait| *wait)?;
        let condition = arguments.get("wait_condition").map(|condition| WaitCondition {
            kind: condition.get("type").map(to_text).unwrap_or_default(),
            // In YAML, `True` and `"True"` are easily confused.
            status: condition.get("status").map_or("True".to_owned(), |status| match status {
                crate::value::Value::Bool(true) => "True".to_owned(),
                crate::value::Value::Bool(false) => "False".to_owned(),
                other => to_text(other),
            }),
            reason: condition.get("reason").map(to_text),
        });
        let time = |name: &str, default: f64| {
            arguments.get(name).map_or(Duration::from_secs_f64(default), |time| seconds(time, default))
        };
        Some(Self {
            timeout: time("wait_timeout", 120.0),
            sleep: time("wait_sleep", 5.0).max(Duration::from_millis(100)),
            condition,
        })
    }
}

impl Run<'_> {
    /// Waits for an object to be ready or deleted; returns its final state.
    pub(super) async fn wait_for(
        &mut self,
        wait: &Wait,
        kind: &Kind,
        key: &ObjectKey,
        absent: bool,
    ) -> Result<Option<Value>, TaskError> {
        let mut waited = Duration::ZERO;
        loop {
            let object = self.get(kind, key).await?;
            let object = object.map(|object| serde_json::to_value(object).unwrap_or_default());
            match (&object, absent) {
                (None, true) => return Ok(None),
                (Some(live), false) if is_ready(kind.name(), live, wait.condition.as_ref()) => return Ok(object),
                _ if waited >= wait.timeout => {
                    let (name, seconds) = (kind.name(), wait.timeout.as_secs());
                    let what = if absent { "gone" } else { "ready" };
                    return Err(TaskError::new(format!(
                        "{name} {key}: Timed out waiting on resource: not {what} within {seconds} s"
                    )));
                }
                _ => {}
            }
            self.pause(wait.sleep).await.map_err(|_| TaskError::deferred())?;
            waited += wait.sleep;
        }
    }
}

/// Returns true if an object is ready: by a condition, or by the rules of its kind.
fn is_ready(kind: &str, object: &Value, condition: Option<&WaitCondition>) -> bool {
    let (spec, status) = (&object["spec"], &object["status"]);
    let generation = object["metadata"]["generation"].as_i64();
    let observed = status["observedGeneration"].as_i64();
    if let Some(expected) = condition {
        let conditions = status["conditions"].as_array().map_or(&[][..], |conditions| conditions);
        let found = conditions.iter().find(|condition| condition["type"] == *expected.kind);
        let reason = |found: &Value| expected.reason.as_ref().is_none_or(|reason| found["reason"] == **reason);
        return found.is_some_and(|found| found["status"] == *expected.status && reason(found));
    }
    let count = |value: &Value| value.as_i64().unwrap_or(0);
    let is_current = observed.is_none_or(|observed| Some(observed) >= generation);
    let replicas_desired = spec["replicas"].as_i64().unwrap_or(1);
    match kind {
        "Deployment" => {
            let all = [&status["updatedReplicas"], &status["availableReplicas"], &status["replicas"]];
            observed.is_some() && is_current && all.into_iter().all(|replicas| count(replicas) == replicas_desired)
        }
        "StatefulSet" => {
            let all = [&status["updatedReplicas"], &status["readyReplicas"], &status["replicas"]];
            observed.is_some() && is_current && all.into_iter().all(|replicas| count(replicas) == replicas_desired)
        }
        "DaemonSet" => {
            let desired = status["desiredNumberScheduled"].as_i64();
            observed.is_some() && is_current && desired.is_some_and(|desired| count(&status["numberReady"]) == desired)
        }
        "Pod" => {
            let containers = status["containerStatuses"].as_array();
            containers.is_some_and(|all| !all.is_empty() && all.iter().all(|container| container["ready"] == true))
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn readiness_depends_on_kind() {
        let deployment = |observed: i64, available: i64| {
            json!({"metadata": {"generation": 2}, "spec": {"replicas": 2},
                "status": {"observedGeneration": observed, "replicas": 2, "updatedReplicas": 2, "availableReplicas": available}})
        };
        assert!(is_ready("Deployment", &deployment(2, 2), None));
        assert!(!is_ready("Deployment", &deployment(1, 2), None) && !is_ready("Deployment", &deployment(2, 1), None));
        assert!(!is_ready("Deployment", &json!({"spec": {}}), None) && is_ready("ConfigMap", &json!({}), None));
        let expected = WaitCondition { kind: "Complete".into(), status: "True".into(), reason: None };
        let job = json!({"status": {"conditions": [{"type": "Complete", "status": "True"}]}});
        assert!(is_ready("Job", &job, Some(&expected)) && !is_ready("Job", &json!({}), Some(&expected)));
    }
}
