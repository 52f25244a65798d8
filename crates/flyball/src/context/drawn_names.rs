//! Names that were drawn for objects of which it is not known whether they were made.
//!
//! A create whose answer is lost each time may be carried out late, when the next reconcile is under way already. If
//! that drew another name, there would be two objects. So it takes the name that was drawn before.
//!
//! Invariant: a name is handed out to one create at a time, and not at all once its object was seen: that one counts
//! already.

use super::recent::RecentEntries;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// So many objects' names are kept at most.
const MAX_PLACES: usize = 1000;
/// So many names are kept of one place.
const MAX_NAMES: usize = 100;

/// What a name was drawn for: the UID of the object that was reconciled, the URL of the kind, and what the name begins
/// with.
pub(crate) type Place = (String, String, String);

/// Names that may be taken, by objects that come late.
#[derive(Debug)]
pub(crate) struct DrawnNames(Mutex<RecentEntries<Place, Vec<String>>>);

impl Default for DrawnNames {
    fn default() -> Self {
        Self(Mutex::new(RecentEntries::new(MAX_PLACES)))
    }
}

impl DrawnNames {
    /// Takes a name for an object: one that is in doubt and whose object is not `known`, or else a new one.
    pub(crate) fn take(
        &self,
        place: Place,
        known: impl Fn(&str) -> bool,
        draw: impl FnOnce() -> String,
    ) -> Reservation<'_> {
        let mut places = self.lock();
        let mut names = places.remove(&place).unwrap_or_default();
        names.retain(|name| !known(name));
        let again = names.pop();
        if !names.is_empty() {
            places.insert(place.clone(), names);
        }
        drop(places);
        Reservation { names: self, place, is_again: again.is_some(), name: again.unwrap_or_else(draw), in_doubt: true }
    }

    fn keep(&self, place: Place, name: String) {
        let mut places = self.lock();
        let mut names = places.remove(&place).unwrap_or_default();
        if names.len() < MAX_NAMES {
            names.push(name);
        }
        places.insert(place, names);
    }

    fn lock(&self) -> MutexGuard<'_, RecentEntries<Place, Vec<String>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A name that a create uses. Unless it is [settled](Self::settle) what became of that, the next one takes the name.
#[derive(Debug)]
pub(crate) struct Reservation<'a> {
    names: &'a DrawnNames,
    place: Place,
    pub(crate) name: String,
    /// Whether a create before this one used it.
    pub(crate) is_again: bool,
    in_doubt: bool,
}

impl Reservation<'_> {
    /// Takes in that it is known whether the object was made.
    pub(crate) fn settle(&mut self) {
        self.in_doubt = false;
    }
}

impl Drop for Reservation<'_> {
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
    fn the_oldest_place_is_forgotten() {
        let names = DrawnNames::default();
        let take =
            |n: usize| names.take((n.to_string(), String::new(), String::new()), |_| false, || "a".to_owned()).is_again;
        // Backwards, so that the newest has the smallest name.
        assert!(!(0..=MAX_PLACES).rev().any(take));
        assert!(take(0) && !take(MAX_PLACES));
    }
}
