//! The progress of an exploration in a file: the tests that explore run in a process of their own, whose output
//! `cargo test` holds back. `flyball explore` shows it.
//!
//! The file is removed when the exploration ends.

use crate::exploration::Progress;
use parking_lot::Mutex;
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Time between two writes.
const INTERVAL: Duration = Duration::from_millis(500);

/// The file of one exploration.
#[derive(Debug)]
pub(crate) struct ProgressFile {
    path: PathBuf,
    /// Elapsed time at the last write.
    written: Mutex<Option<Duration>>,
}

impl ProgressFile {
    /// Returns the file for an operator in a folder, which is written later.
    pub(crate) fn new(folder: &Path, operator: &str) -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!("{operator}-{}-{count}.progress", std::process::id()));
        Self { path, written: Mutex::default() }
    }

    /// Replaces the content, unless it is new. An error is none of the exploration.
    pub(crate) fn write(&self, operator: &str, progress: &Progress) {
        let mut written = self.written.lock();
        if written.is_some_and(|at| progress.elapsed < at + INTERVAL) {
            return;
        }
        let text = json!({
            "operator": operator,
            "seconds": progress.elapsed.as_secs(),
            "schedules": progress.schedules,
            "sites": progress.sites,
            "findings": progress.findings,
        });
        let _ = fs::write(&self.path, text.to_string());
        *written = Some(progress.elapsed);
    }
}

impl Drop for ProgressFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn progress_is_written_at_intervals_and_removed() {
        let folder = std::env::temp_dir().join(format!("flyball-progress-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let progress = |schedules, millis| Progress {
            schedules,
            findings: 1,
            sites: 2,
            elapsed: Duration::from_millis(millis),
            violations: Vec::new(),
            is_shrinking: false,
        };
        let file = ProgressFile::new(&folder, "web");
        let written = || fs::read_dir(&folder).unwrap().flatten().map(|entry| fs::read(entry.path()).unwrap()).next();
        let schedules = || serde_json::from_slice::<Value>(&written().unwrap()).unwrap()["schedules"].as_u64();
        file.write("web", &progress(3, 10));
        file.write("web", &progress(4, 400));
        assert_eq!(schedules(), Some(3));
        file.write("web", &progress(5, 600));
        assert_eq!(schedules(), Some(5));
        drop(file);
        assert_eq!(written(), None);
        fs::remove_dir(&folder).unwrap();
    }
}
