//! Regular expressions. The syntax is RE2's, which the crate `regex` shares but for details.

use super::{INT, STR, Table, bytes, cost, int, text};
use crate::value::{List, ListKind, Value};
use crate::world::Call;
use regex::bytes::{NoExpand, Regex};
use regex_automata::nfa::thompson::NFA;
use regex_syntax::ParserBuilder;

pub(super) fn add(table: &mut Table) {
    table.add("regexMatch", search, &[STR, STR], |call, args| {
        // A wrong pattern matches nothing.
        let Ok(regex) = pattern(&text(&args[0])) else { return Ok(Value::Bool(false)) };
        Program::of(call, regex, args).map(|program| Value::Bool(program.regex.is_match(bytes(&args[1]))))
    });
    table.add("mustRegexMatch", search, &[STR, STR], |call, args| {
        Ok(Value::Bool(compile(call, args)?.regex.is_match(bytes(&args[1]))))
    });
    table.both("regexFind", "mustRegexFind", search, &[STR, STR], |call, args| {
        Ok(Value::str(compile(call, args)?.regex.find(bytes(&args[1])).map_or(&b""[..], |found| found.as_bytes())))
    });
    table.both("regexFindAll", "mustRegexFindAll", search_parts, &[STR, STR, INT], |call, args| {
        let limit = usize::try_from(int(&args[2])).unwrap_or(usize::MAX);
        let program = compile(call, args)?;
        let found: Vec<&[u8]> =
            matches(call, &program, bytes(&args[1]))?.into_iter().map(|found| found.as_bytes()).take(limit).collect();
        Ok(if found.is_empty() { none() } else { Value::strings(found) })
    });
    table.both("regexReplaceAll", "mustRegexReplaceAll", search, &[STR, STR, STR], |call, args| {
        let (program, template) = (compile(call, args)?, expansion(&text(&args[2])));
        take_replacement(call, &program, bytes(&args[1]), template.as_bytes())?;
        super::bounded(program.regex.replace_all(bytes(&args[1]), template.as_bytes()).into_owned())
    });
    table.both("regexReplaceAllLiteral", "mustRegexReplaceAllLiteral", search, &[STR, STR, STR], |call, args| {
        let program = compile(call, args)?;
        take_replacement(call, &program, bytes(&args[1]), bytes(&args[2]))?;
        super::bounded(program.regex.replace_all(bytes(&args[1]), NoExpand(bytes(&args[2]))).into_owned())
    });
    table.both("regexSplit", "mustRegexSplit", search_parts, &[STR, STR, INT], split);
    table.add("regexQuoteMeta", cost::letters, &[STR], |_, args| {
        let subject = text(&args[0]);
        let quoted = subject.chars().flat_map(|c| {
            let escape = r"\.+*?()|[]{}^$".contains(c).then_some('\\');
            escape.into_iter().chain([c])
        });
        Ok(Value::str(quoted.collect::<String>()))
    });
}

/// Cost of compiling a pattern, and of what it finds; [`Program::of`] charges the search.
fn search(call: &Call<'_>, args: &[Value]) -> Result<(), String> {
    const CLASS: usize = 100;
    const MAX_PROGRAM_SIZE: usize = 1 << 22;
    cost::deep(call, args)?;
    let (pattern, subject) = (bytes(&args[0]), bytes(&args[1]).len());
    // Repetitions within repetitions multiply.
    let numbers = pattern.split(|byte| !byte.is_ascii_digit()).filter_map(|digits| std::str::from_utf8(digits).ok());
    let repeated = numbers
        .filter_map(|digits| digits.parse::<usize>().ok())
        .fold(1, |all: usize, number| all.saturating_mul(number.max(1)).min(MAX_PROGRAM_SIZE));
    let classes = pattern.iter().filter(|byte| **byte == b'\\').count().saturating_mul(CLASS);
    let program = (pattern.len() + classes).saturating_mul(repeated).min(MAX_PROGRAM_SIZE);
    call.world.charge(500 + program * 2, subject.saturating_mul(16))
}

/// Cost of a search of which each match becomes a value; there may be one at each byte.
fn search_parts(call: &Call<'_>, args: &[Value]) -> Result<(), String> {
    const PART: usize = 128;
    search(call, args)?;
    call.world.charge(bytes(&args[1]).len(), bytes(&args[1]).len().saturating_mul(PART))
}

/// Counts what it takes to put a text in the place of each match. What it refers to is part of the subject.
fn take_replacement(call: &Call<'_>, program: &Program, subject: &[u8], replacement: &[u8]) -> Result<(), String> {
    let references = replacement.iter().filter(|byte| **byte == b'$').count();
    let written = matches(call, program, subject)?.len().saturating_mul(replacement.len());
    let length = written.saturating_add(subject.len().saturating_mul(references + 1));
    call.world.charge(length / 64, length.saturating_mul(2))
}

fn none() -> Value {
    Value::List(List::nil(ListKind::Strings))
}

/// Finds all matches. Each may look at all of the rest of the subject, and is charged for that.
fn matches<'t>(call: &Call<'_>, program: &Program, subject: &'t [u8]) -> Result<Vec<regex::bytes::Match<'t>>, String> {
    const BYTES_PER_STEP: usize = 64;
    let charged = |found: regex::bytes::Match<'t>| {
        let rest = subject.len() - found.end();
        // Beyond the longest match, the engine looks for literals at most.
        let ahead = if program.is_quick() { 0 } else { program.steps(rest.min(program.longest)) };
        call.world.charge((1 + rest / BYTES_PER_STEP).saturating_add(ahead), 0)?;
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
    /// Measures a pattern, and charges a search through the whole subject.
    fn of(call: &Call<'_>, regex: Regex, args: &[Value]) -> Result<Self, String> {
        let parsed =
            ParserBuilder::new().utf8(false).build().parse(regex.as_str()).map_err(|error| error.to_string())?;
        let automaton = NFA::compiler().build_from_hir(&parsed).map_err(|error| error.to_string())?;
        let longest = parsed.properties().maximum_len().unwrap_or(usize::MAX);
        let program = Self { regex, states: automaton.states().len(), longest };
        call.world.charge(program.steps(bytes(&args[1]).len()), 0)?;
        Ok(program)
    }

    /// Returns true if the deterministic automaton is small as well, whatever the subject. Of a larger one, the engine
    /// may have to follow all states at once.
    fn is_quick(&self) -> bool {
        self.states <= 16
    }

    /// Steps of 20 ns that a search through so many bytes may take: about 1 ns for each, or 10 ns for each of the
    /// states.
    fn steps(&self, bytes: usize) -> usize {
        if self.is_quick() { bytes / 16 } else { bytes.saturating_mul(self.states) / 2 }
    }
}

fn compile(call: &Call<'_>, args: &[Value]) -> Result<Program, String> {
    Program::of(call, pattern(&text(&args[0]))?, args)
}

/// A pattern in Go's syntax.
///
/// # Errors
/// Go's message of what is wrong with it.
pub(crate) fn pattern(pattern: &str) -> Result<Regex, String> {
    if let Some(complaint) = unsupported(pattern) {
        return Err(complaint);
    }
    regex::bytes::RegexBuilder::new(&go_syntax(pattern))
        .size_limit(1 << 23)
        .build()
        .map_err(|error| complaint(pattern, &error))
}

/// Rejects syntax that neither RE2 nor the crate has.
fn unsupported(pattern: &str) -> Option<String> {
    if let Some(operators) = nested_repetition(pattern) {
        return Some(format!("error parsing regexp: invalid nested repetition operator: `{operators}`"));
    }
    for part in ["(?=", "(?!", "(?<=", "(?<!"] {
        let mut rest = pattern;
        while let Some(at) = rest.find(part) {
            if !rest[..at].ends_with('\\') {
                let shown = if part.starts_with("(?<") { "(?<" } else { part };
                return Some(format!("error parsing regexp: invalid or unsupported Perl syntax: `{shown}`"));
            }
            rest = &rest[at + part.len()..];
        }
    }
    None
}

/// `a**`, which RE2 does not take, unlike the crate.
fn nested_repetition(pattern: &str) -> Option<&str> {
    let bytes = pattern.as_bytes();
    let is_operator = |byte: u8| matches!(byte, b'*' | b'+' | b'?');
    let (mut at, mut in_class) = (0, false);
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 1,
            b'[' => in_class = true,
            b']' => in_class = false,
            byte if is_operator(byte) && !in_class && at > 0 && bytes[at - 1] != b'(' => {
                // One question mark behind it makes an operator lazy.
                let lazy = usize::from(bytes.get(at + 1) == Some(&b'?'));
                if bytes.get(at + lazy + 1).copied().is_some_and(is_operator) {
                    return pattern.get(at..at + lazy + 2);
                }
                at += lazy;
            }
            _ => {}
        }
        at += 1;
    }
    None
}

/// Go's classes of `\d`, `\s`, `\w` and `\b` are ASCII; a brace that begins no repetition stands for itself.
fn go_syntax(pattern: &str) -> String {
    let chars: Vec<char> = pattern.chars().collect();
    let mut out = String::new();
    let mut in_class = false;
    let mut at = 0;
    while at < chars.len() {
        let c = chars[at];
        match c {
            '\\' if at + 1 < chars.len() => {
                at += 1;
                match chars[at] {
                    'd' => out.push_str(if in_class { "0-9" } else { "[0-9]" }),
                    'w' => out.push_str(if in_class { "0-9A-Za-z_" } else { "[0-9A-Za-z_]" }),
                    's' => out.push_str(if in_class { r"\t\n\f\r " } else { r"[\t\n\f\r ]" }),
                    'D' => out.push_str("[^0-9]"),
                    'W' => out.push_str("[^0-9A-Za-z_]"),
                    'S' => out.push_str(r"[^\t\n\f\r ]"),
                    'b' if !in_class => out.push_str(r"(?-u:\b)"),
                    'B' if !in_class => out.push_str(r"(?-u:\B)"),
                    'Q' => {
                        at += 1;
                        while at < chars.len() && !(chars[at] == '\\' && chars.get(at + 1) == Some(&'E')) {
                            out.push_str(&regex::escape(&chars[at].to_string()));
                            at += 1;
                        }
                        at += 1;
                    }
                    'C' => out.push_str("(?s-u:.)"),
                    c @ ('p' | 'P' | 'x') if chars.get(at + 1) == Some(&'{') => {
                        out.extend(['\\', c]);
                        while at + 1 < chars.len() && chars[at] != '}' {
                            at += 1;
                            out.push(chars[at]);
                        }
                    }
                    other => out.extend(['\\', other]),
                }
            }
            '[' if in_class && chars.get(at + 1) == Some(&':') => {
                // A named class goes over as it is.
                while at < chars.len() && !(chars[at] == ']' && chars[at - 1] == ':') {
                    out.push(chars[at]);
                    at += 1;
                }
                out.push(']');
            }
            '[' if in_class => out.push_str(r"\["),
            '&' | '~' if in_class => out.extend(['\\', c]),
            '[' => {
                in_class = true;
                out.push('[');
                if chars.get(at + 1) == Some(&'^') {
                    at += 1;
                    out.push('^');
                }
                if chars.get(at + 1) == Some(&']') {
                    at += 1;
                    out.push_str(r"\]");
                }
            }
            ']' if in_class => {
                in_class = false;
                out.push(']');
            }
            '{' if !in_class => {
                let length = chars[at..].iter().position(|c| *c == '}').unwrap_or(0);
                let inside: String = chars[at..at + length].iter().skip(1).collect();
                let is_count = !inside.is_empty()
                    && inside.starts_with(|c: char| c.is_ascii_digit())
                    && inside.chars().all(|c| c.is_ascii_digit() || c == ',')
                    && inside.matches(',').count() <= 1;
                out.push_str(if is_count { "{" } else { r"\{" });
            }
            '}' if !in_class => {
                let before: String = out.chars().rev().take_while(|c| *c != '{').collect();
                let is_count = !before.is_empty()
                    && out.len() > before.len()
                    && before.chars().all(|c| c.is_ascii_digit() || c == ',')
                    && !out[..out.len() - before.len()].ends_with("\\{");
                out.push_str(if is_count { "}" } else { r"\}" });
            }
            c => out.push(c),
        }
        at += 1;
    }
    out
}

/// The crate's complaint in Go's words, where they are known.
fn complaint(pattern: &str, error: &regex::Error) -> String {
    let detail = error.to_string();
    let quoted = |what: &str, part: &str| format!("error parsing regexp: {what}: `{part}`");
    if detail.contains("unclosed character class") {
        let from = pattern.rfind('[').unwrap_or(0);
        return quoted("missing closing ]", &pattern[from..]);
    }
    if detail.contains("unclosed group") {
        return quoted("missing closing )", pattern);
    }
    if detail.contains("unopened group") {
        return quoted("unexpected )", pattern);
    }
    if detail.contains("repetition operator missing expression") {
        let from = pattern.find(['*', '+', '?']).unwrap_or(0);
        return quoted("missing argument to repetition operator", &pattern[from..from + 1]);
    }
    if detail.contains("invalid repetition count range") {
        let from = pattern.find('{').unwrap_or(0);
        let to = pattern[from..].find('}').map_or(pattern.len(), |length| from + length + 1);
        return quoted("invalid repeat count", &pattern[from..to]);
    }
    if detail.contains("incomplete escape sequence") {
        return quoted("trailing backslash at end of expression", "");
    }
    if detail.contains("invalid character class range") {
        return quoted("invalid character class range", pattern.trim_matches(['[', ']']));
    }
    if detail.contains("unrecognized escape sequence") {
        let from = pattern.find('\\').unwrap_or(0);
        return quoted(
            "invalid escape sequence",
            &pattern.chars().skip(pattern[..from].chars().count()).take(2).collect::<String>(),
        );
    }
    if detail.contains("size limit") {
        return quoted("expression too large", pattern);
    }
    quoted("invalid or unsupported Perl syntax", pattern)
}

/// Go's `$1W` names the group `1W`, as the crate does; `$` before anything else stands for itself.
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

/// Sprig's split is Go's: an empty match at the beginning is no border.
fn split(call: &Call<'_>, args: &[Value]) -> Result<Value, String> {
    let program = compile(call, args)?;
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
    for found in matches(call, &program, subject)? {
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
