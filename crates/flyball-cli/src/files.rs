//! Files and directories on this machine.

pub(crate) mod generated;
pub(crate) mod private;
pub(crate) mod spelling;
pub(crate) mod state;
pub(crate) mod watcher;

use crate::error::{Result, ResultExt};
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Name of the file that maps charts, roles and playbooks to kinds.
pub(crate) const WATCHES: &str = "watches.yaml";

/// Returns the paths in a directory, sorted; none if there is no such directory.
///
/// # Errors
///
/// If the directory cannot be read.
pub(crate) fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let what = || format!("cannot read {}", folder.display());
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.context(what())?,
    };
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>().context(what())?;
    paths.sort();
    Ok(paths)
}
