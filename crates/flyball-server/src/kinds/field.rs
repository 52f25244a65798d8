//! A value of an object with its path, for validation.

use flyball_core::Object;
use flyball_core::field::{BadValue, FieldError, Path};
use flyball_core::names::Rule;
use serde_json::Value;

/// The errors of a rule.
pub(super) type Errors = Vec<FieldError>;

/// A value and its path; absent values are null.
///
/// Absent values are returned as Go's zero values: 0 for numbers, empty for strings.
#[derive(Clone, Copy)]
pub(crate) struct Field<'a> {
    path: Path<'a>,
    value: &'a Value,
}

static NULL: Value = Value::Null;

impl<'a> Field<'a> {
    /// Creates the root value, the object itself.
    pub(crate) fn root(object: &'a Object) -> Self {
        Self { path: Path::ROOT, value: object.as_value() }
    }

    /// Creates a value at a path.
    pub(crate) fn new(path: Path<'a>, value: &'a Value) -> Self {
        Self { path, value }
    }

    /// Descends into a field, or into nested fields by a path with dots.
    pub(crate) fn at(&'a self, name: &'a str) -> Self {
        self.at_as(name, name)
    }

    /// Descends into a field that has another name in errors.
    pub(crate) fn at_as(&'a self, name: &'a str, label: &'a str) -> Self {
        let value = name.split('.').try_fold(self.value, |value, step| value.get(step)).unwrap_or(&NULL);
        Self { path: self.path.field(label), value }
    }

    /// Descends into a value of a map, whose key may contain dots.
    pub(crate) fn key(&'a self, key: &'a str) -> Self {
        Self { path: self.path.key(key), value: self.value.get(key).unwrap_or(&NULL) }
    }

    /// Descends into the items of a list.
    pub(crate) fn items(&'a self) -> impl ExactSizeIterator<Item = Self> + Clone {
        self.list().iter().enumerate().map(|(i, value)| Self { path: self.path.index(i), value })
    }

    /// Descends into an item of a list.
    pub(crate) fn index(&'a self, index: usize) -> Self {
        Self { path: self.path.index(index), value: self.value.get(index).unwrap_or(&NULL) }
    }

    /// Descends into the values of a map, in the order of their keys.
    pub(crate) fn entries(&'a self) -> impl Iterator<Item = (&'a str, Self)> {
        let entries = self.value.as_object().into_iter().flatten();
        entries.map(|(key, value)| (key.as_str(), Self { path: self.path.key(key), value }))
    }

    pub(crate) fn path(&self) -> &Path<'a> {
        &self.path
    }

    pub(crate) fn value(&self) -> &'a Value {
        self.value
    }

    pub(crate) fn text(&self) -> &'a str {
        self.value.as_str().unwrap_or_default()
    }

    /// Returns the string, if present, even if it is empty.
    pub(crate) fn text_if_set(&self) -> Option<&'a str> {
        self.value.as_str()
    }

    pub(crate) fn int(&self) -> i64 {
        self.value.as_i64().unwrap_or_default()
    }

    /// Returns the number, if present, even if it is 0.
    pub(crate) fn int_if_set(&self) -> Option<i64> {
        self.value.as_i64()
    }

    pub(crate) fn flag(&self) -> bool {
        self.value.as_bool().unwrap_or_default()
    }

    pub(crate) fn list(&self) -> &'a [Value] {
        self.value.as_array().map_or(&[], Vec::as_slice)
    }

    /// Returns the strings of a list.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &'a str> + Clone {
        self.list().iter().map(|item| item.as_str().unwrap_or_default())
    }

    /// Counts the entries of a list or a map.
    pub(crate) fn len(&self) -> usize {
        self.value.as_array().map(Vec::len).or_else(|| self.value.as_object().map(serde_json::Map::len)).unwrap_or(0)
    }

    /// Returns true if the value is present.
    pub(crate) fn is_set(&self) -> bool {
        !self.value.is_null()
    }

    /// Returns true if the value is absent, or an empty string, list or map.
    pub(crate) fn is_empty(&self) -> bool {
        match self.value {
            Value::Null => true,
            Value::String(text) => text.is_empty(),
            Value::Array(items) => items.is_empty(),
            Value::Object(fields) => fields.is_empty(),
            Value::Bool(_) | Value::Number(_) => false,
        }
    }
}

/// Constructors of the errors of a field.
impl Field<'_> {
    pub(crate) fn required(&self, detail: impl Into<String>) -> FieldError {
        FieldError::required(self.path, detail)
    }

    pub(crate) fn forbidden(&self, detail: impl Into<String>) -> FieldError {
        FieldError::forbidden(self.path, detail)
    }

    pub(crate) fn invalid(&self, detail: impl Into<String>) -> FieldError {
        FieldError::invalid(self.path, self.value.clone(), detail)
    }

    /// The value is invalid; the error contains another value instead.
    pub(crate) fn invalid_as(&self, shown: impl Into<BadValue>, detail: impl Into<String>) -> FieldError {
        FieldError::invalid(self.path, shown, detail)
    }

    pub(crate) fn duplicate(&self) -> FieldError {
        FieldError::duplicate(self.path, self.value.clone())
    }

    /// Returns the error for a duplicate value.
    pub(crate) fn duplicate_of(&self, shown: impl Into<BadValue>) -> FieldError {
        FieldError::duplicate(self.path, shown)
    }

    /// The value is invalid; the error does not contain it.
    pub(crate) fn invalid_without_value(&self, detail: impl Into<String>) -> FieldError {
        FieldError { value: None, ..self.invalid(detail) }
    }

    pub(crate) fn not_found(&self) -> FieldError {
        FieldError::not_found(self.path, self.text())
    }

    pub(crate) fn too_long(&self, max: u64) -> FieldError {
        FieldError::too_long(self.path, max)
    }

    pub(crate) fn too_many(&self, max: u64) -> FieldError {
        FieldError::too_many(self.path, self.len() as u64, max)
    }

    pub(crate) fn not_supported(&self, known: &[&str]) -> FieldError {
        let shown = if self.value.is_null() { BadValue::from("") } else { BadValue::Json(self.value.clone()) };
        FieldError::not_supported(self.path, shown, known)
    }
}

/// Common validation rules for fields.
impl Field<'_> {
    /// The string must match a rule for names.
    pub(crate) fn obeys(&self, rule: Rule) -> Vec<FieldError> {
        rule(self.text()).into_iter().map(|wrong| self.invalid_as(self.text(), wrong)).collect()
    }

    /// The string is required and must be a valid name.
    pub(crate) fn must_obey(&self, rule: Rule) -> Vec<FieldError> {
        if self.text().is_empty() { vec![self.required("")] } else { self.obeys(rule) }
    }

    /// The string, if present, must be a valid name.
    pub(crate) fn may_obey(&self, rule: Rule) -> Vec<FieldError> {
        if self.text().is_empty() { Vec::new() } else { self.obeys(rule) }
    }

    /// The value is required.
    pub(crate) fn must_be_set(&self) -> Option<FieldError> {
        self.is_empty().then(|| self.required(""))
    }

    /// The string must be one of the supported values.
    pub(crate) fn must_be_in(&self, known: &[&str]) -> Option<FieldError> {
        (!known.contains(&self.text())).then(|| self.not_supported(known))
    }

    /// The string is required, and must be one of the supported values.
    pub(crate) fn must_be_one_of(&self, known: &[&str]) -> Option<FieldError> {
        if self.text().is_empty() { Some(self.required("")) } else { self.must_be_in(known) }
    }

    /// The string, if set, must be one of the supported values.
    pub(crate) fn may_be_one_of(&self, known: &[&str]) -> Option<FieldError> {
        if self.is_set() { self.must_be_in(known) } else { None }
    }

    pub(crate) fn not_negative(&self) -> Option<FieldError> {
        (self.int() < 0).then(|| self.invalid("must be greater than or equal to 0"))
    }

    pub(crate) fn positive(&self) -> Option<FieldError> {
        (self.int() <= 0).then(|| self.invalid_as(self.int(), "must be greater than zero"))
    }

    /// The number must be within an inclusive range.
    pub(crate) fn within(&self, low: i64, high: i64) -> Option<FieldError> {
        let detail = || format!("must be between {low} and {high}, inclusive");
        (!(low..=high).contains(&self.int())).then(|| self.invalid_as(self.int(), detail()))
    }

    /// The value is immutable.
    pub(crate) fn unchanged_from(&self, old: &Field<'_>) -> Option<FieldError> {
        (self.value != old.value).then(|| self.invalid(IMMUTABLE))
    }
}

/// The error for an immutable field.
pub(crate) const IMMUTABLE: &str = "field is immutable";

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn errors_have_field_paths() {
        let object = Object::try_from(json!({"spec": {"a": {"b": -1}, "l": [{"n": "X"}], "m": {"k.x": 70}}})).unwrap();
        let root = Field::root(&object);
        let spec = root.at("spec");
        let check = |error: Option<FieldError>, text: &str| assert_eq!(error.unwrap().to_string(), text);
        check(spec.at("a.b").not_negative(), "spec.a.b: Invalid value: -1: must be greater than or equal to 0");
        check(
            spec.at("l").index(0).at("n").must_be_in(&["Y"]),
            "spec.l[0].n: Unsupported value: \"X\": supported values: \"Y\"",
        );
        check(
            spec.at("m").key("k.x").within(1, 60),
            "spec.m[k.x]: Invalid value: 70: must be between 1 and 60, inclusive",
        );
        check(spec.at("none").positive(), "spec.none: Invalid value: 0: must be greater than zero");
        assert_eq!(spec.at("a.b").not_negative().map(|_| ()), Some(()));
        assert!(spec.at("none").is_empty() && spec.at("none.deeper").text().is_empty());
    }
}
