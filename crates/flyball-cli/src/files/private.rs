//! Private directories and files.

use crate::error::{Error, Result, ResultExt};
use flyball_files::{Durability, Replace};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A private directory, which is removed when this is dropped. The directory of a killed process is removed when the
/// next one of the same name is created.
pub(crate) struct PrivateDirectory {
    path: PathBuf,
    /// Locked for as long as the directory is in use.
    _lock: File,
}

impl PrivateDirectory {
    /// Creates a directory below the one for temporary files.
    ///
    /// # Errors
    ///
    /// If it cannot be created, or exists already: another user may have created it.
    pub(crate) fn new(name: &str) -> Result<Self> {
        Self::below(&std::env::temp_dir(), name, std::process::id())
    }

    fn below(folder: &Path, name: &str, pid: u32) -> Result<Self> {
        remove_abandoned(folder, name);
        let path = folder.join(format!("{name}-{pid}"));
        let what = || format!("cannot create {}", path.display());
        flyball_files::private_directory().create(&path).context(what())?;
        let lock = File::open(&path).context(what())?;
        lock.try_lock().context(what())?;
        Ok(Self { path, _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for PrivateDirectory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Removes the directories of this user's killed processes, whose locks are free.
fn remove_abandoned(folder: &Path, name: &str) {
    let is_ours = |path: &Path| {
        let pid = path.file_name().and_then(|file| file.to_str()?.strip_prefix(name)?.strip_prefix('-'));
        let is_directory = fs::symlink_metadata(path)
            .is_ok_and(|found| found.is_dir() && found.uid() == rustix::process::geteuid().as_raw());
        pid.is_some_and(|pid| pid.parse::<u32>().is_ok()) && is_directory
    };
    for path in
        fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).filter(|path| is_ours(path))
    {
        // A directory that was just created is not locked yet, and is empty.
        let is_empty = fs::read_dir(&path).is_ok_and(|mut entries| entries.next().is_none());
        if !is_empty && File::open(&path).is_ok_and(|folder| folder.try_lock().is_ok()) {
            let _ = fs::remove_dir_all(&path);
        }
    }
}

/// Returns the directory for the state of clusters: `$XDG_STATE_HOME/flyball`, else `~/.local/state/flyball`.
pub(crate) fn state_directory() -> Result<PathBuf> {
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let folder = state
        .or_else(|| Some(std::env::home_dir()?.join(".local/state")))
        .ok_or_else(|| Error::new("no home directory found for cluster state").hint("set XDG_STATE_HOME"))?;
    Ok(folder.join("flyball"))
}

/// Replaces a file that only its owner can read.
pub(crate) fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    Replace { is_private: true, durability: Durability::Content, is_locked: false }.write(path, content)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn folders_of_killed_processes_are_removed() {
        let outer = PrivateDirectory::new("flyball-abandoned").unwrap();
        let place = outer.path();
        // As a process leaves it that was killed: locks end with it.
        for name in ["dev-1", "dev-2/deep", "dev-x", "other-3"] {
            fs::create_dir_all(place.join(name)).unwrap();
            fs::write(place.join(name).join("kubeconfig"), "").unwrap();
        }
        symlink(place.join("other-3"), place.join("dev-4")).unwrap();
        let running = PrivateDirectory::below(place, "dev", 5).unwrap();
        fs::write(running.path().join("kubeconfig"), "").unwrap();
        // A leftover directory with the same number is removed as well.
        fs::create_dir(place.join("dev-6")).unwrap();
        fs::write(place.join("dev-6/kubeconfig"), "").unwrap();
        let next = PrivateDirectory::below(place, "dev", 6).unwrap();
        let mut remaining: Vec<_> = fs::read_dir(place).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        remaining.sort();
        assert_eq!(remaining, ["dev-4", "dev-5", "dev-6", "dev-x", "other-3"]);
        assert!(
            PrivateDirectory::below(place, "dev", 5).is_err()
                && fs::read_dir(place.join("other-3")).unwrap().count() == 1
        );
        drop((running, next));
    }
}
