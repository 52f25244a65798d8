//! Generated names of objects whose creation is uncertain.
//!
//! A create whose response is lost may be processed late, during the next reconcile. If that reconcile generated
//! another name, there would be two objects. So it reuses the previous name.
//!
//! Invariant: a name is reserved by one create at a time, and never once its object was observed.

use super::recent::RecentEntries;
use parking_lot::Mutex;

/// Limit of scopes with stored names.
const MAX_SCOPES: usize = 1000;
/// Limit of stored names in a scope.
const MAX_NAMES: usize = 100;

/// The scope of a generated name: the UID of the object being reconciled, the URL of the kind, and the prefix of the
/// name.
pub(crate) type NameScope = (String, String, String);

/// Names that a late create may still use.
#[derive(Debug)]
pub(crate) struct GeneratedNames(Mutex<RecentEntries<NameScope, Vec<String>>>);

impl Default for GeneratedNames {
    fn default() -> Self {
        Self(Mutex::new(RecentEntries::new(MAX_SCOPES)))
    }
}

impl GeneratedNames {
    /// Reserves a name for an object: an uncertain one whose object is not `known`, or else a new one.
    pub(crate) fn reserve(
        &self,
        place: NameScope,
        known: impl Fn(&str) -> bool,
        draw: impl FnOnce() -> String,
    ) -> Reservation<'_> {
        let mut places = self.0.lock();
        let mut names = places.remove(&place).unwrap_or_default();
        names.retain(|name| !known(name));
        let again = names.pop();
        if !names.is_empty() {
            places.insert(place.clone(), names);
        }
        drop(places);
        Reservation { names: self, place, is_again: again.is_some(), name: again.unwrap_or_else(draw), in_doubt: true }
    }

    fn keep(&self, place: NameScope, name: String) {
        let mut places = self.0.lock();
        let mut names = places.remove(&place).unwrap_or_default();
        if names.len() < MAX_NAMES {
            names.push(name);
        }
        places.insert(place, names);
    }
}

/// A name in use by a create. Unless its result is [complete](Self::settle), the next create reuses the name.
#[derive(Debug)]
pub(crate) struct Reservation<'a> {
    names: &'a GeneratedNames,
    place: NameScope,
    pub(crate) name: String,
    /// True if an earlier create used the name.
    pub(crate) is_again: bool,
    in_doubt: bool,
}

impl Reservation<'_> {
    /// Records that the result of the create is known.
    pub(crate) fn complete(&mut self) {
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
    fn uncertain_name_is_reused_by_one_reservation_at_a_time() {
        let names = GeneratedNames::default();
        let place = || ("uid".to_owned(), "/api/v1/pods".to_owned(), "a-".to_owned());
        let draw = |new: &'static str| names.reserve(place(), |_| false, move || new.to_owned());
        let (first, second) = (draw("one"), draw("two"));
        assert_eq!((&*first.name, &*second.name, first.is_again), ("one", "two", false));
        drop(first);
        let mut again = draw("three");
        assert_eq!((&*again.name, again.is_again), ("one", true));
        assert_eq!(draw("four").name, "four");
        again.complete();
        drop(again);
        assert_eq!(draw("five").name, "four");
        drop(second);
        // Names of observed objects no longer count.
        let reserved = names.reserve(place(), |name| name == "four" || name == "two", || "six".to_owned());
        assert_eq!((&*reserved.name, reserved.is_again), ("six", false));
    }

    #[test]
    fn oldest_scope_is_evicted() {
        let names = GeneratedNames::default();
        let take = |n: usize| {
            names.reserve((n.to_string(), String::new(), String::new()), |_| false, || "a".to_owned()).is_again
        };
        // In reverse order, so that the newest has the smallest name.
        assert!(!(0..=MAX_SCOPES).rev().any(take));
        assert!(take(0) && !take(MAX_SCOPES));
    }
}
