//! Hooks: objects that are created at points of a release's lifecycle, in sequence, each after the previous one is
//! done.
//!
//! An annotation on the object of a hook identifies the revision and the step that created it, so that a restart
//! neither runs the hook twice nor mistakes an older object for it. See <https://helm.sh/docs/topics/charts_hooks/>.

use crate::kinds::Kinds;
use crate::resources::{self, ManifestError, Owner, Resource};
use crate::storage::{Hook, Revision};
use flyball::{Context, Kind, Result};
use flyball_core::time::{Timestamp, format_duration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::core::DynamicObject;
use std::fmt;
use std::time::Duration;

/// Annotation of a hook's object with the revision and step that created it.
const STEP: &str = "flyball.dev/release-step";
/// The delete policy of hooks that set none.
const BEFORE_CREATION: &str = "before-hook-creation";

/// The result of a hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The hook is done; it started at this time.
    Done(String),
    /// The hook is running. Its timeout ends at this time in seconds since the Unix epoch, unless it has not begun.
    Waits(String, Option<i64>),
    /// The hook failed.
    Failed(String),
}

/// Returns the indices of the hooks of an event, in execution order.
pub(crate) fn of_event(revision: &Revision, event: &str) -> Vec<usize> {
    let mut found: Vec<usize> = Vec::new();
    for (index, hook) in revision.hooks.iter().enumerate() {
        if hook.events.iter().any(|known| known == event) {
            found.push(index);
        }
    }
    found.sort_by_key(|index| {
        let hook = &revision.hooks[*index];
        (hook.weight, hook.name.clone())
    });
    found
}

/// Returns true if a policy of the hook deletes its object.
pub(crate) fn is_deleted(hook: &Hook, policy: &str) -> bool {
    match hook.delete_policies.is_empty() {
        true => policy == BEFORE_CREATION,
        false => hook.delete_policies.iter().any(|known| known == policy),
    }
}

/// Reads the object of a hook.
pub(crate) fn object(hook: &Hook, kinds: &Kinds) -> Result<(Resource, Kind), ManifestError> {
    let document = resources::read(&hook.path, &hook.manifest)?;
    let missing = || ManifestError::MissingField { path: hook.path.clone(), field: "apiVersion" };
    let resource = Resource::of(&hook.path, &document)?.into_iter().next().ok_or_else(missing)?;
    let known = kinds.get(&resource.api_version, &resource.kind).ok_or_else(|| ManifestError::UndeclaredKind {
        path: hook.path.clone(),
        api_version: resource.api_version.clone(),
        kind: resource.kind.clone(),
    })?;
    Ok((resource, known.kind.clone()))
}

/// Returns true if only `helm test` runs a hook.
pub(crate) fn is_test(hook: &Hook) -> bool {
    !hook.events.is_empty() && hook.events.iter().all(|event| event == "test")
}

/// Returns true if a hook is empty and does not run.
pub(crate) fn is_empty(hook: &Hook) -> bool {
    hook.manifest.is_empty()
}

/// Advances a hook: creates its object, or checks the state of its object. The hook fails if it takes longer than the
/// timeout.
pub(crate) async fn run(
    cx: &Context<DynamicObject>,
    owner: &Owner<'_>,
    kinds: &Kinds,
    hook: &Hook,
    step: &str,
    timeout: Duration,
) -> Result<Outcome> {
    let (resource, kind) = object(hook, kinds).map_err(terminal)?;
    let key = resource.key(&kind, owner.namespace);
    let what = format!("{} {}", kind.name(), key.name());
    let found = cx.dynamic(&kind).get(&key).await?;
    let live = match found {
        Some(live) if is_created_by(&live, step) => live,
        Some(live) if !owner.has(&live) => {
            return Ok(Outcome::Failed(format!("{what} already exists and is not part of release {}", owner.release)));
        }
        Some(live) if live.metadata.deletion_timestamp.is_some() => {
            let waits = Outcome::Waits(format!("{what} of an earlier run is being deleted"), None);
            return Ok(within(waits, live.metadata.deletion_timestamp.as_ref(), cx.now(), timeout));
        }
        Some(live) if is_deleted(hook, BEFORE_CREATION) => {
            cx.delete(&live).await?;
            return Ok(Outcome::Waits(format!("{what} of an earlier run is being deleted"), None));
        }
        Some(_) => return Ok(Outcome::Failed(format!("{what} already exists"))),
        None => {
            let (mut object, owned) = owner.build_object(&resource, &kind).map_err(terminal)?;
            object.metadata.annotations.get_or_insert_default().insert(STEP.into(), step.into());
            if owned { cx.create(&object).await? } else { cx.create_unowned(&object).await? }
        }
    };
    let outcome = outcome_of(&what, kind.name(), &live);
    Ok(within(outcome, live.metadata.creation_timestamp.as_ref(), cx.now(), timeout))
}

/// Turns a wait since a time that exceeds the timeout into a failure.
fn within(outcome: Outcome, since: Option<&Time>, now: Timestamp, timeout: Duration) -> Outcome {
    match (outcome, since) {
        (Outcome::Waits(waits, _), Some(since)) if is_over(since.0.as_second(), now, timeout) => {
            Outcome::Failed(overdue(&waits, timeout))
        }
        (Outcome::Waits(waits, _), Some(since)) => Outcome::Waits(waits, Some(end(since.0.as_second(), timeout))),
        (outcome, _) => outcome,
    }
}

/// Returns true if a timeout is over that began at a time in seconds since the Unix epoch.
pub(crate) fn is_over(since: i64, now: Timestamp, timeout: Duration) -> bool {
    let passed = u64::try_from(now.as_second().saturating_sub(since)).unwrap_or_default();
    Duration::from_secs(passed) >= timeout
}

/// Returns the end of a timeout, in seconds since the Unix epoch.
pub(crate) fn end(since: i64, timeout: Duration) -> i64 {
    since.saturating_add(i64::try_from(timeout.as_millis().div_ceil(1000)).unwrap_or(i64::MAX))
}

/// Describes a wait that exceeded the timeout.
pub(crate) fn overdue(waits: &str, timeout: Duration) -> String {
    let timeout = format_duration(i64::try_from(timeout.as_nanos()).unwrap_or(i64::MAX));
    format!("{waits} after {timeout}, the timeout in watches.yaml")
}

/// Deletes the object of a hook if this step created it.
pub(crate) async fn remove(
    cx: &Context<DynamicObject>,
    owner: &Owner<'_>,
    kinds: &Kinds,
    hook: &Hook,
    step: &str,
) -> Result<()> {
    let (resource, kind) = object(hook, kinds).map_err(terminal)?;
    match cx.dynamic(&kind).get(&resource.key(&kind, owner.namespace)).await? {
        Some(live) if is_created_by(&live, step) && live.metadata.deletion_timestamp.is_none() => {
            cx.delete(&live).await
        }
        _ => Ok(()),
    }
}

/// Returns the outcome of a hook: Jobs and Pods must complete, other objects must exist.
fn outcome_of(what: &str, kind: &str, live: &DynamicObject) -> Outcome {
    let status = &live.data["status"];
    let condition = |name: &str| {
        let found = status["conditions"].as_array()?.iter().find(|found| found["type"] == name)?;
        (found["status"] == "True").then_some(found)
    };
    let problem = |condition: &serde_json::Value| {
        let text = |field: &str| condition[field].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        match (text("reason"), text("message")) {
            (Some(reason), Some(message)) => format!(": {reason}: {message}"),
            (reason, message) => reason.or(message).map(|problem| format!(": {problem}")).unwrap_or_default(),
        }
    };
    let started = live.metadata.creation_timestamp.as_ref().map(|time| time.0.to_string()).unwrap_or_default();
    match kind {
        "Job" => match (condition("Complete"), condition("Failed")) {
            (_, Some(failed)) => Outcome::Failed(format!("{what} failed{}", problem(failed))),
            (Some(_), None) => Outcome::Done(started),
            (None, None) => Outcome::Waits(format!("{what} is not complete"), None),
        },
        "Pod" => match status["phase"].as_str() {
            Some("Succeeded") => Outcome::Done(started),
            Some("Failed") => Outcome::Failed(format!("{what} failed{}", problem(status))),
            _ => Outcome::Waits(format!("{what} is not complete"), None),
        },
        _ => Outcome::Done(started),
    }
}

fn is_created_by(live: &DynamicObject, step: &str) -> bool {
    live.metadata.annotations.as_ref().and_then(|notes| notes.get(STEP)).is_some_and(|made_for| made_for == step)
}

/// Creates an error without a retry: the manifest does not change, so a retry cannot succeed.
fn terminal(error: impl fmt::Display) -> flyball::Error {
    flyball::Error::from(error.to_string()).terminal()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn hooks_run_by_weight_and_name() {
        let hook = |name: &str, weight, event: &str| Hook {
            name: name.into(),
            weight,
            events: vec![event.into()],
            ..Hook::default()
        };
        let hooks = vec![
            hook("c", 0, "pre-install"),
            hook("b", 0, "pre-install"),
            hook("x", 0, "post-install"),
            hook("a", 1, "pre-install"),
            hook("z", -5, "pre-install"),
        ];
        let revision = Revision { hooks, ..Revision::default() };
        assert_eq!(of_event(&revision, "pre-install"), [4, 1, 0, 3]);
        assert!(is_deleted(&revision.hooks[0], BEFORE_CREATION));
        let retained = Hook { delete_policies: vec!["hook-failed".into()], ..Hook::default() };
        assert!(is_deleted(&retained, "hook-failed") && !is_deleted(&retained, BEFORE_CREATION));
    }

    #[test]
    fn jobs_and_pods_are_awaited() {
        let check = |kind: &str, status: Value, expected: Outcome| {
            let object = json!({"metadata": {"name": "a"}, "status": status});
            let live: DynamicObject = serde_json::from_value(object).unwrap();
            assert_eq!(outcome_of(&format!("{kind} a"), kind, &live), expected);
        };
        let condition =
            |kind: &str| json!({"conditions": [{"type": kind, "status": "True", "reason": "R", "message": "m"}]});
        check("Job", json!({}), Outcome::Waits("Job a is not complete".into(), None));
        check("Job", condition("Complete"), Outcome::Done(String::new()));
        check("Job", condition("Failed"), Outcome::Failed("Job a failed: R: m".into()));
        check("Pod", json!({"phase": "Running"}), Outcome::Waits("Pod a is not complete".into(), None));
        check("Pod", json!({"phase": "Failed", "reason": "Evicted"}), Outcome::Failed("Pod a failed: Evicted".into()));
        check("Pod", json!({"phase": "Succeeded"}), Outcome::Done(String::new()));
        check("ConfigMap", json!({}), Outcome::Done(String::new()));
    }
}
