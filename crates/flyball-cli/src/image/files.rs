//! Files of a project of charts or roles, for its image.

use crate::error::{Error, Result, ResultExt};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Limit of the number of files.
const MAX_FILES: usize = 20_000;
/// Limit of the size of all files together.
const MAX_BYTES: u64 = 256 << 20;
/// Nesting limit of folders.
const MAX_DEPTH: usize = 64;

/// Folders and files at the top of a project that its operator does not read.
const PASSED_OVER: [&str; 8] =
    ["Dockerfile", "Makefile", "bin", "bundle", "bundle.Dockerfile", "molecule", "target", "tests"];
/// The parts of `config` that the operator reads when it starts.
const CONFIG: [&str; 2] = ["crd/bases", "samples"];

/// A file in an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ImageFile {
    /// Path in the image, without the leading slash.
    pub(crate) path: String,
    pub(crate) is_executable: bool,
    pub(crate) bytes: Vec<u8>,
}

/// Reads the files that the operator of a folder needs, in the order of their paths in the image. They are placed in a
/// folder of the image.
///
/// Hidden files, generated manifests, tests and the files of other tools are passed over.
///
/// # Errors
///
/// If a file cannot be read, is too large, or is a link that leads out of the project.
pub(crate) fn of_project(folder: &Path, place: &str) -> Result<Vec<ImageFile>> {
    let root = folder.canonicalize().when(format!("cannot read {}", folder.display()))?;
    let mut found = Found { root, files: Vec::new(), bytes: 0 };
    for name in names(folder)? {
        if name == "config" {
            for part in CONFIG.iter().filter(|part| folder.join("config").join(part).is_dir()) {
                found.add(&folder.join("config").join(part), &format!("{place}/config/{part}"), 0)?;
            }
        } else if !PASSED_OVER.contains(&name.as_str()) && !name.ends_with(".md") {
            found.add(&folder.join(&name), &format!("{place}/{name}"), 0)?;
        }
    }
    found.files.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(found.files)
}

struct Found {
    /// The project, with links resolved.
    root: PathBuf,
    files: Vec<ImageFile>,
    bytes: u64,
}

impl Found {
    fn add(&mut self, path: &Path, place: &str, depth: usize) -> Result<()> {
        let what = || format!("cannot read {}", path.display());
        let real = path.canonicalize().when(what())?;
        if !real.starts_with(&self.root) {
            return Err(Error::new(format!("{} is a link that leads out of the project", path.display()))
                .hint("copy the file into the project"));
        }
        let metadata = fs::metadata(path).when(what())?;
        if metadata.is_dir() {
            if depth == MAX_DEPTH {
                return Err(Error::new(format!("{} is nested more than {MAX_DEPTH} folders deep", path.display())));
            }
            for name in names(path)? {
                self.add(&path.join(&name), &format!("{place}/{name}"), depth + 1)?;
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
            .hint("move what the operator does not read to tests, or out of the project"));
        }
        let is_executable = metadata.permissions().mode() & 0o100 != 0;
        self.files.push(ImageFile { path: place.to_owned(), is_executable, bytes: fs::read(path).when(what())? });
        Ok(())
    }
}

/// Returns the names in a folder, without hidden ones, but with `.helmignore`: charts are loaded with it.
fn names(folder: &Path) -> Result<Vec<String>> {
    let what = || format!("cannot read {}", folder.display());
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).when(what())? {
        let name = entry.when(what())?.file_name();
        let name =
            name.to_str().ok_or_else(|| Error::new(format!("{}: a file name is not UTF-8", folder.display())))?;
        if !name.starts_with('.') || name == ".helmignore" {
            names.push(name.to_owned());
        }
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::private::PrivateFolder;
    use std::os::unix::fs::symlink;

    #[test]
    fn image_has_the_files_that_the_operator_reads() {
        let folder = PrivateFolder::new("flyball-image-files").unwrap();
        let at = |path: &str| folder.path().join("p").join(path);
        for path in [
            "watches.yaml",
            "README.md",
            ".git/config",
            "roles/a/tasks/main.yml",
            "charts/a/.helmignore",
            "config/crd/bases/a.yaml",
            "config/manager/manager.yaml",
            "tests/e2e/a/00-install.yaml",
            "Dockerfile",
        ] {
            fs::create_dir_all(at(path).parent().unwrap()).unwrap();
            fs::write(at(path), path).unwrap();
        }
        let paths = || of_project(&at(""), "opt/op").map(|files| files.into_iter().map(|file| file.path).collect());
        let expected: Vec<String> =
            ["charts/a/.helmignore", "config/crd/bases/a.yaml", "roles/a/tasks/main.yml", "watches.yaml"]
                .map(|path| format!("opt/op/{path}"))
                .into();
        assert_eq!(paths().ok(), Some(expected));
        symlink("/etc/hostname", at("roles/a/files")).unwrap();
        let error = paths().map(|_: Vec<String>| ()).unwrap_err();
        assert!(error.to_string().contains("leads out of the project"), "{error}");
        fs::remove_file(at("roles/a/files")).unwrap();
        symlink("..", at("roles/a/up")).unwrap();
        assert!(paths().is_err());
    }
}
