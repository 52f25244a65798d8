//! Hooks: objects that are created at points of a release's lifecycle, in sequence, each after the previous one is
//! done.
//!
//! An annotation on the object of a hook identifies the revision and the step that created it, so that a restart
//! neither runs the hook twice nor mistakes an older object for it. See <https://helm.sh/docs/topics/charts_hooks/>.

use crate::kinds::Kinds;
use crate::resources::{self, ManifestError, Owner, Resource};
use crate::storage::{Hook, Revision};
use flyball::{Context, Kind, Result};
use kube::core::DynamicObject;
use std::fmt;

/// Annotation of a hook's object with the revision and step that created it.
const STEP: &str = "flyball.dev/release-step";
/// The delete policy of hooks that set none.
const BEFORE_CREATION: &str = "before-hook-creation";

/// The result of a hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The hook is done; it started at this time.
    Done(String),
    /// The hook is running.
    Waits(String),
    /// The hook failed.
    Failed(String),
}

/// Returns the indices of the hooks of an event, in execution order.
pub(crate) fn of_event(revision: &Revision, event: &str) -> Vec<usize> {
    let mut found: Vec<usize> = Vec::new();
    for (place, hook) in revision.hooks.iter().enumerate() {
        if hook.events.iter().any(|known| known == event) {
            found.push(place);
        }
    }
    found.sort_by_key(|place| {
        let hook = &revision.hooks[*place];
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
    let missing = || ManifestError::Object { path: hook.path.clone(), field: "apiVersion" };
    let resource = Resource::of(&hook.path, &document)?.into_iter().next().ok_or_else(missing)?;
    let known = kinds.get(&resource.api_version, &resource.kind).ok_or_else(|| ManifestError::Unforeseen {
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

/// Returns true if a hook runs when the release is uninstalled.
pub(crate) fn runs_at_deletion(hook: &Hook) -> bool {
    hook.events.iter().any(|event| is_deletion(event))
}

fn is_deletion(event: &str) -> bool {
    matches!(event, "pre-delete" | "post-delete")
}

/// Returns true if two hooks of a release in this namespace have the same kind, namespace and name, and the second one
/// runs whenever the first one runs at a deletion.
pub(crate) fn is_namesake(hook: &Hook, other: &Hook, namespace: &str) -> bool {
    // The first one may be forged: this way of parsing is bounded.
    let place = |hook: &Hook| -> Option<String> {
        let resource = resources::of_manifest(&hook.manifest).ok()?.into_iter().next()?;
        Some(resource.namespace().unwrap_or(namespace).to_owned())
    };
    (&hook.kind, &hook.name) == (&other.kind, &other.name)
        && hook.events.iter().all(|event| !is_deletion(event) || other.events.contains(event))
        && place(hook).is_some_and(|place_of_hook| place(other) == Some(place_of_hook))
}

/// Empties a hook, so that it does not run. It keeps its position, because completed steps are counted.
pub(crate) fn empty(hook: &mut Hook) {
    hook.manifest.clear();
    hook.delete_policies.clear();
}

/// Replaces what a hook creates and deletes by that of another one; its place does not change.
pub(crate) fn replace(hook: &mut Hook, other: &Hook) {
    hook.path.clone_from(&other.path);
    hook.manifest.clone_from(&other.manifest);
    hook.delete_policies.clone_from(&other.delete_policies);
}

/// Returns true if a hook is empty and does not run.
pub(crate) fn is_empty(hook: &Hook) -> bool {
    hook.manifest.is_empty()
}

/// Advances a hook: creates its object, or checks the state of its object.
pub(crate) async fn run(
    cx: &Context<DynamicObject>,
    owner: &Owner<'_>,
    kinds: &Kinds,
    hook: &Hook,
    step: &str,
) -> Result<Outcome> {
    let (resource, kind) = object(hook, kinds).map_err(terminal)?;
    let key = resource.key(&kind, owner.namespace);
    let what = format!("{} {}", kind.name(), key.name());
    let found = cx.dynamic(&kind).get(&key).await?;
    let live = match found {
        Some(live) if is_of(&live, step) => live,
        Some(live) if !owner.has(&live) => {
            return Ok(Outcome::Failed(format!("{what} already exists and is not part of release {}", owner.release)));
        }
        Some(live) if live.metadata.deletion_timestamp.is_some() => {
            return Ok(Outcome::Waits(format!("{what} of an earlier run is being deleted")));
        }
        Some(live) if is_deleted(hook, BEFORE_CREATION) => {
            cx.delete(&live).await?;
            return Ok(Outcome::Waits(format!("{what} of an earlier run is being deleted")));
        }
        Some(_) => return Ok(Outcome::Failed(format!("{what} already exists"))),
        None => {
            let (mut object, owned) = owner.build_object(&resource, &kind).map_err(terminal)?;
            object.metadata.annotations.get_or_insert_default().insert(STEP.into(), step.into());
            if owned { cx.create(&object).await? } else { cx.create_unowned(&object).await? }
        }
    };
    Ok(observe(&what, kind.name(), &live))
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
        Some(live) if is_of(&live, step) && live.metadata.deletion_timestamp.is_none() => cx.delete(&live).await,
        _ => Ok(()),
    }
}

/// Returns the outcome of a hook: Jobs and Pods must complete, other objects must exist.
fn observe(what: &str, kind: &str, live: &DynamicObject) -> Outcome {
    let status = &live.data["status"];
    let condition = |name: &str| {
        let found = status["conditions"].as_array()?.iter().find(|found| found["type"] == name)?;
        (found["status"] == "True").then_some(found)
    };
    let why = |condition: &serde_json::Value| {
        let text = |field: &str| condition[field].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        match (text("reason"), text("message")) {
            (Some(reason), Some(message)) => format!(": {reason}: {message}"),
            (reason, message) => reason.or(message).map(|why| format!(": {why}")).unwrap_or_default(),
        }
    };
    let began = live.metadata.creation_timestamp.as_ref().map(|time| time.0.to_string()).unwrap_or_default();
    match kind {
        "Job" => match (condition("Complete"), condition("Failed")) {
            (_, Some(failed)) => Outcome::Failed(format!("{what} failed{}", why(failed))),
            (Some(_), None) => Outcome::Done(began),
            (None, None) => Outcome::Waits(format!("{what} is not complete")),
        },
        "Pod" => match status["phase"].as_str() {
            Some("Succeeded") => Outcome::Done(began),
            Some("Failed") => Outcome::Failed(format!("{what} failed{}", why(status))),
            _ => Outcome::Waits(format!("{what} is not complete")),
        },
        _ => Outcome::Done(began),
    }
}

fn is_of(live: &DynamicObject, step: &str) -> bool {
    live.metadata.annotations.as_ref().and_then(|notes| notes.get(STEP)).is_some_and(|made_for| made_for == step)
}

/// The manifest does not change, so a retry cannot succeed.
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
    fn namesakes_have_the_same_place_and_run_at_the_same_deletion_events() {
        let hook = |kind: &str, namespace: &str, events: &[&str]| Hook {
            name: "a".into(),
            kind: kind.into(),
            manifest: format!("apiVersion: v1\nkind: {kind}\nmetadata: {{name: a, namespace: '{namespace}'}}\n"),
            events: events.iter().map(|event| (*event).to_owned()).collect(),
            ..Hook::default()
        };
        let rendered = hook("Job", "", &["pre-delete", "post-install"]);
        let is_namesake = |hook: &Hook| is_namesake(hook, &rendered, "default");
        assert!(is_namesake(&hook("Job", "default", &["pre-delete"])));
        assert!(is_namesake(&hook("Job", "", &["pre-delete", "pre-install"])));
        assert!(!is_namesake(&hook("Job", "kube-system", &["pre-delete"])));
        assert!(!is_namesake(&hook("Pod", "", &["pre-delete"])));
        assert!(!is_namesake(&hook("Job", "", &["pre-delete", "post-delete"])));
        assert!(!is_namesake(&Hook { manifest: "{".into(), ..hook("Job", "", &["pre-delete"]) }));
        assert!(!is_namesake(&Hook { name: "b".into(), ..hook("Job", "", &["pre-delete"]) }));
    }

    #[test]
    fn jobs_and_pods_are_awaited() {
        let check = |kind: &str, status: Value, expected: Outcome| {
            let object = json!({"metadata": {"name": "a"}, "status": status});
            let live: DynamicObject = serde_json::from_value(object).unwrap();
            assert_eq!(observe(&format!("{kind} a"), kind, &live), expected);
        };
        let condition =
            |kind: &str| json!({"conditions": [{"type": kind, "status": "True", "reason": "R", "message": "m"}]});
        check("Job", json!({}), Outcome::Waits("Job a is not complete".into()));
        check("Job", condition("Complete"), Outcome::Done(String::new()));
        check("Job", condition("Failed"), Outcome::Failed("Job a failed: R: m".into()));
        check("Pod", json!({"phase": "Running"}), Outcome::Waits("Pod a is not complete".into()));
        check("Pod", json!({"phase": "Failed", "reason": "Evicted"}), Outcome::Failed("Pod a failed: Evicted".into()));
        check("Pod", json!({"phase": "Succeeded"}), Outcome::Done(String::new()));
        check("ConfigMap", json!({}), Outcome::Done(String::new()));
    }
}
