//! Safety of the upgrade of a CRD.

use flyball_core::field::{FieldError, aggregate};
use flyball_schema::openapi;
use flyball_schema::validate::validate;
use serde_json::Value;
use std::collections::BTreeSet;

/// Returns the versions of a CRD.
fn versions(definition: &Value) -> impl Iterator<Item = &Value> {
    definition["spec"]["versions"].as_array().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Returns the reason why an upgrade loses stored objects.
pub(super) fn lost_version(old: &Value, new: &Value) -> Option<String> {
    let name = text(&old["metadata"]["name"]);
    let mut stored = old["status"]["storedVersions"].as_array().into_iter().flatten().map(text);
    let lost = stored.find(|stored| !versions(new).any(|version| version["name"] == *stored))?;
    Some(format!(
        "risk of data loss updating {name:?}: new CRD removes version {lost} that is listed as a stored version on the \
         existing CRD"
    ))
}

/// Returns a version that is served, and no longer by the new CRD.
pub(super) fn no_longer_served<'d>(old: &'d Value, new: &Value) -> Option<&'d str> {
    let is_served = |name: &str| versions(new).any(|version| version["name"] == name && version["served"] == true);
    let served = versions(old).filter(|version| version["served"] == true);
    served.map(|version| text(&version["name"])).find(|name| !is_served(name))
}

/// A version whose schema existing custom resources have to fit.
#[derive(Debug, PartialEq)]
pub(super) struct Tested<'d> {
    /// The version.
    pub(super) version: &'d str,
    /// The version in which existing custom resources can be read now.
    pub(super) read_as: &'d str,
    /// The new schema.
    pub(super) schema: &'d Value,
}

/// Returns the versions for which custom resources have to be validated: those whose schema changes, in the form in
/// which they are served; and, without a conversion webhook, new ones: copies of what is stored get their version. A
/// webhook that converts to a new version does not run before the upgrade. `is_converted` is true if the new operator
/// has one.
pub(super) fn tested_versions<'d>(old: &'d Value, new: &'d Value, is_converted: bool) -> Vec<Tested<'d>> {
    let schema = |version: &'d Value| &version["schema"]["openAPIV3Schema"];
    let served = || versions(old).filter(|version| version["served"] == true);
    let stored = served().find(|version| version["storage"] == true).or_else(|| served().next());
    let is_converted = is_converted || new["spec"]["conversion"]["strategy"] == "Webhook";
    let tested = |version: &'d Value| {
        let (name, schema_of_new) = (text(&version["name"]), schema(version));
        match versions(old).find(|before| before["name"] == version["name"]) {
            Some(before) if before["served"] != true || schema(before) == schema_of_new => None,
            Some(_) => Some(Tested { version: name, read_as: name, schema: schema_of_new }),
            None if is_converted || version["served"] != true => None,
            None => Some(Tested { version: name, read_as: text(&stored?["name"]), schema: schema_of_new }),
        }
    };
    versions(new).filter_map(tested).collect()
}

/// Returns the reason why a schema rejects an existing custom resource. It may contain values.
pub(super) fn rejection(object: &Value, schema: &Value) -> Option<String> {
    let errors = errors(object, schema);
    (!errors.is_empty()).then(|| format!("updated validation is too restrictive: {}", aggregate(errors)))
}

/// Returns the paths of the fields of an existing custom resource that a schema rejects. List indexes and keys of maps
/// are left out.
pub(super) fn rejected_fields(object: &Value, schema: &Value) -> BTreeSet<String> {
    errors(object, schema).iter().map(|error| without_keys(&error.field)).collect()
}

fn errors(object: &Value, schema: &Value) -> Vec<FieldError> {
    let root = openapi::read(Some(schema));
    validate(root.node(), object, None, "[]")
}

/// Removes the texts in brackets from a path: keys of maps are data of users.
fn without_keys(path: &str) -> String {
    let mut short = String::new();
    let mut is_key = false;
    for c in path.chars() {
        is_key = c == '[' || is_key && c != ']';
        if !is_key || c == '[' {
            short.push(c);
        }
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn definition(versions: &[(&str, Value)], stored: &[&str]) -> Value {
        let version = |(name, schema): &(&str, Value)| json!({"name": name, "served": true, "schema": {"openAPIV3Schema": schema}});
        let versions: Vec<Value> = versions.iter().map(version).collect();
        json!({"metadata": {"name": "as.example.com"}, "spec": {"versions": versions}, "status": {"storedVersions": stored}})
    }

    #[test]
    fn stored_versions_have_to_remain() {
        let old = definition(&[("v1", json!({})), ("v2", json!({}))], &["v1"]);
        assert_eq!(lost_version(&old, &definition(&[("v1", json!({}))], &[])), None);
        let lost = lost_version(&old, &definition(&[("v2", json!({}))], &[])).unwrap();
        assert!(lost.contains("\"as.example.com\": new CRD removes version v1"), "{lost}");
    }

    #[test]
    fn changed_and_new_schemas_are_checked() {
        let (same, strict) = (json!({"type": "object"}), json!({"type": "object", "required": ["spec"]}));
        let old = definition(&[("v1", same.clone()), ("v2", same.clone())], &["v1"]);
        let mut new = definition(&[("v1", same.clone()), ("v2", strict.clone()), ("v3", same.clone())], &[]);
        let changed = Tested { version: "v2", read_as: "v2", schema: &strict };
        let added = Tested { version: "v3", read_as: "v1", schema: &same };
        assert_eq!(tested_versions(&old, &new, false), [changed, added]);
        assert_eq!(tested_versions(&old, &new, true).iter().map(|tested| tested.version).collect::<Vec<_>>(), ["v2"]);
        new["spec"]["conversion"]["strategy"] = "Webhook".into();
        assert_eq!(tested_versions(&old, &new, false).iter().map(|tested| tested.version).collect::<Vec<_>>(), ["v2"]);
        assert_eq!(rejection(&json!({"spec": {}}), &strict), None);
        let rejected = rejection(&json!({}), &strict).unwrap();
        assert_eq!(rejected, "updated validation is too restrictive: [].spec: Required value");
    }

    #[test]
    fn removed_and_unserved_versions_are_no_longer_served() {
        let old = definition(&[("v1", json!({})), ("v2", json!({}))], &["v1"]);
        assert_eq!(no_longer_served(&old, &old), None);
        assert_eq!(no_longer_served(&old, &definition(&[("v1", json!({}))], &[])), Some("v2"));
        let mut new = old.clone();
        new["spec"]["versions"][0]["served"] = false.into();
        assert_eq!(no_longer_served(&old, &new), Some("v1"));
    }

    #[test]
    fn rejected_fields_contain_no_values_and_no_keys() {
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "level": {"type": "integer"},
            "texts": {"type": "object", "additionalProperties": {"type": "string"}},
        }}}});
        let object = json!({"spec": {"level": "secret", "texts": {"hidden": 7}}});
        let fields: Vec<String> = rejected_fields(&object, &schema).into_iter().collect();
        assert!(fields.iter().any(|field| field.contains("spec.level")), "{fields:?}");
        assert!(fields.iter().all(|field| !field.contains("secret")), "{fields:?}");
        assert_eq!(without_keys("[].spec.texts[hidden].x"), "[].spec.texts[].x");
    }
}
