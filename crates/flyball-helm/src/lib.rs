//! Helm operators on the runtime of [`flyball`].
//!
//! An [`operator()`] is created from a `watches.yaml`, as in operator-sdk: each custom resource becomes a release of
//! a chart. Releases are stored in Helm's format, see [`storage`]. [`flyball_chart`] renders the charts. A [`Builder`]
//! adds functions in Rust.

mod annotation;
mod chunks;
mod crds;
mod current;
mod definition;
mod delete_hooks;
mod digest;
mod discovery;
mod error;
mod extensions;
mod history;
mod hooks;
mod install;
mod isolation;
mod kinds;
mod lookup;
mod operator;
mod rbac;
mod record;
mod redacted;
mod releases;
mod rendering;
mod resources;
mod selector;
mod source;
mod stages;
mod status;
pub mod storage;
mod verified;
mod watches;
mod yaml;

pub use definition::{COLUMNS, Column, printer_column};
pub use error::{DefinitionError, OperatorError};
pub use extensions::HookFuture;
pub use operator::{Builder, definitions_of_charts, operator, unknown_kinds};
pub use resources::ManifestError;
pub use watches::{Watch, Watches, WatchesError};
