//! Undefined operands, which are errors in Ansible: of operators, filters, tests and indices.
//!
//! The engine treats undefined attributes as empty. So a filter that rejects them is added to each operand that might
//! be undefined, unless `default` or `is defined` handles it. As in [`modulo`](super::modulo), only expressions are
//! changed, never text within quotes, and no line break is added or removed.

use super::printf::type_name;
use super::scan::{Part, Piece, ScannedOperand, pieces};
use super::syntax::with_parser_stack;
use super::{UNDEFINED, reject};
use minijinja::value::Value;
use minijinja::{Environment, Error, State};

/// The filter that rejects an undefined value. Templates may use it under this name, with the same result.
const FILTER: &str = "defined_operand";
/// Filters that handle an undefined value.
const GUARDS: [&str; 2] = ["d", "default"];
/// Filters that accept an undefined value, and undefined arguments.
const ACCEPTING: [&str; 6] = ["d", "default", "mandatory", "percent_operator", "type_debug", FILTER];
/// Filters that accept undefined arguments, since they use at most one of them, or that check them.
const LAZY: [&str; 3] = ["format", "map", "ternary"];
/// Filters that use all items of a list.
const WHOLE: [&str; 2] = ["join", "path_join"];
/// Functions whose arguments must be defined.
const FUNCTIONS: [&str; 4] = ["lookup", "q", "query", "range"];
/// Tests of undefined values.
const TESTS: [&str; 2] = ["defined", "undefined"];
/// Operators between two operands.
const OPERATORS: [&str; 14] = ["~", "+", "-", "*", "/", "//", "**", "%", "==", "!=", "<", ">", "<=", ">="];
/// Length limit of an operand that is named in the error.
const MAX_NAME: usize = 200;

pub(super) fn add(env: &mut Environment<'static>) {
    env.add_filter(FILTER, check);
}

/// Returns true unless an expression is a name with attributes.
pub(super) fn has_operands(expression: &str) -> bool {
    let is_part = |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '.' | ' ' | '\n');
    expression.contains(|letter| !is_part(letter)) || expression.split_whitespace().nth(1).is_some()
}

/// Adds the check to the operands of an expression or a statement.
pub(super) fn with_checks(expression: &str) -> String {
    // These belong to the braces.
    let before = usize::from(expression.starts_with(['-', '+']));
    let after = usize::from(expression.len() > before && expression.ends_with(['-', '+']));
    let inner = &expression[before..expression.len() - after];
    let out = with_parser_stack(|| level(inner, Level::Plain));
    format!("{}{out}{}", &expression[..before], &expression[expression.len() - after..])
}

/// A level of nesting: what the brackets around it require.
#[derive(Clone, Copy, PartialEq)]
enum Level {
    /// Nothing.
    Plain,
    /// Operands without operators must be defined as well.
    Arguments,
    /// A filter such as `default` follows.
    Guarded,
}

/// Adds the check to one level of nesting.
fn level(text: &str, level: Level) -> String {
    let all = pieces(text);
    let tokens: Vec<&Piece<'_>> = all.iter().filter(|piece| !matches!(piece, Piece::Space(_))).collect();
    let (mut out, mut at, mut is_target) = (String::new(), 0, false);
    for piece in &all {
        match piece {
            Piece::Space(text) => {
                out.push_str(text);
                continue;
            }
            Piece::Word(word) => {
                is_target = *word == "for" || is_target && *word != "in";
                out.push_str(word);
            }
            Piece::Sign(sign) => out.push_str(sign),
            Piece::Operand(operand) => {
                let around = Surroundings::of(&tokens, at, level, is_target);
                write(&mut out, operand, &around);
            }
        }
        at += 1;
    }
    out
}

/// The requirements of the tokens around an operand.
struct Surroundings {
    /// The operand must be defined.
    is_required: bool,
    /// A test such as `is defined` follows.
    is_tested: bool,
    /// A filter such as `default` follows outside of parentheses.
    is_guarded: bool,
    /// The operand is the name of a test, its argument, or the target of a loop.
    is_no_value: bool,
    /// The operand is the name of a test whose arguments must be defined.
    is_test: bool,
}

impl Surroundings {
    fn of(tokens: &[&Piece<'_>], at: usize, level: Level, is_target: bool) -> Self {
        let token = |at: Option<usize>| at.and_then(|at| tokens.get(at)).copied();
        let before = |back: usize| token(at.checked_sub(back));
        let is_test = is_word(before(1), &["is"]) || is_word(before(1), &["not"]) && is_word(before(2), &["is"]);
        let is_argument = matches!(before(1), Some(Piece::Operand(_)));
        let next = token(Some(at + 1));
        let is_tested = is_word(next, &["is"]) && {
            let name = if is_word(token(Some(at + 2)), &["not"]) { at + 3 } else { at + 2 };
            accepts_undefined(token(Some(name)))
        };
        let is_alone = || {
            (before(1).is_none() || is_sign(before(1), &[",", "=", ":"]))
                && (next.is_none() || is_sign(next, &[",", ":"]))
        };
        let is_required = is_sign(before(1), &OPERATORS)
            || is_sign(next, &OPERATORS)
            || is_word(before(1), &["in", "not", "if", "elif"])
            || is_word(next, &["in", "not", "and", "or", "is"])
            || level == Level::Arguments && is_alone();
        let is_no_value = is_test || is_argument || is_target;
        let is_guarded = level == Level::Guarded && tokens.len() == 1;
        Self {
            is_required,
            is_tested,
            is_guarded,
            is_no_value,
            is_test: is_test && !accepts_undefined(token(Some(at))),
        }
    }
}

fn is_word(piece: Option<&Piece<'_>>, words: &[&str]) -> bool {
    matches!(piece, Some(Piece::Word(word)) if words.contains(word))
}

fn is_sign(piece: Option<&Piece<'_>>, signs: &[&str]) -> bool {
    matches!(piece, Some(Piece::Sign(sign)) if signs.contains(sign))
}

/// Returns true if a piece is a test such as `defined`.
fn accepts_undefined(piece: Option<&Piece<'_>>) -> bool {
    matches!(piece, Some(Piece::Operand(test)) if TESTS.contains(&last_name(test)))
}

/// Returns the name of a test without its collection.
fn last_name<'t>(test: &ScannedOperand<'t>) -> &'t str {
    let names = test.parts.iter().map_while(|part| match part {
        Part::Primary(name) => Some(*name),
        Part::Attribute(name) => Some(name.trim_start_matches([' ', '.', '\n'])),
        _ => None,
    });
    names.last().unwrap_or_default()
}

/// Writes an operand, with the checks that it needs.
fn write(out: &mut String, operand: &ScannedOperand<'_>, around: &Surroundings) {
    let guard = operand.filters().find(|(_, name)| GUARDS.contains(name)).map(|(at, _)| at);
    let guard = guard.or_else(|| around.is_guarded.then_some(operand.parts.len()));
    let first = operand.filters().next();
    let is_value = !operand.is_literal() && !around.is_no_value;
    let value = operand.value();
    let name = name_of(&value);
    let is_input = is_value
        && operand.signs.is_empty()
        && !around.is_tested
        && first.is_some_and(|(at, name)| !ACCEPTING.contains(&name) && !is_constant(&operand.parts[..at]));
    let checks_result = is_value && !around.is_tested && (around.is_required || !operand.signs.is_empty());
    // A filter after a sign applies to the negative number.
    let is_enclosed = checks_result && !operand.signs.is_empty() && first.is_none();
    // As in Ansible, the result of a filter is undefined if its input is.
    let passes_on = guard.filter(|guard| is_input && first.is_some_and(|(at, _)| at < *guard) && is_path(&value));
    out.push_str(operand.signs);
    out.push_str(if is_enclosed || passes_on.is_some() { "(" } else { "" });
    for (at, part) in operand.parts.iter().enumerate() {
        if passes_on == Some(at) {
            out.push_str(&unless_defined(&value));
        }
        if is_input && guard.is_none() && first.is_some_and(|(first, _)| first == at) {
            out.push_str(&name);
        }
        match part {
            Part::Brackets { open, inner, close } => {
                let inner = level(inner, brackets(operand, at, guard, around));
                out.push_str(&format!("{open}{inner}{close}"));
            }
            other => out.push_str(&other.text()),
        }
    }
    if passes_on == Some(operand.parts.len()) {
        out.push_str(&unless_defined(&value));
    }
    if checks_result && (first.is_none() || operand.signs.is_empty()) {
        out.push_str(&name);
    }
    out.push_str(if is_enclosed { ")" } else { "" });
}

/// Returns what the brackets at a position of an operand require.
fn brackets(operand: &ScannedOperand<'_>, at: usize, guard: Option<usize>, around: &Surroundings) -> Level {
    let is_index = matches!(&operand.parts[at], Part::Brackets { open, .. } if open.ends_with('['));
    let must_be_defined = match at.checked_sub(1).map(|before| &operand.parts[before]) {
        None if guard.is_some() && !is_index => return Level::Guarded,
        None => matches!(operand.parts.get(1), Some(Part::Filter { name, .. }) if WHOLE.contains(name)),
        Some(_) if is_index => guard.is_none_or(|guard| guard < at) && !around.is_tested,
        Some(Part::Filter { name, .. }) => {
            let name = name.rsplit('.').next().unwrap_or(name);
            !ACCEPTING.contains(&name) && !LAZY.contains(&name)
        }
        Some(Part::Primary(name)) if at == 1 => around.is_test || FUNCTIONS.contains(name),
        Some(_) => false,
    };
    if must_be_defined { Level::Arguments } else { Level::Plain }
}

/// Ends the filters that are applied only to a defined value.
fn unless_defined(value: &str) -> String {
    format!(" if {value} is defined else {value})")
}

/// Returns true for a variable with attributes and indices, without calls.
fn is_path(value: &str) -> bool {
    value.starts_with(|letter: char| letter.is_alphabetic() || letter == '_') && !value.contains(['(', '\n', '\r'])
}

/// Returns true for a literal, to which filters may follow.
fn is_constant(parts: &[Part<'_>]) -> bool {
    match parts {
        [Part::Primary(text)] => {
            text.starts_with(|letter: char| letter.is_ascii_digit() || matches!(letter, '\'' | '"'))
        }
        [Part::Brackets { open, .. }] => !open.ends_with('('),
        _ => false,
    }
}

/// Returns the filter with the operand as its argument, for the error.
fn name_of(operand: &str) -> String {
    let quote = ['\'', '"'].into_iter().find(|quote| !operand.contains(*quote));
    match quote.filter(|_| operand.len() <= MAX_NAME && !operand.contains(['\n', '\r', '\\', '{', '}'])) {
        Some(quote) => format!("|{FILTER}({quote}{operand}{quote})"),
        None => format!("|{FILTER}"),
    }
}

/// Returns a value unless it is undefined. The error has Ansible's words.
fn check(state: &State<'_, '_>, value: Value, operand: Option<String>) -> Result<Value, Error> {
    match value.is_undefined() {
        true => Err(reject(operand.map_or_else(|| UNDEFINED.to_owned(), |operand| missing(state, &operand)))),
        false => Ok(value),
    }
}

/// Returns the reason why an operand is undefined: a variable, or an attribute of a value.
fn missing(state: &State<'_, '_>, operand: &str) -> String {
    let end = operand.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(operand.len());
    let (variable, mut rest) = operand.split_at(end);
    let Some(mut value) = state.lookup(variable).filter(|value| !value.is_undefined()) else {
        return if variable.is_empty() { UNDEFINED.to_owned() } else { format!("'{variable}' is undefined") };
    };
    while !rest.is_empty() {
        let Some((key, shown, after)) = next_key(rest).filter(|(_, _, after)| !after.starts_with('(')) else {
            return UNDEFINED.to_owned();
        };
        match value.get_item(&key) {
            Ok(inner) if !inner.is_undefined() => (value, rest) = (inner, after),
            _ => return format!("object of type '{}' has no attribute {shown}", type_name(&value)),
        }
    }
    UNDEFINED.to_owned()
}

/// Returns the literal attribute or index at the beginning of a text, as a value and in Python's notation.
fn next_key(text: &str) -> Option<(Value, String, &str)> {
    if let Some(rest) = text.strip_prefix('.') {
        let end = rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        return Some((name.into(), format!("'{name}'"), after)).filter(|_| !name.is_empty());
    }
    let (inner, after) = text.strip_prefix('[')?.split_once(']')?;
    if let Ok(index) = inner.parse::<i64>() {
        return Some((index.into(), index.to_string(), after));
    }
    let name = inner.strip_prefix(['\'', '"'])?.strip_suffix(['\'', '"'])?;
    Some((name.into(), format!("'{name}'"), after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operands_are_checked_unless_they_are_handled() {
        let check = |expression: &str, expected: &str| {
            // `?` stands for the check.
            let found = regex::Regex::new(r#"\|defined_operand(\('[^']*'\)|\("[^"]*"\))?"#).unwrap();
            assert_eq!(found.replace_all(&with_checks(expression), "?"), expected, "{expression}");
        };
        check("a.b", "a.b");
        check("a.b ~ 'x'", "a.b? ~ 'x'");
        check("1 < a['b']", "1 < a['b']?");
        check("a | default('x') ~ b", "a | default('x')? ~ b?");
        check("not a.b", "not a.b?");
        check("a and b or c", "a? and b? or c");
        check("x if a.b else c", "x if a.b? else c");
        check("a is defined and a.b", "a is defined and a.b");
        check("a is not defined or a is string", "a is not defined or a? is string");
        check("a is divisibleby 2", "a? is divisibleby 2");
        check("a is subset(b.c)", "a? is subset(b.c?)");
        check("a in [b.c]", "a? in [b.c]");
        check("a not in b.c", "a? not in b.c?");
        check(" -a.b", " -(a.b?)");
        check("a.b | upper", "a.b? | upper");
        check("a.b | upper | default('x')", "(a.b | upper if a.b is defined else a.b) | default('x')");
        check("(a.b | upper) | default('x')", "((a.b | upper if a.b is defined else a.b)) | default('x')");
        check("(a ~ b) | default('x')", "(a? ~ b?) | default('x')");
        check("a | replace(b.c, 'x')", "a? | replace(b.c?, 'x')");
        check("a | ternary(b.c, d)", "a? | ternary(b.c, d)");
        check("a | default(b.c)", "a | default(b.c)");
        check("a[b.c]", "a[b.c?]");
        check("a[b.c] | d('x')", "a[b.c] | d('x')");
        check("[a.b, 'x'] | join", "[a.b?, 'x'] | join");
        check("f(a.b, c=d ~ e)", "f(a.b, c=d? ~ e?)");
        check("lookup('env', a.b)", "lookup('env', a.b?)");
        check("{'a': b.c}", "{'a': b.c}");
        check("-- for a in b.c -", "-- for a in b.c? -");
        check(" for a, b in c.items() if a.b ", " for a, b in c.items()? if a.b? ");
        check(" set a = b.c ", " set a = b.c ");
        check(" if a ~ b -", " if a? ~ b? -");
        check("'a' | upper ~ [1] | first", "'a' | upper? ~ [1] | first?");
        for broken in ["a ~", "~ a", "a ~ (b", "a | ", "is", "a is", "a is not", "not", "é ~ 'ü", "a ~ ]"] {
            let _ = with_checks(broken);
        }
    }
}
