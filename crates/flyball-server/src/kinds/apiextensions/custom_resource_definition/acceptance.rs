//! Acceptance of the names of CRDs, and the conditions that report it.

use super::approval::Approval;
use crate::kinds::kind::Kind;
use flyball_core::{Clock, Object};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Returns the status of a condition.
pub(crate) fn condition<'o>(crd: &'o Object, ty: &str) -> Option<&'o str> {
    let conditions = crd.at(&["status", "conditions"])?.as_array()?;
    conditions.iter().find(|condition| condition["type"] == ty)?["status"].as_str()
}

/// Sets a condition; the transition time changes only if the status changes.
fn set(conditions: &mut Vec<Value>, ty: &str, status: &str, reason: &str, message: &str, clock: &Clock) {
    let old = conditions.iter().position(|condition| condition["type"] == ty);
    let moved = old.is_none_or(|at| conditions[at]["status"] != status);
    let time = if moved {
        Value::from(clock.now_rfc3339())
    } else {
        old.map(|at| conditions[at]["lastTransitionTime"].clone()).unwrap_or_default()
    };
    let condition =
        json!({"type": ty, "status": status, "reason": reason, "message": message, "lastTransitionTime": time});
    match old {
        Some(at) => conditions[at] = condition,
        None => conditions.push(condition),
    }
}

fn text<'v>(names: &'v Value, field: &str) -> &'v str {
    names[field].as_str().unwrap_or_default()
}

fn short_names(names: &Value) -> Vec<&str> {
    names["shortNames"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// The names of built-in kinds and of CRDs of one group, each with its owners: names of CRDs, or [`BUILT_IN`].
#[derive(Default)]
pub(crate) struct AcceptedNames {
    /// Plurals, singulars and short names.
    names: BTreeMap<String, Vec<String>>,
    /// Kinds and kinds of lists.
    kinds: BTreeMap<String, Vec<String>>,
}

/// The owner of the names of built-in kinds; no CRD has this name.
const BUILT_IN: &str = "";

impl AcceptedNames {
    pub(crate) fn of<'a>(
        built_in: impl Iterator<Item = &'static Kind>,
        crds: impl Iterator<Item = &'a Object>,
    ) -> Self {
        let mut accepted = Self::default();
        let note = |map: &mut BTreeMap<_, Vec<_>>, name: &str, owner: &str| {
            map.entry(name.to_owned()).or_default().push(owner.to_owned());
        };
        for kind in built_in {
            let names = [kind.plural, &kind.singular()];
            names.iter().chain(kind.short_names).for_each(|name| note(&mut accepted.names, name, BUILT_IN));
            let kinds = [kind.kind, &format!("{}List", kind.kind)];
            kinds.iter().for_each(|name| note(&mut accepted.kinds, name, BUILT_IN));
        }
        for crd in crds {
            let Some(names) = crd.at(&["status", "acceptedNames"]) else { continue };
            ["plural", "singular"].iter().for_each(|field| note(&mut accepted.names, text(names, field), crd.name()));
            short_names(names).iter().for_each(|name| note(&mut accepted.names, name, crd.name()));
            ["kind", "listKind"].iter().for_each(|field| note(&mut accepted.kinds, text(names, field), crd.name()));
        }
        accepted
    }

    /// Returns true if all names in the spec of a CRD are available.
    pub(crate) fn allows(&self, crd: &Object) -> bool {
        let wished = crd.at(&["spec", "names"]).unwrap_or(&Value::Null);
        let names = ["plural", "singular"].map(|field| text(wished, field)).into_iter().chain(short_names(wished));
        let kinds = ["kind", "listKind"].map(|field| text(wished, field));
        !names.into_iter().any(|name| Self::taken(&self.names, name, crd))
            && !kinds.into_iter().any(|name| Self::taken(&self.kinds, name, crd))
    }

    fn taken(names: &BTreeMap<String, Vec<String>>, name: &str, crd: &Object) -> bool {
        names.get(name).is_some_and(|owners| owners.iter().any(|owner| owner != crd.name()))
    }
}

/// Computes the status of a CRD from all CRDs of its group.
pub(crate) fn accept(crd: &Object, group: &AcceptedNames, clock: &Clock) -> Value {
    let desired = crd.at(&["spec", "names"]).cloned().unwrap_or_default();
    let current = crd.at(&["status", "acceptedNames"]).cloned().unwrap_or_default();
    let name_taken = |name: &str| AcceptedNames::taken(&group.names, name, crd);
    let kind_taken = |name: &str| AcceptedNames::taken(&group.kinds, name, crd);

    let mut accepted = current.as_object().cloned().unwrap_or_default();
    let mut rejection: Option<(&str, String)> = None;
    let mut take = |field: &'static str, taken: bool, reason: &'static str, shown: &str| {
        if taken {
            rejection = Some((reason, format!("\"{shown}\" is already in use")));
        } else if desired[field].is_null() {
            accepted.remove(field);
        } else {
            accepted.insert(field.to_owned(), desired[field].clone());
        }
    };
    take("plural", name_taken(text(&desired, "plural")), "PluralConflict", text(&desired, "plural"));
    take("singular", name_taken(text(&desired, "singular")), "SingularConflict", text(&desired, "singular"));
    let clash = short_names(&desired).into_iter().find(|name| name_taken(name)).map(str::to_owned);
    take("shortNames", clash.is_some(), "ShortNamesConflict", clash.as_deref().unwrap_or_default());
    take("kind", kind_taken(text(&desired, "kind")), "KindConflict", text(&desired, "kind"));
    take("listKind", kind_taken(text(&desired, "listKind")), "ListKindConflict", text(&desired, "listKind"));
    match desired.get("categories") {
        Some(categories) => accepted.insert("categories".into(), categories.clone()),
        None => accepted.remove("categories"),
    };
    for field in ["plural", "kind"] {
        accepted.entry(field).or_insert_with(|| "".into());
    }

    let mut status = crd.get("status").and_then(Value::as_object).cloned().unwrap_or_default();
    let mut conditions = status.get("conditions").and_then(Value::as_array).cloned().unwrap_or_default();
    match &rejection {
        None => set(&mut conditions, "NamesAccepted", "True", "NoConflicts", "no conflicts found", clock),
        Some((reason, message)) => set(&mut conditions, "NamesAccepted", "False", reason, message, clock),
    }
    let established = condition(crd, "Established") == Some("True");
    if rejection.is_none() && !established {
        set(
            &mut conditions,
            "Established",
            "True",
            "InitialNamesAccepted",
            "the initial names have been accepted",
            clock,
        );
    } else if rejection.is_some() && !established {
        set(&mut conditions, "Established", "False", "NotAccepted", "not all names are accepted", clock);
    }
    if let Some(approval) = Approval::of(crd) {
        let (state, reason, message) = approval.condition(crd);
        set(&mut conditions, "KubernetesAPIApprovalPolicyConformant", state, reason, &message, clock);
    }
    status.insert("conditions".into(), conditions.into());
    status.insert("acceptedNames".into(), accepted.into());
    Value::Object(status)
}

/// Computes the status of a CRD that is being deleted.
pub(crate) fn terminating(crd: &Object, reason: &str, message: &str, clock: &Clock) -> Value {
    let mut status: Map<String, Value> = crd.get("status").and_then(Value::as_object).cloned().unwrap_or_default();
    let mut conditions = status.get("conditions").and_then(Value::as_array).cloned().unwrap_or_default();
    set(&mut conditions, "Terminating", "True", reason, message, clock);
    status.insert("conditions".into(), conditions.into());
    Value::Object(status)
}
