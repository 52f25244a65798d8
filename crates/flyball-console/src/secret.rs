//! Secrets without their values.
//!
//! Tools keep copies of objects in annotations, also compressed or as differences, so that the annotations of a Secret
//! may contain its values as well.

use serde_json::Value;

/// Domains of annotations that describe a Secret and contain no copy of it.
const DESCRIPTIVE: [&str; 4] = ["kubernetes.io/", "meta.helm.sh/", "helm.sh/", "flyball.dev/"];
/// Longest value that is shown.
const MAX_VALUE_BYTES: usize = 128;
/// Takes the place of a value.
const HIDDEN: &str = "(confidential)";

/// Replaces the values of a Secret: its data, and its annotations, except short words of `kubernetes.io/`,
/// `meta.helm.sh/`, `helm.sh/` and `flyball.dev/`.
#[doc(alias = "redact")]
pub fn hide_values(secret: &mut Value) {
    for field in ["data", "stringData"] {
        for value in secret.get_mut(field).and_then(Value::as_object_mut).into_iter().flat_map(|map| map.values_mut()) {
            *value = HIDDEN.into();
        }
    }
    let annotations = secret.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut);
    for (name, value) in annotations.into_iter().flatten() {
        let is_descriptive = DESCRIPTIVE.iter().any(|domain| name.starts_with(domain));
        let is_word = |text: &str| {
            let is_of_word = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:".contains(&byte);
            text.len() <= MAX_VALUE_BYTES && text.bytes().all(is_of_word)
        };
        if !(is_descriptive && value.as_str().is_some_and(is_word)) {
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
                "objectset.rio.cattle.io/applied": "CANARY", "kapp.k14s.io/original-diff": "[{\"value\": \"CANARY\"}]",
                "example.com/yaml": "data:\n  pw: CANARY", "helm.sh/hook": "pre-install: CANARY",
                "meta.helm.sh/release-name": "shop",
            }},
            "data": {"pw": "Q0FOQVJZ"}, "stringData": {"pw": "CANARY"},
        });
        hide_values(&mut secret);
        let text = secret.to_string();
        assert!(!text.contains("CANARY") && !text.contains("Q0FOQVJZ"), "{text}");
        assert_eq!(
            (&secret["metadata"]["annotations"]["meta.helm.sh/release-name"], &secret["data"]["pw"]),
            (&json!("shop"), &HIDDEN.into())
        );
        let mut empty = json!({"metadata": {"name": "s"}});
        hide_values(&mut empty);
        assert_eq!(empty, json!({"metadata": {"name": "s"}}));
    }
}
