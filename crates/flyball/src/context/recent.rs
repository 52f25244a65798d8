//! A map of limited size, which evicts the oldest entries.

use std::collections::BTreeMap;

/// The entries that were inserted last.
#[derive(Debug)]
pub(super) struct RecentEntries<K, V> {
    limit: usize,
    entries: BTreeMap<K, (u64, V)>,
    /// The keys in order of insertion.
    order: BTreeMap<u64, K>,
    inserted: u64,
}

impl<K: Clone + Ord, V> RecentEntries<K, V> {
    /// Creates a map with this capacity.
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, entries: BTreeMap::new(), order: BTreeMap::new(), inserted: 0 }
    }

    /// Inserts an entry as the newest one, and returns the value that it replaces.
    pub(super) fn insert(&mut self, key: K, value: V) -> Option<V> {
        let before = self.remove(&key);
        if self.entries.len() >= self.limit
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.entries.remove(&oldest);
        }
        self.inserted += 1;
        self.order.insert(self.inserted, key.clone());
        self.entries.insert(key, (self.inserted, value));
        before
    }

    /// Removes an entry.
    pub(super) fn remove(&mut self, key: &K) -> Option<V> {
        let (inserted, value) = self.entries.remove(key)?;
        self.order.remove(&inserted);
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_entry_is_evicted() {
        let mut recent = RecentEntries::new(3);
        ["c", "b", "a"].into_iter().for_each(|key| assert_eq!(recent.insert(key, 1), None));
        assert_eq!(recent.insert("c", 2), Some(1), "inserted again, it is the newest");
        assert_eq!(recent.insert("0", 1), None);
        assert_eq!((recent.remove(&"b"), recent.remove(&"c")), (None, Some(2)));
        (0..10).for_each(|n| _ = recent.insert("d", n));
        assert_eq!(recent.entries.keys().copied().collect::<Vec<_>>(), ["0", "a", "d"]);
        assert_eq!(recent.order.len(), 3);
    }
}
