//! Paths of the fields that a manager owns, from `managedFields`.
//!
//! See <https://kubernetes.io/docs/reference/using-api/server-side-apply/#field-management>.

use crate::summary::bounded;
use serde_json::Value;

/// Limit of paths of one entry.
const MAX_PATHS: usize = 40;
/// Limit of the depth of a path.
const MAX_DEPTH: usize = 32;

/// Returns the paths of a `fieldsV1`, such as `spec.containers[name=web].image`, and the number of omitted ones.
pub(crate) fn paths(fields: &Value) -> (Vec<String>, usize) {
    let (mut found, mut omitted) = (Vec::new(), 0);
    collect(fields, "", 0, &mut found, &mut omitted);
    (found, omitted)
}

fn collect(fields: &Value, path: &str, depth: usize, found: &mut Vec<String>, omitted: &mut usize) {
    let children = fields.as_object().into_iter().flatten().filter(|(key, _)| *key != ".");
    let mut is_leaf = true;
    for (key, child) in children {
        is_leaf = false;
        if depth >= MAX_DEPTH {
            *omitted += 1;
            return;
        }
        collect(child, &format!("{path}{}", element(key, path.is_empty())), depth + 1, found, omitted);
    }
    if is_leaf && !path.is_empty() {
        match found.len() < MAX_PATHS {
            true => found.push(bounded(path)),
            false => *omitted += 1,
        }
    }
}

/// Formats one element of a path: a field, the key of a list item, a value of a set, or an index.
fn element(key: &str, is_first: bool) -> String {
    match key.split_once(':') {
        Some(("f", name)) if name.contains('.') => format!("[{name}]"),
        Some(("f", name)) if is_first => name.to_owned(),
        Some(("f", name)) => format!(".{name}"),
        Some(("k", keys)) => {
            let keys: Value = serde_json::from_str(keys).unwrap_or_default();
            let pairs = keys.as_object().into_iter().flatten().map(|(key, value)| match value.as_str() {
                Some(text) => format!("{key}={text}"),
                None => format!("{key}={value}"),
            });
            format!("[{}]", pairs.collect::<Vec<_>>().join(","))
        }
        Some((_, value)) => format!("[{}]", value.trim_matches('"')),
        None => format!(".{key}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_name_fields_and_items() {
        let fields = json!({
            "f:metadata": {"f:labels": {".": {}, "f:app.kubernetes.io/name": {}}, "f:finalizers": {"v:\"a/b\"": {}}},
            "f:spec": {"f:replicas": {}, "f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:name": {}}}},
        });
        let expected = [
            "metadata.finalizers[a/b]",
            "metadata.labels[app.kubernetes.io/name]",
            "spec.ports[port=80,protocol=TCP].name",
            "spec.replicas",
        ];
        assert_eq!(paths(&fields), (expected.map(str::to_owned).to_vec(), 0));
    }

    #[test]
    fn paths_are_bounded() {
        let wide = Value::Object((0..100).map(|at| (format!("f:{at}"), json!({}))).collect());
        assert_eq!((paths(&wide).0.len(), paths(&wide).1), (MAX_PATHS, 100 - MAX_PATHS));
        let deep = (0..100).fold(json!({}), |inner, _| json!({"f:a": inner}));
        assert_eq!(paths(&deep), (Vec::new(), 1));
    }
}
