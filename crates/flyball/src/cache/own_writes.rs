//! Responses to the operator's own writes, kept until the watch delivers the same objects.

use super::Entry;
use flyball_core::ObjectKey;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Limit of stored responses; the newest ones are kept.
const MAX_RESPONSES: usize = 64;
/// Size limit of a stored response.
const MAX_RESPONSE_BYTES: usize = 64 << 10;

/// Responses to writes that the watch has not delivered yet.
///
/// The API server sends the result of a write twice with identical bytes: in its response and in the watch. An object
/// that was parsed from the response is therefore not parsed again unless the bytes differ.
#[derive(Debug, Default)]
pub(crate) struct OwnWriteResponses(Mutex<Responses>);

#[derive(Debug, Default)]
struct Responses {
    /// By resource version, the order in which the watch delivers them.
    responses: BTreeMap<u64, (Vec<u8>, ObjectKey, Arc<Entry>)>,
    /// The revision that the watch has reached.
    seen: u64,
}

impl OwnWriteResponses {
    /// Stores the response to a write.
    pub(crate) fn expect(&self, mut text: Vec<u8>, key: &ObjectKey, entry: &Arc<Entry>) {
        let (mut expected, version) = (self.0.lock(), entry.resource_version());
        text.truncate(text.trim_ascii_end().len());
        if version > expected.seen && text.len() <= MAX_RESPONSE_BYTES {
            expected.responses.insert(version, (text, key.clone(), entry.clone()));
            if expected.responses.len() > MAX_RESPONSES {
                expected.responses.pop_first();
            }
        }
    }

    /// Returns the object that was parsed from a response with this JSON.
    pub(crate) fn find(&self, text: &[u8]) -> Option<(ObjectKey, Arc<Entry>)> {
        let expected = self.0.lock();
        let (_, key, entry) = expected.responses.values().find(|(expected, ..)| *expected == text)?;
        Some((key.clone(), entry.clone()))
    }

    /// Drops the responses up to a revision that the watch has reached.
    pub(crate) fn confirmed(&self, revision: u64) {
        let mut expected = self.0.lock();
        expected.seen = revision;
        while expected.responses.first_entry().is_some_and(|first| *first.key() <= revision) {
            expected.responses.pop_first();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(name: &str, version: u64) -> String {
        format!(r#"{{"metadata":{{"name":"{name}","resourceVersion":"{version}"}}}}"#)
    }

    fn expect(responses: &OwnWriteResponses, text: &str) -> Arc<Entry> {
        let (key, entry) = Entry::parse(text.as_bytes(), "me").unwrap();
        let entry = Arc::new(entry);
        responses.expect(format!("{text}\n").into_bytes(), &key, &entry);
        entry
    }

    #[test]
    fn responses_are_recognized_until_observed_by_the_watch() {
        let responses = OwnWriteResponses::default();
        let (first, second) = (expect(&responses, &text("a", 7)), expect(&responses, &text("b", 9)));
        let found = |name, version| responses.find(text(name, version).as_bytes()).map(|(_, entry)| entry);
        assert!(found("a", 7).is_some_and(|found| Arc::ptr_eq(&found, &first)));
        assert!(found("a", 8).is_none() && found("c", 7).is_none());
        responses.confirmed(8);
        assert!(found("a", 7).is_none());
        assert!(found("b", 9).is_some_and(|found| Arc::ptr_eq(&found, &second)));
        expect(&responses, &text("c", 8));
        assert!(found("c", 8).is_none(), "the watch delivered it before the response");
    }

    #[test]
    fn stored_responses_are_bounded() {
        let responses = OwnWriteResponses::default();
        expect(&responses, &text(&"x".repeat(MAX_RESPONSE_BYTES), 1));
        assert!(responses.0.lock().responses.is_empty());
        (1..=2 * MAX_RESPONSES as u64).for_each(|version| drop(expect(&responses, &text("a", version))));
        assert_eq!(responses.0.lock().responses.len(), MAX_RESPONSES);
        assert!(responses.find(text("a", 1).as_bytes()).is_none());
        assert!(responses.find(text("a", 2 * MAX_RESPONSES as u64).as_bytes()).is_some());
        responses.confirmed(u64::MAX);
        assert!(responses.0.lock().responses.is_empty());
    }
}
