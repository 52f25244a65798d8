//! Static checks of definitions and samples.

use super::{Check, CheckOutcome, Source, join_some};
use serde_json::{Map, Value};

/// Checks that each kind has a sample with a spec.
pub(super) fn samples(definitions: &[Value], samples: &[Value]) -> Check {
    let has_sample = |definition: &&Value| {
        samples.iter().any(|sample| is_of(sample, definition) && sample["spec"].as_object().is_some())
    };
    let missing: Vec<String> = definitions.iter().filter(|definition| !has_sample(definition)).map(kind).collect();
    let found = match () {
        () if definitions.is_empty() => CheckOutcome::skipped("the operator defines no kinds"),
        () if !missing.is_empty() => CheckOutcome::failed(
            format!("no sample with a spec for {}", join_some(&missing)),
            "add one to config/samples, or pass --samples PATH",
        ),
        () => CheckOutcome::Passed,
    };
    Check { name: "each kind has a sample", found }
}

/// Checks that each field of each kind has a type, and is described.
pub(super) fn fields(definitions: &[Value], source: Source) -> Check {
    let mut lacking = Vec::new();
    for definition in definitions {
        for version in definition["spec"]["versions"].as_array().into_iter().flatten() {
            let place = format!("{} {}", kind(definition), version["name"].as_str().unwrap_or_default());
            for part in ["spec", "status"] {
                let schema = &version["schema"]["openAPIV3Schema"]["properties"][part];
                check_schema(schema, part, &mut |field, lacks| {
                    lacking.push(format!("{field} of {place} has no {lacks}"))
                });
            }
        }
    }
    let found = match () {
        () if definitions.is_empty() => CheckOutcome::skipped("the operator defines no kinds"),
        () if !lacking.is_empty() => CheckOutcome::failed(
            join_some(&lacking),
            source.choose(
                "add a doc comment to the field; `kubectl explain` and editors show it",
                "add a comment above the value in values.yaml and derive the CRD again, or a description in \
                 config/crd/bases; `kubectl explain` shows it",
                "add a comment above the default in defaults/main.yml and derive the CRD again, or a description in \
                 config/crd/bases; `kubectl explain` shows it",
            ),
        ),
        () => CheckOutcome::Passed,
    };
    Check { name: "each field has a type and a description", found }
}

/// Returns true if an object is of the kind that a definition defines.
pub(super) fn is_of(object: &Value, definition: &Value) -> bool {
    let group = object["apiVersion"].as_str().and_then(|version| version.split_once('/')).map(|(group, _)| group);
    group == definition["spec"]["group"].as_str() && object["kind"] == definition["spec"]["names"]["kind"]
}

fn kind(definition: &Value) -> String {
    definition["spec"]["names"]["kind"].as_str().unwrap_or_default().to_owned()
}

/// Finds fields of a schema, at any depth, without a description or with an incomplete type.
fn check_schema(schema: &Value, path: &str, lacks: &mut impl FnMut(&str, &str)) {
    let none = Map::new();
    for (name, field) in schema["properties"].as_object().unwrap_or(&none) {
        let path = format!("{path}.{name}");
        let is_any = ["x-kubernetes-preserve-unknown-fields", "x-kubernetes-int-or-string"];
        if field["type"].is_null() && is_any.iter().all(|mark| field[mark] != true) {
            lacks(&path, "type");
        }
        if field["description"].as_str().is_none_or(|text| text.trim().is_empty()) {
            lacks(&path, "description");
        }
        check_schema(field, &path, lacks);
    }
    for inner in ["items", "additionalProperties"] {
        if schema[inner].is_object() {
            check_schema(&schema[inner], &format!("{path}[]"), lacks);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn definition(spec: Value) -> Value {
        let schema = json!({"openAPIV3Schema": {"properties": {"spec": spec}}});
        json!({"kind": "CustomResourceDefinition", "spec": {"group": "a.io", "names": {"kind": "Site"},
            "versions": [{"name": "v1", "schema": schema}]}})
    }

    #[test]
    fn kind_needs_a_sample_with_a_spec() {
        let definitions = [definition(json!({}))];
        let sample =
            |group: &str, spec: Value| json!({"apiVersion": format!("{group}/v1"), "kind": "Site", "spec": spec});
        assert_eq!(samples(&definitions, &[sample("a.io", json!({}))]).found, CheckOutcome::Passed);
        for bad in [sample("b.io", json!({})), sample("a.io", Value::Null)] {
            let found = samples(&definitions, &[bad]).found;
            assert!(
                matches!(&found, CheckOutcome::Failed { why, .. } if why == "no sample with a spec for Site"),
                "{found:?}"
            );
        }
        assert!(matches!(samples(&[], &[]).found, CheckOutcome::Skipped { .. }));
    }

    #[test]
    fn nested_fields_are_checked() {
        let field = |more: Value| json!({"type": "object", "description": "d", "properties": {"a": more}});
        let text = json!({"type": "string", "description": "d"});
        let any = json!({"x-kubernetes-int-or-string": true, "description": "d"});
        for good in [field(text.clone()), field(any), json!({"type": "object"}), field(field(text.clone()))] {
            assert_eq!(fields(&[definition(good)], Source::Rust).found, CheckOutcome::Passed);
        }
        let list = |items: Value| field(json!({"type": "array", "description": "d", "items": items}));
        for (bad, expected) in [
            (field(json!({"type": "string"})), "spec.a of Site v1 has no description"),
            (field(json!({"description": "d"})), "spec.a of Site v1 has no type"),
            (list(field(json!({"type": "string"}))), "spec.a[].a of Site v1 has no description"),
        ] {
            let found = fields(&[definition(bad)], Source::Rust).found;
            assert!(matches!(&found, CheckOutcome::Failed { why, .. } if why == expected), "{found:?}");
        }
    }
}
