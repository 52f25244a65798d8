//! The data directory: the files of a cluster's objects, keys and certificates.
//!
//! One process at a time holds it, by a lock that the kernel releases when the process ends. Only its owner may access
//! it, since it contains secrets: with write access to it one can issue certificates of administrators. A directory
//! that other users own or may access is rejected, and links in it are not followed. `docs/storage.md` describes its
//! content.

use flyball_files::{Durability, Lock, Replace, sync_parent};
use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The format that this program writes.
const FORMAT: u32 = 1;

/// Bytes that are written after a snapshot before the next one, unless the snapshot is larger.
const COMPACT_AFTER: u64 = 16 << 20;

/// Error of opening a data directory.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    /// An error of the operating system.
    #[error("cannot {what} {path}")]
    Io {
        /// The operation that failed.
        what: &'static str,
        /// The file or directory that it was done to.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// Another process holds it.
    #[error("data directory {path} is in use by {}", process(.pid))]
    InUse {
        /// The directory.
        path: PathBuf,
        /// The process ID, if it is known.
        pid: Option<u32>,
    },
    /// A later release has written it.
    #[error("data directory {path} has format {found}; this release supports formats up to {FORMAT}")]
    Newer {
        /// The directory.
        path: PathBuf,
        /// Its format.
        found: u32,
    },
    /// The directory holds other files.
    #[error("{path} is not empty and is not a data directory")]
    Foreign {
        /// The directory.
        path: PathBuf,
    },
    /// Another user owns it, or a file in it.
    #[error("{path} belongs to user {owner}, and this process runs as user {user}")]
    NotOwned {
        /// The directory or file.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// The user of this process.
        user: u32,
    },
    /// Others than its owner may use it, or a file in it.
    #[error("{path} is accessible to users other than its owner: its mode is {mode:04o}")]
    Exposed {
        /// The directory or file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// A file in it is a link or something else that is not a file.
    #[error("{path} is not a regular file")]
    NotAFile {
        /// The expected directory.
        path: PathBuf,
    },
    /// A file is corrupted.
    #[error("{path} is damaged at byte {at}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The offset of the first invalid byte.
        at: u64,
    },
    /// A file is missing.
    #[error("{path} is missing")]
    Missing {
        /// The file.
        path: PathBuf,
    },
}

fn process(pid: &Option<u32>) -> String {
    pid.map_or_else(|| "another process".into(), |pid| format!("process {pid}"))
}

/// Adds the failed operation and its path to an error.
pub(crate) trait DataDirContext<T> {
    fn during(self, what: &'static str, path: &Path) -> Result<T, DataDirError>;
}

impl<T> DataDirContext<T> for io::Result<T> {
    fn during(self, what: &'static str, path: &Path) -> Result<T, DataDirError> {
        self.map_err(|source| DataDirError::Io { what, path: path.to_owned(), source })
    }
}

/// A data directory that this process has locked. Clones share it; the last one releases it.
#[derive(Clone, Debug)]
pub struct DataDir {
    held: Arc<HeldLock>,
    progress: Progress,
}

#[derive(Debug)]
struct HeldLock {
    path: PathBuf,
    compact_after: u64,
    _lock: Lock,
}

/// A stage of opening a directory, before the server serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OpeningStage {
    /// Reading a snapshot or a log, in bytes.
    Reading,
    /// Compiling the schemas of CRDs.
    Definitions,
    /// Computing the selectable fields of objects.
    Selecting,
}

/// A callback with the stage, its progress and its total.
type Report = dyn Fn(OpeningStage, u64, u64) + Send + Sync;

/// The receiver of the progress of opening a directory, if there is one.
#[derive(Clone, Default)]
pub(crate) struct Progress(Option<Arc<Report>>);

impl Progress {
    pub(crate) fn report(&self, stage: OpeningStage, done: u64, of: u64) {
        if let Some(report) = &self.0 {
            report(stage, done, of);
        }
    }
}

impl std::fmt::Debug for Progress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Progress").field("is_reported", &self.0.is_some()).finish()
    }
}

impl DataDir {
    /// Locks a directory, which is created if it does not exist.
    ///
    /// # Errors
    ///
    /// If it is in use, contains other files, comes from a later release, cannot be written, or is accessible to other
    /// users.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, DataDirError> {
        Self::open_with(path, COMPACT_AFTER)
    }

    /// Opens a directory with the number of written bytes after which a snapshot is made, by default 16 MiB.
    ///
    /// A snapshot is not made before the logs are as large as the last snapshot, so that the directory takes up to
    /// three times the size of the objects.
    ///
    /// # Errors
    ///
    /// As [`DataDir::open`].
    pub fn open_with(path: impl Into<PathBuf>, compact_after: u64) -> Result<Self, DataDirError> {
        let path = path.into();
        if !path.is_dir() {
            let created = private(DirBuilder::new().recursive(true)).create(&path);
            created.and_then(|()| sync_parent(&path)).during("make", &path)?;
        }
        let format = path.join("format");
        let is_new = !format.exists();
        if is_new && !is_fresh(&path)? {
            return Err(DataDirError::Foreign { path });
        }
        check_private(&path, is_new)?;
        let lock = lock(&path)?;
        match fs::read_to_string(&format) {
            Ok(text) => match text.trim().parse::<u32>() {
                Ok(found) if found > FORMAT => return Err(DataDirError::Newer { path, found }),
                Ok(FORMAT) => {}
                _ => return Err(DataDirError::Damaged { path: format, at: 0 }),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                REPLACE.write(&format, format!("{FORMAT}\n")).during("write", &format)?;
            }
            Err(error) => return Err(error).during("read", &format),
        }
        let held = Arc::new(HeldLock { path, compact_after, _lock: lock });
        Ok(Self { held, progress: Progress::default() })
    }

    /// Sets a callback for the progress of a server that opens the directory: the stage, the completed amount, and the
    /// total. The function is called often.
    #[must_use]
    pub fn on_progress(mut self, report: impl Fn(OpeningStage, u64, u64) + Send + Sync + 'static) -> Self {
        self.progress = Progress(Some(Arc::new(report)));
        self
    }

    pub(crate) fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Returns the directory's path.
    pub fn path(&self) -> &Path {
        &self.held.path
    }

    pub(crate) fn compact_after(&self) -> u64 {
        self.held.compact_after
    }

    /// Reads a small file, if it exists.
    ///
    /// # Errors
    ///
    /// If it exists and cannot be read.
    pub fn load(&self, name: &str) -> Result<Option<Vec<u8>>, DataDirError> {
        let path = self.path().join(name);
        match fs::read(&path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).during("read", &path),
        }
    }

    /// Writes a small file atomically; only the owner may read it.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub fn save(&self, name: &str, bytes: &[u8]) -> Result<(), DataDirError> {
        let path = self.path().join(name);
        REPLACE.write(&path, bytes).during("write", &path)
    }
}

/// Returns true if a directory is empty or has only the remains of a failed start.
fn is_fresh(path: &Path) -> Result<bool, DataDirError> {
    for entry in fs::read_dir(path).during("read", path)? {
        let name = entry.during("read", path)?.file_name();
        if !["lock", "format.new", "lost+found"].iter().any(|known| name == *known) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Checks that a directory and all files in it are this user's alone. An empty directory of this user's becomes so.
#[cfg(unix)]
fn check_private(path: &Path, is_new: bool) -> Result<(), DataDirError> {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let check = |path: &Path, metadata: &fs::Metadata| {
        let (owner, user, mode) = (metadata.uid(), rustix::process::geteuid().as_raw(), metadata.mode() & 0o7777);
        if owner != user {
            return Err(DataDirError::NotOwned { path: path.to_owned(), owner, user });
        }
        if mode & 0o077 != 0 {
            return Err(DataDirError::Exposed { path: path.to_owned(), mode });
        }
        Ok(())
    };
    let metadata = fs::metadata(path).during("read", path)?;
    match check(path, &metadata) {
        Err(DataDirError::Exposed { .. }) if is_new => {
            fs::set_permissions(path, fs::Permissions::from_mode(0o700)).during("make private", path)?;
            // Another process may have been faster.
            if !is_fresh(path)? {
                return Err(DataDirError::Foreign { path: path.to_owned() });
            }
        }
        checked => checked?,
    }
    for entry in fs::read_dir(path).during("read", path)? {
        let entry = entry.during("read", path)?;
        if entry.file_name() == "lost+found" {
            continue;
        }
        let (path, metadata) = (entry.path(), entry.metadata().during("read", &entry.path())?);
        if !metadata.is_file() {
            return Err(DataDirError::NotAFile { path });
        }
        check(&path, &metadata)?;
    }
    Ok(())
}

#[cfg(not(unix))]
fn check_private(_: &Path, _: bool) -> Result<(), DataDirError> {
    Ok(())
}

/// Acquires the lock, and writes the process ID into its file.
fn lock(path: &Path) -> Result<Lock, DataDirError> {
    let file = path.join("lock");
    let opened = owned(OpenOptions::new().read(true).write(true).create(true).truncate(false))
        .open(&file)
        .during("write to", path)?;
    let Some(mut lock) = Lock::try_of(opened).during("lock", &file)? else {
        let pid = fs::read_to_string(&file).ok().and_then(|text| text.trim().parse().ok());
        return Err(DataDirError::InUse { path: path.to_owned(), pid });
    };
    lock.write(format!("{}\n", std::process::id())).during("write", &file)?;
    Ok(lock)
}

/// Replaces a file, which is on disk then, and readable by its owner only.
pub(crate) const REPLACE: Replace = Replace { is_private: true, durability: Durability::Name, is_locked: true };

/// Restricts a new file to its owner, and rejects a link.
pub(crate) fn owned(options: &mut OpenOptions) -> &mut OpenOptions {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(options, rustix::fs::OFlags::NOFOLLOW.bits().cast_signed());
    flyball_files::private(options)
}

fn private(builder: &mut DirBuilder) -> &mut DirBuilder {
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(builder, 0o700);
    builder
}
