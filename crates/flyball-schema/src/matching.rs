//! Matching of strings with patterns, with a limit for the work of one validation.
//!
//! In the worst case, the time of a match grows with the length of the string times the number of states of the
//! pattern. If that product is small, the regex crate does the matching. Otherwise a simulation of the automaton counts
//! the visited states and stops at a limit. Most patterns have few active states, so that long strings cost little more
//! than their length; only the actual work counts.

use crate::pattern::states_of;
use regex::Regex;
use regex_automata::nfa::thompson::{NFA, State, WhichCaptures};
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// Maximum product of bytes and states for which the regex crate is used in one validation: at most 0.2 s.
const MAX_PRODUCT: u64 = 4_000_000;

/// Maximum number of states that simulations visit in one validation: about 0.5 s.
const MAX_VISITS: u64 = 40_000_000;

/// Cost of compiling one state of a pattern, in visits.
const COMPILE_VISITS: u64 = 20;

/// Maximum product for expressions, which are charged for their visits; all evaluations of a budget share it.
const MAX_PRODUCT_OF_EXPRESSIONS: u64 = 1_000_000;
const MAX_VISITS_OF_RUN: u64 = 20_000_000;

/// A pattern that strings must match.
#[derive(Clone, Debug)]
pub struct Pattern {
    /// The pattern in Go's syntax.
    text: Box<str>,
    regex: Regex,
    /// Number of states, computed on first use.
    states: OnceLock<u64>,
}

impl Pattern {
    pub(crate) fn new(text: &str, regex: Regex) -> Self {
        Self { text: text.into(), regex, states: OnceLock::new() }
    }

    /// Returns the pattern as declared.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub(crate) fn regex(&self) -> &Regex {
        &self.regex
    }
}

/// The string is too long to be matched with the pattern within the limits.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooLong;

/// A matcher for the strings of one validation.
#[derive(Debug)]
pub(crate) struct Matcher {
    product: u64,
    visits: u64,
    /// Cache of analyzed patterns, which may occur several times.
    cached: BTreeMap<Box<str>, CachedPattern>,
}

#[derive(Debug, Default)]
struct CachedPattern {
    states: u64,
    automaton: Option<NFA>,
}

impl Default for Matcher {
    fn default() -> Self {
        Self { product: MAX_PRODUCT, visits: MAX_VISITS, cached: BTreeMap::new() }
    }
}

impl Matcher {
    /// Creates a matcher for the evaluation of expressions.
    pub(crate) fn of_expressions() -> Self {
        Self { product: MAX_PRODUCT_OF_EXPRESSIONS, visits: MAX_VISITS_OF_RUN, cached: BTreeMap::new() }
    }

    /// Starts another evaluation of an expression.
    pub(crate) fn refill(&mut self) {
        self.visits = MAX_VISITS_OF_RUN;
    }

    /// Drops the analyzed patterns.
    pub(crate) fn clear(&mut self) {
        self.cached.clear();
    }

    /// Returns the number of state visits that remain.
    pub(crate) fn left(&self) -> u64 {
        self.product + self.visits
    }

    /// Returns true if a string matches a pattern.
    pub(crate) fn is_match(&mut self, pattern: &Pattern, text: &str) -> Result<bool, TooLong> {
        let spelled = pattern.regex.as_str();
        let states = *pattern.states.get_or_init(|| self.cached(spelled).states);
        let product = states.saturating_mul(text.len() as u64 + 1);
        if let Some(remaining) = self.product.checked_sub(product) {
            self.product = remaining;
            return Ok(pattern.regex.is_match(text));
        }
        if self.cached(spelled).automaton.is_none() {
            self.visits = self.visits.checked_sub(states.saturating_mul(COMPILE_VISITS)).ok_or(TooLong)?;
            let config = NFA::config().which_captures(WhichCaptures::None);
            let automaton = NFA::compiler().configure(config).build(spelled).map_err(|_| TooLong)?;
            self.cached(spelled).automaton = Some(automaton);
        }
        let automaton = self.cached.get(spelled).and_then(|cached| cached.automaton.as_ref()).ok_or(TooLong)?;
        simulate(automaton, text.as_bytes(), &mut self.visits).ok_or(TooLong)
    }

    fn cached(&mut self, spelled: &str) -> &mut CachedPattern {
        if !self.cached.contains_key(spelled) {
            let states = regex_syntax::parse(spelled).map_or(u64::MAX, |parsed| states_of(&parsed));
            self.cached.insert(spelled.into(), CachedPattern { states, automaton: None });
        }
        self.cached.entry(spelled.into()).or_default()
    }
}

/// Returns true if an automaton finds a match in a string; `None` if this needs more state visits than remain.
fn simulate(automaton: &NFA, text: &[u8], visits: &mut u64) -> Option<bool> {
    *visits = visits.checked_sub(automaton.states().len() as u64 / 8)?;
    // The position at which each state was visited last.
    let mut visited = vec![usize::MAX; automaton.states().len()];
    let (mut active, mut next) = (vec![automaton.start_unanchored()], Vec::new());
    for at in 0..=text.len() {
        while let Some(id) = active.pop() {
            *visits = visits.checked_sub(1)?;
            if std::mem::replace(&mut visited[id.as_usize()], at) == at {
                continue;
            }
            match automaton.state(id) {
                State::ByteRange { trans } => next.extend(trans.matches(text, at).then_some(trans.next)),
                State::Sparse(transitions) => {
                    *visits = visits.checked_sub(transitions.transitions.len() as u64 / 4)?;
                    next.extend(transitions.matches(text, at));
                }
                State::Dense(transitions) => next.extend(transitions.matches(text, at)),
                State::Look { look, next } => {
                    active.extend(automaton.look_matcher().matches(*look, text, at).then_some(*next));
                }
                State::Union { alternates } => active.extend(alternates.iter().copied()),
                State::BinaryUnion { alt1, alt2 } => active.extend([*alt1, *alt2]),
                State::Capture { next, .. } => active.push(*next),
                State::Fail => {}
                State::Match { .. } => return Some(true),
            }
        }
        std::mem::swap(&mut active, &mut next);
        if active.is_empty() {
            break;
        }
    }
    Some(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> Pattern {
        Pattern::new(text, Regex::new(text).unwrap())
    }

    #[test]
    fn simulation_agrees_with_the_regex_crate() {
        let patterns = [
            "",
            "a",
            "^a$",
            "^a",
            "a$",
            "a|b|c",
            "^(ab|a)(bc)?$",
            "(a{1,3}){1,3}b",
            "^[a-z]([-a-z0-9]*[a-z0-9])?$",
            r"^\w+$",
            r"\bab\b",
            r"\Ba",
            "(?m)^b$",
            "(?i)^ÄB$",
            ".",
            "^.{2,3}$",
            r"^\PL+$",
            "[^a]",
            "^(a?){3}a{3}$",
            "a*?b",
            r"(?-u:\b)é",
            "^$",
        ];
        let texts = [
            "", "a", "b", "ab", "abc", "aab", "aaa", "a-b", "a-", "a b", "a\nb", "ä", "äb", "ÄB", "é é", "12", "日本",
            "aé", "abab",
        ];
        for spelled in patterns {
            let pattern = pattern(spelled);
            for text in texts {
                let mut simulating = Matcher { product: 0, ..Matcher::default() };
                let found = simulating.is_match(&pattern, text);
                assert_eq!(found, Ok(pattern.regex.is_match(text)), "{spelled} {text:?}");
                assert!(simulating.visits < MAX_VISITS);
            }
        }
    }

    #[test]
    fn match_beyond_its_budget_is_too_long() {
        for spelled in ["(a{1,100}){1,100}b", "^(a{1,100}){1,100}b", "(a?){9000}b", r"(\w{1,20}){1,5}\PL"] {
            let (mut matcher, text) = (Matcher { visits: MAX_VISITS / 8, ..Matcher::default() }, "a".repeat(70_000));
            assert_eq!(matcher.is_match(&pattern(spelled), &text), Err(TooLong), "{spelled}");
            assert!(matcher.visits < MAX_VISITS / 100, "the next text of the same object has no budget of its own");
        }
    }

    #[test]
    fn short_texts_share_the_budget() {
        let (mut matcher, pattern) = (Matcher::default(), pattern("(a{1,100}){1,100}b"));
        let text = "a".repeat(20);
        let matched = (0..100_000).take_while(|_| matcher.is_match(&pattern, &text).is_ok()).count();
        assert!((20..50_000).contains(&matched), "{matched}");
    }

    #[test]
    fn ordinary_patterns_match_long_texts() {
        let name = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
        let base64 = "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$";
        let (million, line) = ("a".repeat(1 << 20), "grüße 2026-11-24 v1.2.3\n".repeat(10_000));
        for (spelled, text, is_match) in [
            (name, &million, true),
            (base64, &million, true),
            (r"^\S+$", &million, true),
            (r"^[\w.-]+$", &million, true),
            (r"^.*$", &million, true),
            (r"\bb\b", &million, false),
            (r"^[\s\S]{0,4096}$", &million, false),
            (r"^(.|\n)*$", &line, true),
            (r"^\d{4}-\d{2}-\d{2}$", &line, false),
            (r"v\d+\.\d+\.\d+-rc", &line, false),
        ] {
            assert_eq!(Matcher::default().is_match(&pattern(spelled), text), Ok(is_match), "{spelled}");
        }
        let mut matcher = Matcher::default();
        let (dns, described) = (pattern(name), pattern("^.{1,1024}$"));
        for i in 0..300 {
            assert_eq!(matcher.is_match(&dns, &format!("{}.example.com", "a".repeat(63))), Ok(true), "{i}");
            assert_eq!(matcher.is_match(&described, &"a b ".repeat(250)), Ok(true), "{i}");
        }
    }
}
