//! Node selectors, node affinity and tolerations of pods.
//!
//! See <https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/> and
//! <https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/>.

use k8s_openapi::api::core::v1::{NodeAffinity, NodeSelectorRequirement, NodeSelectorTerm, PodSpec, Taint, Toleration};
use std::collections::{BTreeMap, BTreeSet};

pub(crate) type Labels = BTreeMap<String, String>;

/// The taint of nodes that are not known to be ready.
pub(crate) const NOT_READY: &str = "node.kubernetes.io/not-ready";
/// The only field of nodes that terms can match.
pub(crate) const NAME: &str = "metadata.name";

fn meets(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let is_among = value.is_some_and(|value| values.iter().any(|known| known == value));
    let compare = |holds: fn(i64, i64) -> bool| {
        let bound = values.first().and_then(|bound| bound.parse().ok());
        value.and_then(|value| value.parse().ok()).zip(bound).is_some_and(|(value, bound)| holds(value, bound))
    };
    match requirement.operator.as_str() {
        "In" => is_among,
        "NotIn" => !is_among,
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compare(|value, bound| value > bound),
        "Lt" => compare(|value, bound| value < bound),
        _ => false,
    }
}

/// Returns true if a term selects a node; an empty term selects none.
fn selects(term: &NodeSelectorTerm, node: &str, labels: &Labels) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    (!expressions.is_empty() || !fields.is_empty())
        && expressions.iter().all(|one| meets(one, labels.get(&one.key).map(String::as_str)))
        && fields.iter().all(|one| meets(one, (one.key == NAME).then_some(node)))
}

/// Returns true if one of the terms selects a node.
pub(crate) fn any_selects(terms: &[NodeSelectorTerm], node: &str, labels: &Labels) -> bool {
    terms.iter().any(|term| selects(term, node, labels))
}

fn affinity(spec: &PodSpec) -> Option<&NodeAffinity> {
    spec.affinity.as_ref()?.node_affinity.as_ref()
}

fn required(spec: &PodSpec) -> Option<&[NodeSelectorTerm]> {
    let required = affinity(spec)?.required_during_scheduling_ignored_during_execution.as_ref()?;
    Some(&required.node_selector_terms)
}

/// Returns the nodes that the required affinity of a pod names; `None` if it names none.
pub(crate) fn named(spec: &PodSpec) -> Option<BTreeSet<&str>> {
    let mut names = BTreeSet::new();
    for term in required(spec)? {
        let fields = term.match_fields.iter().flatten();
        let mut named = fields.filter(|field| field.key == NAME && field.operator == "In").peekable();
        named.peek()?;
        names.extend(named.flat_map(|field| field.values.iter().flatten()).map(String::as_str));
    }
    Some(names)
}

/// Returns true if a node matches the selector and the required affinity of a pod.
pub(crate) fn may_be_on(spec: &PodSpec, node: &str, labels: &Labels) -> bool {
    spec.node_selector.iter().flatten().all(|(key, value)| labels.get(key) == Some(value))
        && required(spec).is_none_or(|terms| any_selects(terms, node, labels))
}

/// Returns the sum of the weights of the preferred affinity of a pod that a node matches, and the sum of all weights.
pub(crate) fn preference(spec: &PodSpec, node: &str, labels: &Labels) -> (i64, i64) {
    let preferred =
        affinity(spec).and_then(|affinity| affinity.preferred_during_scheduling_ignored_during_execution.as_deref());
    let (mut earned, mut all) = (0, 0);
    for term in preferred.unwrap_or_default() {
        let weight = i64::from(term.weight);
        all += weight;
        if selects(&term.preference, node, labels) {
            earned += weight;
        }
    }
    (earned, all)
}

/// Returns true if a toleration covers a taint.
pub(crate) fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let non_empty = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    non_empty(&toleration.effect).is_none_or(|effect| effect == taint.effect)
        && non_empty(&toleration.key).is_none_or(|key| key == taint.key)
        && match toleration.operator.as_deref() {
            Some("Exists") => true,
            Some("Gt" | "Lt") => {
                let number = |text: &Option<String>| text.as_ref().and_then(|text| text.parse::<i64>().ok());
                let is_less = toleration.operator.as_deref() == Some("Lt");
                number(&taint.value)
                    .zip(number(&toleration.value))
                    .is_some_and(|(taint, bound)| if is_less { taint < bound } else { taint > bound })
            }
            _ => toleration.value.clone().unwrap_or_default() == taint.value.clone().unwrap_or_default(),
        }
}

/// Returns true if any of the tolerations covers a taint.
pub(crate) fn is_tolerated(tolerations: Option<&Vec<Toleration>>, taint: &Taint) -> bool {
    tolerations.into_iter().flatten().any(|toleration| tolerates(toleration, taint))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn selectors_and_affinities_choose_nodes() {
        let labels: Labels = [("zone", "a"), ("cpus", "16")].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        let check = |spec: Value, expected: bool| {
            let mut spec = spec;
            spec["containers"] = json!([]);
            let spec: PodSpec = serde_json::from_value(spec).unwrap();
            assert_eq!(may_be_on(&spec, "n", &labels), expected, "{spec:?}");
        };
        let terms = |terms: Value| json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}});
        let one = |key: &str, operator: &str, values: Value| {
            terms(json!([{"matchExpressions": [{"key": key, "operator": operator, "values": values}]}]))
        };
        check(json!({}), true);
        check(json!({"nodeSelector": {"zone": "a"}}), true);
        check(json!({"nodeSelector": {"zone": "a", "disk": "ssd"}}), false);
        check(one("zone", "In", json!(["a", "b"])), true);
        check(one("zone", "NotIn", json!(["a"])), false);
        check(one("disk", "NotIn", json!(["a"])), true);
        check(one("disk", "Exists", json!([])), false);
        check(one("cpus", "Gt", json!(["8"])), true);
        check(one("cpus", "Lt", json!(["8"])), false);
        check(one("zone", "Lt", json!(["8"])), false);
        check(terms(json!([{}])), false);
        check(terms(json!([{"matchFields": [{"key": "spec.x", "operator": "In", "values": ["n"]}]}])), false);
        check(terms(json!([{"matchFields": [{"key": NAME, "operator": "In", "values": ["n"]}]}])), true);
        check(terms(json!([{"matchFields": [{"key": NAME, "operator": "In", "values": ["m"]}]}])), false);
    }

    #[test]
    fn tolerations_cover_taints() {
        let taint: Taint = serde_json::from_value(json!({"key": "k", "value": "v", "effect": "NoSchedule"})).unwrap();
        let check = |toleration: Value, expected: bool| {
            let toleration: Toleration = serde_json::from_value(toleration).unwrap();
            assert_eq!(tolerates(&toleration, &taint), expected, "{toleration:?}");
        };
        check(json!({"key": "k", "value": "v"}), true);
        check(json!({"key": "k", "operator": "Equal", "value": "w"}), false);
        check(json!({"key": "k", "operator": "Exists"}), true);
        check(json!({"operator": "Exists"}), true);
        check(json!({"key": "k", "operator": "Exists", "effect": "NoExecute"}), false);
    }
}
