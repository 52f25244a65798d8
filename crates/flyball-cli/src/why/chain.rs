//! The chain of causes: from the last write of an object back to its origin.

use super::answer::{Step, StepKind};
use super::claims::Recorded;
use super::fields::{self, Manager, Segment};
use super::page::{Cause, Object, Reconcile, Write, time};
use flyball_console::LoggedWrite;
use flyball_core::time::{SignedDuration, Timestamp, saturating_add};

/// The point of an object's history whose origin is searched.
#[derive(Clone, Debug, Default)]
pub(super) struct Moment {
    /// The resource version that the write resulted in.
    pub(super) version: Option<String>,
    /// The write was before this time.
    pub(super) before: Option<Timestamp>,
}

/// Managed fields have whole seconds, and clocks differ.
const TOLERANCE: SignedDuration = SignedDuration::from_secs(2);

/// Finds the write of an object at a moment among reconciles, which are newest first: that of its version, or the
/// newest one to its fields. Writes of the status and of finalizers explain no spec.
pub(super) fn write_of<'a>(
    reconciles: &'a [Recorded],
    object: &Object,
    moment: &Moment,
    path: Option<&[Segment]>,
) -> Option<(&'a Recorded, &'a Write)> {
    let is_of = |write: &Write| write.object.is_same(object) && !matches!(&*write.result, "unchanged" | "unknown");
    let writes = || {
        let each = |found: &'a Recorded| found.reconcile.writes.iter().rev().map(move |write| (found, write));
        reconciles.iter().flat_map(each).filter(|(_, write)| is_of(write))
    };
    if let Some(version) = &moment.version {
        return writes().find(|(_, write)| write.after.as_ref() == Some(version));
    }
    let is_earlier = |(found, _): &(&Recorded, &Write)| {
        let limit = moment.before.map(|before| saturating_add(before, TOLERANCE));
        limit.is_none_or(|limit| time(&found.reconcile.began).is_none_or(|began| began <= limit))
    };
    let explains = |(_, write): &(&Recorded, &Write)| match path {
        Some(path) => {
            write.verb == "create" || write.before.is_none() || write.fields.iter().any(|f| fields::overlaps(f, path))
        }
        None => write.subresource.is_empty() && write.verb != "finalizer",
    };
    writes().filter(is_earlier).find(explains)
}

/// Chooses the cause that explains a reconcile best: a change of the reconciled object, then any other change, then
/// what there is.
pub(super) fn main_cause(reconcile: &Reconcile) -> Option<&Cause> {
    let changes = || reconcile.causes.iter().filter(|cause| cause.kind == "change");
    let own = changes().rfind(|cause| cause.object.is_same(&reconcile.object));
    own.or_else(|| changes().next_back()).or_else(|| reconcile.causes.first())
}

/// Describes a write of a controller.
pub(super) fn write(recorded: &Recorded, write: &Write) -> Step {
    let Recorded { operator, reconcile, .. } = recorded;
    let Write { object, verb, subresource, after, fields, .. } = write;
    let part = if subresource.is_empty() { String::new() } else { format!("{subresource} of ") };
    let paths = if fields.is_empty() { String::new() } else { format!(" ({})", fields.join(", ")) };
    let version = after.as_ref().map(|after| format!(", v{after}")).unwrap_or_default();
    let id = reconcile.id.get(..8).unwrap_or(&reconcile.id);
    Step {
        kind: StepKind::Write,
        time: time(&reconcile.began),
        text: format!(
            "{operator}/{} {} {part}{object}{paths}{version}, reconcile {id}",
            reconcile.controller,
            past_tense(verb)
        ),
        object: object.clone(),
        resource_version: after.clone(),
        fields: fields.clone(),
        operator: Some(operator.clone()),
        controller: Some(reconcile.controller.clone()),
        reconcile: Some(reconcile.id.clone()),
        manager: None,
        user: None,
        claimed_by: None,
        source: "ledger",
    }
}

/// Returns the past tense of the verb of a write, in a ledger or in a request.
fn past_tense(verb: &str) -> &'static str {
    match verb.to_ascii_lowercase().as_str() {
        "apply" => "applied",
        "create" => "created",
        "delete" | "deletecollection" => "deleted",
        "patch" => "patched",
        "update" => "updated",
        "finalizer" => "changed the finalizers of",
        _ => "wrote",
    }
}

/// Describes the cause of a reconcile.
pub(super) fn caused_by(recorded: &Recorded, cause: &Cause) -> Step {
    let Recorded { operator, reconcile, .. } = recorded;
    let others = match reconcile.causes.len() {
        0 | 1 => String::new(),
        count => format!(", and {} other causes", count - 1),
    };
    let text = match &*cause.kind {
        "change" => match (&cause.before, &cause.after) {
            (None, Some(after)) => format!("{} appeared (v{after})", cause.object),
            (Some(before), Some(after)) => format!("{} changed v{before} → v{after}", cause.object),
            (_, None) => format!("{} was deleted", cause.object),
        },
        "start" => "the operator started and read the object for the first time".to_owned(),
        "relist" => "a list after an interruption may have contained changes".to_owned(),
        "source" => format!("a {} of the operator triggered it", cause.name),
        "unmappedChange" => "a mapping function failed, so all objects were reconciled".to_owned(),
        "requeueAfter" => "the reconcile before asked for another one at this time".to_owned(),
        "backoff" => "the reconcile before failed and was retried".to_owned(),
        "memory" => "it waited for the memory budget".to_owned(),
        other => format!("cause {other:?}"),
    };
    let object = if cause.kind == "change" { cause.object.clone() } else { reconcile.object.clone() };
    Step {
        kind: StepKind::CausedBy,
        time: None,
        text: format!("{text}{others}"),
        object,
        resource_version: cause.after.clone(),
        fields: Vec::new(),
        operator: Some(operator.clone()),
        controller: Some(reconcile.controller.clone()),
        reconcile: Some(reconcile.id.clone()),
        manager: None,
        user: None,
        // The API server can confirm a write, and never its cause.
        claimed_by: recorded.claimant.as_ref().map(|claimant| claimant.deployment.clone()),
        source: "ledger",
    }
}

/// Chooses the manager that wrote an object at a moment, from the last writer to the first.
pub(super) fn manager_of<'a>(managers: &'a [Manager], moment: &Moment) -> Option<&'a Manager> {
    let limit = moment.before.map(|before| saturating_add(before, TOLERANCE));
    let of_spec = || managers.iter().filter(|manager| !is_of_status(&manager.subresource));
    let earlier = of_spec().find(|manager| limit.is_none_or(|limit| manager.time.is_none_or(|time| time <= limit)));
    earlier.or_else(|| of_spec().next_back())
}

/// Returns true for subresources whose writes explain no spec, unlike those of `scale`.
fn is_of_status(subresource: &str) -> bool {
    matches!(subresource, "status" | "ephemeralcontainers" | "resize")
}

/// Describes the last write of a manager: the origin of a chain, or a write for the owner of the object.
pub(super) fn managed(object: &Object, manager: &Manager, kind: StepKind) -> Step {
    let Manager { name, operation, subresource, .. } = manager;
    let part = if subresource.is_empty() { String::new() } else { format!("{subresource} of ") };
    let text = match kind {
        StepKind::Origin if subresource.is_empty() => format!("{name} ({})", operation.to_lowercase()),
        StepKind::Origin => format!("{name} ({} {subresource})", operation.to_lowercase()),
        _ => format!("{name} {} {part}{object}", past_tense(operation)),
    };
    Step {
        kind,
        time: manager.time,
        text,
        object: object.clone(),
        resource_version: None,
        fields: Vec::new(),
        operator: None,
        controller: None,
        reconcile: None,
        manager: Some(name.clone()),
        user: None,
        claimed_by: None,
        source: "managedFields",
    }
}

/// Finds the write of a manager among those that the control plane keeps, which are newest first.
pub(super) fn logged_write<'a>(
    writes: &'a [LoggedWrite],
    manager: Option<&Manager>,
    moment: &Moment,
) -> Option<&'a LoggedWrite> {
    if let Some(version) = &moment.version {
        return writes.iter().find(|write| write.revision == *version);
    }
    let manager = manager?;
    let limit = moment.before.map(|before| saturating_add(before, TOLERANCE));
    let is_earlier = |write: &&LoggedWrite| limit.is_none_or(|limit| time(&write.time).is_none_or(|at| at <= limit));
    let is_by = |write: &&LoggedWrite| (&write.manager, &write.subresource) == (&manager.name, &manager.subresource);
    writes.iter().filter(is_earlier).find(is_by)
}

/// Describes a write that the control plane keeps: the origin of a chain, or a write for the owner of the object.
pub(super) fn logged(object: &Object, write: &LoggedWrite, kind: StepKind) -> Step {
    let LoggedWrite { revision, user, agent, manager, verb, subresource, .. } = write;
    let part = if subresource.is_empty() { String::new() } else { format!("{subresource} of ") };
    // Field managers usually begin with the name of the program.
    let program = agent.split(['/', ' ']).next().unwrap_or_default();
    let program = if manager.starts_with(program) { String::new() } else { format!(", program {agent}") };
    let text = match kind {
        StepKind::Origin => format!("user {user}, {manager} ({verb}){program}, v{revision}"),
        _ => format!("{manager} {} {part}{object}, v{revision}, user {user}{program}", past_tense(verb)),
    };
    Step {
        kind,
        time: time(&write.time),
        text,
        object: object.clone(),
        resource_version: Some(revision.clone()),
        fields: Vec::new(),
        operator: None,
        controller: None,
        reconcile: None,
        manager: Some(manager.clone()),
        user: Some(user.clone()),
        claimed_by: None,
        source: "writes",
    }
}

/// Describes the owner of an object.
pub(super) fn owned_by(owner: &Object) -> Step {
    Step {
        kind: StepKind::Owner,
        time: None,
        text: owner.to_string(),
        object: owner.clone(),
        resource_version: None,
        fields: Vec::new(),
        operator: None,
        controller: None,
        reconcile: None,
        manager: None,
        user: None,
        claimed_by: None,
        source: "owners",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, from_value, json};

    #[test]
    fn steps_lead_with_the_actor() {
        let budget: Object =
            from_value(json!({"group": "policy", "kind": "PodDisruptionBudget", "name": "shop"})).unwrap();
        let reconcile = json!({"id": "3f1c9a2b77", "controller": "deployment"});
        let reconcile = from_value(reconcile).unwrap();
        let found = Recorded { operator: "budget-operator".to_owned(), claimant: None, reconcile };
        let written = |changes: Value| {
            let mut text =
                json!({"object": budget, "verb": "apply", "after": "512", "fields": ["spec.maxUnavailable"]});
            text.as_object_mut().unwrap().extend(changes.as_object().cloned().unwrap());
            write(&found, &from_value(text).unwrap()).text
        };
        let actor = "budget-operator/deployment";
        let of = "poddisruptionbudget/shop";
        for (changes, expected) in [
            (json!({}), format!("{actor} applied {of} (spec.maxUnavailable), v512, reconcile 3f1c9a2b")),
            (
                json!({"subresource": "status", "fields": []}),
                format!("{actor} applied status of {of}, v512, reconcile 3f1c9a2b"),
            ),
            (
                json!({"verb": "delete", "after": null, "fields": []}),
                format!("{actor} deleted {of}, reconcile 3f1c9a2b"),
            ),
            (
                json!({"verb": "finalizer", "fields": []}),
                format!("{actor} changed the finalizers of {of}, v512, reconcile 3f1c9a2b"),
            ),
        ] {
            assert_eq!(written(changes), expected);
        }
        let edit = json!({"revision": "507", "user": "kubernetes-admin", "agent": "kubectl/v1.33 (linux)",
            "manager": "kubectl-edit", "verb": "patch"});
        let edit: LoggedWrite = from_value(edit).unwrap();
        let logged_as = |kind| logged(&budget, &edit, kind).text;
        assert_eq!(logged_as(StepKind::Origin), "user kubernetes-admin, kubectl-edit (patch), v507");
        assert_eq!(logged_as(StepKind::Write), format!("kubectl-edit patched {of}, v507, user kubernetes-admin"));
        let script = LoggedWrite { agent: "curl/8.5".to_owned(), verb: "update".to_owned(), ..edit };
        assert_eq!(
            logged(&budget, &script, StepKind::Origin).text,
            "user kubernetes-admin, kubectl-edit (update), program curl/8.5, v507"
        );
        let scale = Manager {
            name: "autoscaler".to_owned(),
            operation: "Update".to_owned(),
            subresource: "scale".to_owned(),
            time: None,
        };
        assert_eq!(managed(&budget, &scale, StepKind::Origin).text, "autoscaler (update scale)");
        assert_eq!(managed(&budget, &scale, StepKind::Write).text, format!("autoscaler updated scale of {of}"));
    }
}
