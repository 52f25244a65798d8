//! Errors of a project that make no operator.

use flyball_chart::ChartError;
use std::path::PathBuf;

/// Folder of a project with CRDs.
pub(crate) const DEFINITIONS: &str = "config/crd/bases";
/// Files in a folder with CRDs or samples.
pub(crate) const MAX_FILES: usize = 1000;
/// Bytes of each file.
pub(crate) const MAX_FILE_BYTES: u64 = 8 << 20;

/// The error of making an operator of a project.
#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    /// A chart cannot be opened.
    #[error("the chart {} of {kind} cannot be opened", chart.display())]
    Chart {
        /// The chart.
        chart: PathBuf,
        /// The kind of the custom resources that it is for.
        kind: String,
        /// Why not.
        source: ChartError,
    },
    /// The files of a chart, a definition or a sample cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A definition is of no use.
    #[error(transparent)]
    Definition(#[from] DefinitionError),
}

/// Why a definition is of no use.
#[derive(Debug, thiserror::Error)]
pub enum DefinitionError {
    /// A file is no YAML.
    #[error("{} is no YAML: {why}", file.display())]
    Yaml {
        /// The file.
        file: PathBuf,
        /// The problem and its position.
        why: String,
    },
    /// A document is no definition.
    #[error("{} is no CustomResourceDefinition: {why}", file.display())]
    NoDefinition {
        /// The file.
        file: PathBuf,
        /// The problem.
        why: String,
    },
    /// There are too many files, or one is too large.
    #[error("{} has more than {MAX_FILES} files, or one larger than {MAX_FILE_BYTES} bytes", folder.display())]
    TooMuch {
        /// The folder.
        folder: PathBuf,
    },
    /// The definition of a kind does not have the version that is asked for.
    #[error(
        "the definition of {kind} in {DEFINITIONS} has no version {version}, which watches.yaml asks for: there is {there}"
    )]
    NoVersion {
        /// The kind.
        kind: String,
        /// The version.
        version: String,
        /// Available versions.
        there: String,
    },
    /// Custom resources live in no namespace.
    #[error(
        "the definition of {kind} has scope Cluster: releases need the namespace of their custom resource, so make it Namespaced"
    )]
    ClusterScope {
        /// The kind.
        kind: String,
    },
}
