//! The current chart of an entry: loaded at startup and, if reloading is enabled, again when its files change.

use crate::error::OperatorError;
use crate::source::Source;
use crate::watches::Watch;
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

/// Files of a chart that are checked for changes.
const MAX_FILES: usize = 20_000;
/// Nesting depth of directories.
const MAX_DEPTH: usize = 32;

/// Sizes and modification times of files.
type Files = BTreeMap<PathBuf, (u64, Option<SystemTime>)>;

/// The chart of an entry.
#[derive(Debug)]
pub(crate) struct CurrentChart {
    source: RwLock<Arc<Source>>,
    files: Mutex<Files>,
}

impl CurrentChart {
    /// Loads the chart.
    pub(crate) fn open(watch: &Watch) -> Result<Self, OperatorError> {
        let files = files(&watch.chart);
        let source = RwLock::new(Arc::new(Source::open(watch)?));
        Ok(Self { source, files: Mutex::new(files) })
    }

    /// Returns the chart as loaded last.
    pub(crate) fn get(&self) -> Arc<Source> {
        self.source.read().clone()
    }

    /// Reloads the chart if its files have changed; returns true if its content differs.
    ///
    /// # Errors
    ///
    /// If the chart cannot be loaded. The previous chart then stays in use until its files change again.
    pub(crate) fn reload(&self, watch: &Watch) -> Result<bool, OperatorError> {
        let found = files(&watch.chart);
        {
            let mut known = self.files.lock();
            if *known == found {
                return Ok(false);
            }
            *known = found;
        }
        let source = Source::open(watch)?;
        let is_another = source.digest() != self.get().digest();
        *self.source.write() = Arc::new(source);
        Ok(is_another)
    }
}

/// Lists the files of a chart; unreadable files are omitted.
fn files(chart: &Path) -> Files {
    let (mut found, mut open) = (Files::new(), vec![(chart.to_owned(), 0)]);
    while let Some((path, depth)) = open.pop() {
        let Ok(meta) = fs::metadata(&path) else { continue };
        if !meta.is_dir() {
            found.insert(path, (meta.len(), meta.modified().ok()));
        } else if depth < MAX_DEPTH {
            let entries = fs::read_dir(&path).into_iter().flatten().flatten();
            open.extend(entries.map(|entry| (entry.path(), depth + 1)));
        }
        if found.len() + open.len() > MAX_FILES {
            break;
        }
    }
    found
}
