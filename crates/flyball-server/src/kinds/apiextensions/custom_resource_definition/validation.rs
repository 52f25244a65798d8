//! Validation of CRDs.
//!
//! kube-apiserver validates an internal type with the common parts of all versions at the top level. Errors have the
//! paths of this type.

use super::rules::{self, BracketPolicy};
use super::schema::{self, Schema};
use super::{acceptance, approval, structural, text};
use crate::kinds::Part;
use crate::kinds::field::Field;
use crate::kinds::webhook_client;
use flyball_core::field::{BadValue, FieldError, Path};
use flyball_core::{Object, names};
use serde_json::{Map, Value};
use std::collections::BTreeSet;

const SPEC: Path<'static> = Path::new("spec");

/// Validates a CRD or its change; only the names of its status are validated.
pub(in crate::kinds) fn validate(crd: &Object, old: Option<&Object>, part: Part) -> Vec<FieldError> {
    if part == Part::Status {
        let status = Path::new("status");
        let accepted = crd.at(&["status", "acceptedNames"]).unwrap_or(&Value::Null);
        return validate_given_names(accepted, &status.field("acceptedNames"));
    }
    let spec = crd.get("spec").cloned().unwrap_or_default();
    if let Some(old) = old.filter(|old| acceptance::condition(old, "Established") == Some("True")) {
        let errors = validate_immutable(&spec, old.get("spec").unwrap_or(&Value::Null));
        if !errors.is_empty() {
            return errors;
        }
    }
    // Rules above the cost limit are not checked further.
    if let Some(error) = validate_patterns(&spec) {
        return vec![error];
    }
    let mut errors: Vec<FieldError> = validate_name(crd, &spec).into_iter().collect();
    errors.extend(validate_group(&spec));
    errors.extend(validate_scope(&spec));
    errors.extend(validate_versions(&spec));
    errors.extend(validate_names(&spec["names"]));
    errors.extend(validate_shared(&spec));
    errors.extend(validate_conversion(&spec["conversion"]));
    errors.extend(validate_stored(crd, &spec));
    errors.extend(approval::validate(crd, old));
    errors.extend(validate_preserve(&spec));
    errors
}

fn validate_immutable(new: &Value, old: &Value) -> Vec<FieldError> {
    let fields: [&[&str]; 4] = [&["scope"], &["group"], &["names", "plural"], &["names", "kind"]];
    let changed = fields.iter().find_map(|steps| {
        let at = |value: &Value| steps.iter().fold(value.clone(), |value, step| value[*step].clone());
        (at(new) != at(old))
            .then(|| FieldError::invalid(format!("spec.{}", steps.join(".")), at(new), "field is immutable"))
    });
    changed.into_iter().collect()
}

fn validate_name(crd: &Object, spec: &Value) -> Option<FieldError> {
    let expected = format!("{}.{}", text(&spec["names"], "plural"), text(spec, "group"));
    (crd.name() != expected)
        .then(|| FieldError::invalid("metadata.name", crd.name(), "must be spec.names.plural+\".\"+spec.group"))
}

fn validate_group(spec: &Value) -> Option<FieldError> {
    let group = text(spec, "group");
    let path = SPEC.field("group");
    if group.is_empty() {
        return Some(FieldError::required(path, ""));
    }
    let wrong = names::dns_subdomain(group);
    if !wrong.is_empty() {
        return Some(FieldError::invalid(path, group, wrong.join(",")));
    }
    (!group.contains('.')).then(|| FieldError::invalid(path, group, "should be a domain with at least one dot"))
}

fn validate_scope(spec: &Value) -> Option<FieldError> {
    let path = SPEC.field("scope");
    match text(spec, "scope") {
        "" => Some(FieldError::required(path, "")),
        "Cluster" | "Namespaced" => None,
        other => Some(FieldError::not_supported(path, other, ["Cluster", "Namespaced"])),
    }
}

/// Returns the common value of a field of all versions; `None` if the values differ.
fn shared<'s>(spec: &'s Value, field: &str) -> Option<&'s Value> {
    let versions = spec["versions"].as_array()?;
    let first = &versions.first()?[field];
    versions.iter().all(|version| version[field] == *first).then_some(first)
}

/// Formats versions like Go's internal type.
fn go_versions(spec: &Value) -> BadValue {
    if !spec["versions"].is_array() {
        return BadValue::Raw("null".into());
    }
    let versions = spec["versions"].as_array().into_iter().flatten();
    let at_the_top: Vec<&str> =
        PARTS.iter().map(|part| part.field).filter(|field| shared(spec, field).is_some()).collect();
    let own = |version: &Value, field: &str| {
        if at_the_top.contains(&field) { "null".to_owned() } else { version[field].to_string() }
    };
    let list: Vec<String> = versions
        .map(|v| {
            let flag = |field: &str| v[field].as_bool().unwrap_or(false);
            format!(
                "{{\"Name\":{},\"Served\":{},\"Storage\":{},\"Deprecated\":{},\"DeprecationWarning\":{},\"Schema\":{},\"Subresources\":{},\
                 \"AdditionalPrinterColumns\":{},\"SelectableFields\":{}}}",
                v["name"],
                flag("served"),
                flag("storage"),
                flag("deprecated"),
                v["deprecationWarning"],
                own(v, "schema"),
                own(v, "subresources"),
                own(v, "additionalPrinterColumns"),
                own(v, "selectableFields"),
            )
        })
        .collect();
    BadValue::Raw(format!("[{}]", list.join(",")))
}

fn validate_versions(spec: &Value) -> Vec<FieldError> {
    let path = SPEC.field("versions");
    let list = spec["versions"].as_array().cloned().unwrap_or_default();
    let mut errors = Vec::new();
    for (i, version) in list.iter().enumerate() {
        let at = path.index(i);
        let schema = version.pointer("/schema/openAPIV3Schema").and_then(Value::as_object);
        if schema.is_none_or(Map::is_empty) {
            let at = at.field("schema");
            errors.push(FieldError::required(at.field("openAPIV3Schema"), ""));
        }
    }
    let own: Vec<&PartOfVersion> = PARTS.iter().filter(|part| shared(spec, part.field).is_none()).collect();
    for (i, version) in list.iter().enumerate() {
        let at = path.index(i);
        errors.extend(label(text(version, "name"), &at.field("name")));
        errors.extend(validate_deprecation(version, &at));
        for part in &own {
            errors.extend((part.check)(&at.field(part.field), &version[part.field], version));
        }
    }
    let names: BTreeSet<&str> = list.iter().map(|version| text(version, "name")).collect();
    if names.len() < list.len() {
        errors.push(FieldError::invalid(path, go_versions(spec), "must contain unique version names"));
    }
    if list.iter().filter(|version| version["storage"] == true).count() != 1 {
        errors.push(FieldError::invalid(
            path,
            go_versions(spec),
            "must have exactly one version marked as storage version",
        ));
    }
    if let [only] = &list[..] {
        errors.extend(label(text(only, "name"), &SPEC.field("version")));
    }
    errors
}

/// Validates a name as a label, with a single error.
fn label(name: &str, path: &Path<'_>) -> Option<FieldError> {
    let wrong = names::dns_1035_label(name);
    (!wrong.is_empty()).then(|| FieldError::invalid(path, name, wrong.join(",")))
}

const MAX_DEPRECATION_WARNING: usize = 256;

fn validate_deprecation(version: &Value, path: &Path<'_>) -> Vec<FieldError> {
    let Some(warning) = version["deprecationWarning"].as_str() else { return Vec::new() };
    let invalid = |detail: String| FieldError::invalid(path.field("deprecationWarning"), warning, detail);
    if version["deprecated"] != true {
        return vec![invalid("can only be set for deprecated versions".into())];
    }
    let mut errors = Vec::new();
    if warning.len() > MAX_DEPRECATION_WARNING {
        errors.push(invalid(format!("must be <= {MAX_DEPRECATION_WARNING} characters long")));
    }
    if warning.is_empty() {
        errors.push(invalid("must not be an empty string".into()));
    }
    let blank = |c: &char| *c != ' ' && c.is_whitespace() || c.is_control();
    if let Some((at, _)) = warning.char_indices().find(|(_, c)| blank(c)) {
        errors.push(invalid(format!(
            "must only contain printable UTF-8 characters; non-printable character found at index {at}"
        )));
    }
    errors
}

fn validate_preserve(spec: &Value) -> Option<FieldError> {
    let detail =
        "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
    (spec["preserveUnknownFields"] == true)
        .then(|| FieldError::invalid(SPEC.field("preserveUnknownFields"), true, detail))
}

/// A part of versions that is at the top level of the internal type if it is equal in all versions.
struct PartOfVersion {
    field: &'static str,
    /// The name of the part at the top level.
    label: &'static str,
    /// A function that validates the part of a version at a path.
    check: fn(&Path<'_>, &Value, &Value) -> Vec<FieldError>,
}

static PARTS: [PartOfVersion; 4] = [
    PartOfVersion { field: "schema", label: "validation", check: |path, schema, _| validate_schema(path, schema) },
    PartOfVersion { field: "subresources", label: "subresources", check: |path, parts, _| validate_scale(path, parts) },
    PartOfVersion {
        field: "additionalPrinterColumns",
        label: "additionalPrinterColumns",
        check: |path, columns, _| validate_columns(path, columns),
    },
    PartOfVersion { field: "selectableFields", label: "selectableFields", check: validate_selectable },
];

/// Validates the fields shared by all versions.
fn validate_shared(spec: &Value) -> Vec<FieldError> {
    let Some(first) = spec["versions"].as_array().and_then(|versions| versions.first()) else { return Vec::new() };
    let shared = PARTS.iter().filter(|part| shared(spec, part.field).is_some());
    shared.flat_map(|part| (part.check)(&SPEC.field(part.label), &first[part.field], first)).collect()
}

fn validate_patterns(spec: &Value) -> Option<FieldError> {
    let path = SPEC.field("versions");
    let (mut counted, mut sum) = (BTreeSet::new(), 0);
    spec["versions"].as_array().into_iter().flatten().enumerate().find_map(|(i, version)| {
        let schema = version.pointer("/schema/openAPIV3Schema")?.as_object()?;
        let at = path.index(i);
        let at = at.field("schema");
        structural::count_states(schema, &at.field("openAPIV3Schema"), &mut counted, &mut sum)
    })
}

fn validate_schema(path: &Path<'_>, schema: &Value) -> Vec<FieldError> {
    match schema.get("openAPIV3Schema") {
        Some(Value::Object(fields)) if !fields.is_empty() => {
            structural::validate(&schema["openAPIV3Schema"], &path.field("openAPIV3Schema"))
        }
        _ => Vec::new(),
    }
}

fn validate_scale(path: &Path<'_>, subresources: &Value) -> Vec<FieldError> {
    let scale = &subresources["scale"];
    if scale.is_null() {
        return Vec::new();
    }
    let path = path.field("scale");
    let mut errors = Vec::new();
    for (field, root) in [("specReplicasPath", ".spec"), ("statusReplicasPath", ".status")] {
        let at = path.field(field);
        match text(scale, field) {
            "" => errors.push(FieldError::required(at, "")),
            given if !given.starts_with(&format!("{root}.")) => {
                errors.push(FieldError::invalid(at, given, format!("should be a json path under {root}")));
            }
            _ => {}
        }
    }
    let selector = text(scale, "labelSelectorPath");
    if !selector.is_empty() && !selector.starts_with(".spec.") && !selector.starts_with(".status.") {
        errors.push(FieldError::invalid(
            path.field("labelSelectorPath"),
            selector,
            "should be a json path under either .spec or .status",
        ));
    }
    errors
}

fn validate_columns(path: &Path<'_>, columns: &Value) -> Vec<FieldError> {
    const TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
    const FORMATS: [&str; 8] = ["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];
    let mut errors = Vec::new();
    for (i, column) in columns.as_array().into_iter().flatten().enumerate() {
        let path = path.index(i);
        if text(column, "name").is_empty() {
            errors.push(FieldError::required(path.field("name"), ""));
        }
        match text(column, "type") {
            "" => {
                errors.push(FieldError::required(path.field("type"), format!("must be one of {}", TYPES.join(","))));
            }
            given if !TYPES.contains(&given) => {
                errors.push(FieldError::invalid(
                    path.field("type"),
                    given,
                    format!("must be one of {}", TYPES.join(",")),
                ));
            }
            _ => {}
        }
        let format = text(column, "format");
        if !format.is_empty() && !FORMATS.contains(&format) {
            errors.push(FieldError::invalid(
                path.field("format"),
                format,
                format!("must be one of {}", FORMATS.join(",")),
            ));
        }
        match text(column, "jsonPath") {
            "" => errors.push(FieldError::required(path.field("JSONPath"), "")),
            given if !given.starts_with('.') => {
                errors.push(FieldError::invalid(
                    path.field("JSONPath"),
                    given,
                    "must be a simple json path starting with .",
                ));
            }
            _ => {}
        }
    }
    errors
}

/// Maximum number of selectable fields of a version.
const MAX_SELECTABLE_FIELDS: usize = 8;

fn validate_selectable(path: &Path<'_>, fields: &Value, version: &Value) -> Vec<FieldError> {
    let none = Schema::new();
    let root = version.pointer("/schema/openAPIV3Schema").and_then(Value::as_object).unwrap_or(&none);
    let mut errors = Vec::new();
    let mut seen: BTreeSet<String> = BTreeSet::new();
    for (i, field) in fields.as_array().into_iter().flatten().enumerate() {
        let json_path = text(field, "jsonPath");
        let path = path.index(i);
        let at = path.field("jsonPath");
        if json_path.is_empty() {
            errors.push(FieldError::required(at, ""));
            continue;
        }
        let (steps, schema) = match rules::field_at(root, json_path, BracketPolicy::Forbidden) {
            Ok(found) => found,
            Err(why) => {
                errors.push(FieldError::invalid(at, json_path, format!("is an invalid path: {why}")));
                continue;
            }
        };
        if steps.first().is_some_and(|first| first == "metadata") {
            errors.push(FieldError::invalid(at, json_path, "must not point to fields in metadata"));
        }
        if !matches!(schema::text(schema, "type"), "string" | "boolean" | "integer") {
            let detail = "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.";
            errors.push(FieldError::invalid(at, json_path, detail));
        }
        if !seen.insert(steps.join(".")) {
            errors.push(FieldError::duplicate(at, json_path));
        }
    }
    if seen.len() > MAX_SELECTABLE_FIELDS {
        errors.push(FieldError::too_many(path, seen.len() as u64, MAX_SELECTABLE_FIELDS as u64));
    }
    errors
}

fn validate_names(names: &Value) -> Vec<FieldError> {
    let path = SPEC.field("names");
    let required = ["plural", "singular", "kind", "listKind"].into_iter().filter(|field| text(names, field).is_empty());
    let mut errors: Vec<FieldError> = required.map(|field| FieldError::required(path.field(field), "")).collect();
    errors.extend(validate_given_names(names, &path));
    errors
}

/// Validates the names that are set.
fn validate_given_names(given: &Value, path: &Path<'_>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for field in ["plural", "singular"].into_iter().filter(|field| !text(given, field).is_empty()) {
        errors.extend(label(text(given, field), &path.field(field)));
    }
    for field in ["kind", "listKind"].into_iter().filter(|field| !text(given, field).is_empty()) {
        let wrong = names::dns_1035_label(&text(given, field).to_lowercase());
        if !wrong.is_empty() {
            let why = format!("may have mixed case, but should otherwise match: {}", wrong.join(","));
            errors.push(FieldError::invalid(path.field(field), text(given, field), why));
        }
    }
    let list = |field: &'static str| {
        let names = given[field].as_array().into_iter().flatten().filter_map(Value::as_str).enumerate();
        names.filter_map(move |(i, name)| label(name, &path.field(field).index(i)))
    };
    errors.extend(list("shortNames"));
    if !text(given, "kind").is_empty() && text(given, "kind") == text(given, "listKind") {
        let detail = "kind and listKind may not be the same";
        errors.push(FieldError::invalid(path.field("listKind"), text(given, "listKind"), detail));
    }
    errors.extend(list("categories"));
    errors
}

fn validate_conversion(conversion: &Value) -> Vec<FieldError> {
    let path = SPEC.field("conversion");
    let webhook = &conversion["webhook"];
    let (client, reviews) = (path.field("webhookClientConfig"), path.field("conversionReviewVersions"));
    let mut errors = Vec::new();
    match text(conversion, "strategy") {
        "Webhook" => {
            if webhook["clientConfig"].is_null() {
                errors.push(FieldError::required(client, "required when strategy is set to Webhook"));
            } else {
                errors.extend(webhook_client::check(&Field::new(client, &webhook["clientConfig"])));
            }
            let versions = &webhook["conversionReviewVersions"];
            if versions.as_array().is_none_or(Vec::is_empty) {
                errors.push(FieldError::required(reviews, ""));
            } else {
                errors.extend(webhook_client::review_versions(&Field::new(reviews, versions)));
            }
        }
        "None" => {
            let detail = "should not be set when strategy is not set to Webhook";
            if !webhook["clientConfig"].is_null() {
                errors.push(FieldError::forbidden(client, detail));
            }
            if webhook["conversionReviewVersions"].as_array().is_some_and(|list| !list.is_empty()) {
                errors.push(FieldError::forbidden(reviews, detail));
            }
        }
        "" => errors.push(FieldError::required(path.field("strategy"), "")),
        other => errors.push(FieldError::not_supported(path.field("strategy"), other, ["None", "Webhook"])),
    }
    errors
}

fn validate_stored(crd: &Object, spec: &Value) -> Vec<FieldError> {
    let status = Path::new("status");
    let path = status.field("storedVersions");
    let stored = crd.at(&["status", "storedVersions"]).cloned().unwrap_or_default();
    let list: Vec<&str> = stored.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if list.is_empty() {
        return vec![FieldError::invalid(path, Value::Null, "must have at least one stored version")];
    }
    let known: Vec<&str> =
        spec["versions"].as_array().into_iter().flatten().map(|version| text(version, "name")).collect();
    let mut errors = Vec::new();
    let storing: Vec<&str> = spec["versions"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|v| v["storage"] == true)
        .map(|v| text(v, "name"))
        .collect();
    for (i, version) in list.iter().enumerate().filter(|(_, version)| !known.contains(version)) {
        let detail = format!(
            "missing from spec.versions; {version} was previously a storage version, and must remain in spec.versions until a storage migration \
             ensures no data remains persisted in {version} and removes {version} from status.storedVersions"
        );
        errors.push(FieldError::invalid(path.index(i), *version, detail));
    }
    if let Some(missing) = storing.last().filter(|storing| !list.contains(storing)) {
        errors.push(FieldError::invalid(path, stored.clone(), format!("must have the storage version {missing}")));
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::super::default;
    use super::*;
    use serde_json::json;
    use std::time::{Duration, Instant};

    fn of_patterns(patterns: impl Iterator<Item = String>) -> Vec<String> {
        let properties: Map<String, Value> = patterns
            .enumerate()
            .map(|(i, pattern)| (format!("p{i:04}"), json!({"type": "string", "pattern": pattern})))
            .collect();
        let schema = json!({"openAPIV3Schema": {"type": "object", "properties": properties}});
        let version = json!({"name": "v1", "served": true, "storage": true, "schema": schema});
        let mut crd: Object = Object::try_from(json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "xs.example.com"},
            "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "xs", "kind": "X"}, "versions": [version]},
            "status": {"storedVersions": ["v1"]}
        }))
        .unwrap();
        default(&mut crd);
        validate(&crd, None, Part::Whole).iter().map(ToString::to_string).collect()
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the test measures time")]
    fn patterns_share_a_budget_per_definition() {
        let start = Instant::now();
        let word = "a".repeat(196);
        let large = (0..2000).map(|n| format!("({word}){{0,99}}{n}$"));
        let errors = of_patterns(large);
        assert_eq!(errors.len(), 1, "{errors:?}");
        let (field, detail) =
            ("spec.versions[0].schema.openAPIV3Schema.properties[p0010].pattern", "may have 200000 states together");
        assert!(errors[0].contains(field) && errors[0].contains(detail), "{errors:?}");
        let huge = (0..2000).map(|n| format!("(({word}){{0,99}}){{0,9}}{n}$"));
        let errors = of_patterns(huge);
        assert!(errors.iter().all(|error| error.contains("use fewer or smaller repetitions")), "{:?}", errors.first());
        assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
        assert_eq!(of_patterns((0..2000).map(|_| format!("({word}){{0,99}}$"))), [""; 0], "all are the same");
        assert_eq!(of_patterns((0..500).map(|n| format!("^[a-z0-9]([-a-z0-9]{{0,61}}[a-z0-9])?{n}$"))), [""; 0]);
    }
}
