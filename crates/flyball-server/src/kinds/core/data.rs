//! Rules shared by the data of config maps and secrets.

use crate::kinds::field::{Errors, Field};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flyball_core::Object;
use flyball_core::names::config_key;
use serde_json::Value;

pub(super) const MAX_SIZE: usize = 1024 * 1024;

const FIELD_IMMUTABLE: &str = "field is immutable when `immutable` is set";

/// Decodes bytes from JSON.
pub(super) fn bytes(value: &Value) -> Vec<u8> {
    STANDARD.decode(value.as_str().unwrap_or_default()).unwrap_or_default()
}

pub(super) fn keys(data: &Field<'_>) -> Errors {
    let wrong = |(key, field): (&str, Field<'_>)| {
        config_key(key).into_iter().map(|wrong| field.invalid_as(key, wrong)).collect::<Errors>()
    };
    data.entries().flat_map(wrong).collect()
}

/// Rejects changes of immutable data and of the field `immutable`.
pub(super) fn fixed(root: &Field<'_>, old: Option<&Object>, fields: &[&str]) -> Errors {
    let Some(old) = old.filter(|old| old.get("immutable") == Some(&Value::Bool(true))) else { return Errors::new() };
    let mut errors = Errors::new();
    if !root.at("immutable").flag() {
        errors.push(root.at("immutable").forbidden(FIELD_IMMUTABLE));
    }
    for field in fields.iter().filter(|field| root.value().get(**field) != old.get(**field)) {
        errors.push(root.at(field).forbidden(FIELD_IMMUTABLE));
    }
    errors
}

pub(super) fn count(value: &Value) -> usize {
    value.as_object().map_or(0, serde_json::Map::len)
}
