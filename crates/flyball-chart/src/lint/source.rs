//! The files of a chart for the rules, from a directory or an archive.

use crate::chart::{Chart, ChartError, File, load_message};
use crate::helm::HelmVersion;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A chart whose files are read individually, even if it cannot be loaded.
pub(crate) struct Source {
    /// The absolute path, for messages.
    pub(super) absolute_path: String,
    files: Files,
}

enum Files {
    Folder(PathBuf),
    Archive(Vec<File>),
}

/// Type of a directory entry.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Entry {
    File,
    Folder,
}

impl Source {
    /// Opens a chart; `path` is relative to a directory.
    ///
    /// # Errors
    ///
    /// Fails if there is no `Chart.yaml`, or the archive cannot be read.
    pub(crate) fn open(folder: &Path, path: &str) -> Result<Source, String> {
        let root = folder.join(path);
        let absolute_path = clean(&std::path::absolute(&root).unwrap_or_else(|_| root.clone())).display().to_string();
        if path.ends_with(".tgz") || path.ends_with(".tar.gz") {
            let bytes = std::fs::read(&root)
                .map_err(|error| format!("unable to open tarball: open {path}: {}", load_message(&error)))?;
            if !bytes.starts_with(&[0x1f, 0x8b]) {
                return Err("unable to extract tarball: gzip: invalid header".to_owned());
            }
            let files = Chart::archive_files(&bytes).map_err(|error| format!("unable to extract tarball: {error}"))?;
            return Ok(Source { absolute_path, files: Files::Archive(files) });
        }
        if let Err(error) = std::fs::metadata(root.join("Chart.yaml")) {
            let chart_file = clean(&Path::new(path).join("Chart.yaml"));
            let message = load_message(&error);
            return Err(format!("unable to check Chart.yaml file in chart: stat {}: {message}", chart_file.display()));
        }
        Ok(Source { absolute_path, files: Files::Folder(root) })
    }

    /// Returns the type of the entry at a path within the chart.
    pub(super) fn entry(&self, path: &str) -> Option<Entry> {
        match &self.files {
            Files::Folder(folder) => {
                let found = std::fs::metadata(folder.join(path)).ok()?;
                Some(if found.is_dir() { Entry::Folder } else { Entry::File })
            }
            Files::Archive(files) => files.iter().find_map(|file| match file.path.strip_prefix(path)? {
                "" => Some(Entry::File),
                rest => rest.starts_with('/').then_some(Entry::Folder),
            }),
        }
    }

    /// Reads a file within the chart.
    ///
    /// # Errors
    ///
    /// Returns Go's message.
    pub(super) fn read(&self, path: &str) -> Result<Arc<[u8]>, String> {
        match &self.files {
            Files::Folder(folder) => std::fs::read(folder.join(path)).map(Arc::from).map_err(|error| {
                let verb = if error.kind() == std::io::ErrorKind::IsADirectory { "read" } else { "open" };
                format!("{verb} {}/{path}: {}", self.absolute_path, load_message(&error))
            }),
            Files::Archive(files) => match files.iter().find(|file| file.path == path) {
                Some(file) => Ok(Arc::clone(&file.data)),
                None => Err(format!("open {}/{path}: no such file or directory", self.absolute_path)),
            },
        }
    }

    /// Loads the whole chart.
    pub(super) fn load(&self, helm: HelmVersion) -> Result<Chart, ChartError> {
        match &self.files {
            Files::Folder(folder) => Chart::open_any(folder, helm),
            Files::Archive(files) => Chart::from_files(files.clone(), helm),
        }
    }
}

/// Go's `filepath.Clean`.
fn clean(path: &Path) -> PathBuf {
    use std::path::Component;
    let mut clean = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if matches!(clean.components().next_back(), Some(Component::Normal(_))) => {
                clean.pop();
            }
            Component::ParentDir if clean.has_root() => {}
            part => clean.push(part),
        }
    }
    clean
}
