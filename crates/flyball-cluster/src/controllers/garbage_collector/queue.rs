//! The objects to check, round-robin by namespace.
//!
//! A namespace with very many objects, or with slow ones, does not delay the collection in others: namespaces take
//! turns, and each has at most half of the places that others leave.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Maximum number of objects in progress.
const PLACES: usize = 20;

/// The queue. An object is in it once, and is not in progress twice.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: BTreeMap<Arc<str>, VecDeque<String>>,
    /// Namespaces with waiting objects, the next one first.
    turns: VecDeque<Arc<str>>,
    queued: BTreeSet<String>,
    /// Objects in progress, with their namespace.
    running: BTreeMap<String, Arc<str>>,
    /// Objects in progress that were added meanwhile.
    again: BTreeSet<String>,
}

impl Queue {
    pub(super) fn add(&mut self, namespace: &str, uid: String) {
        if self.running.contains_key(&uid) {
            self.again.insert(uid);
            return;
        }
        if !self.queued.insert(uid.clone()) {
            return;
        }
        if let Some(waiting) = self.waiting.get_mut(namespace) {
            return waiting.push_back(uid);
        }
        let namespace: Arc<str> = namespace.into();
        self.turns.push_back(namespace.clone());
        self.waiting.insert(namespace, [uid].into());
    }

    /// Returns the next object that has a place, which it keeps until it is done.
    pub(super) fn next(&mut self) -> Option<String> {
        if self.running.len() >= PLACES {
            return None;
        }
        let at = self.turns.iter().position(|namespace| self.has_place(namespace))?;
        let namespace = self.turns.remove(at)?;
        let waiting = self.waiting.get_mut(&namespace)?;
        let uid = waiting.pop_front()?;
        if waiting.is_empty() {
            self.waiting.remove(&namespace);
        } else {
            self.turns.push_back(namespace.clone());
        }
        self.queued.remove(&uid);
        self.running.insert(uid.clone(), namespace);
        Some(uid)
    }

    fn has_place(&self, namespace: &str) -> bool {
        let own = self.running.values().filter(|running| &***running == namespace).count();
        let others = self.running.len() - own;
        own < (PLACES.saturating_sub(others)).div_ceil(2)
    }

    pub(super) fn done(&mut self, uid: &str) {
        let Some(namespace) = self.running.remove(uid) else { return };
        if self.again.remove(uid) {
            self.add(&namespace, uid.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(queue: &mut Queue) -> Vec<String> {
        std::iter::from_fn(|| queue.next()).collect()
    }

    #[test]
    fn namespaces_take_turns_and_share_slots() {
        let mut queue = Queue::default();
        for n in 0..100 {
            queue.add("a", format!("a{n}"));
        }
        let first = drain(&mut queue);
        assert_eq!(first.len(), PLACES / 2);
        queue.add("b", "b0".to_owned());
        assert_eq!(drain(&mut queue), ["b0"], "there is a place for others");
        for uid in &first {
            queue.done(uid);
        }
        queue.add("c", "c0".to_owned());
        assert_eq!([queue.next().unwrap(), queue.next().unwrap()], ["a10", "c0"], "the next one has its turn");
    }

    #[test]
    fn object_is_in_progress_once() {
        let mut queue = Queue::default();
        for _ in 0..2 {
            queue.add("a", "x".to_owned());
        }
        assert_eq!(drain(&mut queue), ["x"]);
        for _ in 0..2 {
            queue.add("a", "x".to_owned());
        }
        assert!(drain(&mut queue).is_empty());
        queue.done("x");
        assert_eq!(drain(&mut queue), ["x"], "a change during its check is not missed");
        queue.done("x");
        assert!(drain(&mut queue).is_empty());
    }
}
