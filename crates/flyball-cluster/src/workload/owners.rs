//! Controller references: controllers of workloads adopt and release objects by their selector.
//!
//! See <https://kubernetes.io/docs/concepts/workloads/controllers/replicaset/#non-template-pod-acquisitions>.

use flyball::{Context, Index, Resource, Result};
use flyball_core::selector::{self, Demands, Operator};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, OwnerReference};
use kube::ResourceExt;
use serde::Serialize;
use serde_json::Value;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::marker::PhantomData;

/// A compiled label selector. Users choose its length, and the cost of matching an object does not depend on it.
#[derive(Clone, Debug)]
pub(crate) struct Selector {
    requirements: selector::LabelSelector,
    demands: Demands,
}

impl PartialEq for Selector {
    fn eq(&self, other: &Self) -> bool {
        self.requirements == other.requirements
    }
}

impl Eq for Selector {}

impl PartialOrd for Selector {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Selector {
    fn cmp(&self, other: &Self) -> Ordering {
        self.requirements.cmp(&other.requirements)
    }
}

impl Selector {
    /// Converts the selector of a spec. A missing selector matches nothing.
    pub(crate) fn new(selector: Option<&LabelSelector>) -> Option<Self> {
        let selector = serde_json::to_value(selector?).unwrap_or(Value::Null);
        let requirements = selector::LabelSelector::from_value(&selector);
        let demands = Demands::from(&requirements);
        Some(Self { requirements, demands })
    }

    /// Selects by equality, as services do.
    pub(crate) fn equal(labels: &BTreeMap<String, String>) -> Option<Self> {
        Self::new(Some(&LabelSelector { match_labels: Some(labels.clone()), match_expressions: None }))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Returns the first label that all selected objects have, if the selector requires the value of one.
    pub(crate) fn required_label(&self) -> Option<(String, String)> {
        self.requirements.requirements.iter().find_map(|requirement| match requirement.operator {
            Operator::In if requirement.values.len() == 1 => {
                Some((requirement.key.clone(), requirement.values.first()?.clone()))
            }
            _ => None,
        })
    }

    pub(crate) fn matches(&self, object: &impl ResourceExt) -> bool {
        self.matches_labels(object.labels())
    }

    pub(crate) fn matches_labels(&self, labels: &BTreeMap<String, String>) -> bool {
        self.demands.match_labels(labels.iter().map(|(key, value)| (key.as_str(), value.as_str())))
    }
}

/// Returns the reference to the controller of an object.
pub(crate) fn controller_of(object: &impl ResourceExt) -> Option<&OwnerReference> {
    object.owner_references().iter().find(|owner| owner.controller == Some(true))
}

/// Returns true if `owner` controls `object`.
pub(crate) fn controls(owner: &impl ResourceExt, object: &impl ResourceExt) -> bool {
    controller_of(object).is_some_and(|reference| Some(&reference.uid) == owner.meta().uid.as_ref())
}

/// Objects without a controller, by namespace.
pub(crate) struct Orphans<T>(PhantomData<T>);

impl<T: Resource> Index for Orphans<T> {
    type Resource = T;
    type Value = String;

    fn values(object: &T) -> Vec<String> {
        match controller_of(object) {
            Some(_) => Vec::new(),
            None => vec![object.namespace().unwrap_or_default()],
        }
    }
}

/// Returns the objects that the reconciled object controls, after adopting matching orphans and releasing objects that
/// no longer match. It requires the index [`Orphans`].
pub(crate) async fn claim<K, T>(owner: &K, selector: &Selector, cx: &Context<K>) -> Result<Vec<T>>
where
    K: Resource,
    T: Resource + Serialize + Clone,
{
    let (mut claimed, mut may_adopt) = (Vec::new(), None);
    let is_deleting = owner.meta().deletion_timestamp.is_some();
    let mut known = cx.children::<T>().await?;
    known.retain(|child| controls(owner, child));
    // A namespace may have very many orphans of others.
    let select = |orphan: T| Some(orphan).filter(|orphan| selector.matches(orphan));
    known.extend(cx.filter_map_by::<Orphans<T>, _>(&owner.namespace().unwrap_or_default(), select).await?);
    known.sort_by_cached_key(|object| object.name_any());
    for object in known {
        let matches = selector.matches(&object);
        match controller_of(&object) {
            Some(_) if controls(owner, &object) => {
                if matches || is_deleting {
                    claimed.push(object);
                } else {
                    let mut released = object.clone();
                    let uid = owner.meta().uid.as_ref();
                    released
                        .meta_mut()
                        .owner_references
                        .get_or_insert_default()
                        .retain(|owner| Some(&owner.uid) != uid);
                    tolerate(cx.replace(&released).await)?;
                }
            }
            None if matches && !is_deleting && object.meta().deletion_timestamp.is_none() => {
                let may_adopt = match may_adopt {
                    Some(may) => may,
                    None => *may_adopt.insert(is_there(owner, cx).await?),
                };
                if may_adopt {
                    let mut adopted = object.clone();
                    let reference = reference_to(owner);
                    adopted.meta_mut().owner_references.get_or_insert_default().push(reference);
                    claimed.extend(tolerate(cx.replace(&adopted).await)?);
                }
            }
            _ => {}
        }
    }
    Ok(claimed)
}

/// Verifies with the API server that the owner has the same UID and is not being deleted, before adoption.
async fn is_there<K: Resource>(owner: &K, cx: &Context<K>) -> Result<bool> {
    let kind = kube::api::ApiResource::erase::<K>(&());
    let path = match cx.key().namespace() {
        Some(namespace) => {
            kube::Api::<kube::api::DynamicObject>::namespaced_with(cx.client().clone(), namespace, &kind)
        }
        None => kube::Api::all_with(cx.client().clone(), &kind),
    };
    let there = path.get_metadata_opt(cx.key().name()).await?;
    Ok(there.is_some_and(|there| there.metadata.uid == owner.meta().uid && there.metadata.deletion_timestamp.is_none()))
}

/// Ignores the error if the object was deleted meanwhile.
pub(crate) fn tolerate<T>(written: Result<T>) -> Result<Option<T>> {
    match written {
        Err(error) if error.status().is_some_and(kube::core::Status::is_not_found) => Ok(None),
        other => other.map(Some),
    }
}

/// Creates a controller owner reference to `owner`.
pub(crate) fn reference_to<K: Resource>(owner: &K) -> OwnerReference {
    OwnerReference {
        api_version: K::api_version(&()).into_owned(),
        block_owner_deletion: Some(true),
        controller: Some(true),
        kind: K::kind(&()).into_owned(),
        name: owner.name_any(),
        uid: owner.meta().uid.clone().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelectorRequirement;

    /// Returns the CPU-bound time of matching objects with few labels.
    #[expect(clippy::disallowed_methods, reason = "it measures itself")]
    fn time(requirements: usize) -> std::time::Duration {
        let absent =
            |n| LabelSelectorRequirement { key: format!("k{n}"), operator: "DoesNotExist".into(), values: None };
        let expressions = (0..requirements).map(absent).collect();
        let selector = LabelSelector { match_labels: None, match_expressions: Some(expressions) };
        let selector = Selector::new(Some(&selector)).unwrap();
        let labels = BTreeMap::from([("app".to_owned(), "web".to_owned())]);
        let start = std::time::Instant::now();
        assert!((0..1000).all(|_| selector.matches_labels(&labels)));
        start.elapsed()
    }

    #[test]
    fn long_selectors_match_as_fast_as_short_ones() {
        // The least of several measurements, on a busy machine. In proportion to the length, it would be a thousand.
        let least = |requirements| (0..20).map(|_| time(requirements)).min().unwrap();
        let (short, long) = (least(40), least(40_000));
        assert!(long < 20 * short, "{short:?} with 40 requirements, {long:?} with 40,000");
    }
}
