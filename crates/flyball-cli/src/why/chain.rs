//! The steps of a chain of causes: from the last write of an object back to its origin.

use super::answer::{Step, StepKind};
use super::claims::Recorded;
use super::fields::Manager;
use super::page::{Cause, Object, Reconcile, Write, time};
use flyball_console::LoggedWrite;

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
        confirmed: false,
        also_claimed_by: Vec::new(),
        claims_omitted: 0,
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
        2 => ", and 1 other cause".to_owned(),
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
        confirmed: false,
        also_claimed_by: Vec::new(),
        claims_omitted: 0,
        source: "ledger",
    }
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
        confirmed: false,
        also_claimed_by: Vec::new(),
        claims_omitted: 0,
        source: "managedFields",
    }
}

/// Describes a write that the control plane keeps: the origin of a chain, or a write for the owner of the object.
pub(super) fn logged(object: &Object, write: &LoggedWrite, kind: StepKind) -> Step {
    let LoggedWrite { revision, user, agent, manager, verb, subresource, .. } = write;
    let part = if subresource.is_empty() { String::new() } else { format!("{subresource} of ") };
    // Field managers usually begin with the name of the program.
    let program = agent.split(['/', ' ']).next().unwrap_or_default();
    let program = if manager.starts_with(program) { String::new() } else { format!(", program {agent}") };
    let text = match kind {
        StepKind::Origin if subresource.is_empty() => format!("user {user}, {manager} ({verb}){program}, v{revision}"),
        StepKind::Origin => format!("user {user}, {manager} ({verb} {subresource}){program}, v{revision}"),
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
        confirmed: false,
        also_claimed_by: Vec::new(),
        claims_omitted: 0,
        source: "writes",
    }
}

/// Describes the deletion that caused a controller to create an object again.
pub(super) fn recreated_after(object: &Object, deletion: &LoggedWrite) -> Step {
    let step = logged(object, deletion, StepKind::Origin);
    let text = format!("the previous {object} was deleted: {}", step.text);
    Step { kind: StepKind::CausedBy, text, ..step }
}

/// Describes why a chain ends, or lacks a write.
pub(super) fn unknown(object: &Object, text: String) -> Step {
    Step { kind: StepKind::Unknown, text, source: "", ..owned_by(object) }
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
        confirmed: false,
        also_claimed_by: Vec::new(),
        claims_omitted: 0,
        source: "owners",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, from_value, json};

    #[test]
    fn other_causes_are_counted() {
        let text = |causes: Value| {
            let reconcile = from_value(json!({"causes": causes})).unwrap();
            let (operator, manager) = ("op".to_owned(), "op".to_owned());
            let found = Recorded { operator, manager, claimant: None, reconcile };
            caused_by(&found, &found.reconcile.causes[0]).text
        };
        let start = json!({"type": "start"});
        assert!(text(json!([start, start])).ends_with(", and 1 other cause"));
        assert!(text(json!([start, start, start])).ends_with(", and 2 other causes"));
    }

    #[test]
    fn steps_lead_with_the_actor() {
        let budget: Object =
            from_value(json!({"group": "policy", "kind": "PodDisruptionBudget", "name": "shop"})).unwrap();
        let reconcile = json!({"id": "3f1c9a2b77", "controller": "deployment"});
        let reconcile = from_value(reconcile).unwrap();
        let name = "budget-operator".to_owned();
        let found = Recorded { operator: name.clone(), manager: name, claimant: None, reconcile };
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
        assert_eq!(
            recreated_after(&budget, &LoggedWrite { verb: "delete".to_owned(), ..edit.clone() }).text,
            format!("the previous {of} was deleted: user kubernetes-admin, kubectl-edit (delete), v507")
        );
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
