//! Protection of an operator against locking itself out by its own webhooks.
//!
//! A mandatory webhook rejects writes while the operator is down. If the operator needs such a write to start (its
//! pod, the token of its service account, the lease of its node), only an administrator can resolve that. So webhooks
//! for built-in kinds exclude the operator's own namespace and `kube-system`, and for cluster-scoped kinds writes of
//! nodes and of controllers in `kube-system`. Custom kinds are not affected: no pod depends on them. See
//! <https://kubernetes.io/docs/concepts/cluster-administration/admission-webhooks-good-practices/#avoid-deadlocks>.

use crate::kind::Kind;
use serde_json::{Value, json};

/// The label that holds the name of each namespace.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";
/// Groups of Kubernetes itself without the suffix `.k8s.io`.
const GROUPS: [&str; 6] = ["", "apps", "autoscaling", "batch", "extensions", "policy"];
/// Name of the condition that excludes writes of the cluster itself.
const CONDITION: &str = "not-written-by-the-cluster-itself";

/// Returns true if running an operator may require writes of a kind.
fn is_needed_to_run(kind: &Kind) -> bool {
    let group = &*kind.gvk().group;
    GROUPS.contains(&group) || group.ends_with(".k8s.io")
}

/// Excludes writes from a webhook that its operator may need in order to run in a namespace.
pub(super) fn exclude(webhook: &mut Value, kind: &Kind, namespace: &str) {
    if !is_needed_to_run(kind) {
        return;
    }
    // For a namespace, its own labels are selected.
    if kind.is_namespaced() || kind.name() == "Namespace" {
        let mut namespaces = vec![namespace, "kube-system"];
        namespaces.dedup();
        let others = json!({"key": NAME_LABEL, "operator": "NotIn", "values": namespaces});
        match webhook["namespaceSelector"]["matchExpressions"].as_array_mut() {
            Some(expressions) => expressions.push(others),
            None => webhook["namespaceSelector"]["matchExpressions"] = json!([others]),
        }
    } else {
        let groups = r#"["system:nodes", "system:serviceaccounts:kube-system"]"#;
        let condition = json!({
            "name": CONDITION,
            "expression": format!("!request.userInfo.groups.exists(group, group in {groups})"),
        });
        match webhook["matchConditions"].as_array_mut() {
            Some(conditions) => conditions.push(condition),
            None => webhook["matchConditions"] = json!([condition]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::coordination::v1::Lease;
    use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

    #[test]
    fn objects_the_operator_needs_are_excluded() {
        let selected_by = |kind: Kind, mut webhook: Value| {
            exclude(&mut webhook, &kind, "sites");
            webhook
        };
        let others = json!({"key": NAME_LABEL, "operator": "NotIn", "values": ["sites", "kube-system"]});
        let selected = json!({"namespaceSelector": {"matchExpressions": [others]}});
        for kind in [Kind::of::<Pod>(), Kind::of::<Lease>(), Kind::of::<Namespace>()] {
            assert_eq!(selected_by(kind, json!({})), selected);
        }
        let team = json!({"key": "team", "operator": "Exists"});
        let own = json!({"namespaceSelector": {"matchLabels": {"a": "b"}, "matchExpressions": [team]}});
        let both = json!({"namespaceSelector": {"matchLabels": {"a": "b"}, "matchExpressions": [team, others]}});
        assert_eq!(selected_by(Kind::of::<Pod>(), own), both, "besides what the author selects");
        for kind in [Kind::of::<Node>(), Kind::of::<CustomResourceDefinition>()] {
            assert_eq!(selected_by(kind, json!({}))["matchConditions"][0]["name"], CONDITION);
        }
    }
}
