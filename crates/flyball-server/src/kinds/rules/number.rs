//! Numbers and percentages.

use super::super::field::Field;
use flyball_core::field::FieldError;
use flyball_core::names;
use serde_json::Value;

/// The field must be a nonnegative number or a percentage.
pub(crate) fn count_or_percent(field: &Field<'_>) -> Vec<FieldError> {
    match field.value() {
        Value::String(text) if percent(text).is_none() => {
            let what = "a valid percent string must be a numeric string followed by an ending '%'";
            vec![field.invalid(names::pattern_error(what, "[0-9]+%", &["1%", "93%"]))]
        }
        Value::String(_) => Vec::new(),
        _ => field.not_negative().into_iter().collect(),
    }
}

/// A percentage must not exceed 100%.
pub(crate) fn at_most_all(field: &Field<'_>) -> Option<FieldError> {
    percent(field.text()).filter(|percent| *percent > 100).map(|_| field.invalid("must not be greater than 100%"))
}

/// Parses a percentage.
fn percent(text: &str) -> Option<i64> {
    let digits = text.strip_suffix('%')?;
    let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    plain.then(|| digits.parse().unwrap_or(i64::MAX))
}

/// Returns a number, or the number in a percentage.
pub(crate) fn count(field: &Field<'_>) -> i64 {
    match field.value() {
        Value::String(text) => percent(text).or_else(|| text.parse().ok()).unwrap_or(0),
        _ => field.int(),
    }
}

/// Fields of a status with counts must not be negative.
pub(crate) fn counts(status: &Field<'_>, names: &[&str]) -> Vec<FieldError> {
    names.iter().filter_map(|name| status.at(name).not_negative()).collect()
}

/// Counts of a status must not exceed another one.
pub(crate) fn counts_no_more(status: &Field<'_>, names: &[&str], than: &str, detail: &str) -> Vec<FieldError> {
    let most = status.at(than).int();
    names
        .iter()
        .map(|name| status.at(name).int())
        .zip(names)
        .filter(|(count, _)| *count > most)
        .map(|(count, name)| status.at(name).invalid_as(count, detail))
        .collect()
}

/// A number must not decrease.
pub(crate) fn not_decremented(field: &Field<'_>, old: &Field<'_>) -> Option<FieldError> {
    let shrunk = match (field.int_if_set(), old.int_if_set()) {
        (Some(new), Some(old)) => new < old,
        (None, old) => old.is_some(),
        (Some(_), None) => false,
    };
    shrunk.then(|| field.invalid_as(field.int(), "cannot be decremented"))
}
