//! Node selectors, and their labels.

use super::super::field::Field;
use super::label;
use flyball_core::field::FieldError;
use flyball_core::names;

/// The field must be a node selector, whose terms are alternatives.
pub(crate) fn node_selector(field: &Field<'_>, check_values: bool) -> Vec<FieldError> {
    let terms = field.at("nodeSelectorTerms");
    if terms.is_empty() {
        return vec![terms.required("must have at least one node selector term")];
    }
    terms.items().flat_map(|term| node_selector_term(&term, check_values)).collect()
}

/// The field must be a term of a node selector; invalid label values are accepted in preferences.
pub(crate) fn node_selector_term(term: &Field<'_>, check_values: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for requirement in term.at("matchExpressions").items() {
        errors.extend(operator_on_labels(&requirement));
        errors.extend(label::key(&requirement.at("key")));
        if check_values {
            errors.extend(label::values(&requirement.at("values")));
        }
    }
    errors.extend(term.at("matchFields").items().flat_map(|requirement| field_requirement(&requirement)));
    errors
}

fn operator_on_labels(requirement: &Field<'_>) -> Option<FieldError> {
    match requirement.at("operator").text() {
        "Gt" | "Lt" => {
            let values = requirement.at("values");
            let why = "must be specified single value when `operator` is 'Lt' or 'Gt'";
            (values.len() != 1).then(|| values.required(why))
        }
        _ => label::values_of_operator(requirement),
    }
}

/// Validates field selectors of nodes, which support only the name.
fn field_requirement(requirement: &Field<'_>) -> Vec<FieldError> {
    let (operator, values, key) = (requirement.at("operator"), requirement.at("values"), requirement.at("key"));
    let mut errors = Vec::new();
    match operator.text() {
        "In" | "NotIn" if values.len() == 1 => {}
        "In" | "NotIn" => {
            errors.push(
                values.required("must be only one value when `operator` is 'In' or 'NotIn' for node field selector"),
            );
        }
        other => errors.push(operator.invalid_as(other, "not a valid selector operator")),
    }
    match key.text() {
        "metadata.name" => errors.extend(values.items().flat_map(|value| value.obeys(names::dns_subdomain))),
        other => errors.push(key.invalid_as(other, "not a valid field selector key")),
    }
    errors
}

/// Deprecated labels of nodes with their warnings.
const OLD_LABELS: &[(&str, &str)] = &[
    ("app.kubernetes.io/created-by", "deprecated since v1.9"),
    ("beta.kubernetes.io/arch", "deprecated since v1.14; use \"kubernetes.io/arch\" instead"),
    ("beta.kubernetes.io/instance-type", "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead"),
    ("beta.kubernetes.io/os", "deprecated since v1.14; use \"kubernetes.io/os\" instead"),
    (
        "failure-domain.beta.kubernetes.io/region",
        "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead",
    ),
    ("failure-domain.beta.kubernetes.io/zone", "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead"),
    ("node-role.kubernetes.io/master", "use \"node-role.kubernetes.io/control-plane\" instead"),
    ("scheduler.alpha.kubernetes.io/preferAvoidPods", "deprecated since v1.22; use Taints and Tolerations instead"),
];

/// Returns the warning of a deprecated label of nodes.
pub(crate) fn old_label(key: &str) -> Option<&'static str> {
    OLD_LABELS.iter().find(|(old, _)| *old == key).map(|(_, message)| *message)
}

/// Warns about deprecated labels and invalid label values in a term of a node selector.
pub(crate) fn warn_of_term(term: &Field<'_>, check_values: bool) -> Vec<String> {
    let mut warnings = Vec::new();
    for requirement in term.at("matchExpressions").items() {
        let key = requirement.at("key");
        warnings.extend(old_label(key.text()).map(|message| format!("{}: {} is {message}", key.path(), key.text())));
        let values = requirement.at("values");
        for value in values.items().filter(|_| check_values) {
            let wrong = names::label_value(value.text());
            warnings.extend(
                wrong.into_iter().map(|wrong| format!("{}: {} is invalid, {wrong}", value.path(), value.text())),
            );
        }
    }
    warnings
}
