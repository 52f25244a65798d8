//! The last finished runs of objects.
//!
//! The status records them as well, unless the schema of the kind lacks the fields. Without a record, each run would
//! be announced by the condition `Running`, and each run with changes would be followed by another one.

use flyball::ObjectKey;
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// Limit of objects whose runs are recorded.
const MAX_OBJECTS: usize = 10_000;

/// The last finished run of each object, except of those whose run is the oldest beyond the limit.
#[derive(Debug, Default)]
pub(crate) struct FinishedRuns(Mutex<RunsByAge>);

/// Runs in the order of their insertion.
#[derive(Debug, Default)]
struct RunsByAge {
    runs: BTreeMap<ObjectKey, (u64, FinishedRun)>,
    /// Its keys, by the number of the insertion.
    order: BTreeMap<u64, ObjectKey>,
    inserted: u64,
}

impl RunsByAge {
    fn remove(&mut self, key: &ObjectKey) {
        if let Some((number, _)) = self.runs.remove(key) {
            self.order.remove(&number);
        }
    }
}

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
        self.0.lock().runs.get(key).map(|(_, run)| run).filter(|run| run.uid == uid).cloned()
    }

    pub(crate) fn insert(&self, key: &ObjectKey, run: FinishedRun) {
        let mut recorded = self.0.lock();
        recorded.remove(key);
        // An object may be deleted, so its run may be left over.
        if recorded.runs.len() >= MAX_OBJECTS
            && let Some((_, oldest)) = recorded.order.pop_first()
        {
            recorded.runs.remove(&oldest);
        }
        recorded.inserted += 1;
        let number = recorded.inserted;
        recorded.order.insert(number, key.clone());
        recorded.runs.insert(key.clone(), (number, run));
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
        let last = ObjectKey::new(Some("c"), "1");
        runs.insert(&last, run);
        runs.remove(&last);
        assert_eq!(runs.get(&last, "u"), None);
    }

    #[test]
    fn oldest_run_is_evicted_whatever_its_name() {
        let runs = FinishedRuns::default();
        let run = FinishedRun { uid: "u".into(), generation: 2, has_changes: true };
        let (first, oldest) = (ObjectKey::new(Some("a"), "a"), ObjectKey::new(Some("z"), "z"));
        [&first, &oldest, &first].into_iter().for_each(|key| runs.insert(key, run.clone()));
        for number in 2..=MAX_OBJECTS {
            runs.insert(&ObjectKey::new(Some("c"), &number.to_string()), run.clone());
        }
        assert_eq!(runs.0.lock().order.len(), MAX_OBJECTS);
        assert_eq!((runs.get(&oldest, "u"), runs.get(&first, "u")), (None, Some(run)), "the first one ran again");
    }
}
