//! Label and field selectors.
//!
//! See <https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors> and
//! <https://kubernetes.io/docs/concepts/overview/working-with-objects/field-selectors/>.

mod demand;
mod field;
mod label;

pub use demand::{Demand, Demands};
pub use field::{FieldSelector, FieldTerm};
pub use label::{LabelSelector, Operator, Requirement};

/// An error of parsing a selector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Error(pub String);
