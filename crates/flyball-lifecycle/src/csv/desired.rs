//! The desired objects of a ClusterServiceVersion.

use super::replacement::Siblings;
use crate::api::{ClusterServiceVersion, OperatorGroup, Permission, SubscriptionConfig};
use crate::install::{
    self, ServingCertificate, component_labels, deployments, managed, owner_reference, permissions, reference,
    rights_in_all_namespaces, service_objects, webhook_configurations,
};
use kube::ResourceExt;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The certificates of Deployments by their names.
pub(super) type Certificates = BTreeMap<String, Option<ServingCertificate>>;

/// Returns the OperatorCondition of a ClusterServiceVersion, through which the operator reports whether it can be
/// upgraded.
pub(super) fn condition(csv: &ClusterServiceVersion) -> Value {
    let details = csv.spec.details();
    let names = |permissions: &[Permission]| -> Vec<String> {
        let names = permissions.iter().map(|permission| permission.service_account_name.clone());
        names.filter(|name| !name.is_empty()).collect()
    };
    let mut accounts = names(&details.cluster_permissions);
    accounts.extend(names(&details.permissions));
    if accounts.is_empty() {
        accounts.push("default".into());
    }
    let deployments: Vec<&str> = details.deployments.iter().map(|deployment| deployment.name.as_str()).collect();
    let owner = reference(
        "operators.coreos.com/v1alpha1",
        "ClusterServiceVersion",
        &csv.name_any(),
        csv.uid().as_deref(),
        true,
    );
    json!({
        "apiVersion": "operators.coreos.com/v2",
        "kind": "OperatorCondition",
        "metadata": {
            "name": csv.name_any(),
            "namespace": csv.namespace(),
            "labels": component_labels(csv),
            "ownerReferences": [owner],
        },
        "spec": {"serviceAccounts": accounts, "deployments": deployments},
    })
}

/// Returns the service accounts and their permissions. During an upgrade an account belongs to both
/// ClusterServiceVersions.
pub(super) fn rights(csv: &ClusterServiceVersion, group: &OperatorGroup, siblings: &Siblings) -> Vec<Value> {
    let mut objects = permissions(csv);
    for object in objects.iter_mut().filter(|object| object["kind"] == "ServiceAccount") {
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let mut owners = vec![owner_reference(csv)];
        owners.extend(siblings.related_to(csv).into_iter().filter(|other| uses(other, &name)).map(owner_reference));
        owners.sort_by_key(|owner| owner["uid"].as_str().unwrap_or_default().to_owned());
        object["metadata"]["ownerReferences"] = json!(owners);
    }
    if group.targets_all() {
        objects.extend(rights_in_all_namespaces(csv));
    }
    objects.into_iter().map(|object| managed(object, csv)).collect()
}

fn uses(csv: &ClusterServiceVersion, account: &str) -> bool {
    let details = csv.spec.details();
    let mut permissions = details.permissions.iter().chain(&details.cluster_permissions);
    permissions.any(|permission| permission.service_account_name == account)
}

/// Returns the objects that serve webhooks and aggregated APIs, without the certificates.
pub(super) fn servers(csv: &ClusterServiceVersion, group: &OperatorGroup, certificates: &Certificates) -> Vec<Value> {
    let certificate = |deployment: &str| certificates.get(deployment).cloned().flatten();
    let mut objects: Vec<Value> =
        csv.spec.details().deployments.iter().flat_map(|deployment| service_objects(csv, deployment)).collect();
    objects.extend(webhook_configurations(csv, group, certificate));
    objects.extend(install::api_services(csv, certificate));
    objects
}

/// Returns the Deployments of an operator.
pub(super) fn workloads(
    csv: &ClusterServiceVersion,
    config: Option<&SubscriptionConfig>,
    certificates: &Certificates,
) -> Vec<Value> {
    deployments(csv, config, |deployment| certificates.get(deployment).cloned().flatten())
}
