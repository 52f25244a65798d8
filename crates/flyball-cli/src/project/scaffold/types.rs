//! Rust types of a foreign kind, generated from the schema in its definition.
//!
//! The types describe the structure; the API server enforces the validation of values. See
//! <https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#specifying-a-structural-schema>.

use super::api::Names;
use super::template::fill;
use crate::error::{Error, Result};
use crate::project::names::escape_keyword;
use crate::project::{Resource, names};
use serde_json::Value;
use std::collections::BTreeSet;

/// One version of a kind, from its definition.
#[derive(Debug)]
pub(crate) struct Definition {
    pub(crate) resource: Resource,
    schema: Value,
}

impl Definition {
    /// Reads a definition; of several versions that which is named, or else that which objects are stored in.
    pub(crate) fn read(definition: &Value, version: Option<&str>) -> Result<Self> {
        let name = definition["metadata"]["name"].as_str().unwrap_or("the object");
        let wrong = |what: String| Error::new(format!("cannot generate types from {name}: {what}"));
        if definition["kind"] != "CustomResourceDefinition" {
            return Err(wrong(format!("its kind is {}", definition["kind"])));
        }
        let spec = &definition["spec"];
        let text = |value: &Value, check: fn(&str) -> Result<String, String>, field: &str| {
            let text = value.as_str().ok_or_else(|| wrong(format!("it has no {field}")))?;
            check(text).map_err(|error| wrong(format!("{field} {error}")))
        };
        let versions = spec["versions"].as_array().map_or(&[][..], |versions| versions);
        let found = versions.iter().position(|one| match version {
            Some(version) => one["name"] == version,
            None => one["storage"] == true,
        });
        let Some(at) = found else {
            let all: Vec<&str> = versions.iter().filter_map(|one| one["name"].as_str()).collect();
            return Err(wrong(match version {
                Some(version) => format!("it has no version {version}; available: {}", all.join(", ")),
                None => "no version has `storage: true`".into(),
            }));
        };
        let Some(schema) = versions[at]["schema"].get("openAPIV3Schema") else {
            let others: Vec<&String> =
                versions[at]["schema"].as_object().into_iter().flat_map(|all| all.keys()).collect();
            let instead = others.first().map(|other| format!(", but {other}")).unwrap_or_default();
            return Err(wrong(format!("spec.versions[{at}].schema has no openAPIV3Schema{instead}")));
        };
        Ok(Self {
            resource: Resource {
                group: text(&spec["group"], names::group, "spec.group")?,
                version: text(&versions[at]["name"], names::version, "version")?,
                kind: text(&spec["names"]["kind"], names::kind, "spec.names.kind")?,
                plural: text(&spec["names"]["plural"], names::plural, "spec.names.plural")?,
                namespaced: spec["scope"] == "Namespaced",
                foreign: true,
                ..Resource::default()
            },
            schema: schema.clone(),
        })
    }

    /// Writes the types.
    pub(crate) fn code(&self, names: &Names) -> String {
        let Resource { kind, plural, namespaced, .. } = &self.resource;
        let properties = &self.schema["properties"];
        let has_spec = properties["spec"].is_object();
        let mut attributes = String::new();
        let mut add = |condition: bool, text: String| {
            if condition {
                attributes += &format!("    {text},\n");
            }
        };
        add(names.kind_type != *kind, format!("root = \"{}\"", names.kind_type));
        add(true, format!("plural = \"{plural}\""));
        add(*namespaced, "namespaced".into());
        add(!has_spec, "no_spec".into());
        add(properties["status"].is_object(), format!("status = \"{kind}Status\""));

        let mut types = Types { used: [names.kind_type.clone()].into(), text: String::new() };
        let mut whole = self.schema.clone();
        if let Some(properties) = whole["properties"].as_object_mut() {
            for known in ["apiVersion", "kind", "metadata", "status"] {
                properties.remove(known);
            }
        }
        let spec = if has_spec { &properties["spec"] } else { &whole };
        types.structure(&format!("{kind}Spec"), spec, &format!("Desired state of {kind}."), true);
        if properties["status"].is_object() {
            types.structure(
                &format!("{kind}Status"),
                &properties["status"],
                &format!("Observed state of {kind}."),
                false,
            );
        }
        let gaps = [("attributes", attributes.as_str()), ("types", &types.text)];
        names.fill(&fill(include_str!("../../../templates/foreign.rs"), &gaps), &[])
    }
}

/// Types as they are written, one behind the other.
struct Types {
    used: BTreeSet<String>,
    text: String,
}

impl Types {
    /// Writes a struct, and the types of its fields behind it.
    fn structure(&mut self, name: &str, schema: &Value, otherwise: &str, is_root: bool) {
        self.used.insert(name.to_owned());
        let required: Vec<&str> =
            schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let mut fields = String::new();
        let mut known = BTreeSet::new();
        let mut later = Vec::new();
        for (property, schema) in schema["properties"].as_object().into_iter().flatten() {
            let field = unique(snake(property), &mut known);
            let (plain, nested) = self.of(schema, &format!("{name}{}", pascal(property)));
            later.extend(nested);
            let optional = !required.contains(&property.as_str()) || schema["nullable"] == true;
            let mut serde = Vec::new();
            if camel(&field) != *property {
                serde.push(format!("rename = {property:?}"));
            }
            if optional {
                serde.push("default, skip_serializing_if = \"Option::is_none\"".into());
            }
            fields += &described(schema, &format!("`{property}`."), "    ");
            if !serde.is_empty() {
                fields += &format!("    #[serde({})]\n", serde.join(", "));
            }
            let plain = if optional { format!("Option<{plain}>") } else { plain };
            fields += &format!("    pub {field}: {plain},\n");
        }
        if schema["x-kubernetes-preserve-unknown-fields"] == true || schema["additionalProperties"].is_object() {
            let rest = unique("rest".into(), &mut known);
            fields += "    /// All other fields.\n    #[serde(flatten)]\n";
            fields += &format!("    pub {rest}: serde_json::Map<String, serde_json::Value>,\n");
        }
        // The first struct has the attributes of the kind.
        let head = if is_root { "" } else { "#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]\n" };
        let doc = if is_root { String::new() } else { format!("\n{}", described(schema, otherwise, "")) };
        self.text += &format!("{doc}{head}#[serde(rename_all = \"camelCase\")]\npub struct {name} {{\n{fields}}}\n");
        for (name, schema) in later {
            self.structure(&name, &schema, &format!("`{name}`."), false);
        }
    }

    /// Returns the type of a value, and the struct to generate for it, if any.
    fn of(&mut self, schema: &Value, name: &str) -> (String, Option<(String, Value)>) {
        let is = |flag: &str| schema[flag] == true;
        if is("x-kubernetes-int-or-string") {
            return ("k8s_openapi::apimachinery::pkg::util::intstr::IntOrString".into(), None);
        }
        if is("x-kubernetes-embedded-resource") {
            return ("serde_json::Value".into(), None);
        }
        let has_fields = schema["properties"].as_object().is_some_and(|all| !all.is_empty());
        let plain = match schema["type"].as_str() {
            Some("string") => "String",
            Some("integer") if schema["format"] == "int32" => "i32",
            Some("integer") => "i64",
            Some("number") => "f64",
            Some("boolean") => "bool",
            Some("array") => {
                let (item, nested) = self.of(&schema["items"], name);
                return (format!("Vec<{item}>"), nested);
            }
            Some("object") if has_fields => {
                let name = unique(name.to_owned(), &mut self.used);
                return (name.clone(), Some((name, schema.clone())));
            }
            Some("object") if schema["additionalProperties"].is_object() => {
                let (value, nested) = self.of(&schema["additionalProperties"], name);
                return (format!("std::collections::BTreeMap<String, {value}>"), nested);
            }
            Some("object") if !is("x-kubernetes-preserve-unknown-fields") => {
                "serde_json::Map<String, serde_json::Value>"
            }
            _ => "serde_json::Value",
        };
        (plain.into(), None)
    }
}

/// Returns an unused name, and reserves it.
fn unique(name: String, used: &mut BTreeSet<String>) -> String {
    let mut found = name.clone();
    let mut number = 2;
    while !used.insert(found.clone()) {
        found = format!("{name}{number}");
        number += 1;
    }
    found
}

/// Returns the description of a schema as a comment, with the allowed values.
fn described(schema: &Value, otherwise: &str, indent: &str) -> String {
    let mut text =
        schema["description"].as_str().map(str::trim).filter(|text| !text.is_empty()).unwrap_or(otherwise).to_owned();
    let values: Vec<String> =
        schema["enum"].as_array().into_iter().flatten().map(|value| format!("`{value}`")).collect();
    if !values.is_empty() {
        text += &format!("\n\nOne of {}.", values.join(", "));
    }
    let mut lines = String::new();
    for paragraph in text.lines() {
        let mut line = String::new();
        for word in paragraph.split_whitespace() {
            if !line.is_empty() && line.len() + word.len() > 100 {
                lines += &format!("{indent}/// {line}\n");
                line.clear();
            }
            line += if line.is_empty() { "" } else { " " };
            line += word;
        }
        lines += format!("{indent}/// {line}").trim_end();
        lines += "\n";
    }
    lines
}

/// Cuts a name into its words.
fn words(name: &str) -> Vec<String> {
    let letters: Vec<char> = name.chars().collect();
    let mut words = vec![String::new()];
    for (at, letter) in letters.iter().enumerate() {
        let before = at.checked_sub(1).map(|before| letters[before]);
        let begins = letter.is_ascii_uppercase()
            && (before.is_some_and(|before| !before.is_ascii_uppercase())
                || letters.get(at + 1).is_some_and(char::is_ascii_lowercase));
        if begins || !letter.is_ascii_alphanumeric() {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| letter.is_ascii_alphanumeric()) {
            word.push(letter.to_ascii_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Returns the name of a field.
fn snake(name: &str) -> String {
    let name = words(name).join("_");
    let first = name.chars().next();
    let name = if first.is_none_or(|first| first.is_ascii_digit()) { format!("field_{name}") } else { name };
    escape_keyword(&name)
}

/// Returns a part of the name of a type.
pub(super) fn pascal(name: &str) -> String {
    let capital = |word: &String| word[..1].to_uppercase() + &word[1..];
    words(name).iter().map(capital).collect()
}

/// Returns the name of a field after serde's `rename_all = "camelCase"`.
pub(super) fn camel(field: &str) -> String {
    let mut parts = field.split('_').filter(|part| !part.is_empty());
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |mut name, part| {
        let mut chars = part.chars();
        name.extend(chars.next().into_iter().flat_map(char::to_uppercase));
        name + chars.as_str()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn field_names_convert_to_snake_case_and_back() {
        for (property, field, back) in [
            ("cronSpec", "cron_spec", "cronSpec"),
            ("type", "type_", "type"),
            ("podIPs", "pod_i_ps", "podIPs"),
            ("clusterIP", "cluster_ip", "clusterIp"),
            ("$ref", "ref_", "ref"),
            ("x-y.z", "x_y_z", "xYZ"),
            ("3rd", "field_3rd", "field3rd"),
            ("größe", "gr_e", "grE"),
            ("", "field_", "field"),
        ] {
            assert_eq!((snake(property).as_str(), camel(&snake(property)).as_str()), (field, back), "{property}");
        }
    }

    #[test]
    fn names_convert_to_pascal_case() {
        for (name, kind) in
            [("memcached", "Memcached"), ("kube-prometheus-stack", "KubePrometheusStack"), ("a_b.c", "ABC")]
        {
            assert_eq!(pascal(name), kind);
        }
    }

    #[test]
    fn every_schema_maps_to_a_type() {
        let mut types = Types { used: BTreeSet::new(), text: String::new() };
        for (schema, expected) in [
            (json!({"type": "string", "enum": ["a"]}), "String"),
            (json!({"type": "integer", "format": "int32"}), "i32"),
            (json!({"type": "integer"}), "i64"),
            (json!({"type": "number"}), "f64"),
            (json!({"type": "array", "items": {"type": "array", "items": {"type": "boolean"}}}), "Vec<Vec<bool>>"),
            (
                json!({"type": "object", "additionalProperties": {"type": "string"}}),
                "std::collections::BTreeMap<String, String>",
            ),
            (json!({"type": "object"}), "serde_json::Map<String, serde_json::Value>"),
            (json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}), "serde_json::Value"),
            (json!({"x-kubernetes-preserve-unknown-fields": true}), "serde_json::Value"),
            (json!({"x-kubernetes-int-or-string": true}), "k8s_openapi::apimachinery::pkg::util::intstr::IntOrString"),
            (json!({"type": "array", "items": {"type": "object", "properties": {"a": {}}}}), "Vec<Name>"),
            (json!({"type": "object", "properties": {"a": {}}}), "Name2"),
        ] {
            assert_eq!(types.of(&schema, "Name").0, expected, "{schema}");
        }
    }

    #[test]
    fn invalid_definitions_are_named() {
        let definition = json!({"kind": "CustomResourceDefinition", "metadata": {"name": "crontabs.stable.example.com"},
            "spec": {"group": "stable.example.com", "names": {"kind": "CronTab", "plural": "crontabs"}, "scope": "Namespaced",
                "versions": [{"name": "v1", "storage": true, "schema": {"openAPISchema": {"type": "object"}}}]}});
        let error = |definition: &Value, version| Definition::read(definition, version).unwrap_err().to_string();
        let message = error(&definition, None);
        assert!(message.ends_with("spec.versions[0].schema has no openAPIV3Schema, but openAPISchema"), "{message}");
        assert!(error(&definition, Some("v2")).contains("no version v2; available: v1"));
        assert!(error(&json!({"kind": "Pod"}), None).contains("its kind is \"Pod\""));
    }
}
