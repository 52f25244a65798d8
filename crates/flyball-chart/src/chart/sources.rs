//! The files of a chart's directory that loading reads, for those who watch them for changes.

use super::ignore::Rules;
use std::fs;
use std::path::{Path, PathBuf};

/// Nesting depth of directories.
const DEPTH: usize = 50;
/// Size limit of a template that is searched.
const MAX_TEMPLATE_BYTES: u64 = 5 << 20;
/// Files that count in every chart, besides directories.
const FILES: [&str; 6] =
    ["Chart.yaml", "Chart.lock", "values.yaml", "values.schema.json", "requirements.yaml", "requirements.lock"];
/// Directories that count in every chart.
const DIRECTORIES: [&str; 3] = ["templates", "crds", "charts"];

/// The files in the directory of a chart that a rendering depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFiles {
    /// Their paths.
    pub files: Vec<PathBuf>,
    /// False if there are more, because the directory exceeds a limit.
    pub is_complete: bool,
}

impl SourceFiles {
    /// Limit of files, and of directories.
    pub const MAX_FILES: usize = 20_000;

    /// Finds the files, and the `.helmignore`. Other files count only if a template uses `.Files`.
    pub(super) fn of(top: &Path) -> Self {
        let ignore_file = top.join(".helmignore");
        let text = fs::read(&ignore_file).unwrap_or_default();
        let rules = Rules::parse(&String::from_utf8_lossy(&text)).unwrap_or_default();
        let mut walk = Walk { rules, found: Vec::new(), ancestors: Vec::new(), directories: 0, is_complete: true };
        walk.enter(top, "");
        let Walk { mut found, is_complete, .. } = walk;
        let uses_files = found.iter().any(|(inner, path)| is_template(inner) && uses_files(path));
        found.retain(|(inner, _)| inner != ".helmignore");
        let counts = |inner: &str| match inner.split_once('/') {
            Some((directory, _)) => DIRECTORIES.contains(&directory),
            None => FILES.contains(&inner),
        };
        let files = found.into_iter().filter(|(inner, _)| uses_files || counts(inner)).map(|(_, path)| path);
        Self { files: files.chain([ignore_file]).collect(), is_complete }
    }
}

/// A walk through a directory. It follows links, as loading does, except those that lead back.
struct Walk {
    rules: Rules,
    /// Files by their paths within the top directory.
    found: Vec<(String, PathBuf)>,
    /// The directories that are being read, without links.
    ancestors: Vec<PathBuf>,
    /// Number of directories that were read.
    directories: usize,
    is_complete: bool,
}

impl Walk {
    /// Reads a directory.
    fn enter(&mut self, folder: &Path, prefix: &str) {
        let target = fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
        if self.ancestors.contains(&target) {
            return;
        }
        if self.ancestors.len() > DEPTH || self.directories >= SourceFiles::MAX_FILES {
            self.is_complete = false;
            return;
        }
        self.directories += 1;
        self.ancestors.push(target);
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let (name, path) = (entry.file_name().to_string_lossy().into_owned(), entry.path());
            let inner = if prefix.is_empty() { name } else { format!("{prefix}/{name}") };
            let is_directory = path.is_dir();
            if self.rules.ignore(&inner, is_directory) {
                continue;
            }
            match is_directory {
                true => self.enter(&path, &inner),
                false if self.found.len() < SourceFiles::MAX_FILES => self.found.push((inner, path)),
                false => self.is_complete = false,
            }
        }
        self.ancestors.pop();
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
            let mut listed: Vec<String> = SourceFiles::of(&top).files.into_iter().map(inner).collect();
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
        assert_eq!(SourceFiles::of(&top), SourceFiles { files: vec![top.join(".helmignore")], is_complete: true });
    }

    #[test]
    #[cfg(unix)]
    fn links_are_followed_once() {
        use std::os::unix::fs::symlink;
        let top = std::env::temp_dir().join(format!("flyball-chart-links-{}", std::process::id()));
        fs::create_dir_all(top.join("templates")).unwrap();
        fs::create_dir_all(top.join("shared")).unwrap();
        fs::write(top.join("shared/page.yaml"), "").unwrap();
        symlink(top.join("shared"), top.join("templates/shared")).unwrap();
        // Two links that lead back would double the directories at each level.
        symlink(&top, top.join("templates/one")).unwrap();
        symlink(top.join("templates"), top.join("templates/two")).unwrap();
        let found = SourceFiles::of(&top);
        assert_eq!(found.files, [top.join("templates/shared/page.yaml"), top.join(".helmignore")]);
        assert!(found.is_complete);
        // Links that lead on double them as well, so the number of directories is bounded.
        for level in 0..20 {
            let (own, next) = (top.join(format!("level-{level}")), top.join(format!("level-{}", level + 1)));
            fs::create_dir_all(&own).unwrap();
            symlink(&next, own.join("one")).unwrap();
            symlink(&next, own.join("two")).unwrap();
        }
        fs::create_dir_all(top.join("level-20")).unwrap();
        let found = SourceFiles::of(&top);
        fs::remove_dir_all(&top).unwrap();
        assert!(!found.is_complete);
    }
}
