//! The table of `helm dependency list`.

use crate::chart::range::Range;
use crate::error::{Result, ResultExt};
use crate::files::entries;
use flyball_chart::{Chart, Dependency, Version};
use std::path::{Path, PathBuf};

const HEADER: [&str; 4] = ["NAME", "VERSION", "REPOSITORY", "STATUS"];

/// Returns the table of the subcharts of a chart, with their status. Columns are cut to this width.
///
/// # Errors
///
/// If there is no chart.
pub(crate) fn list(path: &Path, max_width: usize) -> Result<String> {
    let chart = Chart::open(path).context(format!("cannot load the chart in {}", path.display()))?;
    // Paths are shown without `./`.
    let charts = path.strip_prefix(".").unwrap_or(path).join("charts");
    let required = &chart.metadata().dependencies;
    if required.is_empty() {
        return Ok(format!("WARNING: no dependencies at {}\n", charts.display()));
    }
    let vendored = entries(&charts)?;
    let row = |dependency: &Dependency| {
        let Dependency { name, version, repository, .. } = dependency;
        [name.clone(), version.clone(), repository.clone(), status(&vendored, dependency, &chart).to_owned()]
    };
    let mut rows = vec![HEADER.map(str::to_owned)];
    rows.extend(required.iter().map(row));
    let mut text = table(&rows, max_width) + "\n";
    for path in vendored.iter().filter(|path| path.is_dir() || is_archive(path)) {
        let shown = path.display().to_string();
        match Chart::open(path) {
            Err(_) => text.push_str(&format!("WARNING: {shown:?} is not a chart.\n")),
            Ok(found) if required.iter().all(|one| one.name != found.name()) => {
                text.push_str(&format!("WARNING: {shown:?} is not in Chart.yaml.\n"));
            }
            Ok(_) => {}
        }
    }
    Ok(text)
}

/// Formats rows with columns of the same width, separated by tabs.
fn table(rows: &[[String; 4]], max_width: usize) -> String {
    let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0).min(max_width);
    let cell = |text: &str, width: usize| match text.chars().count() {
        length if length <= width => format!("{text}{}", " ".repeat(width - length)),
        _ if width <= 3 => text.chars().take(width).collect(),
        _ => text.chars().take(width - 3).chain("...".chars()).collect(),
    };
    let line = |row: &[String; 4]| {
        let cells: Vec<String> = row.iter().enumerate().map(|(at, text)| cell(text, width(at))).collect();
        cells.join("\t") + "\n"
    };
    rows.iter().map(line).collect()
}

/// Returns the status of a subchart, in the words of Helm.
fn status(vendored: &[PathBuf], dependency: &Dependency, parent: &Chart) -> &'static str {
    let prefix = format!("{}-", dependency.name);
    let version = |path: &PathBuf| {
        let name = path.file_name()?.to_str()?;
        name.strip_prefix(&prefix)?.strip_suffix(".tgz").map(str::to_owned)
    };
    let mut archives: Vec<&PathBuf> = vendored.iter().filter(|path| version(path).is_some()).collect();
    if archives.len() > 1 {
        let is_version = |text: &String| Version::parse(text).is_ok_and(|version| version.to_string() == **text);
        archives.retain(|path| version(path).as_ref().is_some_and(is_version));
        if archives.len() > 1 {
            return "too many matches";
        }
    }
    if let Some(archive) = archives.first() {
        return match Chart::open(archive) {
            Err(_) => "corrupt",
            Ok(chart) if chart.name() != dependency.name => "misnamed",
            Ok(chart) => mismatch(&chart, dependency).unwrap_or("ok"),
        };
    }
    match parent.dependencies().iter().find(|chart| chart.name() == dependency.name) {
        None => "missing",
        Some(chart) => mismatch(chart, dependency).unwrap_or("unpacked"),
    }
}

fn mismatch(chart: &Chart, dependency: &Dependency) -> Option<&'static str> {
    match Range::parse(&dependency.version) {
        _ if chart.version() == dependency.version => None,
        Err(_) => Some("invalid version"),
        Ok(range) => (!range.allows(chart.version())).then_some("wrong version"),
    }
}

fn is_archive(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "tgz")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_cut() {
        let row = |text: &str| [text.to_owned(), "1".into(), String::new(), "ok".into()];
        assert_eq!(table(&[row("abcdefgh"), row("ab")], 6), "abc...\t1\t\tok\nab    \t1\t\tok\n");
    }
}
