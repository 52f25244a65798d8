//! A queue of keys with round-robin over namespaces, so that many keys of one do not delay the few of another.
//!
//! Within a namespace the order is first in, first out. A key can be removed from anywhere in constant time.

use std::collections::VecDeque;

/// Keys and namespaces are numbers; a key is in the lane at most once.
#[derive(Debug, Default)]
pub(super) struct Lane {
    /// The neighbors of each key in the lane.
    neighbors: Vec<Neighbors>,
    /// The keys of each namespace.
    queues: Vec<Queue>,
    /// The namespaces in order of turns. A namespace whose keys were all removed is skipped.
    turns: VecDeque<u32>,
    len: usize,
}

/// An empty lane with a larger capacity than this releases its memory.
const MAX_IDLE_CAPACITY: usize = 1024;

#[derive(Clone, Copy, Debug, Default)]
struct Neighbors {
    before: Option<u32>,
    after: Option<u32>,
}

#[derive(Clone, Debug, Default)]
struct Queue {
    ends: Option<(u32, u32)>,
    has_turn: bool,
}

impl Lane {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a key that is not in the lane, after the others of its namespace.
    pub(super) fn push(&mut self, key: u32, namespace: u32) {
        grow(&mut self.neighbors, key);
        let queue = grow(&mut self.queues, namespace);
        let last = queue.ends.map(|(_, last)| last);
        queue.ends = Some((queue.ends.map_or(key, |(first, _)| first), key));
        if !queue.has_turn {
            queue.has_turn = true;
            self.turns.push_back(namespace);
        }
        self.neighbors[key as usize] = Neighbors { before: last, after: None };
        if let Some(last) = last {
            self.neighbors[last as usize].after = Some(key);
        }
        self.len += 1;
    }

    /// Removes and returns the first key of the next namespace that is eligible. The others keep their
    /// turns.
    pub(super) fn pop(&mut self, is_eligible: impl Fn(u32) -> bool) -> Option<u32> {
        let at = self.turn(is_eligible)?;
        let namespace = self.turns.remove(at)?;
        let queue = &mut self.queues[namespace as usize];
        let (first, last) = queue.ends?;
        queue.has_turn = first != last;
        if queue.has_turn {
            self.turns.push_back(namespace);
        }
        self.remove(first, namespace);
        Some(first)
    }

    /// Returns true if [`pop`](Self::pop) would return a key.
    pub(super) fn has_eligible(&mut self, is_eligible: impl Fn(u32) -> bool) -> bool {
        self.turn(is_eligible).is_some()
    }

    /// Returns the index of the next turn of a namespace that may have it.
    fn turn(&mut self, is_eligible: impl Fn(u32) -> bool) -> Option<usize> {
        let mut at = 0;
        while let Some(namespace) = self.turns.get(at).copied() {
            let queue = &mut self.queues[namespace as usize];
            match queue.ends {
                Some(_) if is_eligible(namespace) => return Some(at),
                Some(_) => at += 1,
                None => {
                    queue.has_turn = false;
                    self.turns.remove(at);
                }
            }
        }
        None
    }

    /// Removes a key from the lane.
    pub(super) fn remove(&mut self, key: u32, namespace: u32) {
        let Neighbors { before, after } = std::mem::take(&mut self.neighbors[key as usize]);
        if let Some(before) = before {
            self.neighbors[before as usize].after = after;
        }
        if let Some(after) = after {
            self.neighbors[after as usize].before = before;
        }
        let queue = &mut self.queues[namespace as usize];
        queue.ends = match (queue.ends, before, after) {
            (Some((_, last)), None, Some(after)) => Some((after, last)),
            (Some((first, _)), Some(before), None) => Some((first, before)),
            (_, None, None) => None,
            (ends, Some(_), Some(_)) | (ends @ None, ..) => ends,
        };
        self.len -= 1;
        if self.len == 0 && self.neighbors.len() > MAX_IDLE_CAPACITY {
            self.neighbors = Vec::new();
        }
    }
}

/// Returns the entry at this index, and grows the list if necessary.
fn grow<T: Clone + Default>(list: &mut Vec<T>, place: u32) -> &mut T {
    let place = place as usize;
    if list.len() <= place {
        list.resize(place + 1, T::default());
    }
    &mut list[place]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]
        #[test]
        fn namespaces_take_turns(steps in prop::collection::vec((0..5u8, 0..40u32), 0..300)) {
            let (mut lane, namespace) = (Lane::default(), |key: u32| key % 4);
            let mut model: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
            // Number of times that each namespace was served while another one waited.
            let mut passed: BTreeMap<(u32, u32), usize> = BTreeMap::new();
            for (step, key) in steps {
                let queue = model.entry(namespace(key)).or_default();
                match (step, queue.iter().position(|known| *known == key)) {
                    (0..=2, None) => {
                        if queue.is_empty() {
                            passed.retain(|(waiting, _), _| *waiting != namespace(key));
                        }
                        queue.push(key);
                        lane.push(key, namespace(key));
                    }
                    (3, Some(place)) => {
                        queue.remove(place);
                        lane.remove(key, namespace(key));
                    }
                    (4, _) => match lane.pop(|_| true) {
                        Some(first) => {
                            prop_assert_eq!(model.get_mut(&namespace(first)).unwrap().remove(0), first);
                            passed.retain(|(waiting, _), _| *waiting != namespace(first));
                            let others = model.iter().filter(|(n, keys)| **n != namespace(first) && !keys.is_empty());
                            for (waiting, _) in others {
                                let times = passed.entry((*waiting, namespace(first))).or_default();
                                *times += 1;
                                prop_assert_eq!(*times, 1, "{} was served again before {}", namespace(first), waiting);
                            }
                        }
                        None => prop_assert!(model.values().all(Vec::is_empty)),
                    },
                    _ => {}
                }
                prop_assert_eq!(lane.len(), model.values().map(Vec::len).sum::<usize>());
            }
        }
    }
}
