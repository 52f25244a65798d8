//! Custom resources: the rules, columns and conversion that a version of a CRD declares.
//!
//! Takes stored CRDs. It does not depend on the served resources: the catalog builds resources from its values. See
//! <https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/>.

mod columns;
mod conversion;
mod converted;
mod json_path;
pub(crate) mod schema_number;

pub(crate) use columns::cells;

use columns::Column;
use conversion::Conversion;
use converted::ConversionCache;

use crate::kinds::{Part, Subresource, validate_embedded};
use flyball_core::field::{ErrorType, FieldError, Path, go_print};
use flyball_core::{GroupVersionKind, Object, memory};
use flyball_schema::rules::Findings;
use flyball_schema::schema::Root;
use serde_json::{Map, Value};

/// The part of a resource that comes from a version of a CRD.
#[derive(Debug)]
pub(crate) struct CustomKind {
    /// Name of the CRD.
    pub(crate) definition: String,
    pub(crate) storage_version: String,
    pub(crate) served: bool,
    pub(crate) subresources: &'static [Subresource],
    pub(crate) scale: Option<Scale>,
    pub(crate) columns: Vec<Column>,
    /// Paths that objects can be selected by, such as `.spec.host`.
    pub(crate) selectable: Vec<String>,
    /// The warning of every response.
    pub(crate) deprecation: Option<String>,
    /// True if the CRD is being deleted: then no objects can be created.
    pub(crate) terminating: bool,
    /// The schema as the CRD has it, for OpenAPI.
    pub(crate) openapi: Option<Value>,
    /// The webhook that converts between versions, if one does.
    pub(crate) conversion: Option<Conversion>,
    /// The objects that the webhook has converted from another version.
    pub(crate) converted: ConversionCache,
    /// True if the schema has rules in CEL.
    pub(crate) has_rules: bool,
    /// The memory of all defaults of the schema, in bytes.
    pub(crate) default_bytes: usize,
}

/// The paths of a custom resource that its scale shows.
#[derive(Clone, Debug)]
pub(crate) struct Scale {
    pub(crate) spec: String,
    pub(crate) status: String,
    pub(crate) selector: Option<String>,
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

impl CustomKind {
    /// Reads a version of a CRD. `storage` is the storage version, `preferred` the one that a deprecation warning
    /// recommends.
    pub(crate) fn read(
        crd: &Object,
        version: &Value,
        kind: &GroupVersionKind,
        storage: &str,
        preferred: Option<&str>,
    ) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let openapi = version.pointer("/schema/openAPIV3Schema").cloned();
        let selectable = version["selectableFields"].as_array().into_iter().flatten();
        let has = |name: &str| version["subresources"].get(name).is_some();
        Self {
            definition: crd.name().to_owned(),
            storage_version: storage.to_owned(),
            served: version["served"] == true,
            subresources: match (has("status"), has("scale")) {
                (true, true) => &[Subresource::STATUS, Subresource::SCALE],
                (true, false) => &[Subresource::STATUS],
                (false, true) => &[Subresource::SCALE],
                (false, false) => &[],
            },
            scale: version.pointer("/subresources/scale").map(|scale| Scale {
                spec: text(&scale["specReplicasPath"]),
                status: text(&scale["statusReplicasPath"]),
                selector: scale["labelSelectorPath"].as_str().map(str::to_owned),
            }),
            columns: columns::read(version),
            selectable: selectable.map(|field| text(&field["jsonPath"])).collect(),
            deprecation: deprecation(version, kind, preferred),
            conversion: Conversion::read(crd.name(), crd.at(&["spec", "conversion"]).unwrap_or(&Value::Null)),
            converted: ConversionCache::default(),
            terminating: crd.deletion_timestamp().is_some(),
            default_bytes: openapi.as_ref().map_or(0, default_bytes),
            has_rules: openapi
                .as_ref()
                .is_some_and(|schema| schema.to_string().contains("\"x-kubernetes-validations\"")),
            openapi,
        }
    }

    /// Returns true if a table of its objects is a long computation.
    pub(crate) fn has_slow_rows(&self) -> bool {
        columns::are_slow(&self.columns)
    }

    /// Validates an object or its change.
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
                error.error_type,
                ErrorType::NotSupported
                    | ErrorType::Required
                    | ErrorType::TooLong
                    | ErrorType::TooMany
                    | ErrorType::TypeInvalid
            )
        };
        if errors.iter().any(blocking) {
            let detail = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";
            errors.push(FieldError::invalid(Path::ROOT, Value::Null, detail));
        } else {
            let unchanged = before == Some(value);
            let found = flyball_schema::rules::validate(node, &rule_input(object), before, unchanged, &Path::ROOT);
            errors.extend(found.errors);
            tolerated = found.tolerated;
        }
        Findings { errors, tolerated }
    }
}

/// Returns the memory of all values of keys `default` in a schema, in bytes, with their map entries. Properties of that
/// name count as well.
fn default_bytes(schema: &Value) -> usize {
    match schema {
        Value::Object(fields) => {
            let own = fields.get("default").map_or(0, |default| memory::NODE + memory::of(default));
            own + fields.values().map(default_bytes).sum::<usize>()
        }
        Value::Array(items) => items.iter().map(default_bytes).sum(),
        _ => 0,
    }
}

/// Returns the value of an object for rules, with only the name of its metadata.
fn rule_input(object: &Object) -> Value {
    let names = object.metadata().into_iter().flatten();
    let names = names.filter(|(field, _)| matches!(field.as_str(), "name" | "generateName"));
    let metadata: Value = names.map(|(field, value)| (field.clone(), value.clone())).collect::<Map<_, _>>().into();
    let others = object.iter().filter(|(field, _)| *field != "metadata");
    let mut seen: Map<String, Value> = others.map(|(field, value)| (field.clone(), value.clone())).collect();
    seen.insert("metadata".into(), metadata);
    seen.into()
}

fn validate_scale(scale: &Scale, object: &Object) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for path in [&scale.spec, &scale.status] {
        let steps: Vec<&str> = path.trim_start_matches('.').split('.').collect();
        let Some(value) = object.at(&steps).filter(|value| !value.is_null()) else { continue };
        let Some(replicas) = value.as_i64() else {
            let (shown, sort) = (go_print(value), flyball_schema::decode::go_type(value));
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
