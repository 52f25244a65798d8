//! A chart: what it says of itself, its templates, values, files and subcharts.

mod archive;
mod ignore;
mod load;
mod metadata;
pub(crate) mod schema;

pub(crate) use load::message as load_message;
pub use metadata::{Dependency, ImportValue, Maintainer, Metadata};

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

/// A file of a chart's `crds` folder.
#[derive(Debug, Clone, PartialEq)]
pub struct CrdFile {
    /// Its path, such as `chart/crds/a.yaml`.
    pub path: String,
    /// Its text; several documents, perhaps.
    pub text: String,
}

/// Why a chart cannot be loaded. The messages are Helm's.
#[derive(Debug, thiserror::Error)]
pub enum ChartError {
    /// There is nothing at the path.
    #[error("path {0:?} not found")]
    Missing(String),
    /// There is no `Chart.yaml` in a folder that Helm 4 shall open.
    #[error("unable to detect chart at {0}: open {0}: no such file or directory")]
    NoChart(String),
    /// It is of a version that Helm 4 does not know.
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
    /// A file is larger than charts may have.
    #[error("chart file {path:?} is larger than the maximum file size {bound}")]
    Large {
        /// Path of the file.
        path: String,
        /// Limit in bytes.
        bound: u64,
    },
    /// An archive is none, or holds what it must not.
    #[error("{0}")]
    Archive(String),
    /// A file that every chart has is missing.
    #[error("Chart.yaml file is missing")]
    NoMetadata,
    /// A file says something that Helm does not take.
    #[error("cannot load {file}: {message}")]
    File {
        /// `Chart.yaml`, `values.yaml` and their like.
        file: &'static str,
        /// The problem.
        message: String,
    },
    /// `.helmignore` cannot be understood.
    #[error("{0}")]
    Ignore(String),
    /// `Chart.yaml` does not say what it must.
    #[error("validation: {0}")]
    Invalid(String),
    /// A subchart cannot be loaded.
    #[error("error unpacking subchart {name} in {parent}: {message}")]
    Subchart {
        /// Its file or folder.
        name: String,
        /// The chart in which it is.
        parent: String,
        /// The problem.
        message: String,
    },
}

impl Chart {
    /// Opens a chart: a folder or a `.tgz`.
    ///
    /// # Errors
    /// There is no chart, or it is not as Helm takes it.
    pub fn open(path: &Path) -> Result<Chart, ChartError> {
        Self::open_as(path, HelmVersion::default())
    }

    /// Opens a chart as a version of Helm does: to Helm 4, `values.yaml` may be several documents, and not every
    /// `apiVersion` is known.
    ///
    /// # Errors
    /// As [`Chart::open`].
    pub fn open_as(path: &Path, helm: HelmVersion) -> Result<Chart, ChartError> {
        load::open(path, helm)
    }

    /// Reads a chart from the bytes of a `.tgz`.
    ///
    /// # Errors
    /// It is no archive, or no chart.
    pub fn from_archive(bytes: &[u8]) -> Result<Chart, ChartError> {
        load::from_archive(bytes, HelmVersion::default())
    }

    /// Opens a folder, whatever version of charts it is of.
    pub(crate) fn open_any(path: &Path, helm: HelmVersion) -> Result<Chart, ChartError> {
        load::open_any(path, helm)
    }

    /// Reads the files of an archive.
    pub(crate) fn archive_files(bytes: &[u8]) -> Result<Vec<File>, ChartError> {
        archive::files(bytes, &mut archive::Left::new())
    }

    /// Creates a chart from its files, whatever version of charts it is of.
    pub(crate) fn from_files(files: Vec<File>, helm: HelmVersion) -> Result<Chart, ChartError> {
        load::from_files(files, helm)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.metadata.name
    }

    /// Its version.
    pub fn version(&self) -> &str {
        &self.metadata.version
    }

    /// The version of what it installs, if `Chart.yaml` has one.
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

    /// Its `values.schema.json`.
    pub fn schema(&self) -> Option<&[u8]> {
        self.schema.as_deref()
    }

    /// The files of `templates/`.
    pub fn templates(&self) -> &[File] {
        &self.templates
    }

    /// Files that are neither templates nor values nor subcharts.
    pub fn files(&self) -> &[File] {
        &self.files
    }

    /// Its subcharts.
    pub fn dependencies(&self) -> &[Chart] {
        &self.dependencies
    }

    /// Returns the warnings of loading, as Helm logs them.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The files of `crds/`, its own and those of its subcharts.
    pub fn crds(&self) -> Vec<CrdFile> {
        let mut found = Vec::new();
        self.visit_crds(&mut |path, text| found.push(CrdFile { path: path.to_owned(), text: text.to_owned() }));
        found
    }

    /// Calls this with the path and the text of each file of `crds/`, without a copy: such files are the largest that
    /// charts have.
    pub(crate) fn visit_crds(&self, visit: &mut dyn FnMut(&str, &str)) {
        self.visit_crds_below(self.name(), visit);
    }

    /// Its own files of `crds/`.
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

    /// Fails if subcharts that `Chart.yaml` names are missing.
    ///
    /// # Errors
    /// Helm's message about them.
    pub fn check_dependencies(&self) -> Result<(), String> {
        self.check_dependencies_as(HelmVersion::default())
    }

    pub(crate) fn check_dependencies_as(&self, helm: HelmVersion) -> Result<(), String> {
        let is_there = |wanted: &&Dependency| self.dependencies.iter().any(|child| child.name() == wanted.name);
        let missing: Vec<&str> =
            self.metadata.dependencies.iter().filter(|wanted| !is_there(wanted)).map(|d| d.name.as_str()).collect();
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
