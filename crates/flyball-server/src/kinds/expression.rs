//! Expressions in CEL within the configuration of admission: what they may name, and what they must make.

use super::field::Field;
use flyball_core::field::FieldError;
use flyball_schema::cel::{check_among, compile};

/// What every expression of admission sees.
pub(super) const VARIABLES: [&str; 4] = ["object", "oldObject", "request", "authorizer"];

/// What comes of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Made {
    Bool,
    Text,
    TextOrNull,
    Anything,
}

/// Finds what is wrong with an expression about some variables.
pub(super) fn check(expression: &Field<'_>, variables: &[&str], wanted: Made) -> Option<FieldError> {
    let text = expression.text();
    let made = match check_among(text, variables) {
        Ok(made) => made,
        Err(why) => return Some(expression.invalid_as(text, format!("compilation failed: {why}"))),
    };
    let known = |names: &[&str]| made.is_dyn() || names.iter().any(|name| made.is(name));
    let (fits, name) = match wanted {
        Made::Bool => (known(&["bool"]), "bool"),
        Made::Text => (known(&["string"]), "string"),
        Made::TextOrNull => (known(&["string", "null"]), "string or null"),
        Made::Anything => (true, ""),
    };
    (!fits).then(|| expression.invalid(format!("must evaluate to {name} but got {made}")))
}

/// Finds what is wrong with the mere form of an expression.
pub(super) fn parse(expression: &Field<'_>) -> Option<FieldError> {
    let text = expression.text().trim();
    let why = compile(text).err()?;
    Some(expression.invalid_as(text, format!("compilation failed: {why}")))
}
