//! The list of passing steps: one line per scenario, with the numbers of its steps by verdict.

use super::judge::Verdict;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The passing steps of all scenarios.
#[derive(Default)]
pub(crate) struct Passing(BTreeMap<String, BTreeMap<String, BTreeSet<usize>>>);

impl Passing {
    pub(crate) fn of(verdicts: &[(String, Vec<Verdict>)]) -> Self {
        let mut all = Self::default();
        for (name, rows) in verdicts {
            // Message and managedFields verdicts only count for steps that pass semantically.
            for (step, row) in rows.iter().enumerate().filter(|(_, row)| row.semantic.is_none()) {
                for (what, _) in row.all().into_iter().filter(|(_, why)| why.is_none()) {
                    all.0.entry(name.clone()).or_default().entry(what.into()).or_default().insert(step);
                }
            }
        }
        all
    }

    /// Reads the list; there is none before the first one is written.
    pub(crate) fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let mut all = Self::default();
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let name = words.next().expect("a line has a name").to_owned();
            for (what, steps) in words.map(|word| word.split_once('=').expect("a verdict has steps")) {
                all.0
                    .entry(name.clone())
                    .or_default()
                    .insert(what.to_owned(), steps.split(',').flat_map(range).collect());
            }
        }
        all
    }

    pub(crate) fn write(&self, path: &Path) {
        let line = |(name, verdicts): (&String, &BTreeMap<String, BTreeSet<usize>>)| {
            let words: Vec<String> =
                verdicts.iter().rev().map(|(what, steps)| format!("{what}={}", ranges(steps))).collect();
            format!("{name} {}\n", words.join(" "))
        };
        std::fs::write(path, self.0.iter().map(line).collect::<String>()).expect("the list can be written");
    }

    /// Returns the steps that pass here and not there, by scenario.
    pub(crate) fn missing_in<'p>(&'p self, other: &'p Self) -> impl Iterator<Item = (&'p String, String)> {
        let none = BTreeMap::new();
        self.0.iter().flat_map(move |(name, verdicts)| {
            let there = other.0.get(name).unwrap_or(&none);
            let lost = verdicts.iter().filter_map(|(what, steps)| {
                let lost: BTreeSet<usize> = steps
                    .iter()
                    .filter(|step| !there.get(what).is_some_and(|there| there.contains(step)))
                    .copied()
                    .collect();
                (!lost.is_empty()).then(|| (name, format!("{name} {what}={}", ranges(&lost))))
            });
            lost.collect::<Vec<_>>()
        })
    }
}

/// Reads `3` or `3-7`.
fn range(text: &str) -> std::ops::RangeInclusive<usize> {
    let number = |text: &str| text.parse().expect("a step is a number");
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    number(first)..=number(last)
}

/// Writes numbers as `0-3,5`.
fn ranges(steps: &BTreeSet<usize>) -> String {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for step in steps {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == *step => *last = *step,
            _ => runs.push((*step, *step)),
        }
    }
    let run =
        |(first, last): &(usize, usize)| if first == last { first.to_string() } else { format!("{first}-{last}") };
    runs.iter().map(run).collect::<Vec<_>>().join(",")
}
