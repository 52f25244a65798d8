//! Banned names and first words of doc comments.

use std::fmt;

use crate::tree::Location;

/// Participles and metaphors as names of types.
const TYPES: &[&str] = &[
    "Behind",
    "Changed",
    "Checked",
    "Course",
    "CutOff",
    "Declared",
    "Echoes",
    "Failure",
    "Figures",
    "Finder",
    "Hear",
    "Inner",
    "Keeper",
    "Kept",
    "Known",
    "Layered",
    "Leased",
    "Link",
    "Look",
    "Means",
    "Notes",
    "Observed",
    "OwnPace",
    "Pass",
    "Place",
    "Rephrased",
    "Saved",
    "Seen",
    "Sends",
    "Shown",
    "Simulated",
    "Standing",
    "Turns",
    "Wanted",
];

/// Ambiguous names of functions.
const FUNCTIONS: &[&str] = &[
    "aim",
    "ask",
    "break_off",
    "bring_on",
    "cut_off",
    "graft",
    "judge",
    "lacks",
    "leashed",
    "leave_out",
    "look",
    "look_at",
    "place",
    "put_back",
    "seen",
    "set_free",
    "settled",
    "shown",
    "take",
    "tell",
    "told",
    "whole",
    "wrong",
];

/// Metaphors, banned also as a part of the name of a type.
const TYPE_WORDS: &[&str] = &["Bell", "Danger", "Ordeal", "Patience"];

/// Superlatives and metaphors in place of `MAX` and `MIN`, also as a part of the name of a constant.
const CONSTANT_WORDS: &[&str] = &[
    "BIGGEST",
    "COMPLAINT",
    "DEEPEST",
    "FEWEST",
    "HIGHEST",
    "LARGEST",
    "LATEST",
    "LONGEST",
    "LOOK",
    "LOWEST",
    "MOST",
    "PATIENCE",
    "SHORTEST",
    "SMALLEST",
    "WRONG",
];

/// Question words and pronouns in place of a noun, and personifying verbs in place of a technical one.
const FIRST_WORDS: &[&str] = &[
    "Asks", "Gives", "How", "It", "Knows", "Lets", "Looks", "Says", "Tells", "Those", "What", "Where", "Whether",
    "Who", "Whoever", "Whose", "Why",
];

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

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.at, self.text)
    }
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

/// Splits a name at underscores, and before an uppercase letter after a lowercase letter or a digit.
fn segments(name: &str) -> impl Iterator<Item = &[u8]> {
    name.split('_').flat_map(|part| {
        part.as_bytes().chunk_by(|before, after| before.is_ascii_uppercase() || !after.is_ascii_uppercase())
    })
}

/// Returns a finding if the first line of a doc comment begins with a banned word.
pub(crate) fn doc(line: &str, at: Location) -> Option<Finding> {
    let line = line.trim();
    let word = line.split(|c: char| !c.is_alphabetic()).next().unwrap_or_default();
    FIRST_WORDS.contains(&word).then(|| Finding { at, text: format!("doc comment begins with {word:?}: {line}") })
}
