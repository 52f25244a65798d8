//! Files of a folder, read into memory: catalogs and bundles from folders and images have the same form.

use std::collections::BTreeMap;

/// Maximum size of all files together, in bytes.
pub(crate) const MAX_TOTAL_BYTES: usize = 1 << 30;
/// Maximum size of the files of a bundle, in bytes.
pub(crate) const MAX_BUNDLE_BYTES: usize = 32 << 20;
/// Maximum number of files.
pub(crate) const MAX_FILES: usize = 100_000;

/// A folder with more content than is read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TooManyFiles {
    /// The files are too large.
    #[error("the files have more than {max} bytes")]
    Size {
        /// The limit.
        max: usize,
    },
    /// There are too many files.
    #[error("there are more than {MAX_FILES} files")]
    Count,
}

/// The files of a folder, by path. Paths are relative and separated by slashes.
#[derive(Clone, Debug)]
pub struct Files {
    files: BTreeMap<String, Vec<u8>>,
    bytes: usize,
    max_bytes: usize,
}

impl Default for Files {
    fn default() -> Self {
        Self::with_max_bytes(MAX_TOTAL_BYTES)
    }
}

impl Files {
    /// Creates files with a limit of their size.
    pub(crate) fn with_max_bytes(max_bytes: usize) -> Self {
        Self { files: BTreeMap::new(), bytes: 0, max_bytes }
    }

    /// Returns the limit of the size of all files.
    pub(crate) fn max_bytes(&self) -> usize {
        self.max_bytes
    }

    /// Adds a file; a file that has this path already is replaced.
    ///
    /// # Errors
    ///
    /// If there are too many files, or they are too large.
    pub fn insert(&mut self, path: impl Into<String>, content: Vec<u8>) -> Result<(), TooManyFiles> {
        self.bytes += content.len();
        if self.bytes > self.max_bytes {
            return Err(TooManyFiles::Size { max: self.max_bytes });
        }
        let replaced = self.files.insert(path.into(), content);
        self.bytes -= replaced.map_or(0, |file| file.len());
        if self.files.len() > MAX_FILES { Err(TooManyFiles::Count) } else { Ok(()) }
    }

    /// Removes a file, or all files of a folder.
    pub fn remove(&mut self, path: &str) {
        let folder = format!("{path}/");
        self.files.retain(|file, content| {
            let is_kept = file != path && !file.starts_with(&folder);
            self.bytes -= if is_kept { 0 } else { content.len() };
            is_kept
        });
    }

    /// Returns the content of a file.
    pub fn get(&self, path: &str) -> Option<&[u8]> {
        self.files.get(path).map(Vec::as_slice)
    }

    /// Returns true if there are no files.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Returns the files, by path.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.files.iter().map(|(path, content)| (path.as_str(), content.as_slice()))
    }

    /// Returns the files below a folder, with their paths in it.
    #[must_use]
    pub fn below(&self, folder: &str) -> Self {
        let folder = folder.trim_matches('/');
        let prefix = if folder.is_empty() { String::new() } else { format!("{folder}/") };
        let mut below = Self::with_max_bytes(self.max_bytes);
        for (path, content) in &self.files {
            if let Some(path) = path.strip_prefix(&prefix) {
                below.bytes += content.len();
                below.files.insert(path.to_owned(), content.clone());
            }
        }
        below
    }

    /// Returns the files below a folder as [`below`](Self::below) does, without a copy of their contents.
    #[must_use]
    pub fn into_below(self, folder: &str) -> Self {
        let folder = folder.trim_matches('/');
        let prefix = if folder.is_empty() { String::new() } else { format!("{folder}/") };
        let mut below = Self::with_max_bytes(self.max_bytes);
        for (path, content) in self.files {
            if let Some(path) = path.strip_prefix(&prefix) {
                below.bytes += content.len();
                below.files.insert(path.to_owned(), content);
            }
        }
        below
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_below_folders() {
        let mut files = Files::default();
        for path in ["a/b.yaml", "a/c/d.yaml", "ab.yaml"] {
            files.insert(path, path.as_bytes().to_vec()).unwrap();
        }
        let below: Vec<_> = files.below("/a/").iter().map(|(path, _)| path.to_owned()).collect();
        assert_eq!(below, ["b.yaml", "c/d.yaml"]);
        assert_eq!(files.below("").iter().count(), 3);
        assert_eq!(files.clone().into_below("a").get("c/d.yaml"), Some(&b"a/c/d.yaml"[..]));
        files.remove("a");
        assert_eq!(files.iter().map(|(path, _)| path).collect::<Vec<_>>(), ["ab.yaml"]);
        assert_eq!(files.bytes, "ab.yaml".len());
    }

    #[test]
    fn size_is_bounded() {
        let mut files = Files::with_max_bytes(1);
        assert_eq!(files.insert("a", vec![0]), Ok(()));
        assert_eq!(files.insert("b", vec![0]), Err(TooManyFiles::Size { max: 1 }));
    }
}
