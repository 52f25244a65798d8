//! Maps with known fields: each field is removed with its type, and remaining fields are errors.

use crate::value::{Map, Value};
use crate::yaml::type_name;
use std::collections::BTreeSet;

/// The remaining fields of a map.
pub(crate) struct Fields {
    remaining: Map,
    known: Vec<&'static str>,
}

/// An error in a field; the name is empty for the map as a whole.
#[derive(Debug)]
pub(crate) struct FieldError {
    pub(crate) field: String,
    pub(crate) problem: String,
}

impl FieldError {
    pub(crate) fn new(field: &str, problem: impl Into<String>) -> Self {
        Self { field: field.to_owned(), problem: problem.into() }
    }
}

impl Fields {
    pub(crate) fn of(value: Value) -> Result<Self, FieldError> {
        match value {
            Value::Object(remaining) => Ok(Self { remaining, known: Vec::new() }),
            other => Err(FieldError::new("", format!("must be a mapping, not {}", type_name(&other)))),
        }
    }

    /// Removes a field and returns it; `null` counts as absent.
    pub(crate) fn remove(&mut self, name: &'static str) -> Option<Value> {
        self.known.push(name);
        self.remaining.remove(name).filter(|value| !value.is_null())
    }

    pub(crate) fn text(&mut self, name: &'static str) -> Result<Option<String>, FieldError> {
        match self.remove(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(FieldError::new(name, format!("{other} must be a string: put it in quotes"))),
        }
    }

    pub(crate) fn boolean(&mut self, name: &'static str) -> Result<Option<bool>, FieldError> {
        match self.remove(name) {
            None => Ok(None),
            Some(Value::Bool(truth)) => Ok(Some(truth)),
            Some(other) => Err(FieldError::new(name, format!("{other} must be true or false, without quotes"))),
        }
    }

    pub(crate) fn number(&mut self, name: &'static str) -> Result<Option<u64>, FieldError> {
        match self.remove(name) {
            None => Ok(None),
            Some(value) => match value.as_u64() {
                Some(number) => Ok(Some(number)),
                None => {
                    Err(FieldError::new(name, format!("must be a non-negative integer, not {}", type_name(&value))))
                }
            },
        }
    }

    pub(crate) fn map(&mut self, name: &'static str) -> Result<Map, FieldError> {
        match self.remove(name) {
            None => Ok(Map::new()),
            Some(Value::Object(fields)) => Ok(fields),
            Some(other) => Err(FieldError::new(name, format!("must be a mapping, not {}", type_name(&other)))),
        }
    }

    /// Removes a list of names and returns it; empty if the field is absent.
    pub(crate) fn names(&mut self, name: &'static str) -> Result<BTreeSet<String>, FieldError> {
        let mistake = || FieldError::new(name, "must be a list of strings, such as [a, b]");
        match self.remove(name) {
            None => Ok(BTreeSet::new()),
            Some(Value::Array(items)) => {
                items.into_iter().map(|item| item.as_str().map(str::to_owned).ok_or_else(mistake)).collect()
            }
            Some(_) => Err(mistake()),
        }
    }

    /// Rejects remaining fields.
    pub(crate) fn finish(mut self) -> Result<(), FieldError> {
        match self.remaining.keys().next() {
            None => Ok(()),
            Some(unknown) => {
                self.known.sort_unstable();
                Err(FieldError::new(unknown, format!("unknown field; expected one of {}", self.known.join(", "))))
            }
        }
    }
}
