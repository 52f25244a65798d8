//! Field errors: the path of a field in an object, and the error type.
//!
//! The messages follow `k8s.io/apimachinery/pkg/util/validation/field`, because some clients compare them.

use crate::Object;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt;

/// The path of a field, built on the stack during a validation; formatted as `spec.containers[0].name`.
#[derive(Clone, Copy, Debug)]
pub struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    step: Step<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Step<'a> {
    Root,
    Field(&'a str),
    Index(usize),
    Key(&'a str),
}

impl<'a> Path<'a> {
    /// The object itself; formatted as `<nil>`, like Go's nil path.
    pub const ROOT: Path<'static> = Path { parent: None, step: Step::Root };

    /// Creates the path of a top-level field.
    pub const fn new(field: &'a str) -> Self {
        Path { parent: None, step: Step::Field(field) }
    }

    /// Returns the path of a field below this one.
    pub const fn field(&'a self, name: &'a str) -> Self {
        Path { parent: Some(self), step: Step::Field(name) }
    }

    /// Returns the path of an item of this list.
    pub const fn index(&'a self, index: usize) -> Self {
        Path { parent: Some(self), step: Step::Index(index) }
    }

    /// Returns the path of a value of this map.
    pub const fn key(&'a self, key: &'a str) -> Self {
        Path { parent: Some(self), step: Step::Key(key) }
    }

    /// Returns true if this is the object itself.
    pub fn is_root(&self) -> bool {
        matches!(self.step, Step::Root)
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_root() {
            return f.write_str("<nil>");
        }
        if let Some(parent) = self.parent.filter(|parent| !parent.is_root()) {
            parent.fmt(f)?;
        }
        match self.step {
            Step::Root => Ok(()), // returned above
            Step::Field(name) if self.parent.is_none_or(Path::is_root) => f.write_str(name),
            Step::Field(name) => write!(f, ".{name}"),
            Step::Index(index) => write!(f, "[{index}]"),
            Step::Key(key) => write!(f, "[{key}]"),
        }
    }
}

/// Returns the value of a selectable field, such as `spec.nodeName`, as a string; empty if absent.
pub fn selectable_text(object: &Object, path: &str) -> String {
    let steps: Vec<&str> = path.trim_start_matches('.').split('.').collect();
    match object.at(&steps) {
        Some(Value::String(text)) => text.clone(),
        Some(value @ (Value::Bool(_) | Value::Number(_))) => value.to_string(),
        _ => String::new(),
    }
}

/// The type of a [`FieldError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names are self-explanatory")]
pub enum ErrorType {
    NotFound,
    Required,
    Duplicate,
    Invalid,
    NotSupported,
    Forbidden,
    TooLong,
    TooMany,
    TooFew,
    TypeInvalid,
    Internal,
}

impl ErrorType {
    /// Returns the `reason` of the cause in the API.
    pub fn reason(self) -> &'static str {
        match self {
            Self::NotFound => "FieldValueNotFound",
            Self::Required => "FieldValueRequired",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::TooFew => "FieldValueTooFew",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::Internal => "InternalError",
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::NotFound => "Not found",
            Self::Required => "Required value",
            Self::Duplicate => "Duplicate value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::TooFew => "Too few",
            Self::Internal => "Internal error",
        }
    }
}

/// An error in one field of an object.
#[doc(alias = "field.Error")]
#[derive(Clone, Debug, PartialEq)]
#[doc(alias = "field.ErrorList")]
pub struct FieldError {
    /// The type of the error.
    pub error_type: ErrorType,
    /// Path of the field, as formatted by [`Path`].
    pub field: String,
    /// The value, if the message contains it.
    pub value: Option<BadValue>,
    /// Description of the error, or of the allowed values; may be empty.
    pub detail: String,
}

/// Maximum number of bytes of a value in an error message, so that an object of several megabytes is not repeated in
/// each of its errors.
const MAX_SHOWN_BYTES: usize = 32 << 10;

/// A value in an error message.
#[derive(Clone, Debug, PartialEq)]
pub enum BadValue {
    /// A JSON value: strings quoted, the rest as JSON.
    Json(Value),
    /// A string that is inserted verbatim.
    Raw(String),
}

impl<T: Into<Value>> From<T> for BadValue {
    fn from(value: T) -> Self {
        Self::Json(value.into())
    }
}

impl FieldError {
    fn new(
        error_type: ErrorType,
        field: impl fmt::Display,
        value: Option<BadValue>,
        detail: impl Into<String>,
    ) -> Self {
        Self { error_type, field: field.to_string(), value, detail: detail.into() }
    }

    /// Creates an error without text, which is only counted: one beyond those that a `Status` lists.
    pub fn unlisted(error_type: ErrorType) -> Self {
        Self { error_type, field: String::new(), value: None, detail: String::new() }
    }

    /// Creates an error for a required field without a value.
    pub fn required(field: impl fmt::Display, detail: impl Into<String>) -> Self {
        Self::new(ErrorType::Required, field, None, detail)
    }

    /// Creates an error for a value that violates a rule.
    #[doc(alias = "field.Invalid")]
    pub fn invalid(field: impl fmt::Display, value: impl Into<BadValue>, detail: impl Into<String>) -> Self {
        Self::new(ErrorType::Invalid, field, Some(value.into()), detail)
    }

    /// Creates an error for a value of the wrong JSON type.
    pub fn type_invalid(field: impl fmt::Display, value: impl Into<BadValue>, detail: impl Into<String>) -> Self {
        Self::new(ErrorType::TypeInvalid, field, Some(value.into()), detail)
    }

    /// Creates an error for a field that may not be set or changed.
    pub fn forbidden(field: impl fmt::Display, detail: impl Into<String>) -> Self {
        Self::new(ErrorType::Forbidden, field, None, detail)
    }

    /// Creates an error for a value that must be unique, but occurs more than once.
    pub fn duplicate(field: impl fmt::Display, value: impl Into<BadValue>) -> Self {
        Self::new(ErrorType::Duplicate, field, Some(value.into()), "")
    }

    /// Creates an error for a value that refers to an object that does not exist.
    pub fn not_found(field: impl fmt::Display, value: impl Into<BadValue>) -> Self {
        Self::new(ErrorType::NotFound, field, Some(value.into()), "")
    }

    /// Creates an error for a value that is not supported; the message lists the supported ones in the given order.
    pub fn not_supported<S: AsRef<str>>(
        field: impl fmt::Display,
        value: impl Into<BadValue>,
        known: impl IntoIterator<Item = S>,
    ) -> Self {
        let known: Vec<String> = known.into_iter().map(|k| go_quote(k.as_ref())).collect();
        let detail = if known.is_empty() { String::new() } else { format!("supported values: {}", known.join(", ")) };
        Self::new(ErrorType::NotSupported, field, Some(value.into()), detail)
    }

    /// Creates an error for a string that has more than `max` bytes.
    pub fn too_long(field: impl fmt::Display, max: u64) -> Self {
        let unit = if max == 1 { "byte" } else { "bytes" };
        Self::new(ErrorType::TooLong, field, None, format!("may not be more than {max} {unit}"))
    }

    /// Creates an error for a list or a map that has `actual` entries, more than `max`.
    pub fn too_many(field: impl fmt::Display, actual: u64, max: u64) -> Self {
        let unit = if max == 1 { "item" } else { "items" };
        Self::new(ErrorType::TooMany, field, Some(actual.into()), format!("must have at most {max} {unit}"))
    }

    /// Creates an `InternalError` for a field that could not be validated.
    pub fn internal(field: impl fmt::Display, detail: impl Into<String>) -> Self {
        Self::new(ErrorType::Internal, field, None, detail)
    }

    /// Returns the message without the name of the field.
    pub fn body(&self) -> String {
        let mut text = self.error_type.text().to_owned();
        let silent = matches!(
            self.error_type,
            ErrorType::Required | ErrorType::Forbidden | ErrorType::TooLong | ErrorType::Internal
        );
        if let Some(value) = self.value.as_ref().filter(|_| !silent) {
            text.push_str(": ");
            let value_text = match value {
                BadValue::Json(Value::String(s)) => go_quote(s),
                BadValue::Json(value) => go_json(value),
                BadValue::Raw(raw) => raw.clone(),
            };
            let end = value_text.floor_char_boundary(MAX_SHOWN_BYTES);
            text.push_str(&value_text[..end]);
            if end < value_text.len() {
                text.push_str(&format!("... ({} more bytes)", value_text.len() - end));
            }
        }
        if !self.detail.is_empty() {
            text.push_str(": ");
            text.push_str(&self.detail);
        }
        text
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.body())
    }
}

/// Joins errors like Go's aggregate: one without brackets, several in brackets, each message once.
pub fn aggregate<E: fmt::Display>(errors: impl IntoIterator<Item = E>) -> String {
    let mut messages = BTreeSet::new();
    let texts = errors.into_iter().map(|error| error.to_string()).filter(|text| messages.insert(text.clone()));
    let mut texts: Vec<String> = texts.collect();
    if texts.len() == 1 { texts.remove(0) } else { format!("[{}]", texts.join(", ")) }
}

/// Quotes a string like Go's `%q`.
pub fn go_quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            '\x07' => out.push_str("\\a"),
            '\x08' => out.push_str("\\b"),
            '\x0b' => out.push_str("\\v"),
            '\x0c' => out.push_str("\\f"),
            c if c.is_ascii_control() => out.push_str(&format!("\\x{:02x}", c as u32)),
            c if c.is_control() => out.push_str(&format!("\\u{:04x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Encodes a value like Go's `encoding/json`, which escapes `<`, `>` and `&`.
pub fn go_json(value: &Value) -> String {
    let text = value.to_string();
    if !text.contains(['<', '>', '&']) {
        return text;
    }
    text.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

/// Formats a value like Go's `%v`: `map[a:1 b:[x y]]`.
pub fn go_print(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".into(),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(go_print).collect::<Vec<_>>().join(" ")),
        Value::Object(fields) => {
            let fields: Vec<String> = fields.iter().map(|(key, value)| format!("{key}:{}", go_print(value))).collect();
            format!("map[{}]", fields.join(" "))
        }
        Value::Number(number) if number.is_f64() => go_float(number.as_f64().unwrap_or_default()),
        value => value.to_string(),
    }
}

/// Formats a number like Go's `%v`: with an exponent of at least two digits if it is below 0.0001 or at least a
/// million.
fn go_float(number: f64) -> String {
    let text = format!("{number:e}");
    let Some((digits, exponent)) = text.split_once('e') else { return text };
    match exponent.parse::<i32>() {
        Ok(exponent) if !(-4..6).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.unsigned_abs())
        }
        _ => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_print_as_go_prints_them() {
        let cases = [
            (0.5, "0.5"),
            (-2.0, "-2"),
            (123_456.5, "123456.5"),
            (1_234_567.5, "1.2345675e+06"),
            (1e20, "1e+20"),
            (0.0001, "0.0001"),
            (0.000_012, "1.2e-05"),
            (-1.5e300, "-1.5e+300"),
        ];
        for (number, text) in cases {
            assert_eq!(go_print(&json!(number)), text);
        }
    }

    #[test]
    fn paths_print_as_go_prints_them() {
        let spec = Path::new("spec");
        let containers = spec.field("containers");
        let first = containers.index(0);
        assert_eq!(first.field("name").to_string(), "spec.containers[0].name");
        assert_eq!(Path::new("metadata").field("labels").key("a/b").to_string(), "metadata.labels[a/b]");
        assert_eq!(Path::ROOT.field("spec").to_string(), "spec");
        assert_eq!(Path::ROOT.to_string(), "<nil>");
    }

    #[test]
    fn messages_match_kubernetes() {
        let check = |error: FieldError, text: &str| assert_eq!(error.to_string(), text);
        check(FieldError::required("spec.cpu", ""), "spec.cpu: Required value");
        check(FieldError::invalid("spec.cpu", 5, "too much"), "spec.cpu: Invalid value: 5: too much");
        check(FieldError::invalid("a", "x\"y", ""), r#"a: Invalid value: "x\"y""#);
        check(FieldError::invalid("a", json!({"b": "<"}), ""), r#"a: Invalid value: {"b":"\u003c"}"#);
        check(
            FieldError::not_supported("t", "C", ["A", "B"]),
            r#"t: Unsupported value: "C": supported values: "A", "B""#,
        );
        check(FieldError::too_long("t", 3), "t: Too long: may not be more than 3 bytes");
        check(FieldError::too_many("t", 4, 3), "t: Too many: 4: must have at most 3 items");
    }

    #[test]
    fn long_values_are_truncated() {
        let text = FieldError::invalid("a", "é".repeat(MAX_SHOWN_BYTES), "too long").to_string();
        assert!(text.len() < MAX_SHOWN_BYTES + 100, "{}", text.len());
        assert!(text.starts_with("a: Invalid value: \"éé") && text.ends_with("é... (32771 more bytes): too long"));
    }

    #[test]
    fn aggregate_omits_duplicates() {
        assert_eq!(aggregate(["a"]), "a");
        assert_eq!(aggregate(["a", "b", "a"]), "[a, b]");
    }
}
