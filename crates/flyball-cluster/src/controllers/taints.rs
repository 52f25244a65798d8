//! What nodes repel pods by, and which pods bear it.
//!
//! See <https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/>.

use k8s_openapi::api::core::v1::{Node, Taint, Toleration};

/// Returns the taints of a node that none of the tolerations covers.
pub(super) fn untolerated<'a>(node: &'a Node, tolerations: &'a [Toleration]) -> impl Iterator<Item = &'a Taint> {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref()).into_iter().flatten();
    taints.filter(|taint| !tolerations.iter().any(|toleration| tolerates(toleration, taint)))
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let (key, effect) = (text(&toleration.key), text(&toleration.effect));
    let value = match &*text(&toleration.operator) {
        "Exists" => true,
        "" | "Equal" => text(&toleration.value) == text(&taint.value),
        _ => false,
    };
    value && (effect.is_empty() || effect == taint.effect) && (key.is_empty() || key == taint.key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn tolerations_cover_taints() {
        let taint: Taint = serde_json::from_value(json!({"key": "a", "value": "1", "effect": "NoSchedule"})).unwrap();
        let check = |toleration: serde_json::Value, expect: bool| {
            let parsed: Toleration = serde_json::from_value(toleration.clone()).unwrap();
            assert_eq!(tolerates(&parsed, &taint), expect, "{toleration}");
        };
        check(json!({"operator": "Exists"}), true);
        check(json!({"key": "a", "operator": "Exists", "effect": "NoExecute"}), false);
        check(json!({"key": "a", "value": "1"}), true);
        check(json!({"key": "a", "operator": "Equal", "value": "2"}), false);
        check(json!({"key": "b", "operator": "Exists"}), false);
    }
}
