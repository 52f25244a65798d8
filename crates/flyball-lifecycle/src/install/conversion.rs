//! The conversion of the CRDs of a bundle, as it is after the installation.

use super::webhook::converted_crds;
use crate::api::ClusterServiceVersion;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Returns the CRDs of a bundle with the conversion strategy that they have after its installation in a namespace.
///
/// In a bundle, a CRD does not name the webhook of its operator: its conversion is set when the operator is installed.
/// The configuration of this webhook is left out.
pub fn with_conversions(csv: &Value, definitions: impl IntoIterator<Item = Value>, namespace: &str) -> Vec<Value> {
    let converted = converted(csv);
    let mut definitions: Vec<Value> = definitions.into_iter().collect();
    for definition in &mut definitions {
        remove_foreign_conversion(definition, namespace);
        let is_converted = definition["metadata"]["name"].as_str().is_some_and(|name| converted.contains(name));
        if is_converted && let Some(spec) = definition["spec"].as_object_mut() {
            spec.insert("conversion".to_owned(), json!({"strategy": "Webhook"}));
        }
    }
    definitions
}

/// Returns the CRDs that webhooks of a ClusterServiceVersion convert. An invalid one converts none.
pub(crate) fn converted(csv: &Value) -> BTreeSet<String> {
    let csv: Option<ClusterServiceVersion> = serde_json::from_value(csv.clone()).ok();
    let converted = csv.as_ref().and_then(|csv| converted_crds(csv).ok()).unwrap_or_default();
    converted.into_iter().map(str::to_owned).collect()
}

/// Removes the conversion of a CRD by a server outside of the namespace, which would get all custom resources. The
/// controller of ClusterServiceVersions sets those that a webhook of the operator does.
pub(crate) fn remove_foreign_conversion(definition: &mut Value, namespace: &str) {
    let client = &definition["spec"]["conversion"]["webhook"]["clientConfig"];
    let is_own = client["url"].is_null() && client["service"]["namespace"] == namespace;
    if !client.is_null()
        && !is_own
        && let Some(spec) = definition["spec"].as_object_mut()
    {
        spec.remove("conversion");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversions_by_servers_elsewhere_are_removed() {
        let check = |client: Value, stays: bool| {
            let conversion = json!({"strategy": "Webhook", "webhook": {"clientConfig": client}});
            let mut definition = json!({"spec": {"group": "a", "conversion": conversion}});
            remove_foreign_conversion(&mut definition, "demo");
            assert_eq!(definition["spec"].get("conversion").is_some(), stays, "{client}");
        };
        check(json!({"service": {"namespace": "demo", "name": "a"}}), true);
        check(json!({"service": {"namespace": "other", "name": "a"}}), false);
        check(json!({"url": "https://example.com"}), false);
        check(json!({"url": "https://example.com", "service": {"namespace": "demo", "name": "a"}}), false);
        let mut none = json!({"spec": {"conversion": {"strategy": "None"}}});
        remove_foreign_conversion(&mut none, "demo");
        assert_eq!(none["spec"]["conversion"]["strategy"], "None");
    }

    #[test]
    fn only_definitions_that_will_be_converted_have_a_webhook() {
        let definition = json!({"metadata": {"name": "hooks.demo"}, "spec": {"group": "demo"}});
        let csv = |mode: &str, owned: &str| {
            json!({"metadata": {"name": "hooked.v2"}, "spec": {
                "installModes": [{"type": mode, "supported": true}],
                "customresourcedefinitions": {"owned": [{"name": owned, "kind": "Hook", "version": "v1"}]},
                "webhookdefinitions": [{
                    "type": "ConversionWebhook", "generateName": "c", "deploymentName": "hooked",
                    "conversionCRDs": ["hooks.demo"],
                }],
            }})
        };
        let check = |csv: &Value, expected: Value| {
            let [found] = &with_conversions(csv, [definition.clone()], "demo")[..] else { panic!("{csv}") };
            assert_eq!(found["spec"]["conversion"]["strategy"], expected, "{csv}");
        };
        check(&csv("AllNamespaces", "hooks.demo"), "Webhook".into());
        check(&csv("OwnNamespace", "hooks.demo"), Value::Null);
        check(&csv("AllNamespaces", "others.demo"), Value::Null);
        check(&Value::Null, Value::Null);
    }
}
