//! A table that numbers keys, and namespaces of keys, by their hash.
//!
//! An item keeps its number while it is in the table; then the number is reused. Numbers are small, so that other
//! structures can use them as indexes. Nothing here depends on the order of hashes.

use hashbrown::HashTable;
use std::ops::{Index, IndexMut};

/// Items by number and by hash.
#[derive(Debug)]
pub(super) struct Table<T> {
    numbers: HashTable<u32>,
    slots: Vec<Option<(u64, T)>>,
    free: Vec<u32>,
}

/// An empty table with more slots than this releases its memory.
const MAX_IDLE_CAPACITY: usize = 1024;

impl<T> Table<T> {
    /// Returns the number of the item with this hash for which `is` is true.
    pub(super) fn find(&self, hash: u64, is: impl Fn(&T) -> bool) -> Option<u32> {
        let found = self.numbers.find(hash, |number| match &self.slots[*number as usize] {
            Some((known, thing)) => *known == hash && is(thing),
            None => false,
        });
        found.copied()
    }

    /// Inserts an item, and returns its number.
    pub(super) fn insert(&mut self, hash: u64, thing: T) -> u32 {
        let slot = Some((hash, thing));
        let number = match self.free.pop() {
            Some(number) => {
                self.slots[number as usize] = slot;
                number
            }
            None => {
                self.slots.push(slot);
                u32::try_from(self.slots.len() - 1).expect("the number of objects is below 2^32")
            }
        };
        let slots = &self.slots;
        self.numbers
            .insert_unique(hash, number, |number| slots[*number as usize].as_ref().map_or(0, |(hash, _)| *hash));
        number
    }

    /// Removes the entry with this number.
    pub(super) fn remove(&mut self, number: u32) {
        let Some((hash, _)) = self.slots[number as usize].take() else { return };
        if let Ok(entry) = self.numbers.find_entry(hash, |known| *known == number) {
            entry.remove();
        }
        self.free.push(number);
        if self.numbers.is_empty() && self.slots.len() > MAX_IDLE_CAPACITY {
            *self = Self::default();
        }
    }

    /// Returns all items, in the order of their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().flatten().map(|(_, thing)| thing)
    }

    /// Returns the number of items, and the capacity.
    #[cfg(test)]
    pub(super) fn size(&self) -> (usize, usize) {
        (self.numbers.len(), self.slots.len())
    }
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { numbers: HashTable::new(), slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Index<u32> for Table<T> {
    type Output = T;

    fn index(&self, number: u32) -> &T {
        &self.slots[number as usize].as_ref().expect("numbers are only kept for existing items").1
    }
}

impl<T> IndexMut<u32> for Table<T> {
    fn index_mut(&mut self, number: u32) -> &mut T {
        &mut self.slots[number as usize].as_mut().expect("numbers are only kept for existing items").1
    }
}
