//! A chart: its metadata, templates, values, files and subcharts.

mod archive;
mod ignore;
mod load;
mod lock;
mod metadata;
pub(crate) mod schema;
mod sources;

pub(crate) use load::message as load_message;
pub use lock::Lock;
pub use metadata::{Dependency, ImportValue, Maintainer, Metadata};
pub use sources::SourceFiles;

use crate::helm::HelmVersion;
use crate::text::lossy;
use serde_json::{Map, Value};
use std::path::Path;
use std::sync::Arc;

/// A loaded chart with its subcharts.
#[derive(Debug, Clone)]
pub struct Chart {
    pub(crate) metadata: Metadata,
    pub(crate) values: Map<String, Value>,
    pub(crate) schema: Option<Arc<[u8]>>,
    /// Files of `templates/`.
    pub(crate) templates: Vec<File>,
    /// Files that are neither templates nor values nor subcharts.
    pub(crate) files: Vec<File>,
    pub(crate) dependencies: Vec<Chart>,
    pub(crate) warnings: Vec<String>,
}

/// A file of a chart, by its path within it.
#[derive(Debug, Clone, PartialEq)]
pub struct File {
    /// Its path.
    pub path: String,
    /// Its content, which copies of the chart and renderings share.
    pub data: Arc<[u8]>,
}

/// A file of a chart's `crds` directory.
#[derive(Debug, Clone, PartialEq)]
pub struct CrdFile {
    /// Its path, such as `chart/crds/a.yaml`.
    pub path: String,
    /// Its text, which may contain several documents.
    pub text: String,
}

/// An error of loading a chart, with Helm's message.
#[derive(Debug, thiserror::Error)]
pub enum ChartError {
    /// The path does not exist.
    #[error("path {0:?} not found")]
    Missing(String),
    /// The directory has no `Chart.yaml` (Helm 4).
    #[error("unable to detect chart at {0}: open {0}: no such file or directory")]
    NoChart(String),
    /// Its `apiVersion` is unknown to Helm 4.
    #[error("unsupported chart version")]
    Version,
    /// A file cannot be read.
    #[error("error reading {path}: {message}")]
    Read {
        /// Path of the file.
        path: String,
        /// Message of the operating system.
        message: String,
    },
    /// A file exceeds the size limit.
    #[error("chart file {path:?} is larger than the maximum file size {bound}")]
    Large {
        /// Path of the file.
        path: String,
        /// Limit in bytes.
        bound: u64,
    },
    /// An archive is invalid, or has invalid content.
    #[error("{0}")]
    Archive(String),
    /// A required file is missing.
    #[error("Chart.yaml file is missing")]
    NoMetadata,
    /// A file has invalid content.
    #[error("cannot load {file}: {message}")]
    File {
        /// `Chart.yaml`, `values.yaml` and similar files.
        file: &'static str,
        /// The problem.
        message: String,
    },
    /// `.helmignore` is invalid.
    #[error("{0}")]
    Ignore(String),
    /// `Chart.yaml` is invalid.
    #[error("validation: {0}")]
    Invalid(String),
    /// A dependency has no form in JSON, so that a lock cannot be compared with it.
    #[error("dependency {name} cannot be encoded: {message}")]
    Dependency {
        /// Its name.
        name: String,
        /// The problem.
        message: String,
    },
    /// A subchart cannot be loaded.
    #[error("error unpacking subchart {name} in {parent}: {message}")]
    Subchart {
        /// Its file or directory.
        name: String,
        /// The parent chart.
        parent: String,
        /// The problem.
        message: String,
    },
}

impl Chart {
    /// Size limit of an archive, and of the files of a chart, in bytes.
    pub const MAX_BYTES: u64 = archive::MAX_CHART_BYTES;

    /// Loads a chart: a directory or a `.tgz`.
    ///
    /// # Errors
    ///
    /// Fails if there is no chart, or it is invalid.
    pub fn open(path: &Path) -> Result<Chart, ChartError> {
        Self::open_as(path, HelmVersion::default())
    }

    /// Returns the files in the directory of a chart that a rendering depends on, for those who watch them for changes:
    /// without those that `.helmignore` excludes. The chart need not be valid.
    pub fn source_files(directory: &Path) -> SourceFiles {
        SourceFiles::of(directory)
    }

    /// Loads a chart as in a version of Helm: with Helm 4, `values.yaml` may have several documents, and an unknown
    /// `apiVersion` is an error.
    ///
    /// # Errors
    ///
    /// See [`Chart::open`].
    pub fn open_as(path: &Path, helm: HelmVersion) -> Result<Chart, ChartError> {
        load::open(path, helm)
    }

    /// Loads a chart from the bytes of a `.tgz`.
    ///
    /// # Errors
    ///
    /// Fails if the bytes are not an archive, or not a chart.
    pub fn from_archive(bytes: &[u8]) -> Result<Chart, ChartError> {
        load::from_archive(bytes, HelmVersion::default())
    }

    /// Reads all files of a chart, a directory or a `.tgz`, except those that `.helmignore` excludes. Paths are
    /// relative to the chart's directory and do not contain `..`.
    ///
    /// # Errors
    ///
    /// Fails if there is no chart, the archive is invalid, or a limit is exceeded.
    pub fn read_files(path: &Path) -> Result<Vec<File>, ChartError> {
        load::read_files(path)
    }

    /// Opens a directory with a chart of any API version.
    pub(crate) fn open_any(path: &Path, helm: HelmVersion) -> Result<Chart, ChartError> {
        load::open_any(path, helm)
    }

    /// Reads all files of a `.tgz`, as [`read_files`](Self::read_files) does.
    ///
    /// # Errors
    ///
    /// If the archive is invalid, or a limit is exceeded.
    pub fn archive_files(bytes: &[u8]) -> Result<Vec<File>, ChartError> {
        archive::files(bytes, &mut archive::ArchiveBudget::new())
    }

    /// Creates a chart of any API version from its files.
    pub(crate) fn from_files(files: Vec<File>, helm: HelmVersion) -> Result<Chart, ChartError> {
        load::from_files(files, helm)
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.metadata.name
    }

    /// Returns the version.
    pub fn version(&self) -> &str {
        &self.metadata.version
    }

    /// Returns the `appVersion`, if `Chart.yaml` has one.
    pub fn app_version(&self) -> Option<&str> {
        Some(self.metadata.app_version.as_str()).filter(|version| !version.is_empty())
    }

    /// Returns `Chart.yaml`.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Returns `values.yaml`. Numbers are floats, as in Helm.
    pub fn values(&self) -> &Map<String, Value> {
        &self.values
    }

    /// Returns `values.schema.json`.
    pub fn schema(&self) -> Option<&[u8]> {
        self.schema.as_deref()
    }

    /// Returns the files of `templates/`.
    pub fn templates(&self) -> &[File] {
        &self.templates
    }

    /// Returns files that are neither templates nor values nor subcharts.
    pub fn files(&self) -> &[File] {
        &self.files
    }

    /// Returns the subcharts.
    pub fn dependencies(&self) -> &[Chart] {
        &self.dependencies
    }

    /// Returns the warnings of loading, as logged by Helm.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Returns the files of `crds/` of the chart and of its subcharts.
    pub fn crds(&self) -> Vec<CrdFile> {
        let mut found = Vec::new();
        self.visit_crds(&mut |path, text| found.push(CrdFile { path: path.to_owned(), text: text.to_owned() }));
        found
    }

    /// Calls a function with the path and the text of each file of `crds/`, without copying them, because these files
    /// can be large.
    pub(crate) fn visit_crds(&self, visit: &mut dyn FnMut(&str, &str)) {
        self.visit_crds_below(self.name(), visit);
    }

    /// Returns the files of `crds/` without those of subcharts.
    pub(crate) fn crd_files(&self) -> impl Iterator<Item = &File> {
        let is_manifest = |path: &str| [".yaml", ".yml", ".json"].iter().any(|end| path.ends_with(end));
        self.files.iter().filter(move |file| file.path.starts_with("crds/") && is_manifest(&file.path))
    }

    fn visit_crds_below(&self, path: &str, visit: &mut dyn FnMut(&str, &str)) {
        for file in self.crd_files() {
            visit(&format!("{path}/{}", file.path), &lossy(&file.data));
        }
        for child in &self.dependencies {
            child.visit_crds_below(&format!("{path}/charts/{}", child.name()), visit);
        }
    }

    /// Fails if subcharts listed in `Chart.yaml` are missing.
    ///
    /// # Errors
    ///
    /// Returns Helm's message about missing subcharts.
    pub fn check_dependencies(&self) -> Result<(), String> {
        self.check_dependencies_as(HelmVersion::default())
    }

    pub(crate) fn check_dependencies_as(&self, helm: HelmVersion) -> Result<(), String> {
        let is_there = |required: &&Dependency| self.dependencies.iter().any(|child| child.name() == required.name);
        let missing: Vec<&str> =
            self.metadata.dependencies.iter().filter(|required| !is_there(required)).map(|d| d.name.as_str()).collect();
        if missing.is_empty() {
            return Ok(());
        }
        Err(format!(
            "{} error occurred while checking for chart dependencies. You may need to run `helm dependency build` to fetch \
             missing dependencies: found in Chart.yaml, but missing in charts/ directory: {}",
            helm.choose("An", "an"),
            missing.join(", ")
        ))
    }
}
