//! Operators in the cluster, which are reached through the API server: those that the command line names by their
//! Deployment, and those that `flyball deploy` installed.
//!
//! Everyone who may create a Deployment in some namespace can give it the label of `flyball deploy`. A Deployment that
//! was found by this label therefore receives no token, and its pages are [claims](super::claims).
//!
//! The pods of a named Deployment are those that one of its ReplicaSets controls; labels are not enough. This is no
//! proof either: the API server accepts any owner reference from everyone who may create a pod. So the token is sent to
//! a pod only with an explicit permission, see [`Pages`](flyball_console::Pages).

use super::endpoint::Endpoint;
use crate::error::{Error, Result, ResultExt};
use crate::operator::installation::MANAGED_BY;
use crate::operator::metrics::SECURE_METRICS_PORT;
use flyball_console::{Claimant, Location};
use flyball_core::names;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client, Resource, ResourceExt};
use std::collections::{BTreeMap, BTreeSet};

/// Limit of Deployments that are listed, and of those whose pods are.
const MAX_LISTED: u32 = 1000;
const MAX_DEPLOYMENTS: usize = 32;
/// Limit of pods of a Deployment.
const MAX_PODS: u32 = 32;
/// Limit of its ReplicaSets, of which ten are kept by default.
const MAX_REPLICA_SETS: u32 = 256;

/// Parses `NAMESPACE/DEPLOYMENT`.
pub(super) fn parse(text: &str) -> Option<(String, String)> {
    let (namespace, name) = text.split_once('/')?;
    let is_name = names::dns_label(namespace).is_empty() && names::is_subdomain(name);
    is_name.then(|| (namespace.to_owned(), name.to_owned()))
}

/// Returns the running pods of a Deployment that the command line names.
///
/// # Errors
///
/// If the Deployment or its pods cannot be read, or no pod serves metrics.
pub(super) async fn named(client: &Client, namespace: &str, name: &str) -> Result<Vec<Endpoint>> {
    let deployment = Api::<Deployment>::namespaced(client.clone(), namespace).get(name).await;
    let deployment = deployment.context(format!("cannot read Deployment {namespace}/{name}"))?;
    let selected = pods(client, &deployment).await.context("cannot list its pods")?;
    let replica_sets = replica_sets(client, &deployment).await.context("cannot list its ReplicaSets")?;
    let is_own = |pod: &&Pod| controller(*pod, "ReplicaSet").is_some_and(|uid| replica_sets.contains(uid));
    let found: Vec<Location> = selected.iter().filter(is_own).filter_map(|pod| forwarded(&deployment, pod)).collect();
    match (found.is_empty(), selected.iter().any(|pod| forwarded(&deployment, pod).is_some())) {
        (false, _) => Ok(found.into_iter().map(Endpoint::named).collect()),
        (true, false) => Err(Error::new("it has no running pod with a port named metrics")),
        (true, true) => Err(Error::new("pods have its labels, but none of them is of one of its ReplicaSets")),
    }
}

/// Returns the UID of the controller of an object, if it has this kind of `apps/v1`.
fn controller<'a>(object: &'a impl Resource, kind: &str) -> Option<&'a str> {
    let owner = object.meta().owner_references.iter().flatten().find(|owner| owner.controller == Some(true))?;
    (owner.api_version == "apps/v1" && owner.kind == kind && !owner.uid.is_empty()).then_some(owner.uid.as_str())
}

/// Returns the UIDs of the ReplicaSets that a Deployment controls.
async fn replica_sets(client: &Client, deployment: &Deployment) -> kube::Result<BTreeSet<String>> {
    let (Some(uid), Some(selected)) = (deployment.uid(), selected_by(deployment, MAX_REPLICA_SETS)) else {
        return Ok(BTreeSet::new());
    };
    let replica_sets = Api::<ReplicaSet>::namespaced(client.clone(), &deployment.namespace().unwrap_or_default());
    let found = replica_sets.list(&selected).await?.items;
    let own = found.iter().filter(|found| controller(*found, "Deployment") == Some(uid.as_str()));
    Ok(own.filter_map(ResourceExt::uid).collect())
}

/// Finds the pods of operators that `flyball deploy` installed: the first one of each Deployment before second ones, so
/// that one with many pods does not hide others. Without permission to find them there are none.
pub(super) async fn discover(client: &Client) -> Vec<Endpoint> {
    let ours = ListParams::default().labels(&format!("{}={}", MANAGED_BY.0, MANAGED_BY.1)).limit(MAX_LISTED);
    let Ok(deployments) = Api::<Deployment>::all(client.clone()).list(&ours).await else { return Vec::new() };
    let mut found: Vec<(usize, Endpoint)> = Vec::new();
    for deployment in &selected(deployments.items) {
        let name = format!("{}/{}", deployment.namespace().unwrap_or_default(), deployment.name_any());
        let pods = pods(client, deployment).await.unwrap_or_default();
        let endpoints = pods.iter().filter_map(|pod| {
            let (namespace, location) = (deployment.namespace().unwrap_or_default(), forwarded(deployment, pod)?);
            let account = pod.spec.as_ref().and_then(|spec| spec.service_account_name.clone()).unwrap_or_default();
            Some(Endpoint::discovered(location, Claimant { deployment: name.clone(), namespace, account }))
        });
        found.extend(endpoints.enumerate());
    }
    found.sort_by_key(|(turn, _)| *turn);
    found.into_iter().map(|(_, endpoint)| endpoint).collect()
}

/// Selects the Deployments whose pods are listed, by turns of each namespace, so that none hides those of others.
fn selected(deployments: Vec<Deployment>) -> Vec<Deployment> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let runs = |deployment: &Deployment| deployment.spec.as_ref().is_none_or(|spec| spec.replicas != Some(0));
    let mut turns: Vec<(usize, Deployment)> = Vec::new();
    for deployment in deployments.into_iter().filter(runs) {
        let count = counts.entry(deployment.namespace().unwrap_or_default()).or_default();
        turns.push((*count, deployment));
        *count += 1;
    }
    turns.sort_by_key(|(turn, _)| *turn);
    turns.into_iter().map(|(_, deployment)| deployment).take(MAX_DEPLOYMENTS).collect()
}

/// Returns the parameters of a list of what a Deployment selects, none if it selects everything.
fn selected_by(deployment: &Deployment, limit: u32) -> Option<ListParams> {
    let labels = deployment.spec.as_ref().and_then(|spec| spec.selector.match_labels.as_ref())?;
    let selector: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    (!selector.is_empty()).then(|| ListParams::default().labels(&selector.join(",")).limit(limit))
}

/// Returns the pods with the labels of a Deployment.
async fn pods(client: &Client, deployment: &Deployment) -> kube::Result<Vec<Pod>> {
    let Some(selected) = selected_by(deployment, MAX_PODS) else { return Ok(Vec::new()) };
    let pods = Api::<Pod>::namespaced(client.clone(), &deployment.namespace().unwrap_or_default());
    pods.list(&selected).await.map(|list| list.items)
}

/// Returns the path by which the API server forwards requests to the metrics of a running pod of a Deployment.
fn forwarded(deployment: &Deployment, pod: &Pod) -> Option<Location> {
    let is_running = pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running");
    let mut containers = pod.spec.iter().filter(|_| is_running).flat_map(|spec| &spec.containers);
    let (container, port) = containers.find_map(|container| {
        let port = container.ports.iter().flatten().find(|port| port.name.as_deref() == Some("metrics"))?;
        Some((container, port.container_port))
    })?;
    let is_secure = container.args.iter().flatten().any(|arg| arg == "--metrics-secure");
    let scheme = if is_secure || port == i32::from(SECURE_METRICS_PORT) { "https:" } else { "" };
    let namespace = deployment.namespace().unwrap_or_default();
    let path = format!("/api/v1/namespaces/{namespace}/pods/{scheme}{}:{port}/proxy", pod.name_any());
    Some(Location::Pod { deployment: format!("{namespace}/{}", deployment.name_any()), path })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn deployments_are_distinguished_from_addresses() {
        assert_eq!(parse("team-a/op"), Some(("team-a".into(), "op".into())));
        for text in ["op", "127.0.0.1:8080/metrics", "http://host/metrics", "a/b/c", "/b", "a/", "a.b/c", "A/b"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn deployments_of_a_namespace_do_not_hide_others() {
        let deployment = |namespace: &str, name: &str, replicas: i32| -> Deployment {
            let spec = json!({"replicas": replicas, "selector": {}, "template": {}});
            let metadata = json!({"name": name, "namespace": namespace});
            serde_json::from_value(json!({"metadata": metadata, "spec": spec})).expect("a Deployment")
        };
        let mut all: Vec<Deployment> = (0..100).map(|n| deployment("aaa", &format!("d{n}"), 1)).collect();
        all.push(deployment("shop", "stopped", 0));
        all.push(deployment("shop", "op", 1));
        let found: Vec<String> = selected(all).iter().map(|deployment| deployment.name_any()).collect();
        assert_eq!((found.len(), &found[..3]), (MAX_DEPLOYMENTS, &["d0", "op", "d1"].map(str::to_owned)[..]));
    }

    #[test]
    fn running_pods_are_reached_through_the_api_server() {
        let pod = |phase: &str, args: &[&str], port: u16| {
            let pod = json!({
                "metadata": {"name": "op-1"}, "status": {"phase": phase},
                "spec": {"containers": [{"name": "manager", "args": args, "ports": [
                    {"name": "metrics", "containerPort": port},
                ]}]},
            });
            let deployment = json!({"metadata": {"name": "op", "namespace": "ns"}});
            let deployment: Deployment = serde_json::from_value(deployment).expect("a Deployment");
            forwarded(&deployment, &serde_json::from_value(pod).expect("a pod")).map(|location| location.to_string())
        };
        let secure = Some("/api/v1/namespaces/ns/pods/https:op-1:8443/proxy".to_owned());
        assert_eq!(pod("Running", &["--metrics-secure"], 8443), secure);
        assert_eq!(pod("Running", &[], 8080), Some("/api/v1/namespaces/ns/pods/op-1:8080/proxy".to_owned()));
        assert_eq!(pod("Pending", &[], 8080), None);
    }
}
