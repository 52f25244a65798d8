//! One log of several processes.

use crate::operator::process::LineSink;
use crate::render::terminal::{Style, print_prefixed};
use parking_lot::Mutex;
use std::sync::Arc;

/// Recent output of the operator.
#[derive(Debug, Default)]
pub(super) struct Log {
    last_error: Mutex<Option<String>>,
}

/// Returns the sink for cargo's output.
pub(super) fn of_cargo() -> LineSink {
    Arc::new(|line| print_prefixed("cargo", Style::Faint, line))
}

impl Log {
    /// Returns the sink for the operator's output.
    pub(super) fn of_operator(self: Arc<Self>) -> LineSink {
        Arc::new(move |line| {
            let level = level(line);
            if let Some(("ERROR" | "WARN", message)) = level {
                *self.last_error.lock() = Some(message.to_owned());
            }
            let style = match level {
                Some(("ERROR", _)) => Style::Bad,
                Some(("WARN", _)) => Style::Busy,
                _ => Style::Good,
            };
            print_prefixed("operator", style, line);
        })
    }

    /// Returns the last warning or error, if there is one.
    pub(super) fn last_error(&self) -> Option<String> {
        self.last_error.lock().clone()
    }
}

/// Returns the level of a line of an operator's log, which follows the time, and the message.
fn level(line: &str) -> Option<(&str, &str)> {
    let (_time, rest) = line.split_once(' ')?;
    let (level, message) = rest.trim_start().split_once(' ')?;
    ["ERROR", "WARN", "INFO", "DEBUG", "TRACE"].contains(&level).then(|| (level, message.trim()))
}

#[cfg(test)]
mod tests {
    use super::level;

    #[test]
    fn level_is_parsed_after_the_timestamp() {
        let line = "2026-11-21T21:00:00.1Z  WARN reconcile{controller=site}: failed: no such page";
        assert_eq!(level(line), Some(("WARN", "reconcile{controller=site}: failed: no such page")));
        assert_eq!(level("2026-11-21T21:00:00.1Z ERROR x"), Some(("ERROR", "x")));
        for plain in ["", "hello", "an ERROR", "thread 'main' panicked at src/main.rs"] {
            assert_eq!(level(plain), None, "{plain}");
        }
    }
}
