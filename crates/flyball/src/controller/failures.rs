//! Limits the log of failed reconciles: many objects may fail for one cause, and each of them is retried.
//!
//! A cause is the text of an error without the name and the namespace of its object. Invariant: the number of causes in
//! memory is bounded, and the first failures for a new cause are logged.

use flyball_core::ObjectKey;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// The time in which the lines of a cause are limited.
const WINDOW: Duration = Duration::from_secs(60);
/// Limit of lines of a cause in that time.
const MAX_LINES: u32 = 5;
/// Limit of causes in that time; others share one limit.
const MAX_CAUSES: usize = 200;
/// Length limit of a cause.
const MAX_CAUSE_CHARS: usize = 200;

/// The failures of a controller in the last minute, by cause.
#[derive(Debug, Default)]
pub(super) struct Failures(Mutex<BTreeMap<String, Lines>>);

#[derive(Debug)]
struct Lines {
    since: Instant,
    logged: u32,
    omitted: u64,
}

impl Failures {
    /// Returns the number of lines about this cause that were omitted before this one; `None` if it is omitted itself.
    pub(super) fn admit(&self, key: &ObjectKey, text: &str, now: Instant) -> Option<u64> {
        let cause = cause(key, text);
        let mut causes = self.0.lock();
        if !causes.contains_key(&cause) && causes.len() >= MAX_CAUSES {
            causes.retain(|_, lines| now.duration_since(lines.since) < WINDOW);
        }
        let cause = if causes.len() < MAX_CAUSES || causes.contains_key(&cause) { cause } else { String::new() };
        let lines = causes.entry(cause).or_insert(Lines { since: now, logged: 0, omitted: 0 });
        let mut before = 0;
        if now.duration_since(lines.since) >= WINDOW {
            before = lines.omitted;
            *lines = Lines { since: now, logged: 0, omitted: 0 };
        }
        if lines.logged < MAX_LINES {
            lines.logged += 1;
            Some(before)
        } else {
            lines.omitted += 1;
            None
        }
    }
}

/// Returns a text without the object that it concerns.
fn cause(key: &ObjectKey, text: &str) -> String {
    let parts = [Some(key.name()), key.namespace()].into_iter().flatten().filter(|part| !part.is_empty());
    let text = parts.fold(text.to_owned(), |text, part| text.replace(part, "*"));
    text.chars().take(MAX_CAUSE_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn lines_are_limited_by_cause() {
        let failures = Failures::default();
        let admit = |name: &str, text: &str| failures.admit(&ObjectKey::new(Some("ns"), name), text, Instant::now());
        let many = |text: &str| -> Vec<u64> {
            let one = |n: u32| admit(&format!("o{n}"), &text.replace('*', &format!("ns/o{n}")));
            (0..20).filter_map(one).collect()
        };
        assert_eq!(many("*: no password"), [0; 5]);
        assert_eq!(admit("o1", "another cause"), Some(0));
        assert_eq!(admit("o1", "ns/o1: no password"), None);
        tokio::time::advance(WINDOW).await;
        assert_eq!(many("*: no password"), [16, 0, 0, 0, 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn number_of_causes_is_bounded() {
        let failures = Failures::default();
        let admit = |text: String| failures.admit(&ObjectKey::new(None, "a"), &text, Instant::now());
        let logged = (0..10_000).filter(|n| admit(format!("problem {n}")).is_some()).count();
        assert!(logged <= MAX_CAUSES + MAX_LINES as usize, "{logged}");
        assert!(failures.0.lock().len() <= MAX_CAUSES + 1);
        tokio::time::advance(WINDOW).await;
        assert_eq!(admit("new".to_owned()), Some(0));
    }
}
