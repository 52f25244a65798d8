//! Upgrades of the CRDs in a chart's directory `crds`, which Helm never changes.
//!
//! The API server accepts changes of a CRD that invalidate stored objects. So a CRD is changed only if the new schema
//! accepts everything that the present one accepts, and no version is removed that clients use or objects are stored
//! in. The operator cannot check the objects themselves: it has no permission to read them.

use crate::digest::sha256;
use crate::kinds::Kinds;
use crate::resources::Resource;
use flyball::{Context, Error, Result};
use kube::core::DynamicObject;
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// Annotation of a CRD with the digest of the document in the chart.
const DIGEST: &str = "flyball.dev/definition-digest";

/// Creates the CRDs that do not exist, and changes those that differ from the chart.
///
/// # Errors
///
/// If a change is incompatible; earlier CRDs are changed nevertheless.
pub(crate) async fn upgrade(cx: &Context<DynamicObject>, kinds: &Kinds, definitions: &[Resource]) -> Result<()> {
    for definition in definitions {
        let kind = kinds.declared(definition).map_err(|error| Error::from(error).terminal())?;
        let new: DynamicObject = serde_json::from_value(definition.object.clone())?;
        let digest = sha256(&[definition.object.to_string().as_bytes()]);
        let Some(mut live) = cx.dynamic(kind).get(&definition.key(kind, "")).await? else {
            cx.create_unowned(&new).await?;
            continue;
        };
        let annotations = live.metadata.annotations.get_or_insert_default();
        if annotations.get(DIGEST) == Some(&digest) {
            continue;
        }
        if let Some(problem) = incompatible(&live.data, &new.data) {
            let (path, name) = (&definition.path, definition.name());
            let text = format!(
                "{path}: the change of CustomResourceDefinition {name} could invalidate stored objects: {problem}: add the schema \
                 as a new version, or change the CRD by hand"
            );
            return Err(text.into());
        }
        annotations.extend(new.metadata.annotations.unwrap_or_default());
        annotations.insert(DIGEST.into(), digest);
        live.metadata.labels.get_or_insert_default().extend(new.metadata.labels.unwrap_or_default());
        live.data["spec"] = new.data["spec"].clone();
        cx.replace(&live).await?;
        tracing::info!(name = definition.name(), "CustomResourceDefinition upgraded");
    }
    Ok(())
}

/// Returns the reason why a changed CRD may invalidate objects of the present one.
fn incompatible(old: &Value, new: &Value) -> Option<String> {
    for field in ["/spec/group", "/spec/scope", "/spec/names/kind", "/spec/names/plural"] {
        if old.pointer(field) != new.pointer(field) {
            return Some(format!("{} changes", field[1..].replace('/', ".")));
        }
    }
    let version = |definition: &'_ Value, name: &Value| -> Option<Value> {
        definition["spec"]["versions"].as_array()?.iter().find(|version| version["name"] == *name).cloned()
    };
    let versions = |definition: &Value| definition["spec"]["versions"].as_array().cloned().unwrap_or_default();
    for stored in old["status"]["storedVersions"].as_array().into_iter().flatten() {
        if version(new, stored).is_none() {
            return Some(format!("spec.versions lacks {stored}, in which objects may be stored"));
        }
    }
    let schema = |version: &Value| version["schema"]["openAPIV3Schema"].clone();
    for known in versions(old).iter().filter(|known| known["served"] == true) {
        let name = &known["name"];
        let Some(changed) = version(new, name).filter(|changed| changed["served"] == true) else {
            return Some(format!("spec.versions does not serve {name} any more"));
        };
        if let Some(problem) = narrowed(&format!("schema of {name}: "), &schema(known), &schema(&changed)) {
            return Some(problem);
        }
    }
    // Without a webhook, objects are converted by changing their apiVersion only.
    let converts = new["spec"]["conversion"]["strategy"] == "Webhook";
    let stored = versions(old).into_iter().find(|version| version["storage"] == true)?;
    let added = versions(new).into_iter().filter(|added| !converts && version(old, &added["name"]).is_none());
    added.into_iter().find_map(|added| {
        let what = format!("schema of {}, compared with {}: ", added["name"], stored["name"]);
        narrowed(&what, &schema(&stored), &schema(&added))
    })
}

/// Returns the field and the reason why a schema may reject or drop values that the old one accepts.
fn narrowed(path: &str, old: &Value, new: &Value) -> Option<String> {
    let empty = Map::new();
    let (old, new) = (old.as_object().unwrap_or(&empty), new.as_object().unwrap_or(&empty));
    let keywords: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    keywords.into_iter().find_map(|keyword| narrowed_keyword(path, keyword, old, new))
}

fn narrowed_keyword(path: &str, keyword: &str, old: &Map<String, Value>, new: &Map<String, Value>) -> Option<String> {
    let (before, after) = (old.get(keyword).unwrap_or(&Value::Null), new.get(keyword).unwrap_or(&Value::Null));
    let is_permitted = match keyword {
        "default" | "description" | "example" | "externalDocs" | "title" => true,
        "properties" => return narrowed_properties(path, old, new),
        "items" => return narrowed(&format!("{path}[]"), before, after),
        "additionalProperties" if before.is_object() && after.is_object() => {
            return narrowed(&format!("{path}.*"), before, after);
        }
        "required" => {
            let has_default =
                |field: &Value| new["properties"][field.as_str().unwrap_or_default()].get("default").is_some();
            items(after).all(|field| items(before).any(|known| known == field) || has_default(field))
        }
        "enum" => {
            after.is_null() || !before.is_null() && items(before).all(|value| items(after).any(|known| known == value))
        }
        "maximum" | "maxItems" | "maxLength" | "maxProperties" => {
            after.is_null() || before.as_f64().is_some_and(|before| after.as_f64().is_some_and(|after| after >= before))
        }
        "minimum" | "minItems" | "minLength" | "minProperties" => {
            after.is_null() || before.as_f64().is_some_and(|before| after.as_f64().is_some_and(|after| after <= before))
        }
        "x-kubernetes-validations" => items(after).all(|rule| items(before).any(|known| known["rule"] == rule["rule"])),
        "nullable" | "x-kubernetes-preserve-unknown-fields" => after == true || before != true,
        "allOf" | "anyOf" | "exclusiveMaximum" | "exclusiveMinimum" | "format" | "multipleOf" | "not" | "oneOf"
        | "pattern" | "uniqueItems" => after.is_null() || before == after,
        _ => before == after,
    };
    (!is_permitted).then(|| format!("{path} changes {keyword} from {before} to {after}"))
}

/// Compares the properties of two schemas: none may be removed, or restrict fields that were unknown.
fn narrowed_properties(path: &str, old: &Map<String, Value>, new: &Map<String, Value>) -> Option<String> {
    let preserves = |schema: &Map<String, Value>| {
        schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true))
            || schema.get("additionalProperties").is_some_and(|permitted| *permitted != false)
    };
    let (preserved, preserve) = (preserves(old), preserves(new));
    let empty = Map::new();
    let properties = |schema: &'_ Map<String, Value>| schema.get("properties").and_then(Value::as_object).cloned();
    let (old, new) = (properties(old).unwrap_or_default(), properties(new).unwrap_or(empty));
    let removed = old.iter().find_map(|(name, before)| match new.get(name) {
        Some(after) => narrowed(&format!("{path}.{name}"), before, after),
        None if preserve => None,
        None => Some(format!("{path}.{name} is removed")),
    });
    removed.or_else(|| {
        let added = new.keys().find(|name| preserved && !old.contains_key(*name));
        added.map(|name| format!("{path}.{name} is new, where unknown fields were permitted"))
    })
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn schema_may_only_be_widened() {
        let object = |fields: Value| json!({"type": "object", "properties": fields});
        let text = json!({"type": "string"});
        let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let required =
            |field: &str| json!({"type": "object", "required": [field], "properties": {"a": text, "b": text}});
        let defaulted = json!({"type": "object", "required": ["b"], "properties": {"a": text, "b": {"type": "string", "default": "x"}}});
        let rule =
            |rule: &str| json!({"type": "string", "x-kubernetes-validations": [{"rule": rule, "message": rule}]});
        let cases = [
            (text.clone(), json!({"type": "string", "description": "new", "default": "a"}), None),
            (text.clone(), json!({"type": "integer"}), Some(r#" changes type from "string" to "integer""#)),
            (object(json!({"a": text})), object(json!({"a": text, "b": text})), None),
            (object(json!({"a": text, "b": text})), object(json!({"a": text})), Some(".b is removed")),
            (object(json!({"a": text})), open.clone(), None),
            (open.clone(), object(json!({"a": text})), Some(".a is new, where unknown fields were permitted")),
            (open.clone(), object(json!({})), Some(" changes x-kubernetes-preserve-unknown-fields from true to null")),
            (required("a"), required("a"), None),
            (required("a"), required("b"), Some(r#" changes required from ["a"] to ["b"]"#)),
            (required("a"), defaulted, None),
            (json!({"enum": ["a"]}), json!({"enum": ["b", "a"]}), None),
            (json!({"enum": ["a", "b"]}), json!({"enum": ["a"]}), Some(r#" changes enum from ["a","b"] to ["a"]"#)),
            (json!({}), json!({"enum": ["a"]}), Some(r#" changes enum from null to ["a"]"#)),
            (json!({"maxLength": 3}), json!({"maxLength": 4}), None),
            (json!({"maxLength": 3}), json!({}), None),
            (json!({"maxLength": 3}), json!({"maxLength": 2}), Some(" changes maxLength from 3 to 2")),
            (json!({}), json!({"minimum": 0}), Some(" changes minimum from null to 0")),
            (json!({"minimum": 1}), json!({"minimum": 0}), None),
            (json!({"pattern": "a"}), json!({}), None),
            (json!({}), json!({"pattern": "a"}), Some(r#" changes pattern from null to "a""#)),
            (json!({"nullable": true}), json!({}), Some(" changes nullable from true to null")),
            (json!({}), json!({"nullable": true}), None),
            (rule("a"), text.clone(), None),
            (rule("a"), rule("b"), Some(" changes x-kubernetes-validations")),
            (
                json!({"items": text}),
                json!({"items": {"type": "integer"}}),
                Some(r#"[] changes type from "string" to "integer""#),
            ),
            (
                json!({"additionalProperties": text}),
                json!({"additionalProperties": {"type": "string", "maxLength": 1}}),
                Some(".* changes maxLength from null to 1"),
            ),
            (
                json!({"type": "array", "x-kubernetes-list-type": "set"}),
                json!({"type": "array"}),
                Some(r#" changes x-kubernetes-list-type from "set" to null"#),
            ),
            (json!({}), json!({"x-future-keyword": 1}), Some(" changes x-future-keyword from null to 1")),
        ];
        for (old, new, expected) in cases {
            let found = narrowed("", &old, &new);
            match (found.as_deref(), expected) {
                (Some(found), Some(expected)) => assert!(found.starts_with(expected), "{old} {new}: {found}"),
                (found, expected) => assert_eq!(found, expected, "{old} {new}"),
            }
        }
    }

    #[test]
    fn stored_and_served_versions_stay() {
        let version = |name: &str, served: bool, storage: bool, kind: &str| {
            let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"a": {"type": kind}}}});
            json!({"name": name, "served": served, "storage": storage, "schema": schema})
        };
        let crd = |scope: &str, versions: Value, more: Value| {
            let spec = json!({"group": "a.io", "scope": scope, "names": {"kind": "A", "plural": "as"}, "versions": versions,
                              "conversion": {"strategy": more}});
            json!({"spec": spec, "status": {"storedVersions": ["v1"]}})
        };
        let (v1, v2) = (version("v1", true, true, "string"), version("v2", true, false, "string"));
        let old = crd("Namespaced", json!([v1, version("v0", false, false, "string")]), Value::Null);
        let check =
            |new: Value, expected: Option<&str>| assert_eq!(incompatible(&old, &new).as_deref(), expected, "{new}");
        check(old.clone(), None);
        check(crd("Cluster", json!([v1]), Value::Null), Some("spec.scope changes"));
        check(crd("Namespaced", json!([v1, v2]), Value::Null), None);
        check(
            crd("Namespaced", json!([v2]), Value::Null),
            Some("spec.versions lacks \"v1\", in which objects may be stored"),
        );
        check(
            crd("Namespaced", json!([version("v1", false, true, "string"), v2]), Value::Null),
            Some("spec.versions does not serve \"v1\" any more"),
        );
        let other = version("v2", true, false, "integer");
        check(
            crd("Namespaced", json!([v1, other]), Value::Null),
            Some("schema of \"v2\", compared with \"v1\": .a changes type from \"string\" to \"integer\""),
        );
        check(crd("Namespaced", json!([v1, other]), "Webhook".into()), None);
    }
}
