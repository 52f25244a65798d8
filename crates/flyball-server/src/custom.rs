//! Custom resources: definitions that become served resources.
//!
//! Takes CRDs as they are stored, gives the catalog their resources. What the real server leaves to controllers of its
//! own (accepting names, establishing, cleaning up after a deletion) happens here right after the write that calls for
//! it, as writes of their own. See
//! <https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/>.

mod acceptance;
mod approval;
mod cache;
mod columns;
mod conversion;
mod converted;
mod definition;
mod json_path;
mod lifecycle;
mod rules;
pub(crate) mod schema_number;
mod structural;

pub(crate) use cache::Definitions;
pub(crate) use columns::{Column, cell};
pub(crate) use definition::{default, prepare, validate, warn};
pub(crate) use lifecycle::{mark, table};

use conversion::Conversion;
use converted::Converted;

use crate::kinds::Part;
use crate::registry::{Behaviour, Resource, head, validate_labels};
use flyball_core::field::{FieldError, Mistake, Path, go_print};
use flyball_core::{GroupResource, GroupVersion, GroupVersionKind, Object, names};
use flyball_schema::cel::Findings;
use flyball_schema::schema::{Node, Root};
use serde_json::{Map, Value};
use std::sync::Arc;

/// What a served version of a CRD adds to a resource.
#[derive(Debug)]
pub(crate) struct CustomKind {
    /// Name of the CRD.
    pub(crate) definition: String,
    pub(crate) storage_version: String,
    pub(crate) served: bool,
    pub(crate) status: bool,
    pub(crate) scale: Option<Scale>,
    pub(crate) columns: Vec<Column>,
    /// Paths that objects can be selected by, such as `.spec.host`.
    pub(crate) selectable: Vec<String>,
    /// What to warn of with every answer.
    pub(crate) deprecation: Option<String>,
    /// Whether the CRD is being deleted: then nothing new is made.
    pub(crate) terminating: bool,
    /// The schema as the CRD has it, for OpenAPI.
    pub(crate) openapi: Option<Value>,
    /// The webhook that converts between versions, if one does.
    pub(crate) conversion: Option<Conversion>,
    /// What the webhook made of objects that are stored in another version.
    converted: Converted,
    /// Whether any rule in CEL stands in the schema.
    has_rules: bool,
}

/// Where a custom resource keeps what its scale shows.
#[derive(Clone, Debug)]
pub(crate) struct Scale {
    pub(crate) spec: String,
    pub(crate) status: String,
    pub(crate) selector: Option<String>,
}

/// Reads the resources that a CRD serves by these names, one for each version.
pub(crate) fn resources(crd: &Object, names: &Value) -> Vec<Resource> {
    let spec = crd.get("spec").cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let texts = |value: &Value| value.as_array().into_iter().flatten().map(text).collect::<Vec<_>>();
    let group = text(&spec["group"]);
    let versions = spec["versions"].as_array().cloned().unwrap_or_default();
    let storage_version = versions
        .iter()
        .find(|version| version["storage"] == true)
        .map(|version| text(&version["name"]))
        .unwrap_or_default();
    let preferred = versions
        .iter()
        .filter(|v| v["served"] == true && v["deprecated"] != true)
        .map(|v| text(&v["name"]))
        .max_by(|a, b| crate::registry::stability(a).cmp(&crate::registry::stability(b)).then_with(|| b.cmp(a)));
    let resource = |version: &Value| {
        let kind = GroupVersionKind::new(&group, &text(&version["name"]), &text(&names["kind"]));
        let openapi = version.pointer("/schema/openAPIV3Schema").cloned();
        let custom = CustomKind {
            definition: crd.name().to_owned(),
            storage_version: storage_version.clone(),
            served: version["served"] == true,
            status: version.pointer("/subresources/status").is_some(),
            scale: version.pointer("/subresources/scale").map(|scale| Scale {
                spec: text(&scale["specReplicasPath"]),
                status: text(&scale["statusReplicasPath"]),
                selector: scale["labelSelectorPath"].as_str().map(str::to_owned),
            }),
            columns: columns::read(version),
            selectable: version["selectableFields"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|field| text(&field["jsonPath"]))
                .collect(),
            deprecation: deprecation(version, &kind, preferred.as_deref()),
            conversion: Conversion::read(&spec["conversion"]),
            converted: Converted::default(),
            terminating: crd.deletion_timestamp().is_some(),
            has_rules: openapi
                .as_ref()
                .is_some_and(|schema| schema.to_string().contains("\"x-kubernetes-validations\"")),
            openapi,
        };
        Resource {
            list_kind: text(&names["listKind"]),
            plural: text(&names["plural"]).into(),
            singular: text(&names["singular"]),
            short_names: texts(&names["shortNames"]),
            categories: texts(&names["categories"]),
            namespaced: spec["scope"] == "Namespaced",
            table: GroupResource::new(&group, &text(&names["plural"])),
            schema: flyball_schema::openapi::read(custom.openapi.as_ref()),
            schema_number: schema_number::of(custom.openapi.as_ref(), &kind.version),
            empty: Object::default(),
            head: head(&kind),
            behaviour: Behaviour::Custom(Arc::new(custom)),
            kind,
        }
    };
    // Those that are not served are kept as well: objects may be stored in them.
    versions.iter().map(resource).collect()
}

fn deprecation(version: &Value, kind: &GroupVersionKind, preferred: Option<&str>) -> Option<String> {
    if version["deprecated"] != true {
        return None;
    }
    if let Some(words) = version["deprecationWarning"].as_str() {
        return Some(words.to_owned());
    }
    let mut words = format!("{} {} is deprecated", kind.api_version(), kind.kind);
    if let Some(preferred) = preferred {
        words += &format!("; use {}/{preferred} {}", kind.group, kind.kind);
    }
    Some(words)
}

/// Returns the value of a selectable field as a text; what is absent is empty.
pub(crate) fn selected(object: &Object, path: &str) -> String {
    let steps: Vec<&str> = path.trim_start_matches('.').split('.').collect();
    match object.at(&steps) {
        Some(Value::String(text)) => text.clone(),
        Some(value @ (Value::Bool(_) | Value::Number(_))) => value.to_string(),
        _ => String::new(),
    }
}

impl CustomKind {
    /// Brings a written object into the state that a write may leave it in.
    #[expect(clippy::unused_self, reason = "a sibling of what built-in kinds do")]
    pub(crate) fn prepare(&self, _object: &mut Object, _old: Option<&Object>, _part: Part) {}

    /// Finds what is wrong with an object, or with its change.
    pub(crate) fn validate(&self, schema: &Root, object: &Object, old: Option<&Object>, part: Part) -> Findings {
        let node = schema.node();
        let (value, before) = (object.as_value(), old.map(Object::as_value));
        let mut errors = Vec::new();
        if part == Part::Status {
            if let (Some(inner), Some(status)) = (node.field("status"), object.get("status")) {
                let before = old.and_then(|old| old.get("status"));
                errors.extend(flyball_schema::validate::validate(inner, status, before, "status"));
            }
        } else {
            errors.extend(flyball_schema::validate::validate(node, value, before, ""));
        }
        errors.extend(self.scale.iter().flat_map(|scale| validate_scale(scale, object)));
        errors.extend(validate_embedded(node, value, &Path::ROOT, true));
        let repeated = |value: &Value| flyball_schema::validate::validate_lists(node, value, &Path::ROOT);
        if before.is_none_or(|before| repeated(before).is_empty()) {
            errors.extend(repeated(value));
        }
        let mut tolerated = Vec::new();
        if !self.has_rules {
            return Findings { errors, tolerated };
        }
        let blocking = |error: &FieldError| {
            matches!(
                error.mistake,
                Mistake::NotSupported | Mistake::Required | Mistake::TooLong | Mistake::TooMany | Mistake::TypeInvalid
            )
        };
        if errors.iter().any(blocking) {
            let detail = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";
            errors.push(FieldError::invalid(Path::ROOT, Value::Null, detail));
        } else {
            let unchanged = before == Some(value);
            let found = flyball_schema::cel::validate(node, &seen_by_rules(object), before, unchanged, &Path::ROOT);
            errors.extend(found.errors);
            tolerated = found.tolerated;
        }
        Findings { errors, tolerated }
    }
}

/// What rules see of an object: of its metadata the name alone.
fn seen_by_rules(object: &Object) -> Value {
    let mut seen = object.clone();
    seen.metadata_mut().retain(|field, _| matches!(field.as_str(), "name" | "generateName"));
    seen.into()
}

fn validate_scale(scale: &Scale, object: &Object) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for path in [&scale.spec, &scale.status] {
        let steps: Vec<&str> = path.trim_start_matches('.').split('.').collect();
        let Some(value) = object.at(&steps).filter(|value| !value.is_null()) else { continue };
        let Some(replicas) = value.as_i64() else {
            let (shown, sort) = (go_print(value), flyball_schema::apply::go_type(value));
            let why = format!("{path} accessor error: {shown} is of the type {sort}, expected int64");
            errors.push(FieldError::invalid(path, 0, why));
            continue;
        };
        if replicas < 0 {
            errors.push(FieldError::invalid(path, replicas, "should be a non-negative integer"));
        } else if replicas > i64::from(i32::MAX) {
            errors.push(FieldError::invalid(path, replicas, format!("should be less than or equal to {}", i32::MAX)));
        }
    }
    errors
}

/// Validates objects that stand inside another: each has a version and a kind, and metadata as any object.
fn validate_embedded(node: Node<'_>, value: &Value, path: &Path<'_>, root: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    match value {
        Value::Object(fields) => {
            if node.embedded && !root {
                errors.extend(validate_as_object(fields, path));
            }
            let map = matches!(node.get().shape, flyball_schema::schema::Shape::Map(_));
            for (name, value) in fields {
                if (node.embedded || root) && matches!(name.as_str(), "apiVersion" | "kind" | "metadata") {
                    continue;
                }
                let Some(inner) = node.field(name) else { continue };
                let path = if map { path.key(name) } else { path.field(name) };
                errors.extend(validate_embedded(inner, value, &path, false));
            }
        }
        Value::Array(items) => {
            let Some(inner) = node.items() else { return errors };
            for (i, item) in items.iter().enumerate() {
                errors.extend(validate_embedded(inner, item, &path.index(i), false));
            }
        }
        _ => {}
    }
    errors
}

fn validate_as_object(fields: &Map<String, Value>, path: &Path<'_>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let text = |field: &str| fields.get(field).and_then(Value::as_str).unwrap_or_default();
    match text("apiVersion") {
        "" => errors.push(FieldError::required(path.field("apiVersion"), "")),
        version if GroupVersion::parse(version).is_none() => {
            let detail = format!("unexpected GroupVersion string: {version}");
            errors.push(FieldError::invalid(path.field("apiVersion"), version, detail));
        }
        _ => {}
    }
    match text("kind") {
        "" => errors.push(FieldError::required(path.field("kind"), "")),
        kind => {
            let wrong = names::dns_1035_label(&kind.to_lowercase()).into_iter();
            let detail = |why| format!("may have mixed case, but should otherwise match: {why}");
            errors.extend(wrong.map(|why| FieldError::invalid(path.field("kind"), kind, detail(why))));
        }
    }
    let metadata = path.field("metadata");
    let labels = fields.get("metadata").and_then(|metadata| metadata.get("labels")).and_then(Value::as_object);
    errors.extend(validate_labels(labels, &metadata.field("labels")));
    errors
}
