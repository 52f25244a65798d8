//! Owners by their selectors: a change of an object finds the owners that select it, without decoding any of them.
//!
//! Mapping functions run in the watch of a kind, which all namespaces share. So the cost of a change must not depend on
//! the size of other objects, as it does if owners are listed.

use super::owners::{Selector, controller_of};
use flyball::{Caches, Index, ObjectKey, Resource, Result};
use kube::ResourceExt;
use std::marker::PhantomData;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// A kind that selects objects of its namespace by their labels.
pub(crate) trait Selects: Resource {
    /// Returns the selector of an object; `None` if it selects nothing.
    fn selector(&self) -> Option<Selector>;
}

/// Index of owners by namespace and selector. It holds the selectors themselves.
pub(crate) struct BySelector<K>(PhantomData<K>);

/// Position of an owner in the index.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    namespace: String,
    /// A label that all selected objects have, if the selector requires one.
    label: Option<(String, String)>,
    within: OwnerPosition,
}

/// Position among owners of the same namespace and label.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum OwnerPosition {
    First,
    At(Selector),
    Last,
}

impl<K: Selects> Index for BySelector<K> {
    type Resource = K;
    type Value = Arc<Position>;

    fn values(owner: &K) -> Vec<Arc<Position>> {
        let position = owner.selector().map(|selector| Position {
            namespace: owner.namespace().unwrap_or_default(),
            label: selector.required_label(),
            within: OwnerPosition::At(selector),
        });
        position.map(Arc::new).into_iter().collect()
    }
}

/// Returns the ranges of the index with the owners that may select an object.
fn ranges(object: &impl Resource) -> impl Iterator<Item = RangeInclusive<Arc<Position>>> {
    let labels = object.labels().iter().map(|(key, value)| Some((key.clone(), value.clone())));
    std::iter::once(None).chain(labels).map(|label| {
        let namespace = object.namespace().unwrap_or_default();
        let first = Position { namespace, label, within: OwnerPosition::First };
        let last = Position { within: OwnerPosition::Last, ..first.clone() };
        Arc::new(first)..=Arc::new(last)
    })
}

/// Returns true if the owner at a position selects an object.
fn selects(position: &Position, object: &impl Resource) -> bool {
    matches!(&position.within, OwnerPosition::At(selector) if selector.matches(object))
}

/// Finds the owners that select an object. It requires the index [`BySelector`].
pub(crate) fn selecting<K: Selects>(object: &impl Resource, caches: &Caches) -> Result<Vec<ObjectKey>> {
    let mut found = Vec::new();
    for range in ranges(object) {
        let owners = caches.range_by::<BySelector<K>>(range)?.into_iter();
        found.extend(owners.filter(|(position, _)| selects(position, object)).map(|(_, key)| key));
    }
    Ok(found)
}

/// Finds the owners that may adopt an object, which has no controller. It requires the index [`BySelector`].
pub(crate) fn candidates<K: Selects>(object: &impl Resource, caches: &Caches) -> Result<Vec<ObjectKey>> {
    if controller_of(object).is_some() {
        return Ok(Vec::new());
    }
    selecting::<K>(object, caches)
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Pod;
    use k8s_openapi::api::policy::v1::PodDisruptionBudget;
    use serde_json::{Value, json};

    /// Checks that an owner with a selector is found by an object with these labels exactly if it selects it.
    fn check(selector: &Value, labels: &Value, namespace: &str) {
        let owner = json!({"metadata": {"name": "o", "namespace": "ns"}, "spec": {"selector": selector}});
        let owner: PodDisruptionBudget = serde_json::from_value(owner).unwrap();
        let pod = json!({"metadata": {"name": "p", "namespace": namespace, "labels": labels}});
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let positions = BySelector::<PodDisruptionBudget>::values(&owner);
        let holds = |range: RangeInclusive<Arc<Position>>| {
            positions.iter().any(|position| range.contains(position) && selects(position, &pod))
        };
        let expected = namespace == "ns" && owner.selector().is_some_and(|selector| selector.matches(&pod));
        assert_eq!(
            ranges(&pod).filter(|range| holds(range.clone())).count(),
            usize::from(expected),
            "{selector} {labels}"
        );
    }

    #[test]
    fn owners_are_found_by_the_labels_of_objects() {
        let expression =
            |key: &str, operator: &str, values: &[&str]| json!({"key": key, "operator": operator, "values": values});
        let selectors = [
            Value::Null,
            json!({}),
            json!({"matchLabels": {"a": "1"}}),
            json!({"matchLabels": {"a": "1", "b": "2"}}),
            json!({"matchLabels": {"b": ""}}),
            json!({"matchExpressions": [expression("a", "In", &["1"])]}),
            json!({"matchExpressions": [expression("a", "In", &["1", "2"])]}),
            json!({"matchExpressions": [expression("a", "NotIn", &["1"])]}),
            json!({"matchExpressions": [expression("a", "Exists", &[]), expression("b", "In", &["2"])]}),
            json!({"matchExpressions": [expression("a", "DoesNotExist", &[])]}),
            json!({"matchLabels": {"a": "1"}, "matchExpressions": [expression("a", "In", &["2"])]}),
        ];
        let labels =
            [json!({}), json!({"a": "1"}), json!({"a": "2"}), json!({"b": ""}), json!({"a": "1", "b": "2", "c": "3"})];
        for selector in &selectors {
            for labels in &labels {
                check(selector, labels, "ns");
                check(selector, labels, "other");
            }
        }
    }
}
