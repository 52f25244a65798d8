//! The lock of a data directory: one operator at a time collects into it, since two would count the same usage twice.
//!
//! Readers need no lock.

use super::{Error, Result, private};
use flyball_files::{Lock, try_lock};
use std::fs;
use std::path::Path;

/// Name of the file in the data directory, which contains the process of its holder.
const FILE: &str = "metering.lock";

/// The right to collect into a data directory, until this is dropped or its process ends.
#[derive(Debug)]
pub struct DirectoryLock {
    _lock: Lock,
}

impl DirectoryLock {
    /// Acquires the lock of a directory, which is created if necessary.
    ///
    /// # Errors
    ///
    /// If an operator holds the lock, or the file cannot be created or locked.
    pub fn acquire(directory: &Path) -> Result<Self> {
        let path = || directory.to_owned();
        private::create_directory(directory).map_err(|source| Error::Directory { path: path(), source })?;
        let file = directory.join(FILE);
        let failed = |source| Error::Lock { path: path(), source };
        let Some(mut lock) = try_lock(&file).map_err(failed)? else {
            let holder = fs::read_to_string(&file).ok().and_then(|text| text.trim().parse().ok());
            return Err(Error::InUse { path: path(), holder });
        };
        lock.write(std::process::id().to_string()).map_err(failed)?;
        Ok(Self { _lock: lock })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;

    #[test]
    fn one_operator_collects_and_others_read() {
        let directory = std::env::temp_dir().join(format!("metering-lock-{}", std::process::id()));
        let held = DirectoryLock::acquire(&directory).unwrap();
        let error = DirectoryLock::acquire(&directory).unwrap_err().to_string();
        for part in [directory.to_str().unwrap(), &format!("(process {})", std::process::id()), "--data"] {
            assert!(error.contains(part), "{error}");
        }
        assert!(Store::open(&directory).is_ok());
        drop(held);
        assert!(DirectoryLock::acquire(&directory).is_ok());
        fs::remove_dir_all(&directory).unwrap();
    }
}
