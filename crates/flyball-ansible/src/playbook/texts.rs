//! Validates the templates and names of a task when it is loaded.

use crate::template::{check_expression, check_text, is_template};
use crate::value::Value;

/// A variable that has no meaning without Python; its usual value is `{{ ansible_playbook_python }}`.
pub(super) const INTERPRETER: &str = "ansible_python_interpreter";

/// Rejects a computed name of a variable.
pub(super) fn literal_name(name: String) -> Result<String, String> {
    match is_template(&name) {
        true => Err(format!("the name {name} of a variable must not be a template: use a literal name, or a map")),
        false => Ok(name),
    }
}

/// Validates all strings in a value.
pub(super) fn check_all(value: &Value) -> Result<(), String> {
    match value {
        Value::String(text) => check_text(text),
        Value::Array(items) => items.iter().try_for_each(check_all),
        Value::Object(fields) => fields
            .iter()
            .filter(|(key, _)| key.as_str() != INTERPRETER)
            .try_for_each(|(key, field)| check_text(key).and_then(|()| check_all(field))),
        _ => Ok(()),
    }
}

pub(super) fn check_conditions(value: &Value) -> Result<(), String> {
    match value {
        Value::String(text) => check_expression(text),
        Value::Array(items) => items.iter().try_for_each(check_conditions),
        _ => Ok(()),
    }
}
