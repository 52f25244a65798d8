//! Namespaces, whose own finalizers delay their removal until their content is deleted.

use super::GROUP;
use crate::kinds::field::{Errors, Field};
use crate::kinds::kind::{Checks, Deletion, Kind, Verbs};
use crate::kinds::printer::{Heading, Row, View};
use crate::kinds::subresource::{Part, Subresource as Sub};
use flyball_core::names::{dns_label, qualified_name};
use flyball_core::{Clock, Object};
use serde_json::{Value, json};

pub(crate) static KIND: Kind = Kind::new(GROUP, "v1", "Namespace", "namespaces")
    .deletion(Deletion { outlives: has_spec_finalizers, mark, removes_content: true, ..Deletion::AT_ONCE })
    .printed(COLUMNS, row)
    .validate(validate)
    .checks(Checks::Whole)
    .short(&["ns"])
    .cluster()
    .verbs(Verbs::NoCollection)
    .subresources(&[Sub::FINALIZE, Sub::STATUS])
    .name_rule(dns_label)
    .deleted_as_object()
    .paths(&["status.phase"])
    .default(default)
    .prepare(prepare);

const COLUMNS: &[Heading] = &[Heading::NAME, Heading::text("Status", "The status of the namespace"), Heading::AGE];

const LABEL: &str = "kubernetes.io/metadata.name";

/// Labels a namespace with its name.
fn default(namespace: &mut Object) {
    let name = namespace.name().to_owned();
    if name.is_empty() {
        return;
    }
    let labels = namespace.metadata_mut().entry("labels").or_insert_with(|| json!({}));
    if let Some(labels) = labels.as_object_mut() {
        labels.insert(LABEL.into(), name.into());
    }
}

fn prepare(namespace: &mut Object, old: Option<&Object>, part: Part, _: &Clock) {
    let Some(old) = old else {
        // Names are generated after defaulting.
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

/// Returns true if a namespace has finalizers in its spec.
fn has_spec_finalizers(namespace: &Object) -> bool {
    namespace.at(&["spec", "finalizers"]).and_then(Value::as_array).is_some_and(|finalizers| !finalizers.is_empty())
}

/// Completes a namespace that is marked for deletion.
fn mark(namespace: &mut Object, _: &Object, _: &Clock) {
    namespace.metadata_mut().remove("deletionGracePeriodSeconds");
    if let Some(status) = namespace.entry("status").or_insert_with(|| json!({})).as_object_mut() {
        status.insert("phase".into(), "Terminating".into());
    }
}

/// Validates the finalizers of a namespace's spec: standard ones, or names with a domain.
fn validate(object: &Object, old: Option<&Object>, part: Part) -> Errors {
    if old.is_some() && part != Part::Finalize {
        return Errors::new();
    }
    let mut errors = Errors::new();
    let root = Field::root(object);
    let spec = root.at("spec");
    let list = spec.at("finalizers");
    for item in list.items() {
        let at = if old.is_some() { item } else { Field::new(*list.path(), item.value()) };
        errors.extend(at.obeys(qualified_name));
        if !item.text().contains('/') && !matches!(item.text(), "kubernetes" | "orphan" | "foregroundDeletion") {
            errors.push(at.invalid("name is neither a standard finalizer name nor is it fully qualified"));
        }
    }
    errors
}

fn row(view: &View<'_>) -> Row {
    Row::from([view.name(), view.text("status.phase").into(), view.age()])
}
