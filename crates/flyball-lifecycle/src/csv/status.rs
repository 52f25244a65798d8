//! Phases in the status of a ClusterServiceVersion, and their history.

use crate::api::{ClusterServiceVersionCondition, ClusterServiceVersionPhase as Phase, ClusterServiceVersionStatus};
use flyball_core::time::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

/// Entries of the history that are kept.
const MAX_CONDITIONS: usize = 20;

/// Sets phase, reason and message; a new phase or reason is added to the history.
pub(super) fn enter(
    status: &mut ClusterServiceVersionStatus,
    phase: Phase,
    reason: &str,
    message: &str,
    now: Timestamp,
) {
    let now = Some(Time(now));
    status.last_update_time.clone_from(&now);
    if status.phase != phase {
        status.phase = phase;
        status.last_transition_time = now;
    }
    (status.message, status.reason) = (message.to_owned(), reason.to_owned());
    if status.conditions.last().is_none_or(|last| last.phase != phase || last.reason != reason) {
        status.conditions.push(ClusterServiceVersionCondition {
            phase,
            message: message.to_owned(),
            reason: reason.to_owned(),
            last_update_time: status.last_update_time.clone(),
            last_transition_time: status.last_transition_time.clone(),
        });
    }
    let surplus = status.conditions.len().saturating_sub(MAX_CONDITIONS);
    status.conditions.drain(..surplus);
}

/// Returns a merge patch that sets a whole status: fields that are not set are removed.
pub(super) fn patch(status: &ClusterServiceVersionStatus) -> Value {
    json!({"status": {
        "phase": status.phase,
        "reason": status.reason,
        "message": status.message,
        "lastUpdateTime": status.last_update_time,
        "lastTransitionTime": status.last_transition_time,
        "conditions": status.conditions,
        "requirementStatus": (!status.requirement_status.is_empty()).then_some(&status.requirement_status),
        "certsLastUpdated": status.certs_last_updated,
        "certsRotateAt": status.certs_rotate_at,
        "cleanup": {},
    }})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_has_each_change_of_phase_or_reason() {
        let now = |second: i64| Timestamp::from_second(second).unwrap();
        let mut status = ClusterServiceVersionStatus::default();
        enter(&mut status, Phase::Pending, "A", "1", now(1));
        enter(&mut status, Phase::Pending, "A", "2", now(2));
        enter(&mut status, Phase::Pending, "B", "3", now(3));
        assert_eq!(status.conditions.len(), 2);
        assert_eq!(status.last_transition_time, Some(Time(now(1))));
        assert_eq!((status.message.as_str(), status.last_update_time.clone()), ("3", Some(Time(now(3)))));
        for step in 4..40 {
            enter(&mut status, Phase::Pending, &step.to_string(), "", now(step));
        }
        assert_eq!(status.conditions.len(), MAX_CONDITIONS);
        assert_eq!(status.conditions.last().map(|last| last.reason.as_str()), Some("39"));
        assert_eq!(patch(&status)["status"]["certsRotateAt"], Value::Null);
    }
}
