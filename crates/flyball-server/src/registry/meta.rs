//! Metadata of objects: system fields, immutable fields, validation.
//!
//! Follows `k8s.io/apimachinery/pkg/api/validation` and `k8s.io/apiserver/pkg/registry/rest`.

use crate::catalog::Resource;
use crate::kinds;
use flyball_core::field::{BadValue, FieldError, Path};
use flyball_core::metadata::{push_invalid, unqualified_finalizers, validate_annotations, validate_labels};
use flyball_core::names::{self, Rule};
use flyball_core::{Clock, GroupVersion, GroupVersionKind, Object, Rng};
use serde_json::{Map, Value};
use std::collections::{BTreeSet, HashSet};

const METADATA: Path<'static> = Path::new("metadata");

/// Removes duplicate owners; returns a warning if there were any.
pub(super) fn dedup_owners(object: &mut Object, patched: bool) -> Option<String> {
    let owners = object.metadata_mut().get_mut("ownerReferences")?.as_array_mut()?;
    let mut known: HashSet<Value> = HashSet::with_capacity(owners.len());
    let (mut reported, mut twice): (HashSet<String>, Vec<String>) = Default::default();
    owners.retain(|owner| {
        if known.insert(owner.clone()) {
            return true;
        }
        let uid = owner["uid"].as_str().unwrap_or_default();
        if reported.insert(uid.to_owned()) {
            twice.push(uid.to_owned());
        }
        false
    });
    let uids = twice.join(", ");
    // For a patch, kube-apiserver checks only the result of admission.
    let late = if patched { " after mutating admission happens" } else { "" };
    (!twice.is_empty()).then(|| {
        format!(
            ".metadata.ownerReferences contains duplicate entries{late}; API server dedups owner references in 1.20+, and may reject such \
             requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {uids}"
        )
    })
}

/// Removes the fields of a new object that only the server sets.
pub(super) fn clear_system_fields(object: &mut Object) {
    for field in ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
        object.metadata_mut().remove(field);
    }
}

/// Sets the UID and creation time of a new object.
pub(super) fn set_system_fields(object: &mut Object, clock: &Clock, rng: &Rng) {
    let now = clock.now_rfc3339();
    clear_system_fields(object);
    let metadata = object.metadata_mut();
    metadata.insert("uid".into(), rng.uuid().into());
    metadata.insert("creationTimestamp".into(), now.into());
}

/// Generates the name of a new object with `generateName`.
pub(crate) fn generate_name(object: &mut Object, rng: &Rng) {
    let metadata = object.metadata_mut();
    let given = metadata.get("name").and_then(Value::as_str).unwrap_or_default();
    let prefix = metadata.get("generateName").and_then(Value::as_str).unwrap_or_default();
    if given.is_empty() && !prefix.is_empty() {
        // The whole name fits into a label, with any prefix.
        let end =
            prefix.char_indices().map(|(at, c)| at + c.len_utf8()).take_while(|end| *end <= 63 - 5).last().unwrap_or(0);
        let name = format!("{}{}", &prefix[..end], rng.suffix(5));
        metadata.insert("name".into(), name.into());
    }
}

/// Restores the fields that a client may omit from an update but not change.
pub(super) fn restore_system_fields(object: &mut Object, old: &Object) {
    let empty = Map::new();
    let before = old.metadata().unwrap_or(&empty);
    let metadata = object.metadata_mut();
    let mut keep = |field: &str, always: bool| {
        if let Some(value) = before.get(field)
            && (always || metadata.get(field).is_none_or(|value| value.is_null() || value == ""))
        {
            metadata.insert(field.to_owned(), value.clone());
        }
    };
    keep("uid", false);
    keep("creationTimestamp", true);
    keep("deletionTimestamp", true);
    keep("deletionGracePeriodSeconds", false);
    metadata.remove("selfLink");
}

/// Restores the generation, which clients cannot set on an update.
pub(super) fn restore_generation(object: &mut Object, old: &Object) {
    match old.metadata().and_then(|metadata| metadata.get("generation")) {
        Some(generation) => object.metadata_mut().insert("generation".into(), generation.clone()),
        None => object.metadata_mut().remove("generation"),
    };
}

/// Validates the metadata of a new object.
pub(crate) fn validate(resource: &Resource, object: &Object, name_rule: Rule) -> Vec<FieldError> {
    let mut errors = validate_names(name_rule, object);
    let namespace = METADATA.field("namespace");
    match (resource.namespaced, object.namespace()) {
        (true, None) => errors.push(FieldError::required(namespace, "")),
        (true, Some(value)) => {
            errors.extend(names::dns_label(value).into_iter().map(|e| FieldError::invalid(namespace, value, e)))
        }
        (false, Some(_)) => errors.push(FieldError::forbidden(namespace, "not allowed on this type")),
        (false, None) => {}
    }
    errors.extend(validate_common(object));
    let finalizers = METADATA.field("finalizers");
    for finalizer in object.finalizers() {
        push_invalid(&mut errors, &finalizers, finalizer, names::qualified_name(finalizer));
    }
    let has = |name| object.finalizers().any(|finalizer| finalizer == name);
    if has("orphan") && has("foregroundDeletion") {
        let all: Vec<&str> = object.finalizers().collect();
        errors.push(FieldError::invalid(finalizers, all, "finalizer orphan and foregroundDeletion cannot be both set"));
    }
    errors
}

/// Warns about new unqualified finalizers of custom resources.
pub(super) fn finalizer_warnings(resource: &Resource, object: &Object, old: Option<&Object>) -> Vec<String> {
    if resource.custom().is_none() {
        return Vec::new();
    }
    let known: BTreeSet<&str> = old.into_iter().flat_map(Object::finalizers).collect();
    let fresh: BTreeSet<&str> = unqualified_finalizers(object)
        .map(|(_, finalizer)| finalizer)
        .filter(|finalizer| !known.contains(finalizer))
        .collect();
    let warn = |finalizer: &str| {
        let path = if finalizer.contains('.') { " including a path (/)" } else { "" };
        format!(
            "metadata.finalizers: {finalizer:?}: prefer a domain-qualified finalizer name{path} to avoid accidental conflicts with other finalizer writers"
        )
    };
    fresh.into_iter().map(warn).collect()
}

fn validate_names(rule: Rule, object: &Object) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let prefix =
        object.metadata().and_then(|metadata| metadata.get("generateName")).and_then(Value::as_str).unwrap_or_default();
    if !prefix.is_empty() {
        let path = METADATA.field("generateName");
        errors.extend(names::as_prefix(rule, prefix).into_iter().map(|e| FieldError::invalid(path, prefix, e)));
    }
    let path = METADATA.field("name");
    if object.name().is_empty() {
        errors.push(FieldError::required(path, "name or generateName is required"));
    } else {
        errors.extend(rule(object.name()).into_iter().map(|e| FieldError::invalid(path, object.name(), e)));
    }
    errors
}

fn validate_common(object: &Object) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if object.generation() < 0 {
        errors.push(FieldError::invalid(
            METADATA.field("generation"),
            object.generation(),
            "must be greater than or equal to 0",
        ));
    }
    errors.extend(validate_notes(object));
    errors
}

/// Validates labels, annotations and owners.
fn validate_notes(object: &Object) -> Vec<FieldError> {
    let annotations = object.at(&["metadata", "annotations"]).and_then(Value::as_object);
    let mut errors = validate_labels(object.labels(), &METADATA.field("labels"));
    errors.extend(validate_annotations(annotations, &METADATA.field("annotations")));
    errors.extend(validate_owners(object));
    errors
}

/// Maximum size of errors that each print a whole list, in bytes; further ones are dropped.
const MAX_SHOWN_BYTES: usize = 1 << 20;

/// Writes a part of metadata as Go does.
fn go(path: &[&str], value: &Value) -> String {
    let meta = crate::kinds::library().get("meta/v1", "ObjectMeta").expect("the library contains the shared types");
    let node = path.iter().fold(meta.node(), |node, step| node.field(step).or_else(|| node.items()).unwrap_or(node));
    flyball_schema::decode::print(node, value)
}

fn validate_owners(object: &Object) -> Vec<FieldError> {
    let path = METADATA.field("ownerReferences");
    let none = Value::Null;
    let references = object.metadata().and_then(|metadata| metadata.get("ownerReferences")).unwrap_or(&none);
    let mut errors = Vec::new();
    let mut controller: Option<String> = None;
    // Each of these errors shows all references.
    let mut second: Option<String> = None;
    for (i, owner) in object.owner_references().enumerate() {
        let group_version = GroupVersion::parse(owner.api_version);
        if group_version.is_none() {
            let detail = "version must not be empty".to_owned();
            push_invalid(&mut errors, &path.field("apiVersion"), owner.api_version, vec![detail]);
        }
        for (field, value) in [("kind", owner.kind), ("name", owner.name), ("uid", owner.uid)] {
            if value.is_empty() {
                push_invalid(&mut errors, &path.field(field), value, vec!["must not be empty".into()]);
            }
        }
        let banned = |kind: &GroupVersionKind| {
            kinds::built_in().any(|known| known.cannot_own && known.group_version_kind() == *kind)
        };
        if let Some(kind) = group_version.map(|version| version.kind(owner.kind)).filter(banned) {
            errors.push(FieldError::invalid(
                path,
                BadValue::Raw(go(&["ownerReferences", "0"], &references[i])),
                format!("{kind} is disallowed from being an owner"),
            ));
        }
        if owner.controller {
            let this = format!("{}/{}", owner.kind, owner.name);
            match &controller {
                Some(_) if second.as_ref().is_some_and(|shown| errors.len() * shown.len() > MAX_SHOWN_BYTES) => {}
                Some(first) => {
                    let shown = second.get_or_insert_with(|| go(&["ownerReferences"], references)).clone();
                    errors.push(FieldError::invalid(
                        path,
                        BadValue::Raw(shown),
                        format!("Only one reference can have Controller set to true. Found \"true\" in references for {first} and {this}"),
                    ));
                }
                None => controller = Some(this),
            }
        }
    }
    errors
}

/// Validates the metadata of an updated object.
pub(crate) fn validate_update(object: &Object, old: &Object) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if old.deletion_timestamp().is_some() {
        let known: BTreeSet<&str> = old.finalizers().collect();
        let fresh: BTreeSet<&str> = object.finalizers().filter(|new| !known.contains(new)).collect();
        if !fresh.is_empty() {
            let list: Vec<String> = fresh.iter().map(|finalizer| format!("{finalizer:?}")).collect();
            let detail = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                list.join(", ")
            );
            errors.push(FieldError::forbidden(METADATA.field("finalizers"), detail));
        }
    }
    if object.resource_version().is_empty() {
        errors.push(FieldError::invalid(METADATA.field("resourceVersion"), "", "must be specified for an update"));
    }
    if object.generation() < 0 {
        errors.push(FieldError::invalid(
            METADATA.field("generation"),
            object.generation(),
            "must be greater than or equal to 0",
        ));
    }
    if object.generation() < old.generation() {
        errors.push(FieldError::invalid(METADATA.field("generation"), object.generation(), "must not be decremented"));
    }
    for field in ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        errors.extend(immutable(object, old, field));
    }
    errors.extend(validate_notes(object));
    errors
}

fn immutable(object: &Object, old: &Object, field: &str) -> Option<FieldError> {
    let value =
        |object: &Object| object.metadata().and_then(|metadata| metadata.get(field)).cloned().unwrap_or_default();
    let (new, old) = (value(object), value(old));
    (new != old).then(|| FieldError::invalid(METADATA.field(field), new, "field is immutable"))
}
