//! The progress of the searches that tests of a project run, in one line of a terminal.
//!
//! The tests write it to files of the folder for their reports.

use crate::files::entries;
use crate::render::progress::Progress;
use parking_lot::Mutex;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{JoinHandle, spawn};
use std::time::Duration;

/// Time between two reads.
const INTERVAL: Duration = Duration::from_millis(500);

/// Shows the progress until this is dropped.
pub(super) struct SearchProgress {
    line: Arc<Mutex<Progress>>,
    end: Option<(Sender<()>, JoinHandle<()>)>,
}

impl SearchProgress {
    /// Starts to show what tests write to a folder.
    pub(super) fn start(folder: &Path) -> Self {
        let line = Arc::new(Mutex::new(Progress::new("building the tests")));
        let (sender, receiver) = channel();
        let (folder, shown) = (folder.to_owned(), line.clone());
        let thread = spawn(move || {
            while receiver.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                let text = text_of(&folder);
                if !text.is_empty() {
                    shown.lock().show(text);
                }
            }
        });
        Self { line, end: Some((sender, thread)) }
    }

    /// Removes the line, and prints something else before the line is shown again.
    pub(super) fn interrupt(&self, print: impl FnOnce()) {
        let mut line = self.line.lock();
        line.hide();
        print();
    }
}

impl Drop for SearchProgress {
    fn drop(&mut self) {
        if let Some((sender, thread)) = self.end.take() {
            drop(sender);
            // It does not panic, and ends at once.
            let _ = thread.join();
        }
        self.line.lock().hide();
    }
}

/// Describes the searches that run; empty if there are none. A file that is being written is read the next time.
fn text_of(folder: &Path) -> String {
    let is_progress = |path: &Path| path.extension().is_some_and(|end| end == "progress");
    let files = entries(folder).unwrap_or_default().into_iter().filter(|path| is_progress(path));
    let read = |path| serde_json::from_slice::<Value>(&fs::read(path).ok()?).ok();
    let texts: Vec<String> = files.filter_map(read).map(|progress| describe(&progress)).collect();
    texts.join("; ")
}

fn describe(progress: &Value) -> String {
    let number = |field: &str| progress[field].as_u64().unwrap_or_default();
    format!(
        "{}, {} s: {} schedules, faults at {} sites, {} findings",
        progress["operator"].as_str().unwrap_or_default(),
        number("seconds"),
        number("schedules"),
        number("sites"),
        number("findings")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::private::PrivateDirectory;

    #[test]
    fn line_is_not_drawn_while_something_else_is_printed() {
        let folder = PrivateDirectory::new("flyball-progress-line").unwrap();
        let progress = SearchProgress::start(folder.path());
        let mut is_locked = false;
        progress.interrupt(|| is_locked = progress.line.try_lock().is_none());
        assert!(is_locked);
        assert!(progress.line.try_lock().is_some());
    }

    #[test]
    fn searches_that_run_are_described() {
        let folder = PrivateDirectory::new("flyball-progress").unwrap();
        assert_eq!(text_of(folder.path()), "");
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write("web-1-0.json", "{}");
        write("db-1-1.progress", r#"{"operator": "db", "seconds": 3, "schedules": 4, "sites": 5, "findings": 0}"#);
        write("web-1-0.progress", r#"{"operator": "web", "seconds": 1"#);
        assert_eq!(text_of(folder.path()), "db, 3 s: 4 schedules, faults at 5 sites, 0 findings");
    }
}
