//! Operators made of Helm charts, on the runtime of [`flyball`].
//!
//! An [`operator()`] is made of a `watches.yaml`, as with the operator-sdk: each custom resource becomes a release of a
//! chart. Releases are recorded as Helm records them, see [`storage`]. [`flyball_chart`] renders the charts.

mod annotation;
mod current;
mod definition;
mod digest;
mod discovery;
mod error;
mod history;
mod hooks;
mod install;
mod kinds;
mod lookup;
mod operator;
mod places;
mod record;
mod releases;
mod rendering;
mod resources;
mod rights;
mod selector;
mod source;
mod stages;
mod status;
pub mod storage;
mod verified;
mod watches;

pub use error::{DefinitionError, OperatorError};
pub use operator::operator;
pub use resources::ManifestError;
pub use watches::{Watch, Watches, WatchesError};
