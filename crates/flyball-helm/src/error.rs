//! Errors in a project that prevent the creation of its operator.

use flyball_chart::ChartError;
use std::path::PathBuf;

/// Directory of a project with CRDs.
pub(crate) const DEFINITIONS: &str = "config/crd/bases";
/// Files in a directory with CRDs or samples.
pub(crate) const MAX_FILES: usize = 1000;
/// Size limit of each file.
pub(crate) const MAX_FILE_BYTES: u64 = 8 << 20;

/// The error of creating an operator from a project.
#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    /// A chart cannot be loaded.
    #[error("cannot load chart {} of {kind}", chart.display())]
    Chart {
        /// The chart.
        chart: PathBuf,
        /// The kind of its custom resources.
        kind: String,
        /// The cause.
        source: ChartError,
    },
    /// The files of a chart, a CRD or a sample cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// A CRD is not usable.
    #[error(transparent)]
    Definition(#[from] DefinitionError),
    /// A function extends a kind that has no entry.
    #[error("watches.yaml has no entry of kind {kind}, which a function extends")]
    UnknownKind {
        /// The kind.
        kind: String,
    },
}

/// Error in a CRD.
#[derive(Debug, thiserror::Error)]
pub enum DefinitionError {
    /// A file is not valid YAML.
    #[error("{} is not valid YAML: {problem}", file.display())]
    Yaml {
        /// The file.
        file: PathBuf,
        /// The problem and its position.
        problem: String,
    },
    /// A document is not a CRD.
    #[error("{} is not a CustomResourceDefinition: {problem}", file.display())]
    NotADefinition {
        /// The file.
        file: PathBuf,
        /// The problem.
        problem: String,
    },
    /// There are too many files, or a file is too large.
    #[error("{} has more than {MAX_FILES} files, or a file larger than {MAX_FILE_BYTES} bytes", folder.display())]
    TooLarge {
        /// The directory.
        folder: PathBuf,
    },
    /// The CRD of a kind does not have the version in `watches.yaml`.
    #[error(
        "the CustomResourceDefinition of {kind} in {DEFINITIONS} has no version {version} as in watches.yaml; available: {available}"
    )]
    NoVersion {
        /// The kind.
        kind: String,
        /// The version.
        version: String,
        /// Available versions.
        available: String,
    },
    /// The custom resources are cluster-scoped.
    #[error(
        "the CustomResourceDefinition of {kind} has scope Cluster: a release needs the namespace of its custom resource; \
         set scope to Namespaced"
    )]
    ClusterScope {
        /// The kind.
        kind: String,
    },
}
