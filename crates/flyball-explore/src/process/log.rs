//! The output of a process, bounded.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::time::Instant;

/// Limit of the lines.
const MAX_LINES: usize = 300;
/// Longer lines are split.
const MAX_LINE_BYTES: u64 = 2000;

/// The last lines that a process printed, and its starts and ends.
#[derive(Clone, Debug)]
pub(crate) struct Log {
    began: Instant,
    lines: Arc<Mutex<VecDeque<(Duration, String)>>>,
}

impl Log {
    pub(crate) fn new(began: Instant) -> Self {
        Self { began, lines: Arc::default() }
    }

    /// Adds a line.
    pub(crate) fn add(&self, line: String) {
        let mut lines = self.lines.lock();
        if lines.len() == MAX_LINES {
            lines.pop_front();
        }
        lines.push_back((self.began.elapsed(), line));
    }

    /// Adds the lines of a pipe until its end.
    pub(crate) async fn follow(self, pipe: impl AsyncRead + Unpin) {
        let (mut pipe, mut line) = (BufReader::new(pipe), Vec::new());
        loop {
            line.clear();
            match (&mut pipe).take(MAX_LINE_BYTES).read_until(b'\n', &mut line).await {
                Ok(0) | Err(_) => return,
                Ok(_) => self.add(String::from_utf8_lossy(&line).trim_end().to_owned()),
            }
        }
    }

    /// Returns the lines with their times.
    pub(crate) fn lines(&self) -> Vec<(Duration, String)> {
        self.lines.lock().iter().cloned().collect()
    }

    /// Returns the last lines as one text.
    pub(crate) fn tail(&self, count: usize) -> String {
        let lines = self.lines.lock();
        let last: Vec<&str> = lines.iter().skip(lines.len().saturating_sub(count)).map(|(_, line)| &**line).collect();
        last.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_the_last_lines_are_kept() {
        let log = Log::new(Instant::now());
        let text: String = (0..MAX_LINES + 5).map(|n| format!("line {n}\n")).collect();
        log.clone().follow(text.as_bytes()).await;
        assert_eq!((log.lines().len(), &*log.lines()[0].1), (MAX_LINES, "line 5"));
        assert_eq!(log.tail(2), format!("line {}\nline {}", MAX_LINES + 3, MAX_LINES + 4));
    }
}
