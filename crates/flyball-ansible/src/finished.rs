//! The last finished runs of objects.
//!
//! The status records them as well, unless the schema of the kind lacks the fields. Without a record, each run would
//! be announced by the condition `Running`, and each run with changes would be followed by another one.

use flyball::ObjectKey;
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// Limit of objects whose runs are recorded.
const MAX_OBJECTS: usize = 10_000;

/// The last finished run of each object.
#[derive(Debug, Default)]
pub(crate) struct FinishedRuns(Mutex<BTreeMap<ObjectKey, FinishedRun>>);

/// A run that finished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FinishedRun {
    /// The UID of the object.
    pub(crate) uid: String,
    pub(crate) generation: i64,
    /// True if it succeeded and changed something.
    pub(crate) has_changes: bool,
}

impl FinishedRuns {
    /// Returns the last run of an object with this UID.
    pub(crate) fn get(&self, key: &ObjectKey, uid: &str) -> Option<FinishedRun> {
        self.0.lock().get(key).filter(|run| run.uid == uid).cloned()
    }

    pub(crate) fn insert(&self, key: &ObjectKey, run: FinishedRun) {
        let mut runs = self.0.lock();
        // An object may be deleted, so its run may be left over.
        if runs.len() >= MAX_OBJECTS && !runs.contains_key(key) {
            runs.pop_first();
        }
        runs.insert(key.clone(), run);
    }

    pub(crate) fn remove(&self, key: &ObjectKey) {
        self.0.lock().remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_those_of_one_object() {
        let runs = FinishedRuns::default();
        let key = ObjectKey::new(Some("b"), "a");
        let run = FinishedRun { uid: "u".into(), generation: 2, has_changes: true };
        runs.insert(&key, run.clone());
        assert_eq!((runs.get(&key, "u"), runs.get(&key, "v")), (Some(run.clone()), None));
        for number in 0..=MAX_OBJECTS {
            runs.insert(&ObjectKey::new(Some("c"), &number.to_string()), run.clone());
        }
        assert_eq!(runs.0.lock().len(), MAX_OBJECTS);
        let last = ObjectKey::new(Some("c"), "1");
        runs.remove(&last);
        assert_eq!(runs.get(&last, "u"), None);
    }
}
