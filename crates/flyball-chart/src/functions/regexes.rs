//! Regular expressions. The syntax is RE2's, which the crate `regex` shares except for details.

use super::{INT, STR, Table, bytes, cost, int, text};
use crate::context::Call;
use crate::message;
use crate::quote::backquote;
use crate::value::{List, ListKind, Value};
use flyball_core::regexp;
use regex::bytes::{NoExpand, Regex};
use regex_automata::nfa::thompson::NFA;
use regex_syntax::ParserBuilder;
use std::rc::Rc;

pub(super) fn add(table: &mut Table) {
    table.add("regexMatch", search, &[STR, STR], |call, args| {
        // An invalid pattern has no matches.
        let Ok(program) = known(call, args) else { return Ok(Value::Bool(false)) };
        program.charge(call, args)?;
        Ok(Value::Bool(program.regex.is_match(bytes(&args[1]))))
    });
    table.add("mustRegexMatch", search, &[STR, STR], |call, args| {
        Ok(Value::Bool(compile(call, args)?.regex.is_match(bytes(&args[1]))))
    });
    table.add("regexFind", search, &[STR, STR], |call, args| find(args, &*expect(call, args)?));
    table.add("mustRegexFind", search, &[STR, STR], |call, args| find(args, &*compile(call, args)?));
    table.add("regexFindAll", search_parts, &[STR, STR, INT], |call, args| find_all(call, args, &*expect(call, args)?));
    table.add("mustRegexFindAll", search_parts, &[STR, STR, INT], |call, args| {
        find_all(call, args, &*compile(call, args)?)
    });
    table.add("regexReplaceAll", search, &[STR, STR, STR], |call, args| replace_all(call, args, &*expect(call, args)?));
    table.add("mustRegexReplaceAll", search, &[STR, STR, STR], |call, args| {
        replace_all(call, args, &*compile(call, args)?)
    });
    table.add("regexReplaceAllLiteral", search, &[STR, STR, STR], |call, args| {
        replace_literally(call, args, &*expect(call, args)?)
    });
    table.add("mustRegexReplaceAllLiteral", search, &[STR, STR, STR], |call, args| {
        replace_literally(call, args, &*compile(call, args)?)
    });
    table.add("regexSplit", search_parts, &[STR, STR, INT], |call, args| split(call, args, &*expect(call, args)?));
    table.add("mustRegexSplit", search_parts, &[STR, STR, INT], |call, args| split(call, args, &*compile(call, args)?));
    table.add("regexQuoteMeta", cost::letters, &[STR], |_, args| {
        let subject = text(&args[0]);
        let quoted = subject.chars().flat_map(|c| {
            let escape = r"\.+*?()|[]{}^$".contains(c).then_some('\\');
            escape.into_iter().chain([c])
        });
        Ok(Value::str(quoted.collect::<String>()))
    });
}

fn find(args: &[Value], program: &Program) -> Result<Value, String> {
    Ok(Value::str(program.regex.find(bytes(&args[1])).map_or(&b""[..], |found| found.as_bytes())))
}

fn find_all(call: &Call<'_>, args: &[Value], program: &Program) -> Result<Value, String> {
    let limit = usize::try_from(int(&args[2])).unwrap_or(usize::MAX);
    let found: Vec<&[u8]> =
        matches(call, program, bytes(&args[1]))?.into_iter().map(|found| found.as_bytes()).take(limit).collect();
    Ok(if found.is_empty() { none() } else { Value::strings(found) })
}

fn replace_all(call: &Call<'_>, args: &[Value], program: &Program) -> Result<Value, String> {
    let template = expansion(&text(&args[2]));
    take_replacement(call, program, bytes(&args[1]), template.as_bytes())?;
    super::bounded(program.regex.replace_all(bytes(&args[1]), template.as_bytes()).into_owned())
}

fn replace_literally(call: &Call<'_>, args: &[Value], program: &Program) -> Result<Value, String> {
    take_replacement(call, program, bytes(&args[1]), bytes(&args[2]))?;
    super::bounded(program.regex.replace_all(bytes(&args[1]), NoExpand(bytes(&args[2]))).into_owned())
}

/// Cost of compiling a pattern, and of its result; [`Program::charge`] charges the search.
fn search(call: &Call<'_>, args: &[Value]) -> Result<(), String> {
    const CLASS: usize = 100;
    const MAX_PROGRAM_SIZE: usize = 1 << 22;
    cost::deep(call, args)?;
    let (pattern, subject) = (bytes(&args[0]), bytes(&args[1]).len());
    // Nested repetitions multiply.
    let numbers = pattern.split(|byte| !byte.is_ascii_digit()).filter_map(|digits| std::str::from_utf8(digits).ok());
    let repeated = numbers
        .filter_map(|digits| digits.parse::<usize>().ok())
        .fold(1, |all: usize, number| all.saturating_mul(number.max(1)).min(MAX_PROGRAM_SIZE));
    let classes = pattern.iter().filter(|byte| **byte == b'\\').count().saturating_mul(CLASS);
    let program = (pattern.len() + classes).saturating_mul(repeated).min(MAX_PROGRAM_SIZE);
    call.context.charge(500 + program * 2, subject.saturating_mul(16))
}

/// Cost of a search in which each match becomes a value; each byte may match.
fn search_parts(call: &Call<'_>, args: &[Value]) -> Result<(), String> {
    const PART: usize = 128;
    search(call, args)?;
    call.context.charge(bytes(&args[1]).len(), bytes(&args[1]).len().saturating_mul(PART))
}

/// Charges replacing each match. References in the replacement insert parts of the subject.
fn take_replacement(call: &Call<'_>, program: &Program, subject: &[u8], replacement: &[u8]) -> Result<(), String> {
    let references = replacement.iter().filter(|byte| **byte == b'$').count();
    let written = matches(call, program, subject)?.len().saturating_mul(replacement.len());
    let length = written.saturating_add(subject.len().saturating_mul(references + 1));
    call.context.charge(length / 64, length.saturating_mul(2))
}

fn none() -> Value {
    Value::List(List::nil(ListKind::Strings))
}

/// Finds all matches. Each match may scan the whole rest of the subject, and is charged for it.
fn matches<'t>(call: &Call<'_>, program: &Program, subject: &'t [u8]) -> Result<Vec<regex::bytes::Match<'t>>, String> {
    const BYTES_PER_STEP: usize = 64;
    let charged = |found: regex::bytes::Match<'t>| {
        let rest = subject.len() - found.end();
        // Beyond the longest match, the engine only searches literals.
        let ahead = if program.is_quick() { 0 } else { program.steps(rest.min(program.longest)) };
        call.context.charge((1 + rest / BYTES_PER_STEP).saturating_add(ahead), 0)?;
        Ok(found)
    };
    program.regex.find_iter(subject).map(charged).collect()
}

/// A compiled pattern.
struct Program {
    regex: Regex,
    /// States of its automaton.
    states: usize,
    /// Bytes of its longest match.
    longest: usize,
}

impl Program {
    /// Compiles a pattern, and measures its automaton.
    fn new(written: &str) -> Result<Self, String> {
        let regex = pattern(written)?;
        let parsed =
            ParserBuilder::new().utf8(false).build().parse(regex.as_str()).map_err(|error| error.to_string())?;
        let automaton = NFA::compiler().build_from_hir(&parsed).map_err(|error| error.to_string())?;
        let longest = parsed.properties().maximum_len().unwrap_or(usize::MAX);
        Ok(Self { regex, states: automaton.states().len(), longest })
    }

    /// Charges a search through the whole subject.
    fn charge(&self, call: &Call<'_>, args: &[Value]) -> Result<(), String> {
        call.context.charge(self.steps(bytes(&args[1]).len()), 0)
    }

    /// Returns true if the lazy DFA is small as well, for any subject. With a larger one, the engine may have to
    /// track all NFA states at once.
    fn is_quick(&self) -> bool {
        self.states <= 16
    }

    /// Maximum steps of 20 ns for a search through this number of bytes: about 1 ns per byte, or 10 ns per byte and
    /// state.
    fn steps(&self, bytes: usize) -> usize {
        if self.is_quick() { bytes / 16 } else { bytes.saturating_mul(self.states) / 2 }
    }
}

/// Returns the compiled pattern of a call. Patterns of the chart are cached.
fn known(call: &Call<'_>, args: &[Value]) -> Result<Rc<Program>, String> {
    let written = text(&args[0]);
    if args[0].is_data() { Program::new(&written).map(Rc::new) } else { call.context.pattern(&written, Program::new) }
}

fn compile(call: &Call<'_>, args: &[Value]) -> Result<Rc<Program>, String> {
    let program = known(call, args)?;
    program.charge(call, args)?;
    Ok(program)
}

/// Returns the compiled pattern for functions that panic in Go on an invalid pattern; the error is Go's panic message.
fn expect(call: &Call<'_>, args: &[Value]) -> Result<Rc<Program>, String> {
    let panic = |message| format!("regexp: Compile({}): {message}", backquote(&message::excerpt(&text(&args[0]))));
    let program = known(call, args).map_err(panic)?;
    program.charge(call, args)?;
    Ok(program)
}

/// Compiles a pattern in Go's syntax.
///
/// # Errors
///
/// Returns Go's message about the error.
pub(crate) fn pattern(pattern: &str) -> Result<Regex, String> {
    let translated = regexp::translate(pattern).map_err(|error| error.to_string())?;
    regex::bytes::RegexBuilder::new(&translated).size_limit(1 << 23).build().map_err(|error| {
        let what = match error {
            regex::Error::CompiledTooBig(_) => "expression too large",
            _ => "invalid or unsupported Perl syntax",
        };
        format!("error parsing regexp: {what}: `{pattern}`")
    })
}

/// Go's `$1W` refers to the group `1W`, as in the `regex` crate; `$` before other characters is literal.
fn expansion(template: &str) -> String {
    let mut out = String::new();
    let mut chars = template.chars().peekable();
    while let Some(c) = chars.next() {
        out.push(c);
        if c != '$' {
            continue;
        }
        match chars.peek() {
            Some('$') => out.push(chars.next().unwrap_or('$')),
            Some(c) if *c == '{' || c.is_ascii_alphanumeric() || *c == '_' => {}
            _ => out.push('$'),
        }
    }
    out
}

/// As with Go's split, an empty match at the start is not a separator.
fn split(call: &Call<'_>, args: &[Value], program: &Program) -> Result<Value, String> {
    let (subject, limit) = (bytes(&args[1]), int(&args[2]));
    if limit == 0 {
        return Ok(none());
    }
    if !bytes(&args[0]).is_empty() && subject.is_empty() {
        return Ok(Value::strings([""]));
    }
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut parts: Vec<&[u8]> = Vec::new();
    let (mut from, mut end) = (0, 0);
    for found in matches(call, program, subject)? {
        if parts.len() + 1 >= limit {
            break;
        }
        end = found.start();
        if found.end() != 0 {
            parts.push(&subject[from..end]);
        }
        from = found.end();
    }
    if end != subject.len() {
        parts.push(&subject[from..]);
    }
    Ok(Value::strings(parts))
}
