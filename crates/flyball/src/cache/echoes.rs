//! What the operator's own writes made of objects, until the watch shows that as well.

use super::Entry;
use flyball_core::ObjectKey;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// So many are expected at a time, the newest.
const MOST: usize = 64;
/// The longest text that is kept to be recognised.
const LONGEST: usize = 64 << 10;

/// The API server says twice, in the same words, what a write made of an object: in its answer, and in the watch. So what was
/// read of the answer need not be read again. Where the words differ after all, nothing is lost but time.
#[derive(Debug, Default)]
pub(crate) struct Echoes(Mutex<Expected>);

#[derive(Debug, Default)]
struct Expected {
    /// By resource version, in the order in which the watch brings them.
    answers: BTreeMap<u64, (Vec<u8>, ObjectKey, Arc<Entry>)>,
    /// Up to where the watch has come.
    seen: u64,
}

impl Echoes {
    /// Expects an object that a write was answered with.
    pub(crate) fn expect(&self, mut text: Vec<u8>, key: &ObjectKey, entry: &Arc<Entry>) {
        let (mut expected, version) = (self.lock(), entry.resource_version());
        text.truncate(text.trim_ascii_end().len());
        if version > expected.seen && text.len() <= LONGEST {
            expected.answers.insert(version, (text, key.clone(), entry.clone()));
            if expected.answers.len() > MOST {
                expected.answers.pop_first();
            }
        }
    }

    /// Returns what was read of this text, if it is expected.
    pub(crate) fn recognise(&self, text: &[u8]) -> Option<(ObjectKey, Arc<Entry>)> {
        let expected = self.lock();
        let (_, key, entry) = expected.answers.values().find(|(expected, ..)| *expected == text)?;
        Some((key.clone(), entry.clone()))
    }

    /// Notes that the watch has come up to a revision: nothing before that is expected any more.
    pub(crate) fn seen(&self, revision: u64) {
        let mut expected = self.lock();
        expected.seen = revision;
        while expected.answers.first_entry().is_some_and(|first| *first.key() <= revision) {
            expected.answers.pop_first();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Expected> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(name: &str, version: u64) -> String {
        format!(r#"{{"metadata":{{"name":"{name}","resourceVersion":"{version}"}}}}"#)
    }

    fn expect(echoes: &Echoes, text: &str) -> Arc<Entry> {
        let (key, entry) = Entry::parse(text.as_bytes(), "me").unwrap();
        let entry = Arc::new(entry);
        echoes.expect(format!("{text}\n").into_bytes(), &key, &entry);
        entry
    }

    #[test]
    fn what_was_answered_is_recognised_until_the_watch_has_shown_it() {
        let echoes = Echoes::default();
        let (first, second) = (expect(&echoes, &text("a", 7)), expect(&echoes, &text("b", 9)));
        let found = |name, version| echoes.recognise(text(name, version).as_bytes()).map(|(_, entry)| entry);
        assert!(found("a", 7).is_some_and(|found| Arc::ptr_eq(&found, &first)));
        assert!(found("a", 8).is_none() && found("c", 7).is_none());
        echoes.seen(8);
        assert!(found("a", 7).is_none());
        assert!(found("b", 9).is_some_and(|found| Arc::ptr_eq(&found, &second)));
        expect(&echoes, &text("c", 8));
        assert!(found("c", 8).is_none(), "the watch has shown it before the answer came");
    }

    #[test]
    fn no_more_is_kept_than_is_worth_it() {
        let echoes = Echoes::default();
        expect(&echoes, &text(&"x".repeat(LONGEST), 1));
        assert!(echoes.lock().answers.is_empty());
        (1..=2 * MOST as u64).for_each(|version| drop(expect(&echoes, &text("a", version))));
        assert_eq!(echoes.lock().answers.len(), MOST);
        assert!(echoes.recognise(text("a", 1).as_bytes()).is_none());
        assert!(echoes.recognise(text("a", 2 * MOST as u64).as_bytes()).is_some());
        echoes.seen(u64::MAX);
        assert!(echoes.lock().answers.is_empty());
    }
}
