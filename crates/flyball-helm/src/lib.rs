//! Helm charts: what `helm template` does, without Helm and without a cluster; and operators that are made of them.
//!
//! A [`Chart`] is opened from a folder or an archive; with [`Values`], a [`Release`] and [`Capabilities`] it renders to
//! [`Rendered`]: manifests in the order in which they are installed, hooks, and notes. Rendering is a function of its
//! arguments: the clock, the seed and the cluster that templates may ask are handed in with [`RenderOptions`].
//!
//! An [`operator()`] is made of a `watches.yaml`, as those of the operator-sdk are: each custom resource becomes a release of a chart, of
//! which is kept what Helm keeps, see [`storage`].
//!
//! The measure is Helm 3 itself: `tests/cases` holds charts with what the real Helm says of them, byte for byte. That is why
//! messages are Helm's and Go's, though this workspace would word them otherwise, and why YAML is read and written here and
//! not by the workspace's library.

mod capabilities;
mod chart;
mod command;
mod functions;
mod glob;
mod operator;
mod release;
mod render;
mod seed;
mod semver;
pub mod storage;
mod template;
mod values;
mod yaml;

pub use capabilities::Capabilities;
pub use chart::{Chart, ChartError, CrdFile, Dependency, ImportValue, Maintainer, Metadata};
pub use command::{Output, TemplateArgs, template};
pub use operator::{DefinitionError, ManifestError, OperatorError, Watch, Watches, WatchesError, operator};
pub use release::Release;
pub use render::{DeletePolicy, Hook, HookEvent, Manifest, RenderError, RenderOptions, Rendered};
pub use seed::Seed;
pub use template::world::{Budget, Guard, Lookup};
pub use values::{ReadFile, Values, ValuesError};
