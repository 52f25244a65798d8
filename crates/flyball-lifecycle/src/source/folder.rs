//! Folders on disk.

use crate::files::{Files, MAX_FILES, MAX_TOTAL_BYTES, TooManyFiles};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Maximum depth of folders.
const MAX_DEPTH: usize = 32;

/// A folder that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum UnreadableFolder {
    /// A file or folder cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// A name is not UTF-8 text.
    #[error("the name of {} is not UTF-8; rename it", path.display())]
    Name {
        /// The path.
        path: PathBuf,
    },
    /// There are too many files, or they are too large.
    #[error("folder {}: {source}", path.display())]
    TooMany {
        /// The folder.
        path: PathBuf,
        /// The limit.
        source: TooManyFiles,
    },
    /// A symbolic link leaves the folder.
    #[error("{} is a link to {}, which is outside of the folder; copy the file", path.display(), target.display())]
    Link {
        /// The path.
        path: PathBuf,
        /// The target of the link.
        target: PathBuf,
    },
    /// Folders are nested too deeply.
    #[error("{} is nested more than {MAX_DEPTH} levels", path.display())]
    Depth {
        /// The path.
        path: PathBuf,
    },
}

/// Reads the files of a folder. Symbolic links to files of the folder are followed, those to folders are not.
///
/// # Errors
///
/// If a file cannot be read, a link leads to a file outside of the folder, or there are too many files.
pub fn read_folder(folder: &Path) -> Result<Files, UnreadableFolder> {
    let root = folder.canonicalize().map_err(|source| UnreadableFolder::Io { path: folder.to_owned(), source })?;
    let mut files = Files::default();
    add(&root, folder, "", 0, &mut files).map(|()| files)
}

/// Adds the files of a folder below this root.
fn add(root: &Path, folder: &Path, prefix: &str, depth: usize, files: &mut Files) -> Result<(), UnreadableFolder> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        |source| UnreadableFolder::Io { path, source }
    };
    if depth > MAX_DEPTH {
        return Err(UnreadableFolder::Depth { path: folder.to_owned() });
    }
    let too_many = |source| UnreadableFolder::TooMany { path: folder.to_owned(), source };
    for (count, entry) in fs::read_dir(folder).map_err(failed(folder))?.enumerate() {
        if count > MAX_FILES {
            return Err(too_many(TooManyFiles::Count));
        }
        let entry = entry.map_err(failed(folder))?;
        let path = entry.path();
        let name = entry.file_name().into_string().map_err(|_| UnreadableFolder::Name { path: path.clone() })?;
        let file_type = entry.file_type().map_err(failed(&path))?;
        if file_type.is_dir() {
            // Version control is not part of a catalog.
            if name != ".git" {
                add(root, &path, &format!("{prefix}{name}/"), depth + 1, files)?;
            }
            continue;
        }
        let metadata = fs::metadata(&path).map_err(failed(&path))?;
        if metadata.is_file() {
            // The content may be published, or be untrusted.
            let target = path.canonicalize().map_err(failed(&path))?;
            if !target.starts_with(root) {
                return Err(UnreadableFolder::Link { path, target });
            }
            let file = fs::File::open(&path).map_err(failed(&path))?;
            let mut content = Vec::new();
            file.take(MAX_TOTAL_BYTES as u64 + 1).read_to_end(&mut content).map_err(failed(&path))?;
            files.insert(format!("{prefix}{name}"), content).map_err(too_many)?;
        }
    }
    Ok(())
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_lead_to_files_of_the_folder() {
        let parent = std::env::temp_dir().join(format!("flyball-links-{}", std::process::id()));
        let folder = parent.join("catalog");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("a.yaml"), "a").unwrap();
        fs::write(parent.join("secret"), "s").unwrap();
        symlink("a.yaml", folder.join("b.yaml")).unwrap();
        let files = read_folder(&folder).unwrap();
        assert_eq!(files.iter().collect::<Vec<_>>(), [("a.yaml", &b"a"[..]), ("b.yaml", &b"a"[..])]);
        symlink("../secret", folder.join("c.yaml")).unwrap();
        let error = read_folder(&folder).unwrap_err();
        fs::remove_dir_all(&parent).unwrap();
        assert!(matches!(error, UnreadableFolder::Link { .. }), "{error}");
    }
}
