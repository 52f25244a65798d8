//! Limits the log of failed reconciles: many objects may fail for one cause, and each of them is retried.
//!
//! A cause is the text of an error without the name and the namespace of its object. The first failures of a cause in
//! a namespace are logged. The next line, a minute later or more, has the number of omitted ones. Invariant: the number
//! of causes in memory is bounded, and causes of one namespace do not omit those of another one.

use flyball_core::ObjectKey;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// The time in which the lines of a cause are limited.
const WINDOW: Duration = Duration::from_secs(60);
/// Limit of lines of a cause in that time.
const MAX_LINES: u32 = 5;
/// Limit of causes of a namespace in that time; its others share one limit.
const MAX_CAUSES: usize = 20;
/// Limit of namespaces in that time; the others share one limit.
const MAX_NAMESPACES: usize = 200;
/// Length limit of a cause.
const MAX_CAUSE_CHARS: usize = 200;

/// The failures of a controller in the last minute.
#[derive(Debug, Default)]
pub(super) struct Failures(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// By namespace and cause.
    lines: BTreeMap<String, BTreeMap<String, Lines>>,
    /// Omitted lines of causes that ended.
    omitted: u64,
}

#[derive(Debug)]
struct Lines {
    since: Instant,
    logged: u32,
    omitted: u64,
}

impl Lines {
    fn new(since: Instant) -> Self {
        Self { since, logged: 0, omitted: 0 }
    }

    fn is_over(&self, now: Instant) -> bool {
        now.duration_since(self.since) >= WINDOW
    }
}

impl Failures {
    /// Returns the number of lines that were omitted before this one; `None` if it is omitted itself.
    pub(super) fn admit(&self, key: &ObjectKey, text: &str, now: Instant) -> Option<u64> {
        self.0.lock().admit(key.namespace().unwrap_or_default(), cause(key, text), now)
    }
}

impl State {
    fn admit(&mut self, namespace: &str, cause: String, now: Instant) -> Option<u64> {
        if !self.lines.contains_key(namespace) && self.lines.len() >= MAX_NAMESPACES {
            self.drop_ended(now);
        }
        let is_full = !self.lines.contains_key(namespace) && self.lines.len() >= MAX_NAMESPACES;
        let causes = self.lines.entry(if is_full { String::new() } else { namespace.to_owned() }).or_default();
        if !causes.contains_key(&cause) && causes.len() >= MAX_CAUSES {
            self.omitted += remove_ended(causes, now);
        }
        let is_full = !causes.contains_key(&cause) && causes.len() >= MAX_CAUSES;
        let lines = causes.entry(if is_full { String::new() } else { cause }).or_insert_with(|| Lines::new(now));
        if lines.is_over(now) {
            self.omitted += lines.omitted;
            *lines = Lines::new(now);
        }
        if lines.logged < MAX_LINES {
            lines.logged += 1;
            Some(std::mem::take(&mut self.omitted))
        } else {
            lines.omitted += 1;
            None
        }
    }

    fn drop_ended(&mut self, now: Instant) {
        self.omitted += self.lines.values_mut().map(|causes| remove_ended(causes, now)).sum::<u64>();
        self.lines.retain(|_, causes| !causes.is_empty());
    }
}

/// Removes the causes that ended, and returns the number of their omitted lines.
fn remove_ended(causes: &mut BTreeMap<String, Lines>, now: Instant) -> u64 {
    causes.extract_if(.., |_, lines| lines.is_over(now)).map(|(_, lines)| lines.omitted).sum()
}

/// Returns a text without the object that it concerns.
fn cause(key: &ObjectKey, text: &str) -> String {
    let is_of_name = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '.');
    let without_object = |piece: &str| {
        let word = piece.trim_end_matches(|letter: char| !letter.is_ascii_alphanumeric());
        let is_object = word == key.name() || key.namespace() == Some(word);
        if is_object { format!("*{}", &piece[word.len()..]) } else { piece.to_owned() }
    };
    let text: String = text.split_inclusive(|letter| !is_of_name(letter)).map(without_object).collect();
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

    #[test]
    fn cause_has_no_name_of_the_object() {
        let key = ObjectKey::new(Some("web-prod"), "web");
        let check = |text: &str, expected: &str| assert_eq!(cause(&key, text), expected);
        check("web-prod/web: no password for web.", "*/*: no password for *.");
        check("webhook of web-prod2 denied \"web\": äöü", "webhook of web-prod2 denied \"*\": äöü");
        check("", "");
    }

    #[tokio::test(start_paused = true)]
    async fn number_of_causes_is_bounded_and_namespaces_do_not_share_it() {
        let failures = Failures::default();
        let admit = |namespace: &str, text: &str| {
            failures.admit(&ObjectKey::new(Some(namespace), "a"), text, Instant::now()).is_some()
        };
        let logged = (0..1000).filter(|n| admit("noisy", &format!("problem {n}"))).count();
        assert_eq!(logged, MAX_CAUSES + MAX_LINES as usize);
        assert!(admit("quiet", "no database"));
        let logged = (0..1000).filter(|n| admit(&format!("n{n}"), "no database")).count();
        assert_eq!(logged, MAX_NAMESPACES - 2 + MAX_LINES as usize);
        assert!(failures.0.lock().lines.len() <= MAX_NAMESPACES + 1);
        tokio::time::advance(WINDOW).await;
        assert!(admit("new", "no database"));
        assert_eq!(failures.0.lock().lines.len(), 1);
    }
}
