//! Values that the statuses of several kinds share.

use flyball::{Condition, ObjectKey};

/// Returns true if a condition is `True`.
pub(crate) fn holds(conditions: &[Condition], kind: &str) -> bool {
    conditions.iter().any(|condition| condition.kind == kind && condition.status == "True")
}

/// Returns true if the conditions have been determined for a generation, and one of them is `True`.
pub(crate) fn holds_for(conditions: &[Condition], kind: &str, generation: Option<i64>) -> bool {
    let is_current = |condition: &&Condition| condition.observed_generation >= generation;
    conditions.iter().filter(is_current).any(|condition| condition.kind == kind && condition.status == "True")
}

/// Returns the name by which the cloud shows an object to people.
pub(crate) fn owner(key: &ObjectKey) -> String {
    format!("{}/{}", key.namespace().unwrap_or_default(), key.name())
}

/// Returns the object that a name in the cloud belongs to.
pub(crate) fn key_of(owner: &str) -> Option<ObjectKey> {
    let (namespace, name) = owner.split_once('/')?;
    Some(ObjectKey::new(Some(namespace), name))
}
