//! The CRDs of a plan that webhooks of its operators convert.

use super::resources::{CSV, is_definition};
use crate::api::InstallPlan;
use crate::install::{converted, with_conversions};
use kube::ResourceExt;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Returns the CRDs that webhooks of the new ClusterServiceVersions convert, with the names of these.
pub(super) fn conversions_of(plan: &InstallPlan, objects: &[Value]) -> BTreeSet<(String, String)> {
    let steps = plan.status.plan.iter().zip(objects).filter(|(step, _)| step.resource.kind == CSV);
    let conversions = steps.flat_map(|(step, csv)| {
        let name = &step.resource.name;
        converted(csv).into_iter().map(|crd| (name.clone(), crd))
    });
    conversions.collect()
}

/// Returns the CRDs of a plan with the conversion strategy that they have after it. Those whose manifest is a reference
/// to another object are left out.
pub fn planned_definitions(plan: &InstallPlan) -> Vec<Value> {
    let mut bundles: BTreeMap<&str, (Value, Vec<Value>)> = BTreeMap::new();
    for step in &plan.status.plan {
        let (is_csv, is_definition) =
            (step.resource.kind == CSV, is_definition(&step.resource.group, &step.resource.kind));
        if !is_csv && !is_definition {
            continue;
        }
        let Ok(object) = serde_json::from_str::<Value>(&step.resource.manifest) else { continue };
        let (csv, definitions) = bundles.entry(&step.resolving).or_default();
        if is_csv {
            *csv = object;
        } else if object["spec"]["group"].is_string() {
            definitions.push(object);
        }
    }
    let namespace = plan.namespace().unwrap_or_default();
    bundles.into_values().flat_map(|(csv, definitions)| with_conversions(&csv, definitions, &namespace)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{Step, StepResource};
    use serde_json::json;

    #[test]
    fn only_the_operator_of_a_definition_converts_it() {
        let step = |bundle: &str, kind: &str, object: &Value| {
            let group = if kind == CSV { crate::api::GROUP } else { "apiextensions.k8s.io" };
            let resource = StepResource {
                group: group.to_owned(),
                kind: kind.to_owned(),
                name: object["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
                manifest: object.to_string(),
                ..StepResource::default()
            };
            Step { resolving: bundle.to_owned(), resource, ..Step::default() }
        };
        let csv = |bundle: &str, crd: &str| {
            let spec = json!({
                "installModes": [{"type": "AllNamespaces", "supported": true}],
                "customresourcedefinitions": {"owned": [{"name": crd, "kind": "A", "version": "v1"}]},
                "webhookdefinitions": [{"type": "ConversionWebhook", "generateName": "c", "deploymentName": "a",
                    "conversionCRDs": [crd]}],
            });
            step(bundle, CSV, &json!({"metadata": {"name": bundle}, "spec": spec}))
        };
        let definition = |bundle: &str, name: &str| {
            let object = json!({"metadata": {"name": name}, "spec": {"group": "demo"}});
            step(bundle, "CustomResourceDefinition", &object)
        };
        let mut plan = InstallPlan::default();
        // The second operator names the CRD of the first one.
        plan.status.plan = vec![
            csv("a.v1", "as.demo"),
            csv("b.v1", "cs.demo"),
            definition("a.v1", "as.demo"),
            definition("b.v1", "bs.demo"),
            definition("c.v1", "cs.demo"),
            step("c.v1", "CustomResourceDefinition", &json!({"name": "reference"})),
        ];
        let found: Vec<(String, bool)> = planned_definitions(&plan)
            .iter()
            .map(|of| (of["metadata"]["name"].as_str().unwrap().to_owned(), of["spec"]["conversion"].is_object()))
            .collect();
        let expected = [("as.demo", true), ("bs.demo", false), ("cs.demo", false)];
        assert_eq!(found, expected.map(|(name, is_converted)| (name.to_owned(), is_converted)));
        let objects: Vec<Value> =
            plan.status.plan.iter().map(|step| serde_json::from_str(&step.resource.manifest).unwrap()).collect();
        let pairs = [("a.v1", "as.demo"), ("b.v1", "cs.demo")].map(|(csv, crd)| (csv.to_owned(), crd.to_owned()));
        assert_eq!(conversions_of(&plan, &objects), BTreeSet::from(pairs));
    }
}
