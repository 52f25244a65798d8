//! The chart of a kind: a new one, or a copy of an existing one.

use super::changes::Changes;
use super::schema::DefaultValues;
use super::template::fill;
use super::types::pascal;
use crate::error::{Error, Result, ResultExt};
use flyball_chart::{Chart, File};
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// Directory of the charts of a project.
pub(crate) const CHARTS: &str = "helm-charts";

/// All files of a chart are open while they are written.
const MAX_FILES: usize = 500;

const VALUES: &str = include_str!("../../../templates/helm/chart/values.yaml");

/// Files of a new chart.
const TEMPLATES: [(&str, &str); 8] = [
    ("Chart.yaml", include_str!("../../../templates/helm/chart/Chart.yaml")),
    (".helmignore", include_str!("../../../templates/helm/chart/helmignore")),
    ("values.yaml", VALUES),
    ("templates/_helpers.tpl", include_str!("../../../templates/helm/chart/templates/_helpers.tpl")),
    ("templates/deployment.yaml", include_str!("../../../templates/helm/chart/templates/deployment.yaml")),
    ("templates/service.yaml", include_str!("../../../templates/helm/chart/templates/service.yaml")),
    ("templates/serviceaccount.yaml", include_str!("../../../templates/helm/chart/templates/serviceaccount.yaml")),
    ("templates/NOTES.txt", include_str!("../../../templates/helm/chart/templates/NOTES.txt")),
];

/// Writes the new chart of a kind and returns its values.
pub(crate) fn create(changes: &mut Changes, name: &str, kind: &str, force: bool) -> Result<DefaultValues> {
    let folder = format!("{CHARTS}/{name}");
    if !force && changes.root().join(&folder).exists() {
        return Err(exists(&folder));
    }
    for (path, template) in TEMPLATES {
        let text = fill(template, &[("chart", name), ("kind", kind)]);
        changes.create(&format!("{folder}/{path}"), text, force)?;
    }
    let values = serde_saphyr::from_str(VALUES).context("cannot read the values of the chart")?;
    Ok(DefaultValues { text: VALUES.into(), values, schema: None, is_complete: true })
}

fn exists(folder: &str) -> Error {
    Error::new(format!("{folder} already exists")).hint(format!(
        "nothing was written; overwrite its files with --force, or use the chart as it is: --chart {folder}"
    ))
}

/// A chart that exists.
#[derive(Debug)]
pub(crate) struct ExistingChart {
    pub(crate) name: String,
    path: PathBuf,
    files: Vec<File>,
    values: Map<String, Value>,
    schema: Option<Value>,
}

impl ExistingChart {
    /// Returns the kind of its releases: its name in CamelCase.
    pub(crate) fn kind(&self) -> String {
        pascal(&self.name)
    }

    /// Reads a chart: a directory or a `.tgz`, whose name on the command line messages have.
    ///
    /// # Errors
    ///
    /// If it is none, renders nothing, or lacks subcharts.
    pub(crate) fn open(given: &str, at: &Path) -> Result<Self> {
        let broken = |error: flyball_chart::ChartError| {
            Error::caused(format!("--chart {given}: cannot load the chart"), error)
                .hint("pass a directory with a Chart.yaml, or a .tgz archive of one as made by helm package")
        };
        let chart = Chart::open(at).map_err(broken)?;
        let mut files = Chart::read_files(at).map_err(broken)?;
        // Git would read the settings of a repository from the archive.
        files.retain(|file| !Path::new(&file.path).iter().any(|part| part.eq_ignore_ascii_case(".git")));
        let name = chart.name().to_owned();
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.starts_with(['.', '-']) || !name.chars().all(is_plain) {
            return Err(Error::new(format!("--chart {given}: name {name:?} in Chart.yaml is not a directory name"))
                .hint("rename the chart: use letters, digits and dashes"));
        }
        if chart.metadata().chart_type == "library" {
            return Err(Error::new(format!(
                "--chart {given}: chart {name} has type library in Chart.yaml and renders nothing"
            ))
            .hint("pass a chart of type application that depends on it"));
        }
        let lacks = |error: String| {
            Error::new(format!("--chart {given}: {error}"))
                .hint(format!("download them: flyball helm dependency update {given}"))
        };
        chart.check_dependencies().map_err(lacks)?;
        if files.len() > MAX_FILES {
            return Err(Error::new(format!(
                "--chart {given}: chart {name} has {} files; at most {MAX_FILES} are copied",
                files.len()
            ))
            .hint(format!("copy it to {CHARTS}/{name} yourself, and pass --chart {CHARTS}/{name}")));
        }
        let schema = chart.schema().and_then(|schema| serde_json::from_slice(schema).ok());
        Ok(Self { name, path: at.to_owned(), files, values: chart.values().clone(), schema })
    }

    /// Copies the chart unchanged into the project, unless it exists there, and returns its values.
    pub(crate) fn copy(&self, changes: &mut Changes, force: bool) -> Result<DefaultValues> {
        let folder = format!("{CHARTS}/{}", self.name);
        let target = changes.root().join(&folder);
        let is_there = target.canonicalize().ok().is_some_and(|there| self.path.canonicalize().ok() == Some(there));
        if !is_there {
            if target.exists() {
                self.check_replaceable(&target, &folder, force)?;
            }
            self.files
                .iter()
                .try_for_each(|file| changes.put(&format!("{folder}/{}", file.path), file.data.to_vec()))?;
        }
        let values = self.files.iter().find(|file| file.path == "values.yaml");
        let text = values.map(|file| String::from_utf8_lossy(&file.data).into_owned()).unwrap_or_default();
        Ok(DefaultValues { text, values: self.values.clone(), schema: self.schema.clone(), is_complete: false })
    }

    /// Fails if another chart would remain in parts.
    fn check_replaceable(&self, target: &Path, folder: &str, force: bool) -> Result<()> {
        if !force {
            return Err(exists(folder));
        }
        let old = Chart::read_files(target).context(format!("cannot read {folder}"))?;
        match old.iter().find(|old| !self.files.iter().any(|file| file.path == old.path)) {
            None => Ok(()),
            Some(old) => Err(Error::new(format!("{folder}/{} is not in the new chart", old.path))
                .hint(format!("nothing was written; delete {folder} first"))),
        }
    }
}
