//! CRDs as objects: their defaults, preparation of writes and deletions, and validation.

pub(crate) mod acceptance;
mod approval;
mod embedded;
mod rules;
mod schema;
mod structural;
mod validation;

use super::GROUP;
use crate::kinds::kind::{Deletion, EXTENSIONS, Kind};
use crate::kinds::subresource::{Part, Subresource as Sub};
pub(crate) use embedded::validate_embedded;
use flyball_core::field::{Path, go_quote};
use flyball_core::{Clock, Object};
use flyball_schema::formats;
use schema::Schema;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use validation::validate;

pub(crate) static KIND: Kind = Kind::new(GROUP, "v1", "CustomResourceDefinition", "customresourcedefinitions")
    .declares_resources()
    .stored_as_json()
    .registry_path("apiextensions.k8s.io/customresourcedefinitions")
    .short(&["crd", "crds"])
    .category(EXTENSIONS)
    .cluster()
    .generation()
    .versioned_updates()
    .deleted_as_object()
    .subresources(&[Sub::STATUS])
    .default(default)
    .prepare(prepare)
    .validate(validate)
    .warn(warn)
    .deletion(Deletion { outlives: |crd| crd.deletion_timestamp().is_none(), mark, ..Deletion::AT_ONCE });

/// The finalizer of a deleted CRD until its objects are deleted.
pub(crate) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

fn text<'v>(value: &'v Value, field: &str) -> &'v str {
    value[field].as_str().unwrap_or_default()
}

fn versions(crd: &Object) -> &[Value] {
    crd.at(&["spec", "versions"]).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Warns about unknown formats, which are not validated; for updates, only about added ones.
pub(crate) fn warn(crd: &Object, old: Option<&Object>) -> Vec<String> {
    let known: BTreeSet<&str> = old.map(unrecognized_formats).unwrap_or_default().into_iter().collect();
    let formats = unrecognized_formats(crd).into_iter().filter(|format| !known.contains(format));
    formats.map(|format| format!("unrecognized format {}", go_quote(format))).collect()
}

fn unrecognized_formats(crd: &Object) -> Vec<&str> {
    let mut found = Vec::new();
    for version in versions(crd) {
        if let Some(root) = version.pointer("/schema/openAPIV3Schema").and_then(Value::as_object) {
            collect_unrecognized(root, &mut found);
        }
    }
    found
}

fn collect_unrecognized<'s>(schema: &'s Schema, found: &mut Vec<&'s str>) {
    let format = schema::text(schema, "format");
    let recognized = match schema::text(schema, "type") {
        "" | "string" => formats::is_recognized(format),
        "integer" => matches!(format, "int32" | "int64"),
        "number" => matches!(format, "float" | "double"),
        _ => false,
    };
    if !format.is_empty() && !recognized {
        found.push(format);
    }
    schema::inner(schema, &Path::ROOT, &mut |schema, _, _| collect_unrecognized(schema, found));
}

/// Sets defaults.
fn default(crd: &mut Object) {
    let Some(spec) = crd.get_mut("spec").and_then(Value::as_object_mut) else { return };
    if let Some(names) = spec.get_mut("names").and_then(Value::as_object_mut) {
        let kind = names.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
        let mut fill = |field: &str, value: String| {
            let missing = names.get(field).and_then(Value::as_str).unwrap_or_default().is_empty();
            if missing && !kind.is_empty() {
                names.insert(field.to_owned(), value.into());
            }
        };
        fill("singular", kind.to_lowercase());
        fill("listKind", format!("{kind}List"));
    }
    let conversion = spec.entry("conversion").or_insert_with(|| json!({"strategy": "None"}));
    if let Some(service) = conversion.pointer_mut("/webhook/clientConfig/service").and_then(Value::as_object_mut) {
        service.entry("port").or_insert_with(|| 443.into());
    }
    let storage = spec.get("versions").and_then(Value::as_array).into_iter().flatten();
    let storage: Option<Value> = storage.into_iter().find(|v| v["storage"] == true).map(|v| v["name"].clone());
    // A null default is ignored, unless the field is nullable.
    for version in spec.get_mut("versions").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(schema) = version.pointer_mut("/schema/openAPIV3Schema") {
            drop_null_defaults(schema);
        }
    }
    // Objects are always stored in a version; a client that clears the list does not own it.
    if let (Some(storage), Some(status)) = (storage, crd.get("status").and_then(Value::as_object))
        && status.get("storedVersions").and_then(Value::as_array).is_some_and(Vec::is_empty)
    {
        let mut status = status.clone();
        status.insert("storedVersions".into(), json!([storage]));
        crd.insert("status".into(), status.into());
    }
}

fn drop_null_defaults(schema: &mut Value) {
    let Some(fields) = schema.as_object_mut() else { return };
    let nullable = fields.get("nullable") == Some(&Value::Bool(true));
    if fields.get("default") == Some(&Value::Null) && !nullable {
        fields.remove("default");
    }
    for (name, value) in fields.iter_mut() {
        match (name.as_str(), value) {
            ("properties", Value::Object(inner)) => inner.values_mut().for_each(drop_null_defaults),
            ("items" | "additionalProperties" | "not", value) => drop_null_defaults(value),
            ("allOf" | "anyOf" | "oneOf", Value::Array(inner)) => inner.iter_mut().for_each(drop_null_defaults),
            _ => {}
        }
    }
}

/// Prepares a written CRD: resets the fields that writes to this subresource must not change.
fn prepare(crd: &mut Object, old: Option<&Object>, part: Part, _clock: &Clock) {
    let storage: Option<String> =
        versions(crd).iter().find(|v| v["storage"] == true).map(|v| text(v, "name").to_owned());
    if old.is_none() {
        crd.insert(
            "status".into(),
            json!({"conditions": null, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": null}),
        );
    }
    let status = crd.entry("status").or_insert_with(|| json!({}));
    let Some(status) = status.as_object_mut() else { return };
    let mut stored: Vec<Value> = status.get("storedVersions").and_then(Value::as_array).cloned().unwrap_or_default();
    if let Some(storage) = storage.filter(|_| part == Part::Whole || stored.is_empty())
        && !stored.iter().any(|known| *known == storage)
    {
        stored.push(storage.into());
    }
    if !stored.is_empty() {
        status.insert("storedVersions".into(), stored.into());
    }
}

/// Adds the finalizer to a deleted CRD, which is removed after its objects.
fn mark(crd: &mut Object, live: &Object, clock: &Clock) {
    let metadata = crd.metadata_mut();
    metadata.remove("deletionGracePeriodSeconds");
    match live.generation() {
        0 => metadata.remove("generation"),
        generation => metadata.insert("generation".into(), generation.into()),
    };
    if live.deletion_timestamp().is_some() {
        return;
    }
    if !crd.finalizers().any(|finalizer| finalizer == CLEANUP) {
        let finalizers = crd.metadata_mut().entry("finalizers").or_insert_with(|| json!([]));
        finalizers.as_array_mut().into_iter().for_each(|finalizers| finalizers.push(CLEANUP.into()));
    }
    let message = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
    let status = acceptance::terminating(crd, "InstanceDeletionPending", message, clock);
    crd.insert("status".into(), status);
}
