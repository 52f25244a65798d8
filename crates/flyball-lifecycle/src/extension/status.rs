//! The status of a ClusterExtension.

use crate::api::{ClusterServiceVersion, ClusterServiceVersionPhase as Phase};
use flyball::Condition;
use kube::ResourceExt;
use serde_json::{Value, json};

/// The progress of an extension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The desired bundle is installed.
    Succeeded,
    /// The extension waits for a change.
    Waiting(String),
    /// The installation is retried without a change.
    Retrying(String),
    /// The extension needs another spec.
    Blocked(String),
}

/// Returns the status for a state, the installed version, and all versions. During an upgrade, the older one is
/// installed until the newer one succeeds.
pub(super) fn status_of(
    state: &State,
    installed: Option<&ClusterServiceVersion>,
    csvs: &[ClusterServiceVersion],
) -> Value {
    let progressing = match state {
        State::Succeeded => Condition::new("Progressing", true, "Succeeded").message("Desired state reached"),
        State::Waiting(why) => Condition::new("Progressing", true, "RollingOut").message(why),
        State::Retrying(why) => Condition::new("Progressing", true, "Retrying").message(why),
        State::Blocked(why) => Condition::new("Progressing", false, "Blocked").message(why),
    };
    let is_ready = |csv: &&ClusterServiceVersion| {
        // One that failed before is replaced as well.
        let has_succeeded = || csv.status.conditions.iter().any(|entry| entry.phase == Phase::Succeeded);
        match csv.status.phase {
            Phase::Succeeded => true,
            Phase::Replacing => has_succeeded(),
            _ => false,
        }
    };
    let ready = installed.filter(is_ready).or_else(|| csvs.iter().find(is_ready));
    let condition = match (ready, installed) {
        (Some(csv), _) => {
            Condition::new("Installed", true, "Succeeded").message(format!("Installed bundle {}", csv.name_any()))
        }
        (None, Some(csv)) if csv.status.phase == Phase::Failed => {
            Condition::new("Installed", false, "Failed").message(csv.status.message.clone())
        }
        (None, _) => Condition::new("Installed", false, "Absent").message("No bundle installed"),
    };
    let mut status = json!({"conditions": [condition, progressing]});
    if let Some(csv) = ready {
        status["install"] = json!({"bundle": {"name": csv.name_any(), "version": csv.spec.version}});
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    fn csv(name: &str, phases: &[&str]) -> ClusterServiceVersion {
        let conditions: Vec<Value> = phases.iter().map(|phase| json!({"phase": phase})).collect();
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "demo"}, "spec": {"version": name},
            "status": {"phase": phases.last(), "conditions": conditions},
        }))
        .unwrap()
    }

    fn check(csvs: &[ClusterServiceVersion], expected: Option<&str>) {
        let status = status_of(&State::Waiting(String::new()), csvs.last(), csvs);
        assert_eq!(status["install"]["bundle"]["name"].as_str(), expected, "{csvs:?}");
    }

    #[test]
    fn older_version_is_installed_until_the_newer_one_succeeds() {
        let old = csv("v1", &["Succeeded", "Replacing"]);
        check(&[old.clone(), csv("v2", &["Pending"])], Some("v1"));
        check(&[old.clone(), csv("v2", &["Failed"])], Some("v1"));
        check(&[old, csv("v2", &["Pending", "Succeeded"])], Some("v2"));
        check(&[csv("v1", &["Failed", "Replacing"]), csv("v2", &["Pending"])], None);
        check(&[csv("v2", &["Failed"])], None);
    }
}
