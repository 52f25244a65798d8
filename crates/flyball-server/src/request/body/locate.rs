//! Positions of the warnings about a JSON document, so that they are returned in the order of the document.

use flyball_core::json::{ContainerVisitor, Containers};
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess};
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

/// Returns the position in a JSON document of each warning about an unknown or a duplicate field.
///
/// It only runs for documents with several warnings.
pub(crate) fn warning_positions(bytes: &[u8], warnings: &[String]) -> Vec<usize> {
    let pending = warnings.iter().enumerate().filter_map(|(at, warning)| {
        let (duplicate, path) = match warning.strip_prefix("duplicate field \"") {
            Some(path) => (true, path),
            None => (false, warning.strip_prefix("unknown field \"")?),
        };
        Some(PendingWarning { at, duplicate, rest: path.strip_suffix('"')? })
    });
    let found = RefCell::new(WarningPositions { positions: vec![usize::MAX; warnings.len()], count: 0 });
    let locator = WarningLocator { pending: pending.collect(), is_root: true, found: &found };
    // Malformed JSON has been rejected before.
    drop(Containers(locator).deserialize(&mut serde_json::Deserializer::from_slice(bytes)));
    found.into_inner().positions
}

/// A warning, with the progress of a [`WarningLocator`] on its path.
#[derive(Clone, Copy)]
struct PendingWarning<'w> {
    /// Index of the warning.
    at: usize,
    duplicate: bool,
    /// The rest of the path.
    rest: &'w str,
}

/// The positions that have been found.
struct WarningPositions {
    positions: Vec<usize>,
    count: usize,
}

/// Walks to the fields of the warnings, and to no others.
struct WarningLocator<'w, 'f> {
    pending: Vec<PendingWarning<'w>>,
    is_root: bool,
    found: &'f RefCell<WarningPositions>,
}

impl<'w> WarningLocator<'w, '_> {
    /// Records the position of the warnings of this type whose field is reached.
    fn record(&self, reached: &[PendingWarning<'w>], duplicate: bool) {
        let WarningPositions { positions, count } = &mut *self.found.borrow_mut();
        for warning in reached.iter().filter(|warning| warning.rest.is_empty() && warning.duplicate == duplicate) {
            positions[warning.at] = positions[warning.at].min(*count);
        }
        *count += 1;
    }

    /// Advances along the paths of the warnings; `None` if no path matches.
    fn step(&self, step: &str) -> Option<Vec<PendingWarning<'w>>> {
        let on =
            |warning: &PendingWarning<'w>| Some(PendingWarning { rest: warning.rest.strip_prefix(step)?, ..*warning });
        let pending: Vec<PendingWarning<'w>> = self.pending.iter().filter_map(on).collect();
        (!pending.is_empty()).then_some(pending)
    }

    fn within(&self, pending: Vec<PendingWarning<'w>>) -> Containers<Self> {
        Containers(Self { pending, is_root: false, found: self.found })
    }
}

impl<'de> ContainerVisitor<'de> for WarningLocator<'_, '_> {
    fn visit_list<A: SeqAccess<'de>>(self, mut access: A) -> Result<(), A::Error> {
        let mut items: BTreeMap<usize, Vec<PendingWarning<'_>>> = BTreeMap::new();
        for warning in &self.pending {
            let at = warning.rest.strip_prefix('[').and_then(|rest| rest.split_once(']'));
            if let Some((Ok(i), rest)) = at.map(|(i, rest)| (i.parse(), rest)) {
                items.entry(i).or_default().push(PendingWarning { rest, ..*warning });
            }
        }
        for i in 0.. {
            let read = match items.remove(&i) {
                Some(pending) => access.next_element_seed(self.within(pending))?.is_some(),
                None => access.next_element::<IgnoredAny>()?.is_some(),
            };
            if !read {
                break;
            }
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<(), A::Error> {
        let mut seen: BTreeSet<usize> = BTreeSet::new();
        while let Some(key) = access.next_key::<Cow<'_, str>>()? {
            let step = if self.is_root { self.step(&key) } else { self.step(&format!(".{key}")) };
            let Some(pending) = step else {
                access.next_value::<IgnoredAny>()?;
                continue;
            };
            // A path may end at a key and also continue, since keys may contain dots.
            let reached: Vec<PendingWarning<'_>> =
                pending.iter().filter(|warning| warning.rest.is_empty()).copied().collect();
            self.record(&reached, false);
            access.next_value_seed(self.within(pending))?;
            let again: Vec<PendingWarning<'_>> =
                reached.into_iter().filter(|warning| !seen.insert(warning.at)).collect();
            self.record(&again, true);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_follow_the_order_of_the_document() {
        let text = br#"{"z": 1, "s": {"l": [{"b": 1, "b": 2, "a": {"x.y": 0}}]}, "a": 3, "a": 4}"#;
        let warnings = [
            "duplicate field \"a\"",
            "duplicate field \"s.l[0].b\"",
            "unknown field \"s.l[0].a.x.y\"",
            "unknown field \"z\"",
            "unknown field \"none\"",
        ];
        let warnings = warnings.map(str::to_owned);
        let mut order: Vec<usize> = (0..warnings.len()).collect();
        let positions = warning_positions(text, &warnings);
        order.sort_by_key(|at| positions[*at]);
        assert_eq!(order, [3, 1, 2, 0, 4]);
    }
}
