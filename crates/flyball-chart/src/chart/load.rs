//! Loading of charts: reads the files of a directory or an archive, and creates a chart with its subcharts.

use super::archive::{ArchiveBudget, MAX_CHART_BYTES, MAX_FILE_BYTES, without_mark};
use super::ignore::Rules;
use super::{Chart, ChartError, File, Metadata, archive};
use crate::helm::HelmVersion;
use crate::values;
use crate::yaml;
use serde_json::Map;
use std::collections::BTreeMap;
use std::path::Path;

/// Nesting depth of subcharts and directories.
const DEPTH: usize = 50;

pub(super) fn open(path: &Path, helm: HelmVersion) -> Result<Chart, ChartError> {
    if !is_directory(path)? {
        return from_archive(&archive_bytes(path)?, helm);
    }
    let named = path.join("Chart.yaml");
    if helm == HelmVersion::V4 && !named.exists() {
        let named = std::path::absolute(&named).unwrap_or(named);
        return Err(ChartError::NoChart(named.display().to_string()));
    }
    let files = directory(path)?;
    check_version(&files, helm)?;
    nested(files, 0, &mut ArchiveBudget::new(), helm)
}

/// Reads all files of a chart.
pub(super) fn read_files(path: &Path) -> Result<Vec<File>, ChartError> {
    if is_directory(path)? { directory(path) } else { archive::files(&archive_bytes(path)?, &mut ArchiveBudget::new()) }
}

fn is_directory(path: &Path) -> Result<bool, ChartError> {
    let text = path.display().to_string();
    match std::fs::metadata(path) {
        Ok(found) => Ok(found.is_dir()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(ChartError::Missing(text)),
        Err(error) => Err(ChartError::Read { path: text, message: message(&error) }),
    }
}

/// Reads an archive from a file.
fn archive_bytes(path: &Path) -> Result<Vec<u8>, ChartError> {
    let text = path.display().to_string();
    let read_error = |error: std::io::Error| ChartError::Read { path: text.clone(), message: message(&error) };
    if std::fs::metadata(path).map_err(read_error)?.len() > MAX_CHART_BYTES {
        return Err(ChartError::Large { path: text, bound: MAX_CHART_BYTES });
    }
    let bytes = std::fs::read(path).map_err(read_error)?;
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        let is_yaml = text.ends_with(".yaml") || text.ends_with(".yml");
        return Err(ChartError::Archive(match is_yaml {
            true => format!("file '{text}' seems to be a YAML file, but expected a gzipped archive"),
            false => format!("file '{text}' does not appear to be a gzipped archive; got 'text/plain; charset=utf-8'"),
        }));
    }
    Ok(bytes)
}

/// Creates a chart from an archive.
pub(super) fn from_archive(bytes: &[u8], helm: HelmVersion) -> Result<Chart, ChartError> {
    let mut budget = ArchiveBudget::new();
    let files = archive::files(bytes, &mut budget)?;
    check_version(&files, helm)?;
    nested(files, 0, &mut budget, helm)
}

/// Opens a directory with a chart of any API version.
pub(super) fn open_any(path: &Path, helm: HelmVersion) -> Result<Chart, ChartError> {
    nested(directory(path)?, 0, &mut ArchiveBudget::new(), helm)
}

/// Creates a chart of any API version from its files.
pub(super) fn from_files(files: Vec<File>, helm: HelmVersion) -> Result<Chart, ChartError> {
    nested(files, 0, &mut ArchiveBudget::new(), helm)
}

/// Checks that Helm supports the API version of a chart. Loading finds other errors.
fn check_version(files: &[File], helm: HelmVersion) -> Result<(), ChartError> {
    let is_known = |file: &File| {
        let read = yaml::read(&file.data).and_then(|data| Metadata::of(&data));
        read.map_or(true, |read| matches!(read.api_version.as_str(), "" | "v1" | "v2"))
    };
    match helm == HelmVersion::V3 || files.iter().filter(|file| file.path == "Chart.yaml").all(is_known) {
        true => Ok(()),
        false => Err(ChartError::Version),
    }
}

/// Formats an error of the operating system as Go does.
pub(crate) fn message(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "no such file or directory".to_owned(),
        std::io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        std::io::ErrorKind::IsADirectory => "is a directory".to_owned(),
        _ => error.to_string(),
    }
}

/// Reads a directory, except files that `.helmignore` excludes.
fn directory(top: &Path) -> Result<Vec<File>, ChartError> {
    let rules = match std::fs::read(top.join(".helmignore")) {
        Ok(bytes) => Rules::parse(&String::from_utf8_lossy(&bytes))?,
        Err(_) => Rules::default(),
    };
    let mut files = Vec::new();
    let mut size = 0;
    walk(top, "", &rules, &mut files, &mut size, 0)?;
    Ok(files)
}

fn walk(
    folder: &Path,
    prefix: &str,
    rules: &Rules,
    files: &mut Vec<File>,
    size: &mut u64,
    depth: usize,
) -> Result<(), ChartError> {
    let read_error =
        |path: &str, error: &std::io::Error| ChartError::Read { path: path.to_owned(), message: message(error) };
    if depth > DEPTH {
        return Err(ChartError::Archive(format!("directories are nested deeper than {DEPTH}: {prefix}")));
    }
    let mut entries = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(|error| read_error(prefix, &error))? {
        let entry = entry.map_err(|error| read_error(prefix, &error))?;
        entries.push((entry.file_name().to_string_lossy().into_owned(), entry.path()));
    }
    entries.sort();
    for (name, path) in entries {
        let inner = if prefix.is_empty() { name } else { format!("{prefix}/{name}") };
        let found = std::fs::metadata(&path).map_err(|error| read_error(&inner, &error))?;
        if rules.ignore(&inner, found.is_dir()) {
            continue;
        }
        if found.is_dir() {
            walk(&path, &inner, rules, files, size, depth + 1)?;
            continue;
        }
        if !found.is_file() {
            let path = path.display();
            return Err(ChartError::Archive(format!(
                "cannot load irregular file {path} as it has file mode type bits set"
            )));
        }
        if found.len() > MAX_FILE_BYTES {
            return Err(ChartError::Large { path: inner, bound: MAX_FILE_BYTES });
        }
        *size += found.len();
        if *size > MAX_CHART_BYTES {
            return Err(ChartError::Large { path: inner, bound: MAX_CHART_BYTES });
        }
        let data = std::fs::read(&path).map_err(|error| read_error(&inner, &error))?;
        files.push(File { path: inner, data: without_mark(&data) });
    }
    Ok(())
}

/// Creates a chart from files, by their paths within it.
fn nested(files: Vec<File>, depth: usize, budget: &mut ArchiveBudget, helm: HelmVersion) -> Result<Chart, ChartError> {
    if depth > DEPTH {
        return Err(ChartError::Archive(format!("subcharts are nested deeper than {DEPTH}")));
    }
    let problem = |file, error: yaml::Error| ChartError::File { file, message: error.to_string() };
    let mut metadata = None;
    for file in files.iter().filter(|file| file.path == "Chart.yaml") {
        let mut read = Metadata::default();
        yaml::read(&file.data).and_then(|data| read.read(&data)).map_err(|error| problem("Chart.yaml", error))?;
        if read.api_version.is_empty() {
            "v1".clone_into(&mut read.api_version);
        }
        metadata = Some(read);
    }
    let mut chart = Chart {
        metadata: metadata.clone().unwrap_or_default(),
        values: Map::new(),
        schema: None,
        templates: Vec::new(),
        files: Vec::new(),
        dependencies: Vec::new(),
        warnings: Vec::new(),
    };
    let mut subcharts: BTreeMap<String, Vec<File>> = BTreeMap::new();
    for file in files {
        match file.path.as_str() {
            "Chart.yaml" | "Chart.lock" => {}
            "values.yaml" => {
                chart.values = values::read(&file.data, helm)
                    .map_err(|message| ChartError::File { file: "values.yaml", message })?;
            }
            "values.schema.json" => chart.schema = Some(file.data),
            "requirements.yaml" => {
                let data = yaml::read(&file.data).map_err(|error| problem("requirements.yaml", error))?;
                chart.metadata.read(&data).map_err(|error| problem("requirements.yaml", error))?;
                if chart.metadata.api_version == "v1" {
                    chart.files.push(file);
                } else {
                    chart.warnings.push("Warning: Dependencies are handled in Chart.yaml since apiVersion \"v2\". We recommend migrating dependencies to Chart.yaml.".to_owned());
                }
            }
            "requirements.lock" if chart.metadata.api_version == "v1" => chart.files.push(file),
            "requirements.lock" => {}
            path if path.starts_with("templates/") => chart.templates.push(file),
            path => match path.strip_prefix("charts/") {
                Some(_) if path.ends_with(".prov") => chart.files.push(file),
                Some(inner) => {
                    let name = inner.split('/').next().unwrap_or(inner).to_owned();
                    let inner = inner.to_owned();
                    subcharts.entry(name).or_default().push(File { path: inner, data: file.data });
                }
                None => chart.files.push(file),
            },
        }
    }
    if metadata.is_none() {
        return Err(ChartError::NoMetadata);
    }
    chart.metadata.validate()?;
    for (name, files) in subcharts {
        if name.starts_with(['_', '.']) {
            continue;
        }
        let parent = chart.name().to_owned();
        let loaded = subchart(&name, files, &parent, (depth, helm), budget);
        chart.dependencies.push(loaded.map_err(|error| ChartError::Subchart {
            name,
            parent,
            message: error.to_string(),
        })?);
    }
    Ok(chart)
}

fn subchart(
    name: &str,
    files: Vec<File>,
    parent: &str,
    (depth, helm): (usize, HelmVersion),
    budget: &mut ArchiveBudget,
) -> Result<Chart, ChartError> {
    if name.ends_with(".tgz") {
        return match files.first() {
            Some(file) if file.path == name => nested(archive::files(&file.data, budget)?, depth + 1, budget, helm),
            file => Err(ChartError::Archive(format!(
                "error unpacking subchart tar in {parent}: expected {name}, got {}",
                file.map_or("nothing", |file| file.path.as_str())
            ))),
        };
    }
    let inner = |file: File| {
        let (_, path) = file.path.split_once('/')?;
        Some(File { path: path.to_owned(), data: file.data })
    };
    nested(files.into_iter().filter_map(inner).collect(), depth + 1, budget, helm)
}
