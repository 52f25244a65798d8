//! Ports, by number or by name.

use super::super::field::Field;
use flyball_core::field::FieldError;
use serde_json::Value;

/// The protocols of ports.
pub(crate) const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];

/// The field must be a port number.
pub(crate) fn number(field: &Field<'_>) -> Option<FieldError> {
    field.within(1, 65_535)
}

/// The field must be the number or the name of a port.
pub(crate) fn number_or_name(field: &Field<'_>) -> Vec<FieldError> {
    match field.value() {
        Value::String(_) => field.obeys(name),
        _ => number(field).into_iter().collect(),
    }
}

/// Validates the name of a port.
pub(crate) fn name(text: &str) -> Vec<String> {
    let mut wrong: Vec<&str> = Vec::new();
    if text.len() > 15 {
        wrong.push("must be no more than 15 characters");
    }
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-') {
        wrong.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)");
    }
    if !text.bytes().any(|b| b.is_ascii_lowercase()) {
        wrong.push("must contain at least one letter (a-z)");
    }
    if text.contains("--") {
        wrong.push("must not contain consecutive hyphens");
    }
    if text.starts_with('-') || text.ends_with('-') {
        wrong.push("must not begin or end with a hyphen");
    }
    wrong.into_iter().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_require_a_letter() {
        assert!(name("http").is_empty() && name("h2c-8").is_empty());
        for (bad, count) in [("", 2), ("80", 1), ("a--b", 1), ("-a", 1), ("UPPER", 2), ("a-very-long-port-name", 1)] {
            assert_eq!(name(bad).len(), count, "{bad}");
        }
    }
}
