//! Summary of an object after a timeout.

use crate::render::yaml;
use serde_json::{Value, json};

/// Lines that are shown of an object.
const MAX_SUMMARY_LINES: usize = 40;

/// Summarizes an object that does not reach its expected state, in a few lines of YAML: name, finalizers, and
/// conditions, or the whole status without conditions.
pub(crate) fn summary(object: &Value) -> String {
    let mut seen = json!({
        "kind": object["kind"],
        "name": object["metadata"]["name"],
        "namespace": object["metadata"]["namespace"],
        "finalizers": object["metadata"]["finalizers"],
    });
    match &object["status"]["conditions"] {
        Value::Array(conditions) if !conditions.is_empty() => {
            let short = |condition: &Value| {
                let fields =
                    ["type", "status", "reason", "message"].map(|name| (name.to_owned(), condition[name].clone()));
                Value::Object(fields.into_iter().filter(|(_, value)| !value.is_null() && value != "").collect())
            };
            seen["conditions"] = conditions.iter().map(short).collect();
        }
        _ => seen["status"] = object["status"].clone(),
    }
    if let Some(fields) = seen.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    let yaml = yaml::write(&seen);
    yaml.trim_end().lines().take(MAX_SUMMARY_LINES).map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn awaited_object_is_shown_with_its_conditions() {
        let object = json!({
            "kind": "VisitorsApp",
            "metadata": {"name": "site", "namespace": "demo", "managedFields": [{"manager": "x"}]},
            "spec": {"size": 1},
            "status": {"image": "x", "conditions": [
                {"type": "Ready", "status": "False", "reason": "Progressing", "message": "waits for database",
                 "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1},
            ]},
        });
        let text = summary(&object);
        for line in [
            "kind: VisitorsApp",
            "name: site",
            "namespace: demo",
            "type: Ready",
            "reason: Progressing",
            "message: waits for database",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        for noise in ["managedFields", "lastTransitionTime", "size", "image", "finalizers"] {
            assert!(!text.contains(noise), "{noise}: {text}");
        }
        let text = summary(
            &json!({"kind": "VmGroup", "metadata": {"name": "vg-1", "finalizers": ["x/y"]}, "status": {"phase": "Creating"}}),
        );
        assert!(text.contains("x/y") && text.contains("phase: Creating"), "{text}");
    }
}
