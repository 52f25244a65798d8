//! Namespaces: they are held by finalizers of their own while their content is removed.

use super::Part;
use flyball_core::{Clock, Object};
use serde_json::{Value, json};

const LABEL: &str = "kubernetes.io/metadata.name";

/// Labels a namespace with its name.
pub(super) fn default(namespace: &mut Object) {
    let name = namespace.name().to_owned();
    if name.is_empty() {
        return;
    }
    let labels = namespace.metadata_mut().entry("labels").or_insert_with(|| json!({}));
    if let Some(labels) = labels.as_object_mut() {
        labels.insert(LABEL.into(), name.into());
    }
}

pub(super) fn prepare(namespace: &mut Object, old: Option<&Object>, part: Part, _: &Clock) {
    let Some(old) = old else {
        // A generated name comes after the defaults.
        default(namespace);
        namespace.insert("status".into(), json!({"phase": "Active"}));
        let finalizers = namespace.entry("spec").or_insert_with(|| json!({})).as_object_mut();
        let finalizers = finalizers.map(|spec| spec.entry("finalizers").or_insert_with(|| json!([])));
        if let Some(finalizers) = finalizers.and_then(Value::as_array_mut)
            && !finalizers.contains(&"kubernetes".into())
        {
            finalizers.push("kubernetes".into());
        }
        return;
    };
    if part == Part::Whole {
        match old.get("spec") {
            Some(spec) => namespace.insert("spec".into(), spec.clone()),
            None => namespace.remove("spec"),
        };
    }
}

/// Returns whether finalizers in the spec hold a namespace.
pub(super) fn is_held(namespace: &Object) -> bool {
    namespace.at(&["spec", "finalizers"]).and_then(Value::as_array).is_some_and(|finalizers| !finalizers.is_empty())
}

/// Completes the mark that a deletion leaves on a namespace.
pub(super) fn mark(namespace: &mut Object, _: &Object, _: &Clock) {
    namespace.metadata_mut().remove("deletionGracePeriodSeconds");
    if let Some(status) = namespace.entry("status").or_insert_with(|| json!({})).as_object_mut() {
        status.insert("phase".into(), "Terminating".into());
    }
}
