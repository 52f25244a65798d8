//! Target namespaces of an OperatorGroup.

use crate::api::OperatorGroup;
use flyball_core::LabelSelector;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector as Selector;
use kube::ResourceExt;
use std::collections::BTreeSet;

/// Targets of an OperatorGroup that cannot be determined.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTargets {
    /// All namespaces are meant by an empty list, not by an empty name.
    #[error("spec.targetNamespaces cannot contain an empty name: remove the field to target all namespaces")]
    EmptyName,
    /// The selector is invalid.
    #[error("spec.selector is invalid: {0}")]
    Selector(String),
}

/// Returns the target namespaces of an OperatorGroup: those of its list, those that its selector selects, or one empty
/// name for all.
///
/// # Errors
///
/// When the list contains an empty name, or the selector is invalid.
pub fn targets(group: &OperatorGroup, namespaces: &[Namespace]) -> Result<BTreeSet<String>, InvalidTargets> {
    let listed = &group.spec.target_namespaces;
    if listed.iter().any(String::is_empty) {
        return Err(InvalidTargets::EmptyName);
    }
    if !listed.is_empty() {
        return Ok(listed.iter().cloned().collect());
    }
    match group.spec.selector.as_ref().map(selector_text).filter(|text| !text.is_empty()) {
        None => Ok([String::new()].into()),
        Some(text) => {
            let selector = LabelSelector::parse(&text).map_err(|error| InvalidTargets::Selector(error.to_string()))?;
            let selected = namespaces.iter().filter(|namespace| {
                let labels = namespace.labels();
                selector.matches(|label| labels.get(label).map(String::as_str))
            });
            Ok(selected.map(ResourceExt::name_any).collect())
        }
    }
}

/// Returns a selector as text; it is empty if all objects are selected.
fn selector_text(selector: &Selector) -> String {
    let mut requirements: Vec<String> =
        selector.match_labels.iter().flatten().map(|(label, value)| format!("{label}={value}")).collect();
    for expression in selector.match_expressions.iter().flatten() {
        let (key, values) = (&expression.key, expression.values.clone().unwrap_or_default().join(","));
        requirements.push(match expression.operator.as_str() {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.clone(),
            "DoesNotExist" => format!("!{key}"),
            // It does not parse.
            unknown => format!("{key} {unknown} ({values})"),
        });
    }
    requirements.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn targets_are_listed_selected_or_all() {
        let namespaces: Vec<Namespace> = [("a", "red"), ("b", "blue")]
            .map(|(name, team)| {
                serde_json::from_value(json!({"metadata": {"name": name, "labels": {"team": team}}})).unwrap()
            })
            .into();
        let check = |spec: Value, expected: Result<&[&str], &str>| {
            let group: OperatorGroup = serde_json::from_value(json!({"spec": spec})).unwrap();
            let found = targets(&group, &namespaces);
            let found = found.as_ref().map(|names| names.iter().map(String::as_str).collect::<Vec<_>>());
            match expected {
                Ok(expected) => assert_eq!(found.unwrap(), expected),
                Err(part) => assert!(found.unwrap_err().to_string().contains(part)),
            }
        };
        check(json!({}), Ok(&[""]));
        check(json!({"selector": {}}), Ok(&[""]));
        check(json!({"targetNamespaces": ["x", "b"]}), Ok(&["b", "x"]));
        check(json!({"selector": {"matchLabels": {"team": "red"}}}), Ok(&["a"]));
        check(
            json!({"selector": {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["red"]}]}}),
            Ok(&["b"]),
        );
        check(json!({"selector": {"matchLabels": {"team": "green"}}}), Ok(&[]));
        check(json!({"targetNamespaces": [""]}), Err("cannot contain an empty name"));
        check(json!({"selector": {"matchExpressions": [{"key": "team", "operator": "Is"}]}}), Err("spec.selector"));
    }
}
