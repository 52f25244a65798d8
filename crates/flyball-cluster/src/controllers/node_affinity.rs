//! Which nodes a pod may be put on, as its node selector and its required node affinity have it.
//!
//! See <https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/>.

use k8s_openapi::api::core::v1::{Node, NodeSelectorRequirement, NodeSelectorTerm, PodSpec};
use kube::ResourceExt;

/// The one field that terms can match.
pub(super) const NAME: &str = "metadata.name";

/// Tells whether a pod may be put on a node, taints aside.
pub(super) fn allows(spec: &PodSpec, node: &Node) -> bool {
    let selected = spec.node_selector.iter().flatten().all(|(key, value)| node.labels().get(key) == Some(value));
    let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required = affinity.and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    selected && required.is_none_or(|required| required.node_selector_terms.iter().any(|term| matches(term, node)))
}

/// Tells whether a node meets all of a term. An empty term is met by none.
pub(super) fn matches(term: &NodeSelectorTerm, node: &Node) -> bool {
    let (labels, fields) = (term.match_expressions.iter().flatten(), term.match_fields.iter().flatten());
    let is_empty = labels.clone().next().is_none() && fields.clone().next().is_none();
    let name = node.name_any();
    !is_empty
        && labels.into_iter().all(|wanted| is_met(wanted, node.labels().get(&wanted.key).map(String::as_str)))
        && fields.into_iter().all(|wanted| is_met(wanted, (wanted.key == NAME).then_some(&*name)))
}

fn is_met(wanted: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = wanted.values.as_deref().unwrap_or_default();
    let is_listed = value.is_some_and(|value| values.iter().any(|listed| listed == value));
    let number = |text: Option<&str>| text.and_then(|text| text.parse::<i64>().ok());
    let numbers = number(value).zip(number(values.first().map(String::as_str)));
    match wanted.operator.as_str() {
        "In" => is_listed,
        "NotIn" => !is_listed,
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => numbers.is_some_and(|(value, bound)| value > bound),
        "Lt" => numbers.is_some_and(|(value, bound)| value < bound),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn terms_are_matched() {
        let node: Node =
            serde_json::from_value(json!({"metadata": {"name": "n", "labels": {"a": "1", "b": "x"}}})).unwrap();
        let check = |term: serde_json::Value, expect: bool| {
            let parsed: NodeSelectorTerm = serde_json::from_value(term.clone()).unwrap();
            assert_eq!(matches(&parsed, &node), expect, "{term}");
        };
        let label = |key: &str, operator: &str, values: &[&str]| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
        check(json!({}), false);
        check(label("b", "In", &["x", "y"]), true);
        check(label("b", "NotIn", &["x"]), false);
        check(label("c", "NotIn", &["x"]), true);
        check(label("c", "DoesNotExist", &[]), true);
        check(label("a", "Gt", &["0"]), true);
        check(label("b", "Lt", &["9"]), false);
        check(json!({"matchFields": [{"key": NAME, "operator": "In", "values": ["n"]}]}), true);
        check(json!({"matchFields": [{"key": "spec.x", "operator": "In", "values": ["n"]}]}), false);
    }
}
