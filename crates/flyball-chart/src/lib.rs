//! Helm charts: `helm template` and `helm lint` without Helm, a cluster or I/O while rendering.
//!
//! A [`Chart`] is loaded from a directory or an archive; with [`Values`], a [`Release`] and [`Capabilities`] it renders
//! to [`RenderedChart`]: manifests in installation order, hooks, and notes. Rendering is a pure function: the clock,
//! the seed and the cluster for `lookup` are arguments in [`RenderOptions`].
//!
//! The reference is Helm, 3 or [4](HelmVersion): `tests/cases` contains charts with the output of Helm itself, which
//! this crate reproduces byte for byte. Messages are therefore those of Helm and Go, and this crate has its own YAML
//! reader and writer instead of the workspace's library.
//!
//! No input makes this crate panic or exceed its [`Budget`]: charts, values and stored strings may come from untrusted
//! sources.

mod capabilities;
mod chart;
mod command;
mod context;
mod dates;
mod environment;
mod format;
mod functions;
mod glob;
mod helm;
mod lint;
mod memory;
mod message;
mod number;
mod quote;
mod release;
mod render;
mod seed;
mod semver;
mod template;
mod text;
mod value;
mod values;
mod yaml;

pub use capabilities::Capabilities;
pub use chart::{Chart, ChartError, CrdFile, Dependency, File, ImportValue, Lock, Maintainer, Metadata, SourceFiles};
pub use command::{
    AccessArgs, ChartPathArgs, Cluster, ClusterFlags, LintArgs, LintReport, LintedChart, Output, TemplateArgs,
    ValueArgs, lint, parse_flags, template,
};
pub use context::{Budget, FailedCalls, Guard, Lookup};
pub use environment::expand_variables;
pub use helm::HelmVersion;
pub use lint::{Lint, LintMessage, Severity};
pub use release::Release;
pub use render::{
    DeletePolicy, Header, Hook, HookEvent, Manifest, RenderError, RenderOptions, RenderedChart, is_test_hook,
    outline_difference, override_value,
};
pub use seed::Seed;
pub use semver::{Constraints, Error as ConstraintsError, Version};
pub use values::{ReadFile, Values, ValuesError};
pub use yaml::{BoundedYaml, Error as YamlError, from_yaml, to_yaml};
