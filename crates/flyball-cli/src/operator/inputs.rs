//! The files that an operator of charts and roles depends on: a change of any other file restarts nothing.

use crate::files::watcher;
use crate::render::terminal::print_labeled;
use flyball_chart::{Chart, SourceFiles};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::Once;

/// Directories of definitions and samples, which any operator reads.
const DIRECTORIES: [&str; 3] = ["config/crd", "config/samples", "deploy/crds"];
/// Directories beside a `watches.yaml` that only other tools read.
const OTHERS: [&str; 5] = ["bundle", "config", "deploy", "docs", "target"];
/// The same at any place.
const TESTS: [&str; 4] = ["__pycache__", "molecule", "node_modules", "tests"];
/// Directories of roles and playbooks with files of any name.
const CONTENTS: [&str; 2] = ["files", "templates"];

/// Returns the files that a `watches.yaml` with these entries depends on. Charts, roles and playbooks may be elsewhere.
pub(super) fn of_watches(watches: &Path, entries: &[Value]) -> Vec<PathBuf> {
    let folder = watches.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    let named = |field: &'static str| {
        entries.iter().filter_map(move |entry| entry[field].as_str()).map(|named| folder.join(named))
    };
    let mut files = vec![watches.to_owned(), folder.join("PROJECT")];
    for directory in DIRECTORIES.map(|directory| folder.join(directory)) {
        if directory.is_dir() {
            watcher::collect_files(&directory, &mut files);
        }
    }
    let charts: Vec<PathBuf> = named("chart").collect();
    for chart in &charts {
        match chart.is_dir() {
            true => {
                let found = Chart::source_files(chart);
                if !found.is_complete {
                    report_unwatched(chart);
                }
                files.extend(found.files.into_iter().filter(|file| !is_of_editor(file)));
            }
            false => files.push(chart.clone()),
        }
    }
    let runs: Vec<PathBuf> =
        ["role", "playbook"].into_iter().flat_map(named).chain(of_finalizers(entries, folder)).collect();
    if !runs.is_empty() {
        // Roles and playbooks refer to others of the project.
        let mut found = Vec::new();
        watcher::collect_files(folder, &mut found);
        found.retain(|file| is_of_role(file.strip_prefix(folder).unwrap_or(file)));
        // A role may be named by a path outside of the project.
        for run in runs.iter().filter(|run| !found.iter().any(|file| file.starts_with(run))) {
            let mut own = Vec::new();
            watcher::collect_files(run, &mut own);
            files.extend(own.into_iter().filter(|file| is_of_role(file.strip_prefix(run).unwrap_or(file))));
        }
        found.retain(|file| !charts.iter().any(|chart| file.starts_with(chart)));
        files.extend(found);
        files.extend(named("vaultPasswordFile"));
    }
    files.sort();
    files.dedup();
    watcher::remove_outputs(&mut files);
    files
}

/// Prints that not all files of a chart are watched; once, since they are listed again and again.
fn report_unwatched(chart: &Path) {
    static REPORTED: Once = Once::new();
    let (chart, limit) = (chart.display(), SourceFiles::MAX_FILES);
    REPORTED.call_once(|| {
        let note = format!(
            "changes of some files of chart {chart} restart nothing: it has more than {limit} files or directories, or \
             they are nested too deeply; exclude the others by .helmignore"
        );
        print_labeled("note", &note);
    });
}

/// Returns the roles and playbooks of finalizers.
fn of_finalizers(entries: &[Value], folder: &Path) -> Vec<PathBuf> {
    let of = |field: &'static str| entries.iter().filter_map(move |entry| entry["finalizer"][field].as_str());
    of("role").chain(of("playbook")).map(|named| folder.join(named)).collect()
}

fn is_of_editor(file: &Path) -> bool {
    file.file_name().is_some_and(|name| watcher::is_of_editor(&name.to_string_lossy()))
}

/// Returns true if a run may read a file, by its path within the project or the role.
fn is_of_role(file: &Path) -> bool {
    let parts: Vec<String> = file.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    let Some((name, directories)) = parts.split_last() else { return true };
    if directories.first().is_some_and(|first| OTHERS.contains(&first.as_str())) {
        return false;
    }
    for directory in directories.iter().map(String::as_str) {
        if CONTENTS.contains(&directory) {
            return true;
        }
        if TESTS.contains(&directory) {
            return false;
        }
    }
    !is_for_people(name)
}

/// Returns true if a file beside playbooks, roles and their tasks is documentation, or of a tool.
fn is_for_people(name: &str) -> bool {
    const BEGINNINGS: [&str; 7] =
        ["Containerfile", "Dockerfile", "LICENSE", "Makefile", "NOTICE", "README", "justfile"];
    const ENDINGS: [&str; 4] = [".md", ".pyc", ".rst", ".txt"];
    const NAMES: [&str; 2] = ["requirements.yaml", "requirements.yml"];
    BEGINNINGS.iter().any(|beginning| name.starts_with(beginning))
        || ENDINGS.iter().any(|ending| name.ends_with(ending))
        || NAMES.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::fs;

    #[test]
    fn only_files_that_the_operator_reads_are_watched() {
        let folder = std::env::temp_dir().join(format!("flyball-inputs-{}", std::process::id()));
        for path in [
            "watches.yaml",
            "README.md",
            ".git/index",
            ".watches.yaml.swp",
            "watches.yaml~",
            "target/a.yaml",
            "tests/e2e/a/00.yaml",
            "config/crd/bases/a.yaml",
            "config/samples/a.yaml",
            "config/manager/a.yaml",
            "requirements.yml",
            "vars.yml",
            "roles/a/README.md",
            "roles/a/tasks/main.yml",
            "roles/a/tasks/#main.yml#",
            "roles/a/tests/test.yml",
            "roles/a/files/README.md",
            "roles/a/templates/tests/page.j2",
            "roles/other/tasks/main.yml",
            "charts/b/Chart.yaml",
            "charts/b/README.md",
            "charts/b/templates/page.yaml",
            "charts/b/templates/page.yaml~",
            "charts/b/templates/old.txt",
            "charts/unused/Chart.yaml",
        ] {
            let path = folder.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        fs::write(folder.join("charts/b/.helmignore"), "old.*\n").unwrap();
        let files = |entries: &[Value]| {
            let inner = |file: PathBuf| file.strip_prefix(&folder).unwrap().to_string_lossy().into_owned();
            of_watches(&folder.join("watches.yaml"), entries).into_iter().map(inner).collect::<Vec<_>>().join(" ")
        };
        let chart = json!({"chart": "charts/b"});
        assert_eq!(
            files(std::slice::from_ref(&chart)),
            "PROJECT charts/b/.helmignore charts/b/Chart.yaml charts/b/templates/page.yaml config/crd/bases/a.yaml \
             config/samples/a.yaml watches.yaml"
        );
        assert_eq!(
            files(&[chart, json!({"role": "roles/a"})]),
            "PROJECT charts/b/.helmignore charts/b/Chart.yaml charts/b/templates/page.yaml charts/unused/Chart.yaml \
             config/crd/bases/a.yaml config/samples/a.yaml roles/a/files/README.md roles/a/tasks/main.yml \
             roles/a/templates/tests/page.j2 roles/other/tasks/main.yml vars.yml watches.yaml"
        );
        fs::remove_dir_all(&folder).unwrap();
    }
}
