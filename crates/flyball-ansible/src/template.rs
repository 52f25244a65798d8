//! Jinja as Ansible uses it: expressions that give values, texts with expressions in them, variables that are
//! templates.
//!
//! Only what the author of a role wrote is ever a template. What came out of one, what a task returned and what users
//! write into objects is [data](Var::Data), whatever it looks like.

mod budget;
mod check;
mod expression;
mod files;
mod filters;
mod functions;
mod scope;
mod tests;

pub(crate) use budget::Budget;
pub(crate) use check::{check_expression, check_text};
pub(crate) use files::{Files, walk};
pub(crate) use scope::{OMIT, PASSED, Scope, Var, Vars, data, templates};

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Serde, Value, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State, UndefinedBehavior};
use std::collections::BTreeSet;
use std::sync::LazyLock;

/// The fuel of one evaluation, which is tried with the least first. A loop of a thousand turns takes some ten thousand.
///
/// The engine does not say how much fuel an expression took, or anything that failed. So a [`Budget`] is charged by the
/// step.
const FUEL: [u64; 5] = [64, 512, 4_096, 32_768, 262_144];
/// The bytes that are as much work as one unit of fuel, as the engine has it.
pub(crate) const BYTES_PER_FUEL: usize = 64;
/// Nesting depth of a value, since walks over it recurse.
const MAX_DEPTH: usize = 512;
/// Bytes of a template's output: more than an API server accepts.
const MAX_OUTPUT_BYTES: usize = 4 << 20;

/// The engines, one for each step of [`FUEL`].
static ENGINES: LazyLock<Vec<Environment<'static>>> = LazyLock::new(|| FUEL.into_iter().map(engine).collect());

/// The engine that checks templates, which takes no fuel.
static ENGINE: LazyLock<&Environment<'static>> = LazyLock::new(|| &ENGINES[0]);

/// Creates an engine, with all filters, tests and functions that there are.
fn engine(fuel: u64) -> Environment<'static> {
    let mut env = Environment::new();
    env.set_undefined_behavior(UndefinedBehavior::Chainable);
    env.set_auto_escape_callback(|_| AutoEscape::None);
    let syntax = SyntaxConfig::builder().trim_blocks(true).keep_trailing_newline(true).build();
    env.set_syntax(syntax.expect("no delimiters are changed"));
    env.set_fuel(Some(fuel));
    env.set_unknown_method_callback(functions::method);
    env.set_formatter(|out, state, value| {
        weigh(state, value)?;
        // As Python prints them.
        let text = match value {
            value if value.is_undefined() => return Err(undefined()),
            value if value.is_none() => "".to_owned(),
            value if value.kind() == ValueKind::Bool => {
                if value.is_true() {
                    "True".to_owned()
                } else {
                    "False".to_owned()
                }
            }
            value => value.to_string(),
        };
        out.write_str(&text).map_err(|_| Error::new(ErrorKind::WriteFailure, "there is no room for the text"))
    });
    filters::add(&mut env);
    tests::add(&mut env);
    functions::add(&mut env);
    env
}

/// The names of functions, which are no variables.
static FUNCTIONS: LazyLock<BTreeSet<String>> =
    LazyLock::new(|| ENGINE.globals().map(|(name, _)| name.to_owned()).collect());

fn undefined() -> Error {
    Error::new(ErrorKind::UndefinedError, "a value is undefined")
}

/// Creates the error for an invalid argument of a filter.
fn refuse(problem: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, problem.into())
}

/// Refuses to make a text that would be too long.
fn check_size(what: &str, size: usize) -> Result<(), Error> {
    if size > MAX_OUTPUT_BYTES {
        Err(refuse(format!("{what} gives more than {MAX_OUTPUT_BYTES} bytes")))
    } else {
        Ok(())
    }
}

/// Charges fuel for a value by its size, before it is processed.
fn weigh(state: &State<'_, '_>, value: &Value) -> Result<(), Error> {
    weigh_within(state, value, MAX_DEPTH)
}

fn weigh_within(state: &State<'_, '_>, value: &Value, depth: usize) -> Result<(), Error> {
    let Some(inner) = depth.checked_sub(1) else {
        return Err(refuse(format!("the value is nested more than {MAX_DEPTH} deep")));
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

/// Returns how much fuel it takes to go through a value.
///
/// # Errors
/// It is nested too deep: what goes through it recurses, and tasks may nest a variable once more in each turn of a
/// loop.
fn weight(value: &serde_json::Value) -> Result<u64, String> {
    weight_within(value, MAX_DEPTH)
}

fn weight_within(value: &serde_json::Value, depth: usize) -> Result<u64, String> {
    use serde_json::Value as Json;
    let of_text = |text: &str| 1 + (text.len() / BYTES_PER_FUEL) as u64;
    let inner = depth.checked_sub(1).ok_or_else(|| format!("the value is nested more than {MAX_DEPTH} deep"))?;
    match value {
        Json::String(text) => Ok(of_text(text)),
        Json::Array(items) => items.iter().try_fold(1, |sum, item| Ok(sum + weight_within(item, inner)?)),
        Json::Object(fields) => {
            fields.iter().try_fold(1, |sum, (key, field)| Ok(sum + of_text(key) + weight_within(field, inner)?))
        }
        _ => Ok(1),
    }
}

/// Converts a value for the engine.
fn from_json(value: impl serde::Serialize) -> Value {
    Value::from(Serde(value))
}

/// Converts a value of the engine.
fn to_json(value: &Value) -> Result<serde_json::Value, Error> {
    serde_json::to_value(value).map_err(|error| refuse(error.to_string()))
}

/// Writes an error in one line, without the places in texts that nobody sees.
fn explain(error: &Error) -> String {
    let mut text = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        let cause_text = match cause.downcast_ref::<Error>() {
            Some(cause) => cause.detail().map_or_else(|| cause.kind().to_string(), str::to_owned),
            None => cause.to_string(),
        };
        // What wraps an error only says that it could not be evaluated.
        text = cause_text;
        source = cause.source();
    }
    text
}

/// Follows the quotes of an expression, letter by letter.
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

/// Returns the expression of a text that consists of one and nothing else, which then gives a value and not a text.
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

/// Returns true if a text is anything but itself.
pub(crate) fn is_template(text: &str) -> bool {
    text.contains("{{") || text.contains("{%") || text.contains("{#")
}

#[cfg(test)]
mod cases;
