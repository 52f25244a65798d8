//! Names and sentences that say nothing to a reader from the field.

use std::collections::BTreeMap;

use crate::tree::Location;

/// Participles, and metaphors of our own, that stood for types.
const TYPES: &[&str] = &[
    "Behind",
    "Course",
    "Declared",
    "Echoes",
    "Failure",
    "Figures",
    "Hear",
    "Keeper",
    "Kept",
    "Known",
    "Layered",
    "Leased",
    "Look",
    "Means",
    "OwnPace",
    "Pass",
    "Place",
    "Rephrased",
    "Saved",
    "Seen",
    "Sends",
    "Shown",
    "Standing",
    "Turns",
    "Wanted",
];

/// Functions that each meant many different things.
const FUNCTIONS: &[&str] =
    &["bring_on", "graft", "lacks", "leashed", "look", "put_back", "seen", "take", "tell", "told", "whole"];

/// Metaphors of our own, also as a part of the name of a type.
const TYPE_WORDS: &[&str] = &["Bell", "Danger", "Ordeal", "Patience"];

/// Superlatives and metaphors that stood for a limit, also as a part of the name of a constant.
const CONSTANT_WORDS: &[&str] = &["LARGEST", "LONGEST", "LOOK", "MOST", "PATIENCE"];

/// Words that begin a question where a noun should stand.
const FIRST_WORDS: &[&str] = &["What", "How", "Whether", "Who", "Whoever", "Where"];

/// The kind of item that a name belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Type,
    Function,
    Constant,
}

/// A banned name or doc comment.
#[derive(Debug)]
pub(crate) struct Finding {
    at: Location,
    text: String,
}

/// Returns a finding if the name is banned for this kind of item.
pub(crate) fn name(kind: Kind, name: &str, at: Location) -> Option<Finding> {
    let (keyword, names, words) = match kind {
        Kind::Type => ("type", TYPES, TYPE_WORDS),
        Kind::Function => ("fn", FUNCTIONS, &[][..]),
        Kind::Constant => ("const", &[][..], CONSTANT_WORDS),
    };
    let is_banned =
        names.contains(&name) || segments(name).any(|segment| words.iter().any(|word| word.as_bytes() == segment));
    is_banned.then(|| Finding { at, text: format!("the name `{keyword} {name}` is banned") })
}

/// Splits a name at underscores, and between a small letter or a digit and a capital letter.
fn segments(name: &str) -> impl Iterator<Item = &[u8]> {
    name.split('_').flat_map(|part| {
        part.as_bytes().chunk_by(|before, after| before.is_ascii_uppercase() || !after.is_ascii_uppercase())
    })
}

/// Returns a finding if the first line of a doc comment begins with a question word.
pub(crate) fn doc(line: &str, at: Location) -> Option<Finding> {
    let line = line.trim();
    let word = line.split(|c: char| !c.is_alphabetic()).next().unwrap_or_default();
    FIRST_WORDS.contains(&word).then(|| Finding { at, text: format!("doc comment begins with {word:?}: {line}") })
}

/// Compares the findings of each file with the number that is allowed.
pub(crate) fn errors(findings: &[Finding], allowed: &[(&str, usize)]) -> Vec<String> {
    let mut files: BTreeMap<&str, Vec<&Finding>> = BTreeMap::new();
    for finding in findings {
        files.entry(&finding.at.file).or_default().push(finding);
    }
    let mut errors = Vec::new();
    let mut rows = BTreeMap::new();
    for (file, count) in allowed {
        if rows.insert(*file, *count).is_some() {
            errors.push(format!("two rows for {file:?} in the list of allowed findings"));
        }
        let found = files.get(file).map_or(0, Vec::len);
        if found < *count {
            errors.push(format!("({file:?}, {count}) allows more than the {found} findings: lower it"));
        }
    }
    for (file, found) in files {
        let count = rows.get(file).copied().unwrap_or(0);
        if found.len() > count {
            errors.push(format!("({file:?}, {}), of which {count} are allowed:", found.len()));
            errors.extend(found.iter().map(|Finding { at, text }| format!("  {at}: {text}")));
        }
    }
    errors
}
