//! Files that are replaced atomically, private to their owner, or locks.
//!
//! Readers of a replaced file see either the old or the new content, optionally also after a crash. The new content is
//! written to a temporary file in the same directory, which is then renamed. This crate does not depend on the content
//! of the files, and never follows a link at the temporary name.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Seek, Write};
use std::path::{Path, PathBuf};

/// The time at which the new content is synced to disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    /// Not synced explicitly: a crash of the machine may leave an empty file.
    #[default]
    Cached,
    /// Before the file is renamed: after a crash, the file has either the old or the new content.
    Content,
    /// Before the call returns: after a crash, the file has the new content.
    Name,
}

/// Options for replacing a file.
#[derive(Clone, Copy, Debug, Default)]
pub struct Replace {
    /// Only the owner can read and write the new file. Otherwise it has the permissions of the old file, or default
    /// permissions if there is none.
    pub is_private: bool,
    /// The time at which the new content is synced to disk.
    pub durability: Durability,
    /// The caller holds a lock that prevents other processes from replacing the file at the same time. The temporary
    /// file is then named `<name>.new`, and the next replacement removes a file that a crash left.
    pub is_locked: bool,
}

impl Replace {
    /// Replaces the content of a file.
    ///
    /// # Errors
    ///
    /// Fails if the new content cannot be written; the old content remains.
    pub fn write(self, path: &Path, content: impl AsRef<[u8]>) -> io::Result<()> {
        let mut staged = self.stage(path)?;
        staged.write_all(content.as_ref())?;
        staged.commit()
    }

    /// Starts a replacement whose content is written incrementally.
    ///
    /// # Errors
    ///
    /// Fails if no file can be created in the same directory.
    pub fn stage(self, path: &Path) -> io::Result<StagedFile> {
        let mut name = path.as_os_str().to_owned();
        name.push(".new");
        if !self.is_locked {
            name.push(format!("-{}", std::process::id()));
        }
        let new = PathBuf::from(name);
        let file = if self.is_private { create_private(&new)? } else { create(&new, &mut OpenOptions::new())? };
        let staged = StagedFile { path: path.to_owned(), new, file, durability: self.durability, is_done: false };
        if !self.is_private {
            match fs::metadata(path) {
                Ok(old) => staged.file.set_permissions(old.permissions())?,
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(staged)
    }
}

/// New content of a file. If dropped without a commit, the file remains unchanged.
#[derive(Debug)]
pub struct StagedFile {
    path: PathBuf,
    new: PathBuf,
    file: File,
    durability: Durability,
    is_done: bool,
}

impl StagedFile {
    /// Replaces the old content by the new one.
    ///
    /// # Errors
    ///
    /// Fails if the content cannot be synced, or the file cannot be renamed.
    pub fn commit(mut self) -> io::Result<()> {
        if self.durability >= Durability::Content {
            self.file.sync_all()?;
        }
        fs::rename(&self.new, &self.path)?;
        self.is_done = true;
        if self.durability >= Durability::Name { sync_parent(&self.path) } else { Ok(()) }
    }
}

impl Write for StagedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for StagedFile {
    fn drop(&mut self) {
        if !self.is_done {
            let _ = fs::remove_file(&self.new);
        }
    }
}

/// Syncs the directory of a file to disk.
///
/// # Errors
///
/// Fails if the directory cannot be opened or synced.
pub fn sync_parent(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(folder) if cfg!(unix) => {
            File::open(if folder.as_os_str().is_empty() { Path::new(".") } else { folder })?.sync_all()
        }
        _ => Ok(()),
    }
}

/// Creates a file that only its owner can read and write, and replaces an existing one.
///
/// # Errors
///
/// Fails if an existing file cannot be removed, or the new one cannot be created.
pub fn create_private(path: &Path) -> io::Result<File> {
    create(path, private(&mut OpenOptions::new()))
}

/// Restricts a file that these options create to its owner: only they can read and write it.
///
/// An existing file keeps its permissions.
pub fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    options
}

/// Returns a builder of directories that only their owner can access.
///
/// An existing directory keeps its permissions.
pub fn private_directory() -> DirBuilder {
    #[cfg_attr(not(unix), expect(unused_mut, reason = "other systems have no modes"))]
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder
}

/// The held lock of a file. It is released when this is dropped, or the process ends.
///
/// Closing the file would not be enough: a child process that has been forked and does not run its program yet holds it
/// as well.
#[derive(Debug)]
pub struct Lock(File);

impl Lock {
    /// Acquires the lock of an open file; `None` if it is held already.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be locked.
    pub fn try_of(file: File) -> io::Result<Option<Self>> {
        match file.try_lock() {
            Ok(()) => Ok(Some(Self(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Replaces the content of the file.
    ///
    /// # Errors
    ///
    /// Fails if the file was not opened for writing, or cannot be written.
    pub fn write(&mut self, content: impl AsRef<[u8]>) -> io::Result<()> {
        self.0.set_len(0)?;
        self.0.rewind()?;
        self.0.write_all(content.as_ref())
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

/// Acquires the lock of a private file, which is created if it does not exist; `None` if it is held already.
///
/// The file remains when the lock is released.
///
/// # Errors
///
/// Fails if the file cannot be created or locked.
pub fn try_lock(path: &Path) -> io::Result<Option<Lock>> {
    Lock::try_of(private(OpenOptions::new().write(true).create(true).truncate(false)).open(path)?)
}

/// Creates a new file: an existing link is removed, and not followed.
fn create(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => options.write(true).create_new(true).open(path),
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("flyball-files-{}-{name}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir(&path).unwrap();
            Self(path)
        }

        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
            let mut names: Vec<String> = entries.collect();
            names.sort();
            names
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn replaced_file_keeps_its_permissions_unless_private() {
        let folder = Folder::new("permissions");
        let file = folder.0.join("f");
        let private = Replace { is_private: true, durability: Durability::Name, is_locked: true };
        private.write(&file, "one").unwrap();
        assert_eq!((fs::read_to_string(&file).unwrap().as_str(), mode(&file)), ("one", 0o600));
        fs::set_permissions(&file, fs::Permissions::from_mode(0o751)).unwrap();
        Replace::default().write(&file, "two").unwrap();
        assert_eq!((fs::read_to_string(&file).unwrap().as_str(), mode(&file)), ("two", 0o751));
        private.write(&file, "three").unwrap();
        assert_eq!((fs::read_to_string(&file).unwrap().as_str(), mode(&file)), ("three", 0o600));
        assert_eq!(folder.names(), ["f"]);
    }

    #[test]
    fn private_files_and_directories_are_those_of_their_owner() {
        let folder = Folder::new("private");
        private_directory().recursive(true).create(folder.0.join("a/b")).unwrap();
        assert_eq!((mode(&folder.0.join("a")), mode(&folder.0.join("a/b"))), (0o700, 0o700));
        assert!(private_directory().create(folder.0.join("a")).is_err(), "it exists");
        let lock = folder.0.join("lock");
        let held = try_lock(&lock).unwrap().expect("it is free");
        assert_eq!(mode(&lock), 0o600);
        assert!(try_lock(&lock).unwrap().is_none());
        let forked = held.0.try_clone().unwrap();
        drop(held);
        assert!(try_lock(&lock).unwrap().is_some());
        drop(forked);
        assert!(try_lock(&folder.0.join("none/lock")).is_err());
    }

    #[test]
    fn uncommitted_replacement_keeps_the_old_content() {
        let folder = Folder::new("uncommitted");
        let file = folder.0.join("f");
        fs::write(&file, "old").unwrap();
        let mut staged = Replace::default().stage(&file).unwrap();
        staged.write_all(b"ne").unwrap();
        assert_eq!(folder.names().len(), 2);
        drop(staged);
        assert_eq!((folder.names(), fs::read_to_string(&file).unwrap()), (vec!["f".to_owned()], "old".to_owned()));
        fs::create_dir(folder.0.join("d")).unwrap();
        assert!(Replace::default().write(&folder.0.join("d"), "").is_err());
        assert!(Replace::default().write(&folder.0.join("none/f"), "").is_err());
        assert_eq!(folder.names(), ["d", "f"]);
    }

    #[test]
    fn link_at_the_temporary_name_is_removed_and_not_followed() {
        let folder = Folder::new("link");
        let (file, victim) = (folder.0.join("f"), folder.0.join("victim"));
        fs::write(&victim, "theirs").unwrap();
        for (is_locked, new) in [(true, "f.new".to_owned()), (false, format!("f.new-{}", std::process::id()))] {
            symlink(&victim, folder.0.join(new)).unwrap();
            Replace { is_locked, ..Replace::default() }.write(&file, "ours").unwrap();
            assert_eq!(fs::read_to_string(&victim).unwrap(), "theirs");
            assert_eq!(folder.names(), ["f", "victim"]);
        }
    }
}
