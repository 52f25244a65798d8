//! Patterns of schemas and expressions: regular expressions whose size is known before they are compiled.
//!
//! Patterns have the syntax of Go's `regexp`, as in kube-apiserver: `\d` is an ASCII digit, for example.
//!
//! A short pattern can describe an automaton with millions of states, and time and memory grow with its states. States
//! are therefore counted in the syntax tree, in time linear in the length of the pattern. Compiled patterns are cached
//! by their source.

use flyball_core::regexp;
use parking_lot::Mutex;
use regex::{Regex, RegexBuilder};
use regex_syntax::hir::{Class, Hir, HirKind};
use std::collections::BTreeMap;

/// Maximum number of states of one pattern.
pub const MAX_STATES: u64 = 60_000;
/// Maximum total number of states of all distinct patterns of a CRD.
pub const MAX_STATES_TOGETHER: u64 = 200_000;

/// Maximum size of a compiled pattern in bytes: enough for `MAX_STATES`.
const MAX_BYTES: usize = 8 << 20;
/// Maximum number of cached states, and of cached patterns.
const MAX_SHARED_STATES: u64 = 500_000;
const MAX_SHARED: usize = 5000;

/// An error of compiling a pattern.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The pattern is malformed.
    #[error("{0}")]
    Syntax(String),
    /// The pattern is too large.
    #[error("pattern has {states} states, more than {MAX_STATES}: use fewer or smaller repetitions")]
    TooLarge {
        /// The number of states.
        states: u64,
    },
}

/// The most recently compiled patterns.
#[derive(Default)]
struct PatternCache {
    patterns: BTreeMap<Box<str>, Regex>,
    states: u64,
}

static SHARED: Mutex<PatternCache> = Mutex::new(PatternCache { patterns: BTreeMap::new(), states: 0 });

/// Counts the states of a pattern, without compiling it.
///
/// # Errors
///
/// Fails if the pattern is malformed or too large.
pub fn states(text: &str) -> Result<u64, Error> {
    states_of_translated(&translate(text)?)
}

fn translate(text: &str) -> Result<String, Error> {
    regexp::translate(text).map_err(|error| Error::Syntax(error.to_string()))
}

fn states_of_translated(text: &str) -> Result<u64, Error> {
    let parsed = regex_syntax::parse(text).map_err(|error| {
        let error = error.to_string();
        Error::Syntax(error.lines().last().unwrap_or_default().to_owned())
    })?;
    let states = states_of(&parsed);
    if states > MAX_STATES { Err(Error::TooLarge { states }) } else { Ok(states) }
}

pub(crate) fn states_of(of: &Hir) -> u64 {
    let sum = |parts: &[Hir]| parts.iter().map(states_of).fold(0, u64::saturating_add);
    match of.kind() {
        HirKind::Empty | HirKind::Look(_) => 1,
        HirKind::Literal(literal) => literal.0.len() as u64,
        HirKind::Class(Class::Bytes(_)) => 1,
        // Byte sequences share suffixes: many ranges have fewer states than ranges, few ranges have some more.
        HirKind::Class(Class::Unicode(class)) => class.ranges().len() as u64 + if class.is_ascii() { 0 } else { 8 },
        HirKind::Repetition(repeated) => {
            let most = repeated.max.unwrap_or_else(|| repeated.min.saturating_add(1));
            states_of(&repeated.sub).saturating_add(1).saturating_mul(most.into())
        }
        HirKind::Capture(capture) => states_of(&capture.sub).saturating_add(2),
        HirKind::Concat(parts) => sum(parts),
        HirKind::Alternation(parts) => sum(parts).saturating_add(1),
    }
}

/// Returns a compiled pattern, from the cache if it was compiled recently.
///
/// # Errors
///
/// Fails if the pattern is malformed or too large.
pub fn compile(text: &str) -> Result<Regex, Error> {
    let lock = || SHARED.lock();
    if let Some(known) = lock().patterns.get(text) {
        return Ok(known.clone());
    }
    let translated = translate(text)?;
    let states = states_of_translated(&translated)?;
    let compiled = RegexBuilder::new(&translated).size_limit(MAX_BYTES).dfa_size_limit(MAX_BYTES).build();
    let compiled = compiled.map_err(|error| Error::Syntax(error.to_string()))?;
    let mut shared = lock();
    if shared.states + states > MAX_SHARED_STATES || shared.patterns.len() >= MAX_SHARED {
        *shared = PatternCache::default();
    }
    shared.states += states;
    shared.patterns.insert(text.into(), compiled.clone());
    Ok(compiled)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the test measures time")]
    fn short_patterns_of_many_states_are_rejected_quickly() {
        let start = Instant::now();
        for n in 0..2000 {
            let text = format!("(({}){{0,99}}){{0,{n}}}$", "a".repeat(196));
            assert_eq!(states(&text).is_err(), n > 3, "{text}");
        }
        for text in [r"\pL{999}", r"(\pL\pL){500}"] {
            assert!(matches!(compile(text), Err(Error::TooLarge { .. })), "{text}");
        }
        for text in ["(((((a{9999}){9999}){9999}){9999}){9999}){9999}", "(a{99}){99}", "[^a]{30000}"] {
            assert!(matches!(compile(text), Err(Error::Syntax(_))), "{text}");
        }
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    }

    #[test]
    fn common_patterns_compile() {
        for (text, matching) in [
            (r"^(\*\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$", "a.example.com"),
            (r"^([0-9]{1,5}(h|m|s|ms)){1,4}$", "10m30s"),
            (r"^\w{1,63}$", "abc"),
            (r"^(?:[A-Za-z0-9+/]{4}){0,250}$", "QUJD"),
            (r"^.{1,253}$", "x"),
            (r"^[\w-.]+$", "a-b.c"),
            ("", "x"),
        ] {
            assert!(compile(text).unwrap().is_match(matching), "{text}");
            assert!(compile(text).unwrap().is_match(matching), "{text} once more");
        }
        assert!(!compile(r"^\d$").unwrap().is_match("\u{0663}"), "digits are ASCII");
        assert!(matches!(compile("a("), Err(Error::Syntax(_))));
    }
}
