//! Files of a project of charts or roles, for its image.

use crate::error::{Error, Result, ResultExt};
use crate::files::entries;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

/// Limit of the number of files.
const MAX_FILES: usize = 20_000;
/// Limit of the size of all files together.
const MAX_BYTES: u64 = 256 << 20;
/// Nesting limit of directories.
const MAX_DEPTH: usize = 64;

/// Files and directories of a project that its operator may read, in the layout of operator-sdk and of Ansible. Others,
/// such as a kubeconfig, are not put into an image.
const PARTS: [&str; 24] = [
    "PROJECT",
    "ansible.cfg",
    "charts",
    "collections",
    "config/crd/bases",
    "config/samples",
    "deploy/crds",
    "files",
    "filter_plugins",
    "group_vars",
    "helm-charts",
    "host_vars",
    "library",
    "lookup_plugins",
    "module_utils",
    "playbooks",
    "plugins",
    "requirements.yaml",
    "requirements.yml",
    "roles",
    "tasks",
    "templates",
    "vars",
    "watches.yaml",
];
/// Fields of an entry of watches.yaml with paths.
const PATHS: [&str; 3] = ["chart", "role", "playbook"];

/// A file in an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ImageFile {
    /// Path in the image, without the leading slash.
    pub(crate) path: String,
    pub(crate) is_executable: bool,
    pub(crate) bytes: Vec<u8>,
}

/// Reads the files that the operator of a directory needs, in the order of their paths in the image: the usual ones,
/// and those that the entries of its watches.yaml name. They are placed in a directory of the image.
///
/// # Errors
///
/// If a file cannot be read, is too large, or is outside of the project.
pub(crate) fn project_files(folder: &Path, entries: &[Value], target: &str) -> Result<Vec<ImageFile>> {
    let root = folder.canonicalize().context(format!("cannot read {}", folder.display()))?;
    let mut found = FileCollector { root, files: Vec::new(), bytes: 0 };
    let mut parts: BTreeSet<String> = PARTS.iter().map(|part| (*part).to_owned()).collect();
    for entry in entries {
        for fields in [entry, &entry["finalizer"]] {
            for (field, path) in PATHS.iter().filter_map(|field| Some((*field, fields[*field].as_str()?))) {
                parts.extend(project_path(folder, field, path)?);
            }
        }
    }
    for part in parts.iter().filter(|part| folder.join(part).exists()) {
        found.add(&folder.join(part), &format!("{target}/{part}"), 0)?;
    }
    found.files.sort_by(|one, other| one.path.cmp(&other.path));
    found.files.dedup_by(|one, other| one.path == other.path);
    Ok(found.files)
}

/// Returns the part of the project that a path in watches.yaml names; none if it is a role among the usual parts or in
/// a collection.
fn project_path(folder: &Path, field: &str, path: &str) -> Result<Option<String>> {
    let plain: Option<PathBuf> = Path::new(path)
        .components()
        .filter(|part| *part != Component::CurDir)
        .map(|part| match part {
            Component::Normal(name) => Some(name),
            _ => None,
        })
        .collect();
    match plain {
        Some(plain) if folder.join(&plain).exists() => Ok(plain.to_str().map(str::to_owned)),
        Some(plain) if field == "role" && (folder.join("roles").join(&plain).exists() || path.contains('.')) => {
            Ok(None)
        }
        _ => Err(Error::new(format!(
            "watches.yaml: {field} {path} is outside of the project; the image contains only files of the project"
        ))
        .hint("copy it into the project, and use a path relative to watches.yaml")),
    }
}

struct FileCollector {
    /// The project, with links resolved.
    root: PathBuf,
    files: Vec<ImageFile>,
    bytes: u64,
}

impl FileCollector {
    fn add(&mut self, path: &Path, target: &str, depth: usize) -> Result<()> {
        let what = || format!("cannot read {}", path.display());
        let real = path.canonicalize().context(what())?;
        if !real.starts_with(&self.root) {
            return Err(Error::new(format!("{} is a symbolic link to a file outside of the project", path.display()))
                .hint("copy the file into the project"));
        }
        let metadata = fs::metadata(path).context(what())?;
        if metadata.is_dir() {
            if depth == MAX_DEPTH {
                return Err(Error::new(format!("{} is nested more than {MAX_DEPTH} directories deep", path.display())));
            }
            for name in names(path)? {
                self.add(&path.join(&name), &format!("{target}/{name}"), depth + 1)?;
            }
            return Ok(());
        }
        self.bytes += metadata.len();
        if self.files.len() >= MAX_FILES || self.bytes > MAX_BYTES {
            return Err(Error::new(format!(
                "the project has more than {MAX_FILES} files or {} MiB, at {}",
                MAX_BYTES >> 20,
                path.display()
            ))
            .hint("move files that the operator does not read to another directory"));
        }
        let is_executable = metadata.permissions().mode() & 0o100 != 0;
        self.files.push(ImageFile { path: target.to_owned(), is_executable, bytes: fs::read(path).context(what())? });
        Ok(())
    }
}

/// Returns the names in a directory, without hidden ones, but with `.helmignore`: charts are loaded with it.
fn names(folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for path in entries(folder)? {
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.ok_or_else(|| Error::new(format!("file name {} is not UTF-8", path.display())))?;
        if !name.starts_with('.') || name == ".helmignore" {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::private::PrivateDirectory;
    use serde_json::json;
    use std::os::unix::fs::symlink;

    #[test]
    fn image_has_the_files_that_the_operator_reads() {
        let folder = PrivateDirectory::new("flyball-image-files").unwrap();
        let at = |path: &str| folder.path().join("p").join(path);
        for path in [
            "watches.yaml",
            "kubeconfig",
            "README.md",
            ".git/config",
            "roles/a/tasks/main.yml",
            "charts/a/.helmignore",
            "own/chart/Chart.yaml",
            "own/notes",
            "config/crd/bases/a.yaml",
            "config/manager/manager.yaml",
            "tests/e2e/a/00-install.yaml",
            "Dockerfile",
        ] {
            fs::create_dir_all(at(path).parent().unwrap()).unwrap();
            fs::write(at(path), path).unwrap();
        }
        let of_entries = |entries: Value| {
            let files = project_files(&at(""), entries.as_array().unwrap(), "opt/op");
            files.map(|files| files.into_iter().map(|file| file.path).collect())
        };
        let paths = || of_entries(json!([{"chart": "./own/chart"}, {"role": "a"}, {"role": "acme.site.web"}]));
        let expected: Vec<String> = [
            "charts/a/.helmignore",
            "config/crd/bases/a.yaml",
            "own/chart/Chart.yaml",
            "roles/a/tasks/main.yml",
            "watches.yaml",
        ]
        .map(|path| format!("opt/op/{path}"))
        .into();
        assert_eq!(paths().ok(), Some(expected));
        for entry in [json!({"chart": "../x"}), json!({"finalizer": {"playbook": "/etc/x"}}), json!({"role": "b"})] {
            let error = of_entries(json!([entry])).map(|_: Vec<String>| ()).unwrap_err();
            assert!(error.to_string().contains("is outside of the project"), "{entry}: {error}");
        }
        symlink("/etc/hostname", at("roles/a/files")).unwrap();
        let error = paths().map(|_: Vec<String>| ()).unwrap_err();
        assert!(error.to_string().contains("is a symbolic link to a file outside of the project"), "{error}");
        fs::remove_file(at("roles/a/files")).unwrap();
        symlink("..", at("roles/a/up")).unwrap();
        assert!(paths().is_err());
    }
}
