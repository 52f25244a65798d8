//! CRDs of `apiextensions.k8s.io/v1beta1`, converted to `v1`.
//!
//! Kubernetes 1.22 removed `v1beta1`, but old bundles contain it. Version `v1` requires a structural schema and prunes
//! unknown fields; the conversion keeps the meaning of the old CRD, or fails.
//! See <https://kubernetes.io/docs/reference/using-api/deprecation-guide/#customresourcedefinition-v122>.

use serde_json::{Map, Value, json};

const GROUP: &str = "apiextensions.k8s.io";
const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";
const APPROVAL: &str = "api-approved.kubernetes.io";
/// Maximum nesting of a schema.
const MAX_DEPTH: usize = 100;

/// A CRD that cannot be converted without a loss.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "CustomResourceDefinition {name:?} has apiVersion {version}, which Kubernetes no longer serves, and cannot be \
         converted to apiextensions.k8s.io/v1: {field}: {why}"
)]
pub struct InvalidDefinition {
    /// The name of the CRD.
    pub name: String,
    /// Its API version.
    pub version: String,
    /// The path of the field.
    pub field: String,
    /// The reason and the remedy.
    pub why: String,
}

/// The field, and the reason why it cannot be converted.
type Problem = (String, String);

/// Returns a CRD in version `v1`; other CRDs are returned unchanged.
///
/// # Errors
///
/// If the conversion would lose a part of the CRD.
pub fn convert_definition(definition: Value) -> Result<Value, InvalidDefinition> {
    let version = definition["apiVersion"].as_str().unwrap_or_default().to_owned();
    if version == format!("{GROUP}/v1") || !version.starts_with(GROUP) {
        return Ok(definition);
    }
    let name = definition["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let failed = |(field, why)| InvalidDefinition { name: name.clone(), version: version.clone(), field, why };
    if version != format!("{GROUP}/v1beta1") {
        return Err(failed(("apiVersion".into(), "only v1beta1 is converted".into())));
    }
    convert(definition).map_err(failed)
}

fn convert(mut definition: Value) -> Result<Value, Problem> {
    let Some(Value::Object(mut spec)) = definition.get_mut("spec").map(Value::take) else {
        return Err(("spec".into(), "it is missing".into()));
    };
    let preserves = spec.remove("preserveUnknownFields").is_none_or(|preserves| preserves != false);
    let mut shared = Map::new();
    for (old, new) in [
        ("validation", "schema"),
        ("subresources", "subresources"),
        ("additionalPrinterColumns", "additionalPrinterColumns"),
    ] {
        if let Some(value) = spec.remove(old).filter(|value| !value.is_null()) {
            shared.insert(new.to_owned(), value);
        }
    }
    let versions = versions(&mut spec)?;
    let versions = versions.into_iter().enumerate().map(|(index, version)| {
        convert_version(version, &shared, preserves)
            .map_err(|(field, why)| (format!("spec.versions[{index}].{field}"), why))
    });
    let versions = versions.collect::<Result<Vec<_>, _>>()?;
    spec.insert("versions".into(), versions.into());
    if let Some(conversion) = spec.remove("conversion").filter(|conversion| !conversion.is_null()) {
        spec.insert("conversion".into(), convert_conversion(conversion));
    }
    spec.entry("scope").or_insert_with(|| json!("Namespaced"));
    let group = spec.get("group").and_then(Value::as_str).unwrap_or_default();
    if group == "k8s.io" || group.ends_with(".k8s.io") || group.ends_with(".kubernetes.io") {
        approve(&mut definition);
    }
    definition["apiVersion"] = json!(format!("{GROUP}/v1"));
    definition["spec"] = spec.into();
    if let Some(fields) = definition.as_object_mut() {
        fields.remove("status");
    }
    Ok(definition)
}

/// Returns the versions; `spec.version` is that of a CRD with one version.
fn versions(spec: &mut Map<String, Value>) -> Result<Vec<Value>, Problem> {
    let single = spec.remove("version").filter(|version| !version.is_null());
    match (spec.remove("versions"), single) {
        (Some(Value::Array(versions)), single) if !versions.is_empty() => match single {
            Some(single) if versions[0]["name"] != single => {
                let why = format!("it is {single}, but spec.versions begins with {}", versions[0]["name"]);
                Err(("spec.version".into(), why))
            }
            _ => Ok(versions),
        },
        (_, Some(single)) => Ok(vec![json!({"name": single, "served": true, "storage": true})]),
        _ => Err(("spec.versions".into(), "it is missing".into())),
    }
}

fn convert_version(version: Value, shared: &Map<String, Value>, preserves: bool) -> Result<Value, Problem> {
    let Value::Object(mut version) = version else { return Err(("name".into(), "it is missing".into())) };
    for (name, value) in shared {
        version.entry(name.clone()).or_insert_with(|| value.clone());
    }
    for column in version.get_mut("additionalPrinterColumns").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(column) = column.as_object_mut()
            && let Some(path) = column.remove("JSONPath")
        {
            column.insert("jsonPath".into(), path);
        }
    }
    const SCHEMA: &str = "schema.openAPIV3Schema";
    let schema = version.get_mut("schema").and_then(|schema| schema.get_mut("openAPIV3Schema")).map(Value::take);
    let schema = schema.unwrap_or_default();
    let schema = match schema {
        Value::Null => json!({"type": "object", PRESERVE: true}),
        mut schema => {
            make_structural(&mut schema, SCHEMA, preserves, true, 0)?;
            schema
        }
    };
    version.insert("schema".into(), json!({"openAPIV3Schema": schema}));
    Ok(version.into())
}

/// Adds the types that a structural schema requires. If unknown fields are preserved, every object declares it.
fn make_structural(
    schema: &mut Value,
    path: &str,
    preserves: bool,
    is_root: bool,
    depth: usize,
) -> Result<(), Problem> {
    if depth > MAX_DEPTH {
        return Err((path.to_owned(), format!("it is nested more than {MAX_DEPTH} levels")));
    }
    let Some(fields) = schema.as_object_mut() else {
        return Err((path.to_owned(), "a schema must be an object".to_owned()));
    };
    if fields.contains_key("$ref") {
        return Err((path.to_owned(), "$ref is not supported; write the schema in place".to_owned()));
    }
    // These are not in the structural dialect, and the server of v1 rejects them.
    for field in ["patternProperties", "dependencies", "definitions", "additionalItems"] {
        if fields.contains_key(field) {
            return Err((format!("{path}.{field}"), "a structural schema has no such field; remove it".to_owned()));
        }
    }
    let is_any = fields.get("x-kubernetes-int-or-string").is_some_and(|any| *any == true)
        || fields.get(PRESERVE).is_some_and(|any| *any == true);
    if !fields.get("type").is_some_and(Value::is_string) && (!is_any || is_root) {
        let found = if is_root || fields.contains_key("properties") || fields.contains_key("additionalProperties") {
            Some("object")
        } else if fields.contains_key("items") {
            Some("array")
        } else {
            None
        };
        match found {
            Some(found) => drop(fields.insert("type".into(), json!(found))),
            // A value of any type.
            None => drop(fields.insert(PRESERVE.into(), json!(true))),
        }
    }
    let is_object = fields.get("type").is_some_and(|kind| kind == "object");
    if preserves && is_object && !fields.contains_key("additionalProperties") {
        fields.insert(PRESERVE.into(), json!(true));
    }
    for (name, property) in fields.get_mut("properties").and_then(Value::as_object_mut).into_iter().flatten() {
        // The metadata of the object has a schema of its own, which v1 lets no CRD extend.
        if is_root && name == "metadata" && property.is_object() {
            property["type"] = json!("object");
            continue;
        }
        make_structural(property, &format!("{path}.properties.{name}"), preserves, false, depth + 1)?;
    }
    for field in ["items", "additionalProperties"] {
        if let Some(nested @ Value::Object(_)) = fields.get_mut(field) {
            make_structural(nested, &format!("{path}.{field}"), preserves, false, depth + 1)?;
        }
    }
    Ok(())
}

fn convert_conversion(mut conversion: Value) -> Value {
    let Some(fields) = conversion.as_object_mut() else { return conversion };
    let mut webhook = Map::new();
    for (old, new) in
        [("webhookClientConfig", "clientConfig"), ("conversionReviewVersions", "conversionReviewVersions")]
    {
        if let Some(value) = fields.remove(old).filter(|value| !value.is_null()) {
            webhook.insert(new.to_owned(), value);
        }
    }
    if fields.get("strategy").is_some_and(|strategy| strategy == "Webhook") {
        webhook.entry("conversionReviewVersions").or_insert_with(|| json!(["v1beta1"]));
        fields.insert("webhook".into(), webhook.into());
    }
    conversion
}

/// Adds the annotation that `v1` requires for groups of Kubernetes itself.
fn approve(definition: &mut Value) {
    let Some(metadata) = definition.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
    if annotations.is_null() {
        *annotations = json!({});
    }
    if let Some(annotations) = annotations.as_object_mut() {
        annotations.entry(APPROVAL).or_insert_with(|| json!("unapproved, converted from apiextensions.k8s.io/v1beta1"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn old(spec: Value) -> Value {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1beta1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "as.example.com"}, "spec": spec, "status": {"conditions": []},
        })
    }

    #[test]
    fn fields_of_other_types_are_no_panic() {
        for other in [json!("x"), json!(["x"]), json!(3), json!({"openAPIV3Schema": "x"})] {
            for field in ["validation", "versions", "conversion", "subresources", "additionalPrinterColumns", "names"] {
                let mut spec = json!({"group": "example.com", "version": "v1"});
                spec[field] = other.clone();
                let _ = convert_definition(old(spec));
            }
            let version = json!({"name": "v1", "schema": other, "additionalPrinterColumns": other});
            let _ = convert_definition(old(json!({"group": "example.com", "versions": [version]})));
        }
    }

    #[test]
    fn single_versions_are_converted() {
        let spec = json!({
            "group": "example.com", "names": {"kind": "A", "plural": "as"}, "version": "v1",
            "subresources": {"status": {}},
            "additionalPrinterColumns": [{"name": "Age", "type": "date", "JSONPath": ".metadata.creationTimestamp"}],
            "validation": {"openAPIV3Schema": {"properties": {
                "spec": {"properties": {"size": {"type": "integer"}, "tags": {"items": {"type": "string"}}}},
                "any": {"description": "anything"},
                "metadata": {},
            }}},
        });
        let converted = convert_definition(old(spec)).unwrap();
        let expected = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "as.example.com"},
            "spec": {
                "group": "example.com", "names": {"kind": "A", "plural": "as"}, "scope": "Namespaced",
                "versions": [{
                    "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                    "additionalPrinterColumns": [
                        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
                    ],
                    "schema": {"openAPIV3Schema": {"type": "object", PRESERVE: true, "properties": {
                        "spec": {"type": "object", PRESERVE: true, "properties": {
                            "size": {"type": "integer"},
                            "tags": {"type": "array", "items": {"type": "string"}},
                        }},
                        "any": {"description": "anything", PRESERVE: true},
                        "metadata": {"type": "object"},
                    }}},
                }],
            },
        });
        assert_eq!(converted, expected);
        assert_eq!(convert_definition(converted.clone()), Ok(converted));
    }

    #[test]
    fn versions_and_conversion_are_converted() {
        let spec = json!({
            "group": "policy.k8s.io", "names": {}, "scope": "Cluster", "preserveUnknownFields": false,
            "versions": [{"name": "v2", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}},
                         {"name": "v1", "served": true, "storage": false}],
            "conversion": {"strategy": "Webhook", "webhookClientConfig": {"url": "https://x"}},
        });
        let converted = convert_definition(old(spec)).unwrap();
        let versions = &converted["spec"]["versions"];
        assert_eq!(versions[0]["schema"]["openAPIV3Schema"], json!({"type": "object"}));
        assert_eq!(versions[1]["schema"]["openAPIV3Schema"], json!({"type": "object", PRESERVE: true}));
        let conversion = json!({
            "strategy": "Webhook",
            "webhook": {"clientConfig": {"url": "https://x"}, "conversionReviewVersions": ["v1beta1"]},
        });
        assert_eq!(converted["spec"]["conversion"], conversion);
        assert!(converted["metadata"]["annotations"][APPROVAL].as_str().unwrap().starts_with("unapproved"));
    }

    #[test]
    fn losses_are_errors_that_name_the_field() {
        let schema = |schema: Value| json!({"version": "v1", "validation": {"openAPIV3Schema": schema}});
        for (spec, expected) in [
            (json!({}), "spec.versions: it is missing"),
            (json!({"version": "v1", "versions": [{"name": "v2"}]}), "spec.version: it is \"v1\", but"),
            (
                schema(json!({"properties": {"a": {"$ref": "#/b"}}})),
                "spec.versions[0].schema.openAPIV3Schema.properties.a: $ref is not supported",
            ),
            (schema(json!({"patternProperties": {}})), "spec.versions[0].schema.openAPIV3Schema.patternProperties: a"),
            (schema(json!([])), "spec.versions[0].schema.openAPIV3Schema: a schema must be an object"),
        ] {
            let error = convert_definition(old(spec)).unwrap_err().to_string();
            assert!(error.contains(&format!("apiextensions.k8s.io/v1: {expected}")), "{error}");
            assert!(error.contains("v1beta1"), "{error}");
        }
        let mut spec = json!({"type": "object"});
        for _ in 0..200 {
            spec = json!({"properties": {"a": spec}});
        }
        assert!(convert_definition(old(schema(spec))).is_err());
    }
}
