//! Jinja as used by Ansible: expressions with typed values, texts with expressions, and variables that are templates.
//!
//! Only text of the role's author is ever a template. Results of templates and tasks and text of users are
//! [data](Var::Data), and never evaluated.

mod budget;
mod check;
mod codecs;
mod expression;
mod files;
mod filters;
mod format;
mod functions;
mod guards;
mod includes;
mod letters;
mod lists;
mod lookups;
mod methods;
mod missing;
mod modulo;
mod numbers;
mod operands;
mod output;
mod password;
mod plugins;
mod prepared;
mod printf;
mod python;
mod query;
mod random;
mod scan;
mod scope;
mod sequence;
mod sources;
mod syntax;
mod tests;
mod texts;
mod time;

pub(crate) use budget::Budget;
pub(crate) use check::{check_expression, check_file, check_syntax, check_text, literal_files, queried_kinds};
pub(crate) use files::{Files, normal, walk};
use includes::Includes;
pub(crate) use missing::{MissingName, missing_in_expression, missing_in_text};
use output::LimitedText;
pub(crate) use plugins::{PLUGINS, arranged};
pub(crate) use scope::{OMIT, PASSED, Scope, Var, Vars, data, templates};
pub(crate) use sources::Sources;
pub(crate) use texts::hash_of;

use crate::value::{Map, Value as Json};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Serde, Value, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State, UndefinedBehavior};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::LazyLock;

/// The fuel limits of one evaluation, tried in ascending order. A loop of a thousand iterations takes some ten
/// thousand.
///
/// The engine does not report the fuel taken by an expression or by failed evaluations. So a [`Budget`] is charged by
/// limit.
const FUEL: [u64; 5] = [64, 512, 4_096, 32_768, 262_144];
/// The number of bytes that cost one unit of fuel, as in the engine.
pub(crate) const BYTES_PER_FUEL: usize = 64;
/// Nesting limit of a value, since traversals recurse.
const MAX_DEPTH: usize = 512;

/// The engines, one for each limit in [`FUEL`].
static ENGINES: LazyLock<Vec<Environment<'static>>> = LazyLock::new(|| FUEL.into_iter().map(engine).collect());

/// The engine that validates templates, without fuel limit.
static ENGINE: LazyLock<&Environment<'static>> = LazyLock::new(|| &ENGINES[0]);

/// Creates an engine, with all supported filters, tests and functions.
fn engine(fuel: u64) -> Environment<'static> {
    let mut env = Environment::new();
    env.set_undefined_behavior(UndefinedBehavior::Chainable);
    env.set_auto_escape_callback(|_| AutoEscape::None);
    let syntax = SyntaxConfig::builder().trim_blocks(true).keep_trailing_newline(true).build();
    env.set_syntax(syntax.expect("the default delimiters are valid"));
    env.set_fuel(Some(fuel));
    env.set_unknown_method_callback(functions::method);
    env.set_formatter(|out, state, value| {
        weigh(state, value)?;
        let text = match value {
            value if value.is_none() => "".to_owned(),
            value => python::text(value)?,
        };
        out.write_str(&text).map_err(|_| Error::new(ErrorKind::WriteFailure, "the output is too large"))
    });
    filters::add(&mut env);
    tests::add(&mut env);
    functions::add(&mut env);
    env
}

/// The names of functions, which are not variables.
static FUNCTIONS: LazyLock<BTreeSet<String>> =
    LazyLock::new(|| ENGINE.globals().map(|(name, _)| name.to_owned()).collect());

/// The error of an undefined value without a name.
const UNDEFINED: &str = "a value is undefined";

fn undefined() -> Error {
    Error::new(ErrorKind::UndefinedError, UNDEFINED)
}

/// Creates the error for an invalid argument of a filter.
fn reject(problem: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, problem.into())
}

/// Charges fuel for a value by its size, before it is processed.
fn weigh(state: &State<'_, '_>, value: &Value) -> Result<(), Error> {
    weigh_within(state, value, MAX_DEPTH)
}

fn weigh_within(state: &State<'_, '_>, value: &Value, depth: usize) -> Result<(), Error> {
    let Some(inner) = depth.checked_sub(1) else {
        return Err(reject(format!("the value is nested deeper than {MAX_DEPTH}")));
    };
    if let Some(text) = value.as_str() {
        return state.consume_fuel(1 + (text.len() / BYTES_PER_FUEL) as u64);
    }
    state.consume_fuel(1)?;
    match value.kind() {
        ValueKind::Seq | ValueKind::Iterable => {
            value.try_iter()?.try_for_each(|item| weigh_within(state, &item, inner))
        }
        ValueKind::Map => value.try_iter()?.try_for_each(|key| {
            weigh_within(state, &key, inner)?;
            weigh_within(state, &value.get_item(&key)?, inner)
        }),
        _ => Ok(()),
    }
}

/// Returns the items of a list, and charges fuel for comparing them.
fn items(state: &State<'_, '_>, list: &Value) -> Result<Vec<Value>, Error> {
    weigh(state, list)?;
    Ok(list.try_iter()?.collect())
}

/// Returns the fuel for traversing a value.
///
/// # Errors
/// If it is nested too deep: traversals recurse, and tasks may nest a variable one level deeper in each iteration of
/// a loop.
pub(crate) fn weight(value: &Json) -> Result<u64, String> {
    weight_within(value, MAX_DEPTH)
}

fn weight_within(value: &Json, depth: usize) -> Result<u64, String> {
    let inner = depth.checked_sub(1).ok_or_else(|| format!("the value is nested deeper than {MAX_DEPTH}"))?;
    match value {
        Json::String(text) => Ok(weight_of_text(text)),
        Json::Array(items) => items.iter().try_fold(1, |sum, item| Ok(sum + weight_within(item, inner)?)),
        Json::Object(fields) => fields_within(fields, inner),
        _ => Ok(1),
    }
}

/// Returns the fuel for traversing the fields of a map.
fn weight_of_fields(fields: &Map) -> Result<u64, String> {
    fields_within(fields, MAX_DEPTH)
}

fn fields_within(fields: &Map, depth: usize) -> Result<u64, String> {
    fields.iter().try_fold(1, |sum, (key, field)| Ok(sum + weight_of_text(key) + weight_within(field, depth)?))
}

fn weight_of_text(text: &str) -> u64 {
    1 + (text.len() / BYTES_PER_FUEL) as u64
}

/// Converts a value for the engine.
fn from_json(value: impl serde::Serialize) -> Value {
    Value::from(Serde(value))
}

/// Rejects undefined values in lists and maps, which JSON does not have. The nesting is at most [`MAX_DEPTH`] deep.
fn check_defined(value: &Value) -> Result<(), Error> {
    match value.kind() {
        ValueKind::Undefined => Err(undefined()),
        ValueKind::Seq => value.try_iter()?.try_for_each(|item| check_defined(&item)),
        ValueKind::Map => value.try_iter()?.try_for_each(|key| check_defined(&value.get_item(&key)?)),
        _ => Ok(()),
    }
}

/// Converts a value from the engine. The nesting is at most [`MAX_DEPTH`] deep.
fn to_json(value: &Value) -> Result<Json, Error> {
    if value.kind() == ValueKind::Bytes {
        // JSON has no bytes.
        return python::text(value).map(Into::into);
    }
    converted(value)
}

fn converted(value: &Value) -> Result<Json, Error> {
    match value.kind() {
        ValueKind::Seq | ValueKind::Iterable => value.try_iter()?.map(|item| converted(&item)).collect(),
        ValueKind::Map => {
            let field = |key: Value| Ok((field_name(&key)?, converted(&value.get_item(&key)?)?));
            Ok(Json::Object(value.try_iter()?.map(field).collect::<Result<_, Error>>()?))
        }
        // The others have no fields, whose order would be lost.
        _ => serde_json::to_value(value).map(Json::from).map_err(|error| reject(error.to_string())),
    }
}

/// Returns the name of a field for a key, which JSON requires to be a string.
fn field_name(key: &Value) -> Result<String, Error> {
    match key.kind() {
        ValueKind::String | ValueKind::Bool | ValueKind::Number => Ok(key.to_string()),
        _ => Err(reject("key must be a string")),
    }
}

/// Formats an error on one line, without positions in internal texts.
fn explain(error: &Error) -> String {
    let mut text = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        let cause_text = match cause.downcast_ref::<Error>() {
            Some(cause) => cause.detail().map_or_else(|| cause.kind().to_string(), str::to_owned),
            None => cause.to_string(),
        };
        // Outer errors only report that the evaluation failed.
        text = cause_text;
        source = cause.source();
    }
    text
}

/// Tracks the quotes of an expression, character by character.
#[derive(Default)]
struct Quotes {
    open: Option<char>,
    escaped: bool,
}

impl Quotes {
    /// Processes the next character, and returns true if it belongs to a quoted text.
    fn is_quoted(&mut self, letter: char) -> bool {
        match (self.open, letter) {
            _ if self.escaped => self.escaped = false,
            (Some(_), '\\') => self.escaped = true,
            (Some(open), letter) if letter == open => self.open = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => self.open = Some(letter),
            (None, _) => return false,
        }
        true
    }

    fn are_open(&self) -> bool {
        self.open.is_some()
    }
}

/// Returns the expression of a text that is a single expression, which evaluates to a typed value.
fn sole_expression(text: &str) -> Option<&str> {
    let inner = text.trim().strip_prefix("{{")?.strip_suffix("}}")?;
    let (mut quotes, mut depth) = (Quotes::default(), 0_i32);
    for (at, letter) in inner.char_indices() {
        match letter {
            _ if quotes.is_quoted(letter) => {}
            '{' => depth += 1,
            '}' if depth == 0 => return None,
            '}' => depth -= 1,
            '%' if inner[at..].starts_with("%}") => return None,
            _ => {}
        }
    }
    let inner = inner.strip_prefix('-').unwrap_or(inner);
    (!quotes.are_open() && depth == 0).then(|| inner.strip_suffix('-').unwrap_or(inner).trim())
}

/// Doubles the backslashes of quoted texts in expressions: in strings of playbooks and roles, as opposed to template
/// files, Ansible takes them literally, so that `'\1'` and `'\d'` need no further backslash.
fn literal_backslashes(text: &str) -> Cow<'_, str> {
    if !text.contains('\\') || !text.contains("{{") {
        return text.into();
    }
    let (mut literal, mut rest) = (String::new(), text);
    while let Some((before, inner)) = rest.split_once("{{") {
        literal.push_str(before);
        literal.push_str("{{");
        let mut quotes = Quotes::default();
        let mut end = inner.len();
        for (at, letter) in inner.char_indices() {
            if !quotes.is_quoted(letter) && inner[at..].starts_with("}}") {
                end = at;
                break;
            }
            literal.push(letter);
            if letter == '\\' && quotes.are_open() {
                literal.push(letter);
            }
        }
        rest = &inner[end..];
    }
    (literal + rest).into()
}

/// Returns true if a string contains a template.
pub(crate) fn is_template(text: &str) -> bool {
    text.contains("{{") || text.contains("{%") || text.contains("{#")
}

#[cfg(test)]
mod cases;
#[cfg(test)]
mod recorded;
