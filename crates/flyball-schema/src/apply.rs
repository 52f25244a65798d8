//! Server-side apply: field ownership, and the effect of a write on an object and its owners.
//!
//! Implements the algebra of <https://kubernetes.io/docs/reference/using-api/server-side-apply/>: a [`FieldSet`] is a
//! set of fields, [`ManagedFields`] contains their owners, [`Objects::update`] records the changes of a write other
//! than apply, and [`Objects::apply`] merges the fields that an applier sends and removes those that it no longer
//! sends. The code is pure; the caller passes the time and the conversion between versions.

mod compare;
mod managed;
mod merge;
mod overlay;
mod path;
mod set;
mod types;
mod update;

#[cfg(test)]
mod tests;

pub use managed::{ManagedFields, Manager, Operation};
pub use overlay::{OverlayError, overlay};
pub use path::{PathElement, Scalar};
pub use set::{Branch, FieldSet};
pub use types::TypeMismatch;
pub use update::{ApplyResult, Conflict, Error, LAST_APPLIED, Objects, Versions};
