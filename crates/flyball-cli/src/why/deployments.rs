//! Operators in the cluster, which are reached through the API server: those that the command line names by their
//! Deployment, and those that `flyball deploy` installed.
//!
//! Everyone who may create a Deployment in some namespace can give it the label of `flyball deploy`. A Deployment that
//! was found by this label therefore receives no token, and its pages are [claims](super::claims).

use super::claims::Claimant;
use super::endpoint::Endpoint;
use crate::error::{Error, Result, ResultExt};
use crate::operator::installation::MANAGED_BY;
use crate::operator::metrics::SECURE_METRICS_PORT;
use flyball_console::Location;
use flyball_core::names;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use std::collections::BTreeMap;

/// Limit of Deployments that are listed, and of those whose pods are.
const MAX_LISTED: u32 = 1000;
const MAX_DEPLOYMENTS: usize = 32;
/// Limit of pods of a Deployment.
const MAX_PODS: u32 = 32;

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
    let found = pods(client, &deployment).await.context("cannot list its pods")?;
    if found.is_empty() {
        return Err(Error::new("it has no running pod with a port named metrics"));
    }
    Ok(found.into_iter().map(|(location, _)| Endpoint::named(location)).collect())
}

/// Finds the pods of operators that `flyball deploy` installed. Without permission to find them there are none.
pub(super) async fn discover(client: &Client) -> Vec<Endpoint> {
    let ours = ListParams::default().labels(&format!("{}={}", MANAGED_BY.0, MANAGED_BY.1)).limit(MAX_LISTED);
    let Ok(deployments) = Api::<Deployment>::all(client.clone()).list(&ours).await else { return Vec::new() };
    let mut found = Vec::new();
    for deployment in &selected(deployments.items) {
        let name = format!("{}/{}", deployment.namespace().unwrap_or_default(), deployment.name_any());
        let pods = pods(client, deployment).await.unwrap_or_default();
        found.extend(pods.into_iter().map(|(location, account)| {
            let namespace = deployment.namespace().unwrap_or_default();
            Endpoint::discovered(location, Claimant { deployment: name.clone(), namespace, account })
        }));
    }
    found
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

/// Returns the locations and service accounts of the running pods of a Deployment.
async fn pods(client: &Client, deployment: &Deployment) -> kube::Result<Vec<(Location, String)>> {
    let namespace = deployment.namespace().unwrap_or_default();
    let labels = deployment.spec.as_ref().and_then(|spec| spec.selector.match_labels.clone()).unwrap_or_default();
    if labels.is_empty() {
        return Ok(Vec::new());
    }
    let selector: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let selected = ListParams::default().labels(&selector.join(",")).limit(MAX_PODS);
    let pods = Api::<Pod>::namespaced(client.clone(), &namespace).list(&selected).await?;
    let account = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.service_account_name.clone()).unwrap_or_default();
    let name = deployment.name_any();
    Ok(pods.items.iter().filter_map(|pod| Some((forwarded(&namespace, &name, pod)?, account(pod)))).collect())
}

/// Returns the path by which the API server forwards requests to the metrics of a running pod.
fn forwarded(namespace: &str, deployment: &str, pod: &Pod) -> Option<Location> {
    let is_running = pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running");
    let mut containers = pod.spec.iter().filter(|_| is_running).flat_map(|spec| &spec.containers);
    let (container, port) = containers.find_map(|container| {
        let port = container.ports.iter().flatten().find(|port| port.name.as_deref() == Some("metrics"))?;
        Some((container, port.container_port))
    })?;
    let is_secure = container.args.iter().flatten().any(|arg| arg == "--metrics-secure");
    let scheme = if is_secure || port == i32::from(SECURE_METRICS_PORT) { "https:" } else { "" };
    let path = format!("/api/v1/namespaces/{namespace}/pods/{scheme}{}:{port}/proxy", pod.name_any());
    Some(Location::Pod { deployment: format!("{namespace}/{deployment}"), path })
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
            forwarded("ns", "op", &serde_json::from_value(pod).expect("a pod")).map(|location| location.to_string())
        };
        let secure = Some("/api/v1/namespaces/ns/pods/https:op-1:8443/proxy".to_owned());
        assert_eq!(pod("Running", &["--metrics-secure"], 8443), secure);
        assert_eq!(pod("Running", &[], 8080), Some("/api/v1/namespaces/ns/pods/op-1:8080/proxy".to_owned()));
        assert_eq!(pod("Pending", &[], 8080), None);
    }
}
