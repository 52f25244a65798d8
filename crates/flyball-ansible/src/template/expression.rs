//! Regular expressions whose searches are charged by the text that they scan.
//!
//! A search for one match may scan the whole rest of a string before it finds the end of the match, as `a.*z|a` does.
//! All matches together then scan quadratically. So an automaton runs before each search and is charged for its
//! steps, which depend on the expression and the text alone.

use super::{BYTES_PER_FUEL, reject};
use minijinja::{Error, State};
use regex::{Captures, Regex, RegexBuilder};
use regex_automata::hybrid::dfa::{Cache, Config, DFA};
use regex_automata::util::syntax;
use regex_automata::{Input, nfa::thompson};

/// Size limits of a compiled regular expression, tried in ascending order.
const REGEX_BYTES: [usize; 2] = [64 << 10, 256 << 10];
/// The number of searched bytes that cost one unit of fuel.
const BYTES_PER_STEP: usize = 32;
/// The number of states, per byte, that cost one unit of fuel if no automaton could be built.
const STATES_PER_STEP: usize = 32;

/// A regular expression in Python's syntax.
pub(super) struct Expression {
    regex: Regex,
    /// Runs before searches, unless it would have too many states: then each state of the program counts for each
    /// byte.
    walker: Option<(DFA, Cache)>,
    states: usize,
}

/// Returns the reason of a syntax error, which contains the pattern in the lines before.
fn reason_of(error: &str) -> String {
    error.rsplit_once("error: ").map_or("it is invalid", |(_, reason)| reason).trim().to_owned()
}

impl Expression {
    /// Compiles an expression, and charges fuel for it.
    pub(super) fn new(state: &State<'_, '_>, pattern: &str, ignore_case: bool, multiline: bool) -> Result<Self, Error> {
        let mut reason = "it is too large".to_owned();
        for size in REGEX_BYTES {
            state.consume_fuel((size >> 7) as u64)?;
            let mut builder = RegexBuilder::new(pattern);
            match builder.case_insensitive(ignore_case).multi_line(multiline).size_limit(size).build() {
                Ok(regex) => {
                    let syntax = syntax::Config::new().case_insensitive(ignore_case).multi_line(multiline);
                    let program = thompson::Compiler::new()
                        .syntax(syntax)
                        .build(pattern)
                        .map_err(|error| reject(error.to_string()))?;
                    let states = program.states().len();
                    let config = Config::new().unicode_word_boundary(true).minimum_cache_clear_count(Some(0));
                    let walker = DFA::builder().configure(config).build_from_nfa(program).ok();
                    let walker = walker.map(|automaton| {
                        let cache = automaton.create_cache();
                        (automaton, cache)
                    });
                    return Ok(Self { regex, walker, states });
                }
                Err(regex::Error::CompiledTooBig(_)) => {}
                Err(error) => {
                    reason = reason_of(&error.to_string());
                    break;
                }
            }
        }
        // A pattern may contain a secret, so the message does not.
        let length = pattern.len();
        Err(reject(format!("a pattern of {length} bytes is not a supported regular expression: {reason}")))
    }

    /// Finds the first match.
    pub(super) fn find<'t>(&mut self, state: &State<'_, '_>, text: &'t str) -> Result<Option<Captures<'t>>, Error> {
        self.walk(state, text, 0)?;
        Ok(self.regex.captures(text))
    }

    /// Visits all matches while fuel remains.
    pub(super) fn for_each<'t>(
        &mut self,
        state: &State<'_, '_>,
        text: &'t str,
        limit: usize,
        mut take: impl FnMut(&Captures<'t>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let regex = self.regex.clone();
        let mut matches = regex.captures_iter(text).take(limit);
        let mut from = 0;
        loop {
            self.walk(state, text, from)?;
            let Some(found) = matches.next() else { return Ok(()) };
            from = found.get_match().end();
            // A match has a position for each group.
            state.consume_fuel((found.len() / 2) as u64)?;
            take(&found)?;
        }
    }

    /// Charges fuel for a search from an offset, before it runs.
    fn walk(&mut self, state: &State<'_, '_>, text: &str, from: usize) -> Result<(), Error> {
        let mut rest = &text.as_bytes()[from..];
        state.consume_fuel(1)?;
        if let Some((automaton, cache)) = &mut self.walker {
            let Ok(mut at) = automaton.start_state_forward(cache, &Input::new(text).range(from..)) else {
                return self.walk_program(state, rest);
            };
            let mut memory = cache.memory_usage();
            while let Some((byte, after)) = rest.split_first() {
                match automaton.next_state(cache, at, *byte) {
                    Ok(next) if next.is_dead() => return Ok(()),
                    Ok(next) if !next.is_quit() => at = next,
                    // The automaton encounters an unsupported word boundary, or has too many states.
                    _ => return self.walk_program(state, rest),
                }
                rest = after;
                if rest.len().is_multiple_of(BYTES_PER_STEP) {
                    // A new state costs more than a cached one.
                    let grown = cache.memory_usage().saturating_sub(memory);
                    memory += grown;
                    state.consume_fuel(1 + (grown / BYTES_PER_FUEL) as u64)?;
                }
            }
            return Ok(());
        }
        self.walk_program(state, rest)
    }

    fn walk_program(&self, state: &State<'_, '_>, rest: &[u8]) -> Result<(), Error> {
        state.consume_fuel((rest.len().saturating_mul(self.states) / STATES_PER_STEP) as u64)
    }
}
