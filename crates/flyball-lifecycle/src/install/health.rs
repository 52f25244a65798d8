//! Health of the Deployments of an operator.

use super::owner::owners;
use crate::api::{ClusterServiceVersion, labels};
use flyball::ObjectKey;
use k8s_openapi::api::apps::v1::Deployment;
use kube::ResourceExt;
use serde_json::Value;
use std::collections::BTreeMap;

/// Health of the Deployments of a ClusterServiceVersion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    /// All are available.
    Healthy,
    /// One is missing or not available yet.
    Waiting(String),
    /// One differs from the ClusterServiceVersion, and has to be applied again.
    Outdated(String),
    /// One has failed.
    Failed(String),
}

/// Compares Deployments with the desired ones; the messages are those of OLM.
pub(crate) fn health(
    csv: &ClusterServiceVersion,
    desired: &[Value],
    existing: &BTreeMap<String, Deployment>,
) -> Health {
    let own = ObjectKey::new(csv.namespace().as_deref(), &csv.name_any());
    for wanted in desired {
        let name = wanted["metadata"]["name"].as_str().unwrap_or_default();
        let found = existing.get(name).filter(|deployment| owners(&deployment.metadata).contains(&own));
        let Some(deployment) = found else {
            return Health::Waiting(format!("missing deployment with name={name}"));
        };
        match availability(deployment) {
            Availability::Available => {}
            Availability::Waiting(why) => {
                // A change of the spec takes precedence: the rollout being awaited is outdated.
                return match outdated(csv, wanted, deployment) {
                    Some(why) => Health::Outdated(why),
                    None => Health::Waiting(format!("waiting for deployment {name} to become ready: {why}")),
                };
            }
            Availability::Failed(why) => {
                return Health::Failed(format!("deployment {name} not ready before timeout: {why}"));
            }
        }
        if let Some(why) = outdated(csv, wanted, deployment) {
            return Health::Outdated(why);
        }
    }
    Health::Healthy
}

/// Returns the difference of a Deployment from the desired one; fields that others edited do not count.
fn outdated(csv: &ClusterServiceVersion, desired: &Value, deployment: &Deployment) -> Option<String> {
    let template = deployment.spec.as_ref().and_then(|spec| spec.template.metadata.as_ref());
    let annotations = template.and_then(|metadata| metadata.annotations.as_ref());
    for (name, value) in super::deployment::template_annotations(csv) {
        let Some(found) = annotations.and_then(|annotations| annotations.get(&name)) else {
            return Some(format!("annotations on deployment does not contain expected key: {name}"));
        };
        let value = value.as_str().unwrap_or_default();
        if found != value {
            return Some(format!("unexpected annotation on deployment. Expected {name}:{value}, found {name}:{found}"));
        }
    }
    let hash = desired["metadata"]["labels"][labels::DEPLOYMENT_SPEC_HASH].as_str().unwrap_or_default();
    match deployment.labels().get(labels::DEPLOYMENT_SPEC_HASH) {
        None => Some(format!("deployment {} doesn't have a spec hash, update it", deployment.name_any())),
        Some(found) if found != hash => Some(format!("deployment changed old hash={found}, new hash={hash}")),
        Some(_) => None,
    }
}

enum Availability {
    Available,
    Waiting(String),
    Failed(String),
}

fn availability(deployment: &Deployment) -> Availability {
    let (name, status) = (deployment.name_any(), deployment.status.clone().unwrap_or_default());
    if deployment.metadata.generation.unwrap_or_default() > status.observed_generation.unwrap_or_default() {
        return Availability::Waiting(format!("waiting for spec update of deployment \"{name}\" to be observed..."));
    }
    let condition = |kind: &str| status.conditions.iter().flatten().find(|condition| condition.type_ == kind);
    if condition("Progressing").is_some_and(|c| c.reason.as_deref() == Some("ProgressDeadlineExceeded")) {
        return Availability::Failed(format!("deployment \"{name}\" exceeded its progress deadline"));
    }
    let outdated = status.replicas.unwrap_or_default() - status.updated_replicas.unwrap_or_default();
    if outdated > 0 {
        let why = format!("deployment \"{name}\" waiting for {outdated} outdated replica(s) to be terminated");
        return Availability::Waiting(why);
    }
    match condition("Available") {
        Some(available) if available.status == "True" => Availability::Available,
        available => {
            let missing = || "missing condition \"Available\"".to_owned();
            let message = available.map_or_else(missing, |c| c.message.clone().unwrap_or_default());
            Availability::Waiting(format!("deployment \"{name}\" not available: {message}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(status: Value, hash: &str, expected: &Health) {
        let csv: ClusterServiceVersion = serde_json::from_value(json!({
            "metadata": {"name": "memo.v1", "namespace": "demo", "annotations": {"olm.targetNamespaces": "demo"}},
        }))
        .unwrap();
        let desired = json!({"metadata": {"name": "memo", "labels": {"olm.deployment-spec-hash": "h"}}});
        let deployment: Deployment = serde_json::from_value(json!({
            "metadata": {"name": "memo", "namespace": "demo", "generation": 2, "labels": {
                "olm.deployment-spec-hash": hash,
                "olm.owner": "memo.v1", "olm.owner.namespace": "demo", "olm.owner.kind": "ClusterServiceVersion",
            }},
            "spec": {"selector": {}, "template": {"metadata": {"annotations": {"olm.targetNamespaces": "demo"}}}},
            "status": status,
        }))
        .unwrap();
        let existing = [("memo".to_owned(), deployment)].into();
        assert_eq!(health(&csv, &[desired], &existing), *expected);
    }

    #[test]
    fn states_of_a_deployment_are_explained_as_in_olm() {
        let available = json!({"observedGeneration": 2, "conditions": [{"type": "Available", "status": "True"}]});
        check(available.clone(), "h", &Health::Healthy);
        check(available, "old", &Health::Outdated("deployment changed old hash=old, new hash=h".into()));
        let waiting = |why: &str| Health::Waiting(format!("waiting for deployment memo to become ready: {why}"));
        check(
            json!({"observedGeneration": 1}),
            "h",
            &waiting("waiting for spec update of deployment \"memo\" to be observed..."),
        );
        check(
            json!({"observedGeneration": 2, "replicas": 2, "updatedReplicas": 1}),
            "h",
            &waiting("deployment \"memo\" waiting for 1 outdated replica(s) to be terminated"),
        );
        check(
            json!({"observedGeneration": 2, "conditions": [{"type": "Available", "status": "False", "message": "no"}]}),
            "h",
            &waiting("deployment \"memo\" not available: no"),
        );
    }

    #[test]
    fn missing_deployment_is_named() {
        let desired = json!({"metadata": {"name": "memo"}});
        let found = health(&ClusterServiceVersion::new(Some("a"), "b"), &[desired], &BTreeMap::new());
        assert_eq!(found, Health::Waiting("missing deployment with name=memo".into()));
    }
}
