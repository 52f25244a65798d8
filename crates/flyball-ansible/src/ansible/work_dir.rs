//! Working directories of runs, below a folder of this user, each with a lock file that is held by its process.
//!
//! A killed process leaves its folders behind, with data of users and the token of a proxy. Locks end with their
//! processes, also across containers that share the folder, so a free lock means that the folder is unused.
//! Invariant: a folder is created and removed only while its lock is held; links are never followed.

use super::process::kill_marked;
use rustix::process::geteuid;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Once;

/// File extension of locks.
const LOCK: &str = "lock";
/// Random bytes of a name, which are written as hexadecimal digits.
const NAME_BYTES: usize = 16;
/// Attempts to choose a new name if the folder is removed concurrently.
const MAX_TRIES: usize = 10;

/// A working directory locked by this process, removed on drop.
pub(super) struct WorkDir {
    path: PathBuf,
    lock: PathBuf,
    _held: File,
}

impl WorkDir {
    /// Creates the folder of a run. The first call deletes those of dead processes.
    pub(super) fn new() -> io::Result<Self> {
        static SWEPT: Once = Once::new();
        // Other users cannot create files in this folder.
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let runtime = runtime.filter(|path| path.is_absolute() && is_private(path));
        let base = base(&runtime.unwrap_or_else(std::env::temp_dir))?;
        SWEPT.call_once(|| sweep(&base));
        Self::within(&base)
    }

    fn within(base: &Path) -> io::Result<Self> {
        for _ in 0..MAX_TRIES {
            let name = super::random(NAME_BYTES)?;
            let (path, lock) = (base.join(&name), base.join(&name).with_extension(LOCK));
            let lock_file = flyball_files::private(OpenOptions::new().write(true).create_new(true)).open(&lock)?;
            // A concurrent cleanup may have locked the file first, and removed it.
            if lock_file.try_lock().is_ok() && lock_file.metadata()?.nlink() > 0 {
                flyball_files::private_directory().create(&path)?;
                return Ok(Self { path, lock, _held: lock_file });
            }
        }
        Err(io::Error::other(format!("cannot lock a folder below {}", base.display())))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Creates a file that only this user can access.
    pub(super) fn create(&self, name: &str) -> io::Result<File> {
        flyball_files::private(OpenOptions::new().write(true).create_new(true)).open(self.path.join(name))
    }

    /// Creates a file with a text that only this user can access.
    pub(super) fn write(&self, name: &str, text: &str) -> io::Result<()> {
        self.create(name)?.write_all(text.as_bytes())
    }
}

impl Drop for WorkDir {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path).and_then(|()| fs::remove_file(&self.lock)) {
            tracing::warn!(path = %self.path.display(), "cannot remove the folder of a run: {error}");
        }
    }
}

/// Returns this user's folder for the folders of runs: the one with the default name, or, if another user owns that,
/// one with an unpredictable name.
fn base(temporary: &Path) -> io::Result<PathBuf> {
    let name = format!("flyball-ansible-{}", geteuid().as_raw());
    let usual = temporary.join(&name);
    match flyball_files::private_directory().create(&usual) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ if is_private(&usual) => return Ok(usual),
        _ => {}
    }
    // A previous process may have used such a folder as well; its remains are cleaned up.
    let prefix = format!("{name}-");
    let entries = fs::read_dir(temporary).into_iter().flatten().flatten();
    let named = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix));
    if let Some(found) = named.map(|entry| entry.path()).filter(|path| is_private(path)).min() {
        return Ok(found);
    }
    let path = temporary.join(format!("{prefix}{}", super::random(16)?));
    flyball_files::private_directory().create(&path)?;
    Ok(path)
}

/// Returns true if a path is a folder (not a link) that only this user can access.
fn is_private(path: &Path) -> bool {
    let is_ours =
        |found: fs::Metadata| found.is_dir() && found.uid() == geteuid().as_raw() && found.mode() & 0o077 == 0;
    fs::symlink_metadata(path).is_ok_and(is_ours)
}

/// Removes the folders of dead processes, and kills their child processes.
fn sweep(base: &Path) {
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        let lock = entry.path();
        // A password that a task stored has a lock of its own.
        let name = lock.file_stem().and_then(OsStr::to_str).unwrap_or_default();
        if name.len() != 2 * NAME_BYTES || !name.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            continue;
        }
        // Links and files of other users are skipped.
        let is_ours = fs::symlink_metadata(&lock)
            .is_ok_and(|found| found.is_file() && found.uid() == geteuid().as_raw() && found.nlink() == 1);
        if !is_ours || lock.extension().is_none_or(|ending| ending != LOCK) {
            continue;
        }
        let lock_file = File::open(&lock);
        if lock_file.as_ref().is_ok_and(|lock_file| lock_file.try_lock().is_ok()) {
            let folder = lock.with_extension("");
            kill_marked(&folder.display().to_string());
            // A link in place of the folder is removed, not its target.
            let removed = match fs::symlink_metadata(&folder) {
                Ok(found) if found.is_dir() => fs::remove_dir_all(&folder),
                Ok(_) => fs::remove_file(&folder),
                Err(_) => Ok(()),
            };
            match removed.and_then(|()| fs::remove_file(&lock)) {
                Ok(()) => tracing::info!(path = %folder.display(), "removed the folder of a run whose process is dead"),
                Err(error) => tracing::warn!(path = %folder.display(), "cannot remove the folder of a run: {error}"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn temporary(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("flyball-work-dir-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).unwrap();
        folder
    }

    #[test]
    fn folders_of_dead_processes_are_removed() {
        let temporary = temporary("swept");
        let base = base(&temporary).unwrap();
        assert_eq!(fs::metadata(&base).unwrap().mode() & 0o777, 0o700);
        let alive = WorkDir::within(&base).unwrap();
        assert_eq!(fs::metadata(alive.path()).unwrap().mode() & 0o777, 0o700);
        // The remains of a killed process: a free lock, and a folder.
        let precious = temporary.join("precious");
        fs::create_dir(&precious).unwrap();
        fs::write(precious.join("file"), "kept").unwrap();
        let (dead, link) = ("d".repeat(32), "1".repeat(32));
        for (name, is_link) in [(dead.as_str(), false), (link.as_str(), true)] {
            fs::write(base.join(name).with_extension(LOCK), "").unwrap();
            match is_link {
                true => symlink(&precious, base.join(name)).unwrap(),
                false => {
                    fs::create_dir(base.join(name)).unwrap();
                    symlink(&precious, base.join(name).join("link")).unwrap();
                }
            }
        }
        let other = base.join("2".repeat(32)).with_extension(LOCK);
        symlink(precious.join("file"), &other).unwrap();
        // Files with other names are not locks of runs.
        let foreign = [base.join("precious.lock"), base.join("precious"), base.join("..lock")];
        foreign.iter().for_each(|file| fs::write(file, "").unwrap());
        sweep(&base);
        let mut remaining: Vec<_> = fs::read_dir(&base).unwrap().map(|entry| entry.unwrap().path()).collect();
        remaining.sort();
        let mut expected = [&[alive.path.clone(), alive.lock.clone(), other][..], &foreign].concat();
        expected.sort();
        assert_eq!(remaining, expected);
        assert_eq!(fs::read_to_string(precious.join("file")).unwrap(), "kept");
        drop(alive);
        assert_eq!(fs::read_dir(&base).unwrap().count(), 4);
        fs::remove_dir_all(temporary).unwrap();
    }

    #[test]
    fn folder_with_wrong_permissions_is_avoided() {
        let temporary = temporary("taken");
        let usual = base(&temporary).unwrap();
        fs::set_permissions(&usual, fs::Permissions::from_mode(0o755)).unwrap();
        let other = base(&temporary).unwrap();
        assert!(other != usual && is_private(&other));
        fs::remove_dir(&usual).unwrap();
        symlink(&temporary, &usual).unwrap();
        // Folders of dead processes are found again.
        assert_eq!(base(&temporary).unwrap(), other);
        fs::remove_dir(&other).unwrap();
        symlink(&temporary, &other).unwrap();
        let third = base(&temporary).unwrap();
        assert!(third != other && third != usual && WorkDir::within(&third).is_ok());
        fs::remove_dir_all(temporary).unwrap();
    }
}
