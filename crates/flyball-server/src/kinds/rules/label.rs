//! Labels and label selectors.

use super::super::field::Field;
use flyball_core::field::FieldError;
use flyball_core::metadata::validate_labels;
use flyball_core::{LabelSelector, names};
use serde_json::Value;

/// The field must be labels.
pub(crate) fn labels(field: &Field<'_>) -> Vec<FieldError> {
    validate_labels(field.value().as_object(), field.path())
}

/// The field must be a label key.
pub(crate) fn key(field: &Field<'_>) -> Vec<FieldError> {
    field.obeys(names::qualified_name)
}

/// The field must be a label selector, if present.
pub(crate) fn selector(field: &Field<'_>) -> Vec<FieldError> {
    let mut errors = labels(&field.at("matchLabels"));
    for requirement in field.at("matchExpressions").items() {
        errors.extend(values_of_operator(&requirement));
        errors.extend(key(&requirement.at("key")));
        errors.extend(values(&requirement.at("values")));
    }
    errors
}

/// Validates the number of values of an operator.
pub(super) fn values_of_operator(requirement: &Field<'_>) -> Option<FieldError> {
    let (operator, values) = (requirement.at("operator"), requirement.at("values"));
    match operator.text() {
        "In" | "NotIn" => {
            values.is_empty().then(|| values.required("must be specified when `operator` is 'In' or 'NotIn'"))
        }
        "Exists" | "DoesNotExist" => (!values.is_empty())
            .then(|| values.forbidden("may not be specified when `operator` is 'Exists' or 'DoesNotExist'")),
        text => Some(operator.invalid_as(text, "not a valid selector operator")),
    }
}

/// The field must be label values.
pub(crate) fn values(field: &Field<'_>) -> Vec<FieldError> {
    field.items().flat_map(|value| value.obeys(names::label_value)).collect()
}

/// Returns true if a selector matches labels; `None` if it is malformed according to Go.
///
/// An absent selector matches no labels, an empty one all labels.
pub(crate) fn selects(selector: &Value, labels: &Value) -> Option<bool> {
    if selector.is_null() {
        return Some(false);
    }
    let known = |requirement: &Value| {
        matches!(requirement["operator"].as_str(), Some("In" | "NotIn" | "Exists" | "DoesNotExist"))
    };
    let requirements = selector["matchExpressions"].as_array().map_or(&[][..], Vec::as_slice);
    let good = |requirement: &Value| {
        let values = requirement["values"].as_array().map_or(0, Vec::len);
        let needs = matches!(requirement["operator"].as_str(), Some("In" | "NotIn"));
        let named = names::qualified_name(requirement["key"].as_str().unwrap_or_default()).is_empty();
        let mut texts =
            requirement["values"].as_array().into_iter().flatten().map(|value| value.as_str().unwrap_or_default());
        known(requirement) && needs == (values > 0) && named && texts.all(|value| names::label_value(value).is_empty())
    };
    let pairs = selector["matchLabels"].as_object();
    let fine = |(key, value): (&String, &Value)| {
        names::qualified_name(key).is_empty() && names::label_value(value.as_str().unwrap_or_default()).is_empty()
    };
    if !requirements.iter().all(good) || !pairs.into_iter().flatten().all(fine) {
        return None;
    }
    Some(LabelSelector::from_value(selector).matches(|key| labels.get(key).and_then(Value::as_str)))
}

/// Returns true if a selector has no requirements.
pub(crate) fn is_empty(selector: &Value) -> bool {
    let none = |field: &str| {
        selector[field].as_array().is_none_or(Vec::is_empty)
            && selector[field].as_object().is_none_or(serde_json::Map::is_empty)
    };
    none("matchLabels") && none("matchExpressions")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn absent_selector_matches_nothing_and_empty_selector_everything() {
        let labels = json!({"a": "b"});
        let check = |selector: Value, expected| assert_eq!(selects(&selector, &labels), expected, "{selector}");
        check(Value::Null, Some(false));
        check(json!({}), Some(true));
        check(json!({"matchLabels": {"a": "b"}}), Some(true));
        check(json!({"matchLabels": {"a": "c"}}), Some(false));
        check(json!({"matchExpressions": [{"key": "a", "operator": "Like"}]}), None);
        check(json!({"matchExpressions": [{"key": "a", "operator": "In"}]}), None);
    }
}
