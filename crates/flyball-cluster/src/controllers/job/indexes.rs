//! The indexes of an indexed job, in the format of its status: `0,2-4`.
//!
//! They are stored as runs, since a short text may denote billions of indexes.

use std::collections::BTreeMap;

/// A set of indexes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Indexes {
    /// The last index of each run, by the first one. Between two runs is at least one index that is not in the set.
    runs: BTreeMap<i32, i32>,
}

impl Indexes {
    /// Parses a list of indexes; those outside of the job are skipped.
    pub(super) fn parse(text: &str, completions: i32) -> Self {
        let mut found = Self::default();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            if let (Ok(first), Ok(last)) = (first.parse::<i32>(), last.parse::<i32>()) {
                found.insert_run(first.max(0), last.min(completions.saturating_sub(1)));
            }
        }
        found
    }

    pub(super) fn contains(&self, index: i32) -> bool {
        self.runs.range(..=index).next_back().is_some_and(|(_, last)| *last >= index)
    }

    /// Adds an index; returns true if it is new.
    pub(super) fn insert(&mut self, index: i32) -> bool {
        let is_new = !self.contains(index);
        self.insert_run(index, index);
        is_new
    }

    fn insert_run(&mut self, mut first: i32, mut last: i32) {
        if first > last {
            return;
        }
        // Overlapping and adjacent runs are merged.
        while let Some((&start, &end)) = self.runs.range(..=last.saturating_add(1)).next_back() {
            if end < first.saturating_sub(1) {
                break;
            }
            self.runs.remove(&start);
            (first, last) = (first.min(start), last.max(end));
        }
        self.runs.insert(first, last);
    }

    /// Returns the indexes of this set and another one.
    pub(super) fn union(&self, other: &Self) -> Self {
        let mut union = self.clone();
        other.runs.iter().for_each(|(first, last)| union.insert_run(*first, *last));
        union
    }

    /// Returns the number of indexes.
    pub(super) fn len(&self) -> i32 {
        let len = self.runs.iter().map(|(first, last)| i64::from(*last) - i64::from(*first) + 1).sum::<i64>();
        i32::try_from(len).unwrap_or(i32::MAX)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Returns the number of indexes that are also in another set.
    pub(super) fn common(&self, other: &Self) -> i32 {
        let both = i64::from(self.len()) + i64::from(other.len()) - i64::from(self.union(other).len());
        i32::try_from(both).unwrap_or(i32::MAX)
    }

    /// Returns the indexes below a bound that are not in the set, in order.
    pub(super) fn free(&self, bound: i32) -> impl Iterator<Item = i32> {
        let starts = [0].into_iter().chain(self.runs.values().map(|last| last.saturating_add(1)));
        let ends = self.runs.keys().copied().chain([bound]);
        starts.zip(ends).flat_map(move |(start, end)| start.max(0)..end.min(bound))
    }

    /// Writes them as a list; three and more in a row as a range.
    pub(super) fn print(&self) -> String {
        let text = |(first, last): (&i32, &i32)| match i64::from(*last) - i64::from(*first) {
            0 => first.to_string(),
            1 => format!("{first},{last}"),
            _ => format!("{first}-{last}"),
        };
        self.runs.iter().map(text).collect::<Vec<_>>().join(",")
    }
}

impl FromIterator<i32> for Indexes {
    fn from_iter<I: IntoIterator<Item = i32>>(indexes: I) -> Self {
        let mut set = Self::default();
        set.extend(indexes);
        set
    }
}

impl Extend<i32> for Indexes {
    fn extend<I: IntoIterator<Item = i32>>(&mut self, indexes: I) {
        indexes.into_iter().for_each(|index| self.insert_run(index, index));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn lists_round_trip() {
        let check = |text, expect| assert_eq!(Indexes::parse(text, 10).print(), expect, "{text}");
        check("", "");
        check("0,2-4", "0,2-4");
        check("3,1,2", "1-3");
        check("1-2,7", "1,2,7");
        check("8-20,x", "8,9");
        check("5-7,1-2,0-9", "0-9");
        check("7-3", "");
        check("-5", "");
    }

    #[test]
    fn all_indexes_of_the_largest_job_form_one_range() {
        let all = Indexes::parse("0-2147483646", i32::MAX);
        assert_eq!((all.runs.len(), all.len(), all.print()), (1, i32::MAX, "0-2147483646".to_owned()));
        assert_eq!((all.free(i32::MAX).next(), all.common(&all)), (None, i32::MAX));
        assert_eq!(Indexes::default().free(i32::MAX).take(2).collect::<Vec<_>>(), [0, 1]);
        assert!(Indexes::parse("0-2147483646", i32::MIN).is_empty());
    }

    proptest::proptest! {
        #[test]
        fn indexes_match_a_set(
            some in proptest::collection::vec(0..20_i32, 0..15),
            others in proptest::collection::vec(0..20_i32, 0..15),
        ) {
            let (mut indexes, mut model) = (Indexes::default(), BTreeSet::new());
            for index in &some {
                assert_eq!(indexes.insert(*index), model.insert(*index));
            }
            let (second, second_model): (Indexes, BTreeSet<i32>) =
                (others.iter().copied().collect(), others.iter().copied().collect());
            assert_eq!(indexes.len() as usize, model.len());
            assert_eq!(indexes.common(&second) as usize, model.intersection(&second_model).count());
            assert_eq!(indexes.union(&second), model.union(&second_model).copied().collect());
            assert_eq!(Indexes::parse(&indexes.print(), 20), indexes);
            let free: Vec<_> = (0..18).filter(|i| !model.contains(i)).collect();
            assert_eq!(indexes.free(18).collect::<Vec<_>>(), free);
            assert!((0..20).all(|index| indexes.contains(index) == model.contains(&index)));
        }
    }
}
