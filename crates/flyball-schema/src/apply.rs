//! Server-side apply: who owns which field, and what an object becomes when one of the owners speaks.
//!
//! The algebra of <https://kubernetes.io/docs/reference/using-api/server-side-apply/>: a [`FieldSet`] names fields,
//! [`ManagedFields`] says whose they are, [`Objects::update`] records what a plain write changed, and
//! [`Objects::apply`] merges what an applier wants and takes away what it no longer does. All of it is pure; the
//! caller says what time it is and how objects convert between versions.

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
pub use types::Misfit;
pub use update::{Applied, Conflict, Error, LAST_APPLIED, Objects, Versions};
