//! Helm charts: what `helm template` does, without Helm and without a cluster.
//!
//! A [`Chart`] is opened from a folder or an archive; with [`Values`], a [`Release`] and [`Capabilities`] it renders to
//! [`Rendered`]: manifests in the order in which they are installed, hooks, and notes. Everything here is a function of its
//! arguments: nothing reads a clock, an environment or a network but what is handed in.
//!
//! The measure is Helm 3 itself: `tests/cases` holds charts with what the real Helm says of them, byte for byte.

mod capabilities;
mod chart;
mod operator;
mod release;
mod render;
pub mod storage;
mod values;

pub use capabilities::Capabilities;
pub use chart::{Chart, ChartError, CrdFile, Metadata};
pub use operator::{DefinitionError, ManifestError, OperatorError, Watch, Watches, WatchesError, operator};
pub use release::Release;
pub use render::{DeletePolicy, Hook, HookEvent, Manifest, RenderError, Rendered};
pub use values::{Values, ValuesError};
