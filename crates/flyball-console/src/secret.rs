//! Secrets without their values.
//!
//! Tools keep copies of objects in annotations, so that metadata of a Secret may contain its values as well.

use serde_json::Value;

/// Annotations with a copy of the object, some of them compressed.
const COPIES: [&str; 4] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    "kopf.zalando.org/last-handled-configuration",
    "kapp.k14s.io/original",
    "objectset.rio.cattle.io/applied",
];
/// Takes the place of a value.
const HIDDEN: &str = "(confidential)";

/// Replaces the values of a Secret: its data, and annotations that may contain a copy of it.
///
/// An annotation counts as a copy by its name, or if its value is a JSON object.
#[doc(alias = "redact")]
pub fn hide_values(secret: &mut Value) {
    for field in ["data", "stringData"] {
        for value in secret.get_mut(field).and_then(Value::as_object_mut).into_iter().flat_map(|map| map.values_mut()) {
            *value = HIDDEN.into();
        }
    }
    let annotations = secret.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut);
    for (name, value) in annotations.into_iter().flatten() {
        if COPIES.contains(&name.as_str()) || value.as_str().is_some_and(|text| text.trim_start().starts_with('{')) {
            *value = HIDDEN.into();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn secrets_have_no_values_in_any_place() {
        let copy = json!({"data": {"pw": "Q0FOQVJZ"}, "stringData": {"pw": "CANARY"}}).to_string();
        let mut secret = json!({
            "metadata": {"name": "s", "annotations": {
                "kubectl.kubernetes.io/last-applied-configuration": copy, "example.com/last": format!(" {copy}"),
                "objectset.rio.cattle.io/applied": "CANARY", "note": "kept",
            }},
            "data": {"pw": "Q0FOQVJZ"}, "stringData": {"pw": "CANARY"},
        });
        hide_values(&mut secret);
        let text = secret.to_string();
        assert!(!text.contains("CANARY") && !text.contains("Q0FOQVJZ"), "{text}");
        assert_eq!(
            (&secret["metadata"]["annotations"]["note"], &secret["data"]["pw"]),
            (&json!("kept"), &HIDDEN.into())
        );
        let mut empty = json!({"metadata": {"name": "s"}});
        hide_values(&mut empty);
        assert_eq!(empty, json!({"metadata": {"name": "s"}}));
    }
}
