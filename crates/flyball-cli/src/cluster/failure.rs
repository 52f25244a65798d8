//! Failures that custom resources report in their status.

use serde_json::Value;

/// Conditions that report a failure while they are true: those of operator-sdk's Helm and Ansible operators, and those
/// that other operators use.
const FAILURES: [&str; 7] = ["Degraded", "Error", "Failed", "Failure", "Irreconcilable", "ReleaseFailed", "Stalled"];
/// Length limit of a message, in characters.
const MAX_MESSAGE: usize = 1000;

/// Returns the failures that an object reports, such as `Failure: the message`.
pub(crate) fn failures(object: &Value) -> Vec<String> {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    let text = |condition: &Value, field: &str| condition[field].as_str().unwrap_or_default().to_owned();
    let failed = conditions
        .filter(|condition| condition["status"] == "True" && FAILURES.contains(&text(condition, "type").as_str()));
    let line = |condition: &Value| {
        let message = [text(condition, "message"), text(condition, "reason")].into_iter().find(|text| !text.is_empty());
        let message: String = message.unwrap_or_default().chars().take(MAX_MESSAGE).collect();
        format!("{}: {message}", text(condition, "type"))
    };
    failed.map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn true_conditions_of_failures_are_reported() {
        let condition = |kind: &str, status: &str, message: &str| {
            let mut condition = json!({"type": kind, "reason": "Why", "message": message});
            condition["status"] = status.into();
            condition
        };
        let conditions = [
            condition("Ready", "True", "yes"),
            condition("Failure", "True", "no"),
            condition("ReleaseFailed", "False", "no"),
            condition("Degraded", "True", ""),
        ];
        assert_eq!(failures(&json!({"status": {"conditions": conditions}})), ["Failure: no", "Degraded: Why"]);
        assert!(failures(&json!({})).is_empty());
    }
}
