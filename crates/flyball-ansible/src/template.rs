//! Jinja as Ansible uses it: expressions that give values, texts with expressions in them, variables that are templates.
//!
//! Only what the author of a role wrote is ever a template. What came out of one, what a task returned and what users
//! write into objects is [data](Var::Data), whatever it looks like.

mod budget;
mod check;
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
use minijinja::{AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior};
use std::collections::BTreeSet;
use std::sync::LazyLock;

/// How much one template may do. A loop of a thousand turns takes some ten thousand of it.
const FUEL: u64 = 1_000_000;
/// What a template may give at most: more than an API server takes.
const LONGEST: usize = 4 << 20;

/// The engine, with all filters, tests and functions that there are.
static ENGINE: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut env = Environment::new();
    env.set_undefined_behavior(UndefinedBehavior::Chainable);
    env.set_auto_escape_callback(|_| AutoEscape::None);
    let syntax = SyntaxConfig::builder().trim_blocks(true).keep_trailing_newline(true).build();
    env.set_syntax(syntax.expect("no delimiters are changed"));
    env.set_fuel(Some(FUEL));
    env.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    env.set_formatter(|out, _, value| {
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
});

/// The names of functions, which are no variables.
static FUNCTIONS: LazyLock<BTreeSet<String>> =
    LazyLock::new(|| ENGINE.globals().map(|(name, _)| name.to_owned()).collect());

fn undefined() -> Error {
    Error::new(ErrorKind::UndefinedError, "a value is undefined")
}

/// Says what a filter was given and cannot take.
fn refuse(problem: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, problem.into())
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

/// Returns the expression of a text that consists of one and nothing else, which then gives a value and not a text.
fn sole_expression(text: &str) -> Option<&str> {
    let inner = text.trim().strip_prefix("{{")?.strip_suffix("}}")?;
    let mut quote = None;
    let mut escaped = false;
    let mut depth = 0_i32;
    for (at, letter) in inner.char_indices() {
        match (quote, letter) {
            _ if escaped => escaped = false,
            (Some(_), '\\') => escaped = true,
            (Some(open), letter) if letter == open => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(letter),
            (None, '{') => depth += 1,
            (None, '}') if depth == 0 => return None,
            (None, '}') => depth -= 1,
            (None, '%') if inner[at..].starts_with("%}") => return None,
            (None, _) => {}
        }
    }
    let inner = inner.strip_prefix('-').unwrap_or(inner);
    (quote.is_none() && depth == 0).then(|| inner.strip_suffix('-').unwrap_or(inner).trim())
}

/// Tells whether a text is anything but itself.
pub(crate) fn is_template(text: &str) -> bool {
    text.contains("{{") || text.contains("{%") || text.contains("{#")
}

#[cfg(test)]
mod cases;
