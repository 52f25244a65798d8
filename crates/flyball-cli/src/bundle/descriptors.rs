//! Descriptors of the fields of a kind, from its schema: consoles show them as forms.
//!
//! See <https://github.com/openshift/console/blob/main/frontend/packages/operator-lifecycle-manager/src/components/descriptors/reference/reference.md>.

use serde_json::{Value, json};

/// Maximum number of descriptors of one kind.
const MAX_DESCRIPTORS: usize = 50;
/// Fields of the status with a meaning for consoles.
const STATUS: [(&str, &str); 4] = [
    ("conditions", "urn:alm:descriptor:io.kubernetes.conditions"),
    ("phase", "urn:alm:descriptor:io.kubernetes.phase"),
    ("podStatuses", "urn:alm:descriptor:com.tectonic.ui:podStatuses"),
    ("message", "urn:alm:descriptor:text"),
];

/// Returns the descriptors of the fields of `spec`.
pub(super) fn spec_descriptors(schema: &Value) -> Vec<Value> {
    describe(&schema["properties"]["spec"], spec_kind)
}

/// Returns the descriptors of the fields of `status`.
pub(super) fn status_descriptors(schema: &Value) -> Vec<Value> {
    describe(&schema["properties"]["status"], |name, _| {
        STATUS.iter().find(|(field, _)| *field == name).map(|(_, kind)| *kind)
    })
}

fn describe(part: &Value, kind: impl Fn(&str, &Value) -> Option<&'static str>) -> Vec<Value> {
    let fields = part["properties"].as_object().into_iter().flatten();
    let descriptor = |(name, field): (&String, &Value)| {
        let mut descriptor = json!({"path": name, "displayName": words(name)});
        if let Some(text) = field["description"].as_str().map(str::trim).filter(|text| !text.is_empty()) {
            descriptor["description"] = json!(text);
        }
        if let Some(kind) = kind(name, field) {
            descriptor["x-descriptors"] = json!([kind]);
        }
        descriptor
    };
    fields.take(MAX_DESCRIPTORS).map(descriptor).collect()
}

fn spec_kind(name: &str, field: &Value) -> Option<&'static str> {
    let is = |kind: &str| field["type"] == kind;
    match name {
        "replicas" | "size" if is("integer") => Some("urn:alm:descriptor:com.tectonic.ui:podCount"),
        "resources" if is("object") => Some("urn:alm:descriptor:com.tectonic.ui:resourceRequirements"),
        "image" if is("string") => Some("urn:alm:descriptor:com.tectonic.ui:text"),
        "password" if is("string") => Some("urn:alm:descriptor:com.tectonic.ui:password"),
        "nodeSelector" if is("object") => Some("urn:alm:descriptor:com.tectonic.ui:nodeSelector"),
        _ if is("boolean") => Some("urn:alm:descriptor:com.tectonic.ui:booleanSwitch"),
        _ if is("integer") || is("number") => Some("urn:alm:descriptor:com.tectonic.ui:number"),
        _ if is("string") => Some("urn:alm:descriptor:com.tectonic.ui:text"),
        _ => None,
    }
}

/// Writes `memoryLimit` as `Memory Limit`.
pub(super) fn words(name: &str) -> String {
    let mut text = String::new();
    let mut is_start = true;
    let mut was_lower = false;
    for letter in name.chars() {
        if letter == '-' || letter == '_' || letter == ' ' {
            is_start = true;
            continue;
        }
        if (letter.is_uppercase() && was_lower || is_start) && !text.is_empty() {
            text.push(' ');
        }
        if is_start {
            text.extend(letter.to_uppercase())
        } else {
            text.push(letter)
        }
        is_start = false;
        was_lower = letter.is_lowercase() || letter.is_ascii_digit();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_described_by_their_type() {
        let schema = json!({"properties": {
            "spec": {"properties": {
                "replicas": {"type": "integer", "description": "Number of pods."}, "tlsEnabled": {"type": "boolean"},
                "storage": {"type": "object"},
            }},
            "status": {"properties": {"conditions": {"type": "array"}, "readyReplicas": {"type": "integer"}}},
        }});
        let expected = json!([
            {"path": "replicas", "displayName": "Replicas", "description": "Number of pods.",
             "x-descriptors": ["urn:alm:descriptor:com.tectonic.ui:podCount"]},
            {"path": "storage", "displayName": "Storage"},
            {"path": "tlsEnabled", "displayName": "Tls Enabled",
             "x-descriptors": ["urn:alm:descriptor:com.tectonic.ui:booleanSwitch"]},
        ]);
        assert_eq!(json!(spec_descriptors(&schema)), expected);
        let expected = json!([
            {"path": "conditions", "displayName": "Conditions",
             "x-descriptors": ["urn:alm:descriptor:io.kubernetes.conditions"]},
            {"path": "readyReplicas", "displayName": "Ready Replicas"},
        ]);
        assert_eq!(json!(status_descriptors(&schema)), expected);
        assert_eq!((words("VmGroup").as_str(), words("site-operator").as_str()), ("Vm Group", "Site Operator"));
    }
}
