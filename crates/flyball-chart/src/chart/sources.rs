//! The files of a chart's directory that loading reads, for those who watch them for changes.

use super::ignore::Rules;
use std::fs;
use std::path::{Path, PathBuf};

/// Nesting depth of directories.
const DEPTH: usize = 50;
/// Limit of files.
const MAX_FILES: usize = 20_000;
/// Size limit of a template that is searched.
const MAX_TEMPLATE_BYTES: u64 = 5 << 20;
/// Files that count in every chart, besides directories.
const FILES: [&str; 6] =
    ["Chart.yaml", "Chart.lock", "values.yaml", "values.schema.json", "requirements.yaml", "requirements.lock"];
/// Directories that count in every chart.
const DIRECTORIES: [&str; 3] = ["templates", "crds", "charts"];

/// Returns the files in a directory that a rendering depends on, and its `.helmignore`. Other files count only if a
/// template uses `.Files`.
pub(super) fn files(top: &Path) -> Vec<PathBuf> {
    let ignore_file = top.join(".helmignore");
    let text = fs::read(&ignore_file).unwrap_or_default();
    let rules = Rules::parse(&String::from_utf8_lossy(&text)).unwrap_or_default();
    let mut found = Vec::new();
    walk(top, "", &rules, &mut found, 0);
    let uses_files = found.iter().any(|(inner, path)| is_template(inner) && uses_files(path));
    found.retain(|(inner, _)| inner != ".helmignore");
    let counts = |inner: &str| match inner.split_once('/') {
        Some((directory, _)) => DIRECTORIES.contains(&directory),
        None => FILES.contains(&inner),
    };
    let files = found.into_iter().filter(|(inner, _)| uses_files || counts(inner)).map(|(_, path)| path);
    files.chain([ignore_file]).collect()
}

fn walk(folder: &Path, prefix: &str, rules: &Rules, found: &mut Vec<(String, PathBuf)>, depth: usize) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let (name, path) = (entry.file_name().to_string_lossy().into_owned(), entry.path());
        let inner = if prefix.is_empty() { name } else { format!("{prefix}/{name}") };
        // Loading follows links as well, to this depth.
        let is_directory = path.is_dir();
        if found.len() >= MAX_FILES || rules.ignore(&inner, is_directory) {
            continue;
        }
        match is_directory {
            true if depth < DEPTH => walk(&path, &inner, rules, found, depth + 1),
            true => {}
            false => found.push((inner, path)),
        }
    }
}

/// Returns true if a file is a template of the chart or of a subchart. Archives of subcharts have their own files.
fn is_template(inner: &str) -> bool {
    inner.starts_with("templates/") || inner.starts_with("charts/") && inner.contains("/templates/")
}

fn uses_files(template: &Path) -> bool {
    let is_small = fs::metadata(template).is_ok_and(|found| found.len() <= MAX_TEMPLATE_BYTES);
    !is_small || fs::read(template).is_ok_and(|text| text.windows(6).any(|part| part == b".Files"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_count_if_a_rendering_depends_on_them() {
        let top = std::env::temp_dir().join(format!("flyball-chart-sources-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            let path = top.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        for path in ["Chart.yaml", "values.yaml", "README.md", "conf/a.ini", "crds/a.yaml", "x.bak"] {
            write(path, "");
        }
        write("templates/page.yaml", "a: {{ .Values.a }}");
        write("templates/.page.yaml.swp", "");
        write("templates/notes.bak", "");
        write("charts/sub/templates/page.yaml", "");
        write(".helmignore", "*.bak\n");
        let listed = || {
            let inner = |path: PathBuf| path.strip_prefix(&top).unwrap().to_string_lossy().into_owned();
            let mut listed: Vec<String> = files(&top).into_iter().map(inner).collect();
            listed.sort();
            listed.join(" ")
        };
        let always =
            ".helmignore Chart.yaml charts/sub/templates/page.yaml crds/a.yaml templates/page.yaml values.yaml";
        assert_eq!(listed(), always);
        write("templates/page.yaml", "a: {{ .Files.Get \"conf/a.ini\" }}");
        let all = ".helmignore Chart.yaml README.md charts/sub/templates/page.yaml conf/a.ini crds/a.yaml \
                   templates/page.yaml values.yaml";
        assert_eq!(listed(), all);
        fs::remove_dir_all(&top).unwrap();
        assert_eq!(files(&top), [top.join(".helmignore")]);
    }
}
