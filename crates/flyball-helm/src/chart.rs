//! A chart: what it says of itself, its templates, values and subcharts.

use crate::{Capabilities, Release, RenderError, Rendered, Values};
use serde_json::{Map, Value};
use std::path::Path;

/// A loaded chart with its subcharts.
#[derive(Debug, Clone)]
pub struct Chart {
    metadata: Metadata,
    values: Map<String, Value>,
}

/// `Chart.yaml`. See <https://helm.sh/docs/topics/charts/#the-chartyaml-file>.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Metadata {
    /// The name.
    pub name: String,
    /// The version of the chart.
    pub version: String,
    /// The version of what the chart installs.
    pub app_version: String,
}

/// A file of a chart's `crds` folder.
#[derive(Debug, Clone, PartialEq)]
pub struct CrdFile {
    /// Where it is, such as `chart/crds/a.yaml`.
    pub path: String,
    /// What it says; several documents, perhaps.
    pub text: String,
}

/// Why a chart cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum ChartError {
    /// The chart is not as Helm takes it.
    #[error("{0}")]
    Invalid(String),
}

impl Chart {
    /// Opens a chart: a folder or a `.tgz`.
    ///
    /// # Errors
    /// There is no chart, or it is not as Helm takes it.
    pub fn open(_path: &Path) -> Result<Chart, ChartError> {
        Err(ChartError::Invalid("not yet".to_owned()))
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

    /// What `Chart.yaml` says.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// What `values.yaml` says.
    pub fn values(&self) -> &Map<String, Value> {
        &self.values
    }

    /// The files of `crds/`, its own and those of its subcharts.
    pub fn crds(&self) -> Vec<CrdFile> {
        Vec::new()
    }

    /// Renders it, as `helm template` does.
    ///
    /// # Errors
    /// What Helm says: a template that does not parse or fails, values that the schema forbids, output that is not YAML.
    pub fn render(&self, _values: &Values, _release: &Release, _capabilities: &Capabilities) -> Result<Rendered, RenderError> {
        Err(RenderError::Template("not yet".to_owned()))
    }
}
