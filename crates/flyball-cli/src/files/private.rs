//! Folders and files for what nobody else may read.

use crate::error::{Error, Result, ResultExt};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A folder that is only for its owner, and goes when this is dropped. One of a process that was killed goes when the next one of the
/// name is made.
pub(crate) struct PrivateFolder {
    path: PathBuf,
    /// Locked for as long as the folder is in use.
    _lock: File,
}

impl PrivateFolder {
    /// Makes one below the folder for temporary files.
    ///
    /// # Errors
    ///
    /// When it cannot be made, or is there already: somebody else may have put it there.
    pub(crate) fn new(name: &str) -> Result<Self> {
        Self::below(&std::env::temp_dir(), name, std::process::id())
    }

    fn below(folder: &Path, name: &str, pid: u32) -> Result<Self> {
        remove_abandoned(folder, name);
        let path = folder.join(format!("{name}-{pid}"));
        let what = || format!("cannot create {}", path.display());
        DirBuilder::new().recursive(false).mode(0o700).create(&path).when(what())?;
        let lock = File::open(&path).when(what())?;
        lock.try_lock().when(what())?;
        Ok(Self { path, _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for PrivateFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Removes the folders of this user that processes left which were killed: nobody holds their locks.
fn remove_abandoned(folder: &Path, name: &str) {
    let is_ours = |path: &Path| {
        let pid = path.file_name().and_then(|file| file.to_str()?.strip_prefix(name)?.strip_prefix('-'));
        let is_folder = fs::symlink_metadata(path)
            .is_ok_and(|found| found.is_dir() && found.uid() == rustix::process::geteuid().as_raw());
        pid.is_some_and(|pid| pid.parse::<u32>().is_ok()) && is_folder
    };
    for path in
        fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).filter(|path| is_ours(path))
    {
        // One that was made this very moment is not locked yet, and has nothing in it.
        let is_empty = fs::read_dir(&path).is_ok_and(|mut entries| entries.next().is_none());
        if !is_empty && File::open(&path).is_ok_and(|folder| folder.try_lock().is_ok()) {
            let _ = fs::remove_dir_all(&path);
        }
    }
}

/// Returns the folder for what is known of clusters: `$XDG_STATE_HOME/flyball`, else `~/.local/state/flyball`.
pub(crate) fn state_folder() -> Result<PathBuf> {
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let folder = state
        .or_else(|| Some(std::env::home_dir()?.join(".local/state")))
        .ok_or_else(|| Error::new("no home directory found for cluster state").hint("set XDG_STATE_HOME"))?;
    Ok(folder.join("flyball"))
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
    fn what_a_killed_process_left_goes_with_the_next_one() {
        let outer = PrivateFolder::new("flyball-abandoned").unwrap();
        let place = outer.path();
        // As a process leaves it that was killed: locks end with it.
        for name in ["dev-1", "dev-2/deep", "dev-x", "other-3"] {
            fs::create_dir_all(place.join(name)).unwrap();
            fs::write(place.join(name).join("kubeconfig"), "").unwrap();
        }
        symlink(place.join("other-3"), place.join("dev-4")).unwrap();
        let running = PrivateFolder::below(place, "dev", 5).unwrap();
        fs::write(running.path().join("kubeconfig"), "").unwrap();
        // One of its own number that was left is no obstacle either.
        fs::create_dir(place.join("dev-6")).unwrap();
        fs::write(place.join("dev-6/kubeconfig"), "").unwrap();
        let next = PrivateFolder::below(place, "dev", 6).unwrap();
        let mut left: Vec<_> = fs::read_dir(place).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["dev-4", "dev-5", "dev-6", "dev-x", "other-3"]);
        assert!(
            PrivateFolder::below(place, "dev", 5).is_err() && fs::read_dir(place.join("other-3")).unwrap().count() == 1
        );
        drop((running, next));
    }

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
