//! The original OLM in a cluster: the Deployments of its controllers, and the aggregated API of its package server.
//!
//! Its controllers act on the same objects as the lifecycle manager. A Deployment that is scaled to 0 replicas does not
//! count: `flyball olm install` requires that it is stopped.

use super::manager::{self, ManagedCluster, ManagerKind, ManagerState};
use super::unread::Unread;
use crate::cluster::connection::Connection;
use crate::error::{Result, ResultExt};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The Deployment of the controller of Subscriptions.
const CATALOG_OPERATOR: &str = "catalog-operator";
/// The Deployments of the controllers.
const CONTROLLERS: [&str; 2] = ["olm-operator", CATALOG_OPERATOR];
/// The Deployment and the ClusterServiceVersion of the server of PackageManifests.
const PACKAGE_SERVER: &str = "packageserver";
/// The aggregated API of PackageManifests, which both managers publish under this name.
const API_SERVICE: &str = "v1.packages.operators.coreos.com";
/// The field manager of the lifecycle manager when it publishes this API.
const PUBLISHER: &str = "flyball-olm";

/// The parts of OLM in a cluster.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct OriginalOlm {
    /// Deployments of controllers that run or should run, as `namespace/name`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    deployments: Vec<String>,
    /// True if the API of PackageManifests is that of its package server.
    serves_packages: bool,
    /// The state of the controller of Subscriptions.
    #[serde(skip)]
    controller: Option<ManagerState>,
}

impl OriginalOlm {
    /// Finds OLM in any namespace.
    pub(super) async fn find(place: &ManagedCluster) -> Result<Self> {
        let mut deployments = Vec::new();
        let mut controller = None;
        for name in CONTROLLERS {
            let found = named(&place.connection, name).await?;
            let active = found.iter().filter(|deployment| !manager::is_stopped(deployment));
            deployments.extend(active.map(|of| format!("{}/{name}", of.namespace().unwrap_or_default())));
            if let Some(running) = running(&found).filter(|_| name == CATALOG_OPERATOR) {
                controller = Some(manager::of_deployment(place, ManagerKind::Olm, running).await);
            }
        }
        let api_service =
            json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": API_SERVICE}});
        let serves_packages = match place.connection.find(&api_service).await {
            Err(error) if error.is_forbidden() => false,
            found => found?.is_some_and(|found| is_of_olm(&found)),
        };
        Ok(Self { deployments, serves_packages, controller })
    }

    /// Finds OLM, as far as the user may read the cluster; `None` if that is not far enough.
    pub(super) async fn find_readable(place: &ManagedCluster, unread: &mut Unread) -> Result<Option<Self>> {
        const PART: &str = "Deployments of all namespaces: whether the original OLM runs is unknown";
        unread.or_none(PART, Self::find(place).await)
    }

    /// Returns true if a part of OLM acts on objects.
    pub(super) fn is_active(&self) -> bool {
        !self.deployments.is_empty()
    }

    /// Returns true if nothing of OLM was found.
    pub(super) fn is_absent(&self) -> bool {
        self.deployments.is_empty() && !self.serves_packages
    }

    /// Returns the state of its controller of Subscriptions, unless that is absent or stopped.
    pub(super) fn controller(&self) -> Option<&ManagerState> {
        self.controller.as_ref()
    }

    /// Names its active Deployments.
    pub(super) fn names(&self) -> String {
        let plural = if self.deployments.len() == 1 { "" } else { "s" };
        format!("Deployment{plural} {}", self.deployments.join(", "))
    }

    /// Returns the commands that stop it without removing operators, one for each namespace.
    pub(super) fn stop_command(&self) -> String {
        let mut namespaces: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (namespace, name) in self.deployments.iter().filter_map(|deployment| deployment.split_once('/')) {
            namespaces.entry(namespace).or_default().push(name);
        }
        let command = |(namespace, names): (&str, Vec<&str>)| {
            format!("kubectl scale deployment -n {namespace} {} --replicas 0", names.join(" "))
        };
        namespaces.into_iter().map(command).collect::<Vec<_>>().join("; ")
    }

    /// Returns what to do about its package server, if that is left.
    pub(super) fn package_remark(&self) -> Option<String> {
        self.serves_packages.then(|| {
            format!(
                "APIService {API_SERVICE} is that of OLM's package server: PackageManifests show only its catalogs, \
                 until the lifecycle manager publishes them; then remove the server: kubectl delete csv,deployment \
                 {PACKAGE_SERVER} -n NAMESPACE"
            )
        })
    }
}

/// Returns the Deployments of a name in all namespaces.
async fn named(connection: &Connection, name: &str) -> Result<Vec<Deployment>> {
    let deployments: Api<Deployment> = Api::all(connection.client.clone());
    let params = ListParams::default().fields(&format!("metadata.name={name}"));
    Ok(deployments.list(&params).await.context(format!("cannot list Deployments {name}"))?.items)
}

/// Returns the Deployment that runs, or should run.
fn running(deployments: &[Deployment]) -> Option<&Deployment> {
    let available = deployments.iter().find(|deployment| manager::is_available(deployment));
    available.or_else(|| deployments.iter().find(|deployment| !manager::is_stopped(deployment)))
}

/// Returns true if an APIService belongs to OLM's package server. The lifecycle manager takes it over, and its labels
/// stay.
fn is_of_olm(api_service: &Value) -> bool {
    let metadata = &api_service["metadata"];
    let mut managers = metadata["managedFields"].as_array().into_iter().flatten();
    metadata["labels"]["olm.owner"] == PACKAGE_SERVER && !managers.any(|fields| fields["manager"] == PUBLISHER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn original_olm_is_found_while_its_pods_are_not_ready() {
        let deployment = |name: &str, replicas: i32, available: i32| -> Deployment {
            serde_json::from_value(json!({
                "metadata": {"name": "catalog-operator", "namespace": name},
                "spec": {"replicas": replicas, "selector": {}, "template": {}},
                "status": {"availableReplicas": available},
            }))
            .unwrap()
        };
        let check = |deployments: &[Deployment], expected: Option<&str>| {
            let found = running(deployments).and_then(ResourceExt::namespace);
            assert_eq!(found.as_deref(), expected, "{deployments:?}");
        };
        check(&[], None);
        check(&[deployment("stopped", 0, 0)], None);
        check(&[deployment("stopped", 0, 0), deployment("broken", 1, 0)], Some("broken"));
        check(&[deployment("broken", 1, 0), deployment("runs", 1, 1)], Some("runs"));
    }

    #[test]
    fn each_namespace_has_its_command_with_the_deployments_found() {
        let check = |deployments: &[&str], expected: &str| {
            let deployments = deployments.iter().map(|name| (*name).to_owned()).collect();
            assert_eq!(OriginalOlm { deployments, ..OriginalOlm::default() }.stop_command(), expected);
        };
        check(
            &["olm/olm-operator", "olm/catalog-operator"],
            "kubectl scale deployment -n olm olm-operator catalog-operator --replicas 0",
        );
        check(
            &["olm/olm-operator", "other/olm-operator", "other/catalog-operator"],
            "kubectl scale deployment -n olm olm-operator --replicas 0; \
             kubectl scale deployment -n other olm-operator catalog-operator --replicas 0",
        );
    }

    #[test]
    fn package_server_is_that_of_olm_until_it_is_taken_over() {
        let check = |labels: Value, managers: &[&str], expected: bool| {
            let fields: Vec<Value> = managers.iter().map(|name| json!({"manager": name})).collect();
            let object = json!({"metadata": {"labels": labels, "managedFields": fields}});
            assert_eq!(is_of_olm(&object), expected, "{object}");
        };
        check(json!({"olm.owner": "packageserver"}), &["olm"], true);
        check(json!({"olm.owner": "packageserver"}), &["olm", "flyball-olm"], false);
        check(Value::Null, &["flyball-olm"], false);
    }
}
