//! APIServices: aggregated APIs that a Deployment of an operator serves.

use super::certificate::ServingCertificate;
use super::owner::{add_labels, labels_of, managed};
use super::service::service_name;
use crate::api::ClusterServiceVersion;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::ResourceExt;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Returns the APIServices of a ClusterServiceVersion.
pub(crate) fn api_services(
    csv: &ClusterServiceVersion,
    certificate: impl Fn(&str) -> Option<ServingCertificate>,
) -> Vec<Value> {
    // Several kinds may belong to one version of a group.
    let mut services = BTreeMap::new();
    for api in &csv.spec.api_services.owned {
        let Some(certificate) = certificate(&api.deployment_name) else { continue };
        let mut service = json!({
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": api.api_service_name()},
            "spec": {
                "group": api.group,
                "version": api.version,
                "groupPriorityMinimum": 2000,
                "versionPriority": 15,
                "caBundle": certificate.authority_bundle(),
                "service": {
                    "name": service_name(&api.deployment_name),
                    "namespace": csv.namespace(),
                    "port": if api.container_port > 0 { api.container_port } else { 443 },
                },
            },
        });
        add_labels(&mut service, labels_of(csv));
        services.insert(api.api_service_name(), managed(service, csv));
    }
    services.into_values().collect()
}

/// Returns true if an aggregated API responds.
pub(crate) fn is_available(service: &APIService) -> bool {
    let conditions = service.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Available" && condition.status == "True")
}

/// Returns true if an APIService belongs to one of these ClusterServiceVersions of a namespace.
pub(crate) fn belongs_to(service: &APIService, namespace: &str, csvs: &[&str]) -> bool {
    let owners = super::owner::owners(&service.metadata);
    owners.iter().any(|owner| owner.namespace() == Some(namespace) && csvs.contains(&owner.name()))
}
