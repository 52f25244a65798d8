//! Names that were drawn for objects of which it is not known whether they were made.
//!
//! A create whose answer is lost each time may be carried out late, when the next reconcile is under way already. If
//! that drew another name, there would be two objects. So it takes the name that was drawn before.
//!
//! Invariant: a name is handed out to one create at a time, and not at all once its object was seen: that one counts
//! already.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// So many objects' names are kept at most.
const MAX_PLACES: usize = 1000;
/// So many names are kept of one place.
const MAX_NAMES: usize = 100;

/// What a name was drawn for: the UID of the object that was reconciled, the URL of the kind, and what the name begins
/// with.
pub(crate) type Place = (String, String, String);

/// Names that may be taken, by objects that come late.
#[derive(Debug, Default)]
pub(crate) struct DrawnNames(Mutex<BTreeMap<Place, Vec<String>>>);

impl DrawnNames {
    /// Takes a name for an object: one that is in doubt and whose object is not `known`, or else a new one.
    pub(super) fn take(&self, place: Place, known: impl Fn(&str) -> bool, draw: impl FnOnce() -> String) -> Drawn<'_> {
        let mut names = self.lock().remove(&place).unwrap_or_default();
        names.retain(|name| !known(name));
        let again = names.pop();
        if !names.is_empty() {
            self.lock().insert(place.clone(), names);
        }
        Drawn { names: self, place, is_again: again.is_some(), name: again.unwrap_or_else(draw), in_doubt: true }
    }

    fn keep(&self, place: Place, name: String) {
        let mut names = self.lock();
        if names.len() >= MAX_PLACES && !names.contains_key(&place) {
            names.pop_first();
        }
        let names = names.entry(place).or_default();
        if names.len() < MAX_NAMES {
            names.push(name);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Place, Vec<String>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A name that a create uses. Unless it is [settled](Self::settle) what became of that, the next one takes the name.
#[derive(Debug)]
pub(super) struct Drawn<'a> {
    names: &'a DrawnNames,
    place: Place,
    pub(super) name: String,
    /// Whether a create before this one used it.
    pub(super) is_again: bool,
    in_doubt: bool,
}

impl Drawn<'_> {
    /// Takes in that it is known whether the object was made.
    pub(super) fn settle(&mut self) {
        self.in_doubt = false;
    }
}

impl Drop for Drawn<'_> {
    fn drop(&mut self) {
        if self.in_doubt {
            self.names.keep(std::mem::take(&mut self.place), std::mem::take(&mut self.name));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_in_doubt_is_taken_again_and_by_one_at_a_time() {
        let names = DrawnNames::default();
        let place = || ("uid".to_owned(), "/api/v1/pods".to_owned(), "a-".to_owned());
        let draw = |new: &'static str| names.take(place(), |_| false, move || new.to_owned());
        let (first, second) = (draw("one"), draw("two"));
        assert_eq!((&*first.name, &*second.name, first.is_again), ("one", "two", false));
        drop(first);
        let mut again = draw("three");
        assert_eq!((&*again.name, again.is_again), ("one", true));
        assert_eq!(draw("four").name, "four");
        again.settle();
        drop(again);
        assert_eq!(draw("five").name, "four");
        drop(second);
        // Those whose objects were seen count already.
        let taken = names.take(place(), |name| name == "four" || name == "two", || "six".to_owned());
        assert_eq!((&*taken.name, taken.is_again), ("six", false));
    }

    #[test]
    fn no_more_is_kept_than_is_worth_it() {
        let names = DrawnNames::default();
        for n in 0..2 * MAX_PLACES {
            drop(names.take((n.to_string(), String::new(), String::new()), |_| false, || "a".to_owned()));
        }
        assert_eq!(names.lock().len(), MAX_PLACES);
    }
}
