//! Folders for what nobody else may read.

use crate::error::{Result, ResultExt};
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// A folder that is only for its owner, and goes when this is dropped.
pub(crate) struct PrivateFolder(PathBuf);

impl PrivateFolder {
    /// Makes one below the folder for temporary files.
    ///
    /// # Errors
    ///
    /// When it cannot be made, or is there already: somebody else may have put it there.
    pub(crate) fn new(name: &str) -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
        let made = DirBuilder::new().recursive(false).mode(0o700).create(&folder);
        made.when(format!("cannot make {}", folder.display()))?;
        Ok(Self(folder))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for PrivateFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
