//! Permissions of the data directory: the history of all namespaces is readable by its owner only.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::path::Path;

/// Creates a directory and the file of a database in it, which only their owner can read.
///
/// SQLite gives its further files the permissions of the database. An existing directory keeps its permissions, since
/// it may be the root of a volume; files of an earlier version are restricted.
pub(super) fn create(directory: &Path, file: &str) -> io::Result<()> {
    create_directory(directory)?;
    let database = directory.join(file);
    flyball_files::private(OpenOptions::new().append(true).create(true)).open(&database)?;
    for suffix in ["", "-wal", "-shm"] {
        restrict(&directory.join(format!("{file}{suffix}")))?;
    }
    Ok(())
}

/// Creates a directory that only its owner can read, if it does not exist.
pub(super) fn create_directory(directory: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(directory)
}

#[cfg(unix)]
fn restrict(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let mode = match fs::metadata(path) {
        Ok(metadata) => metadata.permissions().mode(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if mode & 0o077 == 0 { Ok(()) } else { fs::set_permissions(path, fs::Permissions::from_mode(0o600)) }
}

#[cfg(not(unix))]
fn restrict(_: &Path) -> io::Result<()> {
    Ok(())
}
