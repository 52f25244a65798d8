//! Conditions in the status of objects.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A condition in the status of an object.
///
/// The format is that of the [API conventions]. [`Context::set_status`](crate::Context::set_status) sets
/// `observedGeneration`, and `lastTransitionTime`, which changes only with the status.
///
/// ```
/// use flyball::Condition;
///
/// let ready = Condition::new("Ready", false, "Starting").message("2 of 3 machines run");
/// assert_eq!(ready.status, "False");
/// ```
///
/// In a CRD, set the merge key `type` on the list of conditions. Then several operators, and several controllers of one
/// operator, can each apply their conditions, and the framework can add `CleanedUp`, which reports a failed deletion.
/// Without the key, the list is one value, which only one of them can set: the others get an error.
///
/// ```
/// # use flyball::Condition;
/// # use schemars::JsonSchema;
/// # use serde::{Deserialize, Serialize};
/// #[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
/// struct SiteStatus {
///     #[serde(default)]
///     #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
///     conditions: Vec<Condition>,
/// }
/// ```
///
/// [API conventions]: https://github.com/kubernetes/community/blob/master/contributors/devel/sig-architecture/api-conventions.md#typical-status-properties
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[doc(alias = "SetStatusCondition")]
#[doc(alias = "metav1.Condition")]
pub struct Condition {
    /// Type of the condition in CamelCase, such as `Ready`.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Reason for the status, one word in CamelCase, for programs.
    pub reason: String,
    /// Explanation of the status, a sentence for people.
    #[serde(default)]
    pub message: String,
    /// Generation of the object that the condition was determined for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Time of the last change of the status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<String>,
}

impl Condition {
    /// Creates a condition with the status `True` or `False`.
    pub fn new(kind: &str, holds: bool, reason: &str) -> Self {
        let status = if holds { "True" } else { "False" };
        Self {
            kind: kind.into(),
            status: status.into(),
            reason: reason.into(),
            message: String::new(),
            observed_generation: None,
            last_transition_time: None,
        }
    }

    /// Creates a condition with the status `Unknown`.
    pub fn unknown(kind: &str, reason: &str) -> Self {
        Self { status: "Unknown".into(), ..Self::new(kind, false, reason) }
    }

    /// Sets the message.
    pub fn message(mut self, message: impl Into<String>) -> Self {
        self.message = message.into();
        self
    }
}

/// Completes the conditions of a status to apply with fields of the existing ones.
pub(crate) fn complete(status: &mut Value, known: Option<&Value>, generation: i64, now: &str) {
    let known = known.and_then(|known| known["conditions"].as_array()).map_or(&[][..], |known| known);
    for condition in status.get_mut("conditions").and_then(Value::as_array_mut).into_iter().flatten() {
        let before = known.iter().find(|before| before["type"] == condition["type"]);
        let unchanged = before.filter(|before| before["status"] == condition["status"]);
        let transition_time = unchanged.and_then(|before| before.get("lastTransitionTime")).cloned();
        let Some(fields) = condition.as_object_mut().filter(|fields| fields.contains_key("type")) else { continue };
        match transition_time {
            Some(time) => drop(fields.insert("lastTransitionTime".into(), time)),
            None => drop(fields.entry("lastTransitionTime").or_insert_with(|| now.into())),
        }
        fields.entry("observedGeneration").or_insert_with(|| generation.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(condition: Value, expected: Value) {
        let known = json!({"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "old"}]});
        let mut status = json!({"conditions": [condition]});
        complete(&mut status, Some(&known), 7, "now");
        assert_eq!(status["conditions"][0], expected);
    }

    #[test]
    fn transition_time_changes_only_with_status() {
        let condition = |holds, reason| serde_json::to_value(Condition::new("Ready", holds, reason)).unwrap();
        check(
            condition(true, "A"),
            json!({"type": "Ready", "status": "True", "reason": "A", "message": "", "observedGeneration": 7, "lastTransitionTime": "old"}),
        );
        check(
            condition(false, "B"),
            json!({"type": "Ready", "status": "False", "reason": "B", "message": "", "observedGeneration": 7, "lastTransitionTime": "now"}),
        );
        check(
            json!({"type": "New", "status": "True", "observedGeneration": 3, "lastTransitionTime": "given"}),
            json!({"type": "New", "status": "True", "observedGeneration": 3, "lastTransitionTime": "given"}),
        );
    }

    #[test]
    fn status_without_conditions_is_unchanged() {
        for status in [json!({"phase": "x"}), json!({"conditions": "odd"}), json!({"conditions": [1, {"a": 1}]})] {
            let mut completed = status.clone();
            complete(&mut completed, None, 1, "now");
            assert_eq!(completed, status);
        }
    }
}
