//! Comparison of an expected object with an actual one, by KUTTL's rules.

use serde_json::Value;

/// Limit of the differences of two objects that are reported.
const MAX_DIFFERENCES: usize = 20;
/// Limit of the length of a printed value, in characters.
const MAX_VALUE: usize = 200;

/// Returns the differences: fields of the expected object that the actual one lacks, or has with another value.
///
/// Objects may have further fields. Lists must have the same length, and their items are compared one by one.
#[doc(alias = "IsSubset")]
pub(super) fn differences(expected: &Value, actual: &Value) -> Vec<String> {
    let mut found = Vec::new();
    compare(expected, Some(actual), &mut String::new(), &mut found);
    found
}

fn compare(expected: &Value, actual: Option<&Value>, path: &mut String, found: &mut Vec<String>) {
    if found.len() >= MAX_DIFFERENCES {
        return;
    }
    let length = path.len();
    match (expected, actual) {
        (_, None) => found.push(format!("{path}: expected {}, but the field is missing", truncated(expected))),
        (Value::Object(expected), Some(Value::Object(actual))) => {
            for (name, value) in expected {
                let separator = if path.is_empty() { "" } else { "." };
                let is_plain = name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'));
                path.push_str(&if is_plain { format!("{separator}{name}") } else { format!("[{name:?}]") });
                compare(value, actual.get(name), path, found);
                path.truncate(length);
            }
        }
        (Value::Array(expected), Some(Value::Array(actual))) => {
            if expected.len() != actual.len() {
                let (expected, actual) = (expected.len(), actual.len());
                return found.push(format!("{path}: expected a list of {expected} items, actual: {actual} items"));
            }
            for (at, (expected, actual)) in expected.iter().zip(actual).enumerate() {
                path.push_str(&format!("[{at}]"));
                compare(expected, Some(actual), path, found);
                path.truncate(length);
            }
        }
        (expected, Some(actual)) if is_equal(expected, actual) => {}
        (expected, Some(actual)) => {
            found.push(format!("{path}: expected {}, actual: {}", truncated(expected), truncated(actual)));
        }
    }
}

/// Compares scalars; numbers may have different types.
fn is_equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => one == other || one.as_f64() == other.as_f64(),
        (one, other) => one == other,
    }
}

fn truncated(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(MAX_VALUE) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn subset_is_compared_with_paths() {
        let actual = json!({
            "metadata": {"labels": {"a.io/b": "c"}},
            "spec": {"replicas": 1, "list": [{"a": 1, "b": 2}, {"a": 3}]},
        });
        for (expected, differences) in [
            (json!({}), &[][..]),
            (json!({"spec": {"replicas": 1.0, "list": [{"b": 2}, {}]}}), &[]),
            (json!({"spec": {"replicas": 2}}), &["spec.replicas: expected 2, actual: 1"]),
            (json!({"spec": {"list": [{}]}}), &["spec.list: expected a list of 1 items, actual: 2 items"]),
            (
                json!({"spec": {"list": [{"a": 2}, {"b": 0}]}}),
                &["spec.list[0].a: expected 2, actual: 1", "spec.list[1].b: expected 0, but the field is missing"],
            ),
            (
                json!({"metadata": {"labels": {"a.io/b": "d"}}}),
                &[r#"metadata.labels["a.io/b"]: expected "d", actual: "c""#],
            ),
            (json!({"spec": null}), &[r#"spec: expected null, actual: {"list":[{"a":1,"b":2},{"a":3}],"replicas":1}"#]),
            (json!({"status": {"phase": "x"}}), &[r#"status: expected {"phase":"x"}, but the field is missing"#]),
        ] {
            assert_eq!(super::differences(&expected, &actual), differences, "{expected}");
        }
        let many = json!((0..100).collect::<Vec<_>>());
        let others = json!((100..200).collect::<Vec<_>>());
        assert_eq!(super::differences(&many, &others).len(), MAX_DIFFERENCES);
        assert!(super::differences(&json!("ä".repeat(300)), &json!(1))[0].chars().count() < 250);
    }
}
