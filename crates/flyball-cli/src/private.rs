//! Folders and files for what nobody else may read.

use crate::error::{Result, ResultExt};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
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

/// Writes a file that only its owner can read, in one go: whoever reads it finds the old content or the new.
pub(crate) fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".new-{}", std::process::id()));
    let new = path.with_file_name(name);
    let written = create(&new).and_then(|mut file| {
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&new, path)
    });
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written
}

/// Creates a file that is not there. One that a crash left, or a link that somebody else put there, is taken away and never followed.
fn create(path: &Path) -> io::Result<File> {
    let create = || OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    match create() {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => fs::remove_file(path).and_then(|()| create()),
        created => created,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn a_link_at_the_temporary_name_is_not_followed() {
        let folder = PrivateFolder::new("flyball-private").unwrap();
        let (file, victim) = (folder.path().join("config"), folder.path().join("victim"));
        fs::write(&victim, "theirs").unwrap();
        symlink(&victim, folder.path().join(format!("config.new-{}", std::process::id()))).unwrap();
        write(&file, b"ours").unwrap();
        assert_eq!((fs::read(&victim).unwrap(), fs::read(&file).unwrap()), (b"theirs".to_vec(), b"ours".to_vec()));
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
        assert!(write(&folder.path().join("none/config"), b"").is_err());
    }
}
