//! Admission plugins of ingresses, bindings and resizes.

use crate::send::send;
use flyball_core::Clock;
use flyball_core::time::{SignedDuration, Timestamp};
use flyball_server::{Options, Server};
use http::Method;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

const JSON: &str = "application/json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const CORE: &str = "/api/v1/namespaces/default";
const NODES: &str = "/api/v1/nodes";
const CLASSES: &str = "/apis/networking.k8s.io/v1/ingressclasses";
const INGRESSES: &str = "/apis/networking.k8s.io/v1/namespaces/default/ingresses";

/// Starts a server whose clock a test advances, in seconds.
fn server() -> (Server, Arc<AtomicI64>) {
    let now = Arc::new(AtomicI64::new(0));
    let time = now.clone();
    let start = Timestamp::from_second(1_800_000_000).unwrap();
    let clock = Clock::new(move || start + SignedDuration::from_secs(time.load(Ordering::Relaxed)));
    (Server::new(Options::simulated(clock, 1)), now)
}

async fn create(server: &Server, path: &str, object: Value) -> Value {
    let (code, response, _) = send(server, Method::POST, path, JSON, object.to_string()).await;
    assert_eq!(code, 201, "{response}");
    response
}

fn ingress(name: &str, spec: Value, annotations: Value) -> Value {
    let mut ingress = json!({"metadata": {"name": name, "annotations": annotations}, "spec": {
        "defaultBackend": {"service": {"name": "s", "port": {"number": 80}}},
    }});
    ingress["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    ingress
}

#[tokio::test]
async fn ingresses_without_a_class_get_the_newest_default_class() {
    let (server, now) = server();
    let class = |name: &str, default: &str| {
        let annotations = json!({"ingressclass.kubernetes.io/is-default-class": default});
        json!({"metadata": {"name": name, "annotations": annotations}, "spec": {"controller": "x.io/c"}})
    };
    let class_of = async |name: &str, spec: Value, annotations: Value| {
        create(&server, INGRESSES, ingress(name, spec, annotations)).await["spec"]["ingressClassName"].clone()
    };
    create(&server, CLASSES, class("other", "false")).await;
    assert_eq!(class_of("none", json!({}), json!({})).await, Value::Null);
    create(&server, CLASSES, class("old", "true")).await;
    assert_eq!(class_of("one", json!({}), json!({})).await, "old");
    now.store(5, Ordering::Relaxed);
    create(&server, CLASSES, class("new-b", "true")).await;
    create(&server, CLASSES, class("new-a", "true")).await;
    assert_eq!(class_of("newest", json!({}), json!({})).await, "new-a");
    assert_eq!(class_of("named", json!({"ingressClassName": "other"}), json!({})).await, "other");
    let old = json!({"kubernetes.io/ingress.class": "x"});
    assert_eq!(class_of("annotated", json!({}), old).await, Value::Null);
    // An update sets no class.
    let (path, patch) = (format!("{INGRESSES}/none"), json!({"metadata": {"labels": {"a": "b"}}}));
    let (code, updated, _) = send(&server, Method::PATCH, &path, STRATEGIC, patch.to_string()).await;
    assert_eq!((code, &updated["spec"]["ingressClassName"]), (200, &Value::Null));
}

/// Creates a node with labels and the resources that pods may use.
async fn create_node(server: &Server, name: &str, labels: Value, allocatable: Value) {
    create(server, NODES, json!({"metadata": {"name": name, "labels": labels}})).await;
    let (path, patch) = (format!("{NODES}/{name}/status"), json!({"status": {"allocatable": allocatable}}));
    assert_eq!(send(server, Method::PATCH, &path, STRATEGIC, patch.to_string()).await.0, 200);
}

fn pod(name: &str, labels: Value, spec: Value) -> Value {
    let mut pod = json!({"metadata": {"name": name, "labels": labels}, "spec": {"containers": [{
        "name": "c", "image": "i", "resources": {"requests": {"cpu": "1", "memory": "1Mi"}},
    }]}});
    pod["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    pod
}

#[tokio::test]
async fn pods_on_a_node_have_its_zone_and_region() {
    let (server, _) = server();
    create(&server, &format!("{CORE}/serviceaccounts"), json!({"metadata": {"name": "default"}})).await;
    let topology = json!({"topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r", "x": "y"});
    create_node(&server, "node", topology, json!({})).await;
    create_node(&server, "plain", json!({}), json!({})).await;
    let pods = format!("{CORE}/pods");
    let bound = json!({"a": "b", "topology.kubernetes.io/region": "r", "topology.kubernetes.io/zone": "z"});
    let own = || json!({"a": "b", "topology.kubernetes.io/zone": "mine"});
    for (name, node, expected) in [("new", "node", bound.clone()), ("other", "plain", own()), ("no", "missing", own())]
    {
        let created = create(&server, &pods, pod(name, own(), json!({"nodeName": node}))).await;
        assert_eq!(created["metadata"]["labels"], expected, "{node}");
    }
    let bind = async |name: &str, target: Value| {
        create(&server, &pods, pod(name, own(), json!({}))).await;
        let binding = json!({"metadata": {"name": name}, "target": target});
        create(&server, &format!("{pods}/{name}/binding"), binding).await;
        let (_, pod, _) = send(&server, Method::GET, &format!("{pods}/{name}"), JSON, "").await;
        assert_eq!(pod["spec"]["nodeName"], target["name"]);
        pod["metadata"]["labels"].clone()
    };
    assert_eq!(bind("bound", json!({"kind": "Node", "name": "node"})).await, bound);
    assert_eq!(bind("kindless", json!({"name": "node"})).await, own());
    assert_eq!(bind("elsewhere", json!({"kind": "Node", "name": "plain"})).await, own());
}

/// Sets the CPU and the memory that the container of a pod requests; returns the code, the message and the causes.
async fn resize(server: &Server, pod: &str, cpu: &str, memory: &str) -> (u16, String, Value) {
    let container = json!({"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}});
    let (path, patch) = (format!("{CORE}/pods/{pod}/resize"), json!({"spec": {"containers": [container]}}));
    let (code, response, _) = send(server, Method::PATCH, &path, STRATEGIC, patch.to_string()).await;
    (code, response["message"].as_str().unwrap_or_default().to_owned(), response["details"]["causes"].clone())
}

#[tokio::test]
async fn resizes_that_the_node_cannot_carry_out_are_rejected() {
    let (server, _) = server();
    create(&server, &format!("{CORE}/serviceaccounts"), json!({"metadata": {"name": "default"}})).await;
    let linux = json!({"kubernetes.io/os": "linux"});
    let allocatable = || json!({"cpu": "2", "memory": "1Gi"});
    create_node(&server, "linux", linux, allocatable()).await;
    create_node(&server, "windows", json!({"kubernetes.io/os": "windows"}), allocatable()).await;
    for (name, spec) in [
        ("on-linux", json!({"nodeName": "linux"})),
        ("on-windows", json!({"nodeName": "windows"})),
        ("nowhere", json!({"nodeName": "missing"})),
        ("pending", json!({})),
    ] {
        create(&server, &format!("{CORE}/pods"), pod(name, json!({}), spec)).await;
    }
    let accepted = || (200, String::new(), Value::Null);
    let rejected = |pod: &str, why: &str, cause: Value| (403, format!("pods \"{pod}\" is forbidden: {why}"), cause);
    let cause = |reason: &str| json!([{"reason": reason}]);
    assert_eq!(resize(&server, "on-linux", "2", "1Gi").await, accepted());
    let lacking = "Node didn't have enough allocatable resources: cpu, requested: 2001, allocatable: 2000";
    assert_eq!(resize(&server, "on-linux", "2001m", "1Gi").await, rejected("on-linux", lacking, cause("NodeCapacity")));
    let lacking = "Node didn't have enough allocatable resources: cpu, requested: 3000, allocatable: 2000; memory, \
                   requested: 2147483648, allocatable: 1073741824";
    assert_eq!(resize(&server, "on-linux", "3", "2Gi").await, rejected("on-linux", lacking, cause("NodeCapacity")));
    let system = "pod resize is only supported on linux nodes, node \"windows\" is \"windows\"";
    let unsupported = rejected("on-windows", system, cause("UnsupportedPlatform"));
    assert_eq!(resize(&server, "on-windows", "2", "1Mi").await, unsupported);
    assert_eq!(resize(&server, "on-windows", "1", "1Mi").await, accepted(), "unchanged");
    let missing = rejected("nowhere", "node \"missing\" not found", Value::Null);
    assert_eq!(resize(&server, "nowhere", "2", "1Mi").await, missing);
    assert_eq!(resize(&server, "pending", "2001m", "1Gi").await, accepted());
}
