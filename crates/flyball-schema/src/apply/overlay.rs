//! Merges the apply configuration of a mutating policy into an object.

use super::path::PathElement;
use super::types::{Atom, Type, TypeMismatch};
use crate::schema::{ListKind, Node};
use serde_json::Value;

/// An error of merging a patch into an object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OverlayError {
    /// The patch does not fit the schema.
    #[error("failed to convert patch object to typed object: {0}")]
    Patch(TypeMismatch),
    /// The object does not fit the schema.
    #[error("failed to convert original object to typed object: {0}")]
    Live(TypeMismatch),
    /// The patch changes an atomic value; which would remove the parts that it omits.
    #[error("invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {0}")]
    Atomic(String),
}

/// Merges a patch into an object like server-side apply, but without ownership: no field is removed.
///
/// See <https://kubernetes.io/docs/reference/access-authn-authz/mutating-admission-policy/>.
pub fn overlay(schema: Node<'_>, live: &Value, patch: &Value) -> Result<Value, OverlayError> {
    let ty = Type::Schema(schema);
    ty.check(patch, false).map_err(OverlayError::Patch)?;
    let mut atomic = Vec::new();
    find_atomic(ty, patch, String::new(), &mut atomic);
    if !atomic.is_empty() {
        return Err(OverlayError::Atomic(atomic.join(", ")));
    }
    ty.check(live, true).map_err(OverlayError::Live)?;
    Ok(super::merge::merge(ty, Some(live), Some(patch)).unwrap_or_else(|| live.clone()))
}

fn find_atomic(ty: Type<'_>, value: &Value, path: String, found: &mut Vec<String>) {
    match (ty.atom(Some(value)), value) {
        (Atom::List(list), Value::Array(items)) => {
            if *list.kind == ListKind::Atomic {
                found.push(path.clone());
            }
            for (i, item) in items.iter().enumerate() {
                find_atomic(list.items, item, format!("{path}{}", PathElement::Index(i)), found);
            }
        }
        (Atom::Map(map), Value::Object(fields)) => {
            if map.atomic {
                found.push(path.clone());
            }
            for (name, value) in fields {
                let Some(ty) = map.get(name) else { continue };
                find_atomic(ty, value, format!("{path}.{name}"), found);
            }
        }
        _ => {}
    }
}
