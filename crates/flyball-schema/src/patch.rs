//! The three patch types without field ownership: JSON patch, merge patch and strategic merge patch.
//!
//! See <https://kubernetes.io/docs/reference/using-api/api-concepts/#patch-and-apply>.

pub mod json;
mod merge;
mod strategic;

pub use merge::merge;
pub use strategic::{StrategicError, strategic};

/// An error of applying a patch, with the message of kube-apiserver.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Error(pub String);
