//! The objects of a cluster: a pod for each member, two services, a disruption budget.
//!
//! The service `NAME` is for peers, and includes members that are not ready; `NAME-client` is for clients, and includes
//! only ready members. See <https://etcd.io/docs/v3.5/op-guide/configuration/> for the flags.

use crate::api::etcdcluster_v1beta2::{EtcdCluster, Incarnation};
use crate::plan::ObservedPod;
use flyball::Result;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt;
use serde_json::{Value, json};

/// The label of a pod with the name of its cluster.
pub const CLUSTER: &str = "etcd_cluster";
/// The label of a pod with the number of its cluster's incarnation.
pub const INCARNATION: &str = "etcd_incarnation";
/// The port of clients.
pub const CLIENT_PORT: u16 = 2379;
const PEER_PORT: u16 = 2380;
/// The container of etcd.
pub const CONTAINER: &str = "etcd";
/// The init container that fetches the snapshot.
pub const FETCH: &str = "fetch-snapshot";
/// The init container that restores the database from the snapshot.
pub const RESTORE: &str = "restore-snapshot";
const FETCH_IMAGE: &str = "busybox:1.37";
const DIRECTORY: &str = "/var/etcd";
const SNAPSHOT: &str = "/var/etcd/snapshot.db";
const DATA: &str = "/var/etcd/data";

/// Initial state of a member.
#[derive(Clone, Debug)]
pub enum Start<'a> {
    /// The first member of a new cluster, optionally restored from the snapshot at a URL.
    New(Option<&'a str>),
    /// A member that was added to a cluster with these members.
    Existing(Vec<&'a str>),
}

/// Returns the domain of the members' URLs.
fn domain(cluster: &EtcdCluster) -> String {
    format!("{}.{}.svc", cluster.name_any(), cluster.namespace().unwrap_or_default())
}

/// Returns the URL that clients use for one member.
pub fn client_url(cluster: &EtcdCluster, pod: &str) -> String {
    format!("http://{pod}.{}:{CLIENT_PORT}", domain(cluster))
}

/// Returns the URL of a member for its peers.
pub fn peer_url(cluster: &EtcdCluster, pod: &str) -> String {
    format!("http://{pod}.{}:{PEER_PORT}", domain(cluster))
}

fn labels(cluster: &EtcdCluster) -> Value {
    json!({"app": "etcd", CLUSTER: cluster.name_any()})
}

/// Returns the image of a version.
pub fn image(cluster: &EtcdCluster, version: &str) -> String {
    format!("{}:v{version}", cluster.spec.repository)
}

/// Returns the version of an image.
pub fn version_of(image: &str) -> String {
    let tag = image.rsplit_once(':').map_or("", |(_, tag)| tag);
    tag.strip_prefix('v').unwrap_or(tag).to_owned()
}

/// Creates both services.
pub fn services(cluster: &EtcdCluster) -> Result<[Service; 2]> {
    let name = cluster.name_any();
    let client = json!({"name": "client", "port": CLIENT_PORT, "targetPort": CLIENT_PORT});
    let peer = json!({"name": "peer", "port": PEER_PORT, "targetPort": PEER_PORT});
    let peers = json!({
        "metadata": {"name": name, "labels": labels(cluster)},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": true,
            "selector": labels(cluster),
            "ports": [client, peer],
        },
    });
    let clients = json!({
        "metadata": {"name": format!("{name}-client"), "labels": labels(cluster)},
        "spec": {"selector": labels(cluster), "ports": [client]},
    });
    Ok([serde_json::from_value(peers)?, serde_json::from_value(clients)?])
}

/// Creates the disruption budget, so that drains of nodes evict one member at a time.
pub fn disruption_budget(cluster: &EtcdCluster) -> Result<PodDisruptionBudget> {
    Ok(serde_json::from_value(json!({
        "metadata": {"name": cluster.name_any(), "labels": labels(cluster)},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": labels(cluster)}},
    }))?)
}

/// Creates the pod of a member.
pub fn pod(cluster: &EtcdCluster, life: &Incarnation, name: &str, version: &str, start: &Start<'_>) -> Result<Pod> {
    let (client, peer) = (client_url(cluster, name), peer_url(cluster, name));
    let mut labels = labels(cluster);
    labels["etcd_node"] = name.into();
    labels[INCARNATION] = life.number.to_string().into();
    let token = format!("{}-{}", cluster.uid().unwrap_or_default(), life.number);
    let image = image(cluster, version);
    let others = if let Start::Existing(others) = start { &others[..] } else { &[] };
    let peers = others.iter().chain([&name]).map(|name| format!("{name}={}", peer_url(cluster, name)));
    let peers = peers.collect::<Vec<_>>().join(",");
    let state = if matches!(start, Start::New(_)) { "new" } else { "existing" };
    let mounts = json!([{"name": "data", "mountPath": DIRECTORY}]);
    let health = json!({"httpGet": {"path": "/health", "port": CLIENT_PORT}, "periodSeconds": 5, "timeoutSeconds": 5});
    let mut spec = json!({
        // The data of a member is lost with its pod, which is never recreated under the same name.
        "restartPolicy": "Always",
        "hostname": name,
        "subdomain": cluster.name_any(),
        "automountServiceAccountToken": false,
        "volumes": [{"name": "data", "emptyDir": {}}],
        "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{
            "weight": 100,
            "podAffinityTerm": {
                "topologyKey": "kubernetes.io/hostname",
                "labelSelector": {"matchLabels": {CLUSTER: cluster.name_any()}},
            },
        }]}},
        "containers": [{
            "name": CONTAINER,
            "image": image,
            "command": [
                "/usr/local/bin/etcd",
                format!("--name={name}"),
                format!("--data-dir={DATA}"),
                format!("--initial-advertise-peer-urls={peer}"),
                format!("--listen-peer-urls=http://0.0.0.0:{PEER_PORT}"),
                format!("--listen-client-urls=http://0.0.0.0:{CLIENT_PORT}"),
                format!("--advertise-client-urls={client}"),
                format!("--initial-cluster={peers}"),
                format!("--initial-cluster-state={state}"),
                format!("--initial-cluster-token={token}"),
            ],
            "ports": [
                {"name": "client", "containerPort": CLIENT_PORT},
                {"name": "peer", "containerPort": PEER_PORT},
            ],
            "readinessProbe": health,
            "volumeMounts": mounts,
        }],
    });
    if let Start::New(Some(url)) = start {
        spec["initContainers"] = json!([
            {
                "name": FETCH,
                "image": FETCH_IMAGE,
                "command": ["wget", "-q", "-O", SNAPSHOT, url],
                "volumeMounts": mounts,
            },
            {
                "name": RESTORE,
                "image": image,
                "env": [{"name": "ETCDCTL_API", "value": "3"}],
                "command": [
                    format!("/usr/local/bin/{}", restorer(version)),
                    "snapshot",
                    "restore",
                    SNAPSHOT,
                    format!("--name={name}"),
                    format!("--data-dir={DATA}"),
                    format!("--initial-advertise-peer-urls={peer}"),
                    format!("--initial-cluster={peers}"),
                    format!("--initial-cluster-token={token}"),
                ],
                "volumeMounts": mounts,
            },
        ]);
    }
    // The operator generates the name instead of the API server, because the member is added to etcd before the pod
    // exists.
    let metadata = json!({"name": name, "generateName": format!("{}-", cluster.name_any()), "labels": labels});
    Ok(serde_json::from_value(json!({"metadata": metadata, "spec": spec}))?)
}

/// Returns the program that restores snapshots, which changed in 3.5.
fn restorer(version: &str) -> &'static str {
    let minor = version.split('.').nth(1).and_then(|minor| minor.parse::<u32>().ok());
    if minor.is_some_and(|minor| minor < 5) { "etcdctl" } else { "etcdutl" }
}

/// Returns the change of a member's pod for an upgrade: its image, in place, so that its data is kept.
pub fn upgraded(cluster: &EtcdCluster, pod: &str) -> Result<Pod> {
    let image = image(cluster, &cluster.spec.version);
    let container = json!({"name": CONTAINER, "image": image});
    Ok(serde_json::from_value(json!({"metadata": {"name": pod}, "spec": {"containers": [container]}}))?)
}

/// Returns the incarnation of a pod.
pub fn incarnation_of(pod: &Pod) -> Option<u32> {
    pod.labels().get(INCARNATION)?.parse().ok()
}

/// Extracts the relevant state of a pod.
pub fn observe(pod: &Pod) -> ObservedPod {
    let status = pod.status.as_ref();
    let phase = status.and_then(|status| status.phase.as_deref()).unwrap_or_default();
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let container = containers.into_iter().find(|container| container.name == CONTAINER);
    ObservedPod {
        name: pod.name_any(),
        version: container.and_then(|container| container.image.as_deref()).map(version_of).unwrap_or_default(),
        is_leaving: pod.metadata.deletion_timestamp.is_some(),
        is_over: matches!(phase, "Failed" | "Succeeded"),
        status: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::pod_of;

    #[test]
    fn names_and_versions_round_trip() {
        let cluster: EtcdCluster = serde_json::from_value(json!({
            "apiVersion": "etcd.database.coreos.com/v1beta2", "kind": "EtcdCluster",
            "metadata": {"name": "a", "namespace": "b"}, "spec": {"size": 3, "version": "3.5.1-arm64"},
        }))
        .unwrap();
        assert_eq!(pod_of(&peer_url(&cluster, "a-x7k2p")), Some("a-x7k2p"));
        assert_eq!(pod_of("nothing"), None);
        assert_eq!(version_of(&image(&cluster, "3.5.1-arm64")), "3.5.1-arm64");
        assert_eq!((restorer("3.1.10"), restorer("3.4.0"), restorer("3.6.0")), ("etcdctl", "etcdctl", "etcdutl"));
    }
}
