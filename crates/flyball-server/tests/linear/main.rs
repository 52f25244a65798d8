//! The cost of a request is linear in its size: twice the items take about twice the CPU time, for all kinds of items.
//!
//! Other tests beside it would spoil its measurements: it is a program of its own, and its tests run one by one.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod fields;
mod reads;
#[path = "../it/send.rs"]
mod send;

use crate::send::{send, send_as};
use flyball_core::Clock;
use flyball_server::{Options, Server, User};
use http::Method;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::sync::Mutex;

const JSON: &str = "application/json";
const JSON_PATCH: &str = "application/json-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";
/// Pods of a namespace whose policy of Pod Security they violate.
const WARNED: &str = "/api/v1/namespaces/warned/pods";
const SERVICES: &str = "/api/v1/namespaces/default/services";
const GADGETS: &str = "/apis/x.io/v1/namespaces/default/gadgets";

/// Maximum ratio of the CPU time for twice the items.
const RATIO: f64 = 2.5;

/// Maximum number of times that what seems too slow is measured, after everything else each time: load of a machine
/// comes and goes.
const ROUNDS: usize = 3;

/// Held by the test that runs.
static ALONE: Mutex<()> = Mutex::const_new(());

/// The measured case: a request with a number of items, after one that creates its target.
struct Shape {
    name: &'static str,
    items: usize,
    before: fn(usize) -> Option<(&'static str, Value)>,
    request: fn(usize) -> (Method, &'static str, &'static str, String),
}

/// Creates a list with a number of items.
fn list(count: usize, item: impl Fn(usize) -> Value) -> Value {
    (0..count).map(item).collect()
}

/// Writes a number of fields of a JSON object, without its braces.
fn fields(count: usize, field: impl Fn(usize) -> String) -> String {
    (0..count).map(field).collect::<Vec<_>>().join(",")
}

fn post(path: &'static str, body: impl ToString) -> (Method, &'static str, &'static str, String) {
    (Method::POST, path, JSON, body.to_string())
}

fn patch(path: &'static str, kind: &'static str, body: impl ToString) -> (Method, &'static str, &'static str, String) {
    (Method::PATCH, path, kind, body.to_string())
}

fn map(metadata: Value) -> Value {
    let mut map = json!({"metadata": {"name": "m"}, "data": {"k": "v"}});
    map["metadata"].as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone());
    map
}

fn pod(spec: Value) -> Value {
    let mut pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    pod["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    pod
}

fn gadget(spec: Value) -> Value {
    json!({"apiVersion": "x.io/v1", "kind": "Gadget", "metadata": {"name": "g"}, "spec": spec})
}

fn crd(properties: Value) -> Value {
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
    json!({"metadata": {"name": "others.y.io"}, "spec": {"group": "y.io", "scope": "Namespaced",
        "names": {"plural": "others", "kind": "Other"}, "versions": [version]}})
}

fn nothing(_: usize) -> Option<(&'static str, Value)> {
    None
}

fn containers(count: usize) -> Value {
    list(count, |n| json!({"name": format!("c{n}"), "image": "i"}))
}

fn finalizers(count: usize) -> Value {
    list(count, |n| json!(format!("x.io/f{n}")))
}

fn owners(count: usize, of: impl Fn(usize) -> usize) -> Value {
    let owner =
        |n| json!({"apiVersion": "v1", "kind": "Pod", "name": format!("p{}", of(n)), "uid": format!("u{}", of(n))});
    map(json!({"ownerReferences": list(count, owner)}))
}

fn managers(count: usize) -> Value {
    let entry = |n| {
        json!({"manager": format!("m{n}"), "operation": if n % 2 == 0 { "Apply" } else { "Update" },
        "apiVersion": "v1", "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {"f:k": {}}}})
    };
    list(count, entry)
}

fn keyed(count: usize, value: &str) -> Value {
    list(count, |n| json!({"name": format!("n{n}"), "value": value}))
}

/// A load balancer with this many ports, which have no node ports.
fn balancer(count: usize) -> Value {
    let ports = list(count, |n| json!({"name": format!("n{n}"), "port": n + 1}));
    let spec = json!({"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false, "ports": ports});
    json!({"metadata": {"name": "s"}, "spec": spec})
}

/// Arguments of a container, half of which are equal in all calls and repeat.
fn arguments(count: usize, name: &str) -> Value {
    let args = (0..count).flat_map(|n| [format!("x{}", n % 49), format!("{name}{n}")]);
    json!({"containers": [{"name": "c", "image": "i", "args": args.collect::<Vec<_>>()}]})
}

#[rustfmt::skip]
const SHAPES: &[Shape] = &[
    Shape { name: "forbidden changes of arguments", items: 400, before: |n| Some((PODS, pod(arguments(n, "a")))), request: |n| {
        patch("/api/v1/namespaces/default/pods/p", STRATEGIC, json!({"spec": arguments(n, "b")})) } },
    Shape { name: "unknown fields", items: 20_000, before: nothing, request: |n| {
        post(MAPS, format!("{{\"metadata\":{{\"name\":\"m\"}},{}}}", fields(n, |n| format!("\"u{n}\":0")))) } },
    Shape { name: "fields that stand twice", items: 10_000, before: nothing, request: |n| {
        post(MAPS, format!("{{\"metadata\":{{\"name\":\"m\"}},\"data\":{{{}}}}}", fields(n, |n| format!("\"u{n}\":\"\",\"u{n}\":\"\"")))) } },
    Shape { name: "unknown fields and fields that stand twice", items: 10_000, before: nothing, request: |n| {
        post(MAPS, format!("{{\"metadata\":{{\"name\":\"m\"}},{}}}", fields(n, |n| format!("\"u{n}\":0,\"u{n}\":0")))) } },
    Shape { name: "unknown fields of a custom resource", items: 20_000, before: nothing, request: |n| {
        post(GADGETS, gadget((0..n).map(|n| (format!("u{n}"), json!(0))).collect())) } },
    Shape { name: "unknown fields below a long key", items: 20_000, before: nothing, request: |n| {
        post(PODS, pod(json!({"x".repeat(5 * n): (0..n).map(|n| (format!("u{n}"), json!(0))).collect::<Value>()}))) } },
    Shape { name: "labels", items: 10_000, before: nothing, request: |n| {
        post(MAPS, map(json!({"labels": (0..n).map(|n| (format!("l{n}"), json!("v"))).collect::<Value>()}))) } },
    Shape { name: "bad labels", items: 5_000, before: nothing, request: |n| {
        post(MAPS, map(json!({"labels": (0..n).map(|n| (format!("bad {n}"), json!("bad v"))).collect::<Value>()}))) } },
    Shape { name: "annotations", items: 5_000, before: nothing, request: |n| {
        post(MAPS, map(json!({"annotations": (0..n).map(|n| (format!("l{n}"), json!("v"))).collect::<Value>()}))) } },
    Shape { name: "finalizers", items: 10_000, before: nothing, request: |n| post(MAPS, map(json!({"finalizers": finalizers(n)}))) },
    Shape { name: "owners", items: 4_000, before: nothing, request: |n| post(MAPS, owners(n, |n| n)) },
    Shape { name: "owners that stand twice", items: 4_000, before: nothing, request: |n| post(MAPS, owners(n, |n| n / 2)) },
    Shape { name: "managers", items: 1_000, before: nothing, request: |n| post(MAPS, map(json!({"managedFields": managers(n)}))) },
    Shape { name: "keys of a map", items: 20_000, before: nothing, request: |n| {
        post(MAPS, json!({"metadata": {"name": "m"}, "data": (0..n).map(|n| (format!("k{n}"), json!("v"))).collect::<Value>()})) } },
    Shape { name: "containers", items: 300, before: nothing, request: |n| post(PODS, pod(json!({"containers": containers(n)}))) },
    Shape { name: "init containers", items: 300, before: nothing, request: |n| post(PODS, pod(json!({"initContainers": containers(n)}))) },
    Shape { name: "variables", items: 4_000, before: nothing, request: |n| {
        post(PODS, pod(json!({"containers": [{"name": "c", "image": "i", "env": list(n, |n| json!({"name": format!("N{n}"), "value": "v"}))}]}))) } },
    Shape { name: "variables that hide others", items: 4_000, before: nothing, request: |n| {
        post(PODS, pod(json!({"containers": [{"name": "c", "image": "i", "env": list(n, |n| json!({"name": format!("N{}", n / 2), "value": "v"}))}]}))) } },
    Shape { name: "ports", items: 2_000, before: nothing, request: |n| {
        post(PODS, pod(json!({"containers": [{"name": "c", "image": "i", "ports": list(n, |n| json!({"containerPort": n + 1, "hostPort": n + 1}))}]}))) } },
    Shape { name: "volumes and their mounts", items: 1_000, before: nothing, request: |n| {
        post(PODS, pod(json!({"volumes": list(n, |n| json!({"name": format!("v{n}"), "emptyDir": {}})),
            "containers": [{"name": "c", "image": "i", "volumeMounts": list(n, |n| json!({"name": format!("v{n}"), "mountPath": format!("/v{n}")}))}]}))) } },
    Shape { name: "secrets to pull with", items: 4_000, before: nothing, request: |n| {
        post(PODS, pod(json!({"imagePullSecrets": list(n, |n| json!({"name": format!("s{}", n / 2)}))}))) } },
    Shape { name: "tolerations", items: 2_000, before: nothing, request: |n| {
        post(PODS, pod(json!({"tolerations": list(n, |n| json!({"key": format!("k{n}"), "operator": "Exists"}))}))) } },
    Shape { name: "spread constraints", items: 1_000, before: nothing, request: |n| {
        post(PODS, pod(json!({"topologySpreadConstraints": list(n, |n| json!({"maxSkew": 1, "topologyKey": format!("k{n}"), "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}))}))) } },
    Shape { name: "gates", items: 2_000, before: nothing, request: |n| post(PODS, pod(json!({"schedulingGates": list(n, |n| json!({"name": format!("g{n}")}))}))) },
    Shape { name: "host aliases", items: 2_000, before: nothing, request: |n| {
        post(PODS, pod(json!({"hostAliases": list(n, |n| json!({"ip": format!("10.0.{}.{}", n / 250, n % 250)}))}))) } },
    Shape { name: "ports of a service", items: 1_000, before: nothing, request: |n| {
        post(SERVICES, json!({"metadata": {"name": "s"}, "spec": {"ports": list(n, |n| json!({"name": format!("n{n}"), "port": n + 1}))}})) } },
    Shape { name: "ports without node ports", items: 2_000, before: nothing, request: |n| post(SERVICES, balancer(n)) },
    Shape { name: "another field of a service with ports", items: 2_000, before: |n| Some((SERVICES, balancer(n))), request: |n| {
        patch("/api/v1/namespaces/default/services/s", STRATEGIC, json!({"metadata": {"labels": {"n": n.to_string()}}})) } },
    Shape { name: "another field of a pod with gates", items: 2_000, before: |n| Some((PODS, pod(json!({"schedulingGates": list(n, |n| json!({"name": format!("x.io/g{n}")}))})))), request: |n| {
        patch("/api/v1/namespaces/default/pods/p", STRATEGIC, json!({"metadata": {"labels": {"n": n.to_string()}}})) } },
    Shape { name: "requirements of a selector", items: 2_000, before: nothing, request: |n| {
        let expressions = list(n, |n| json!({"key": format!("k{n}"), "operator": "In", "values": ["v"]}));
        post("/apis/policy/v1/namespaces/default/poddisruptionbudgets", json!({"metadata": {"name": "b"}, "spec": {"selector": {"matchExpressions": expressions}}})) } },
    Shape { name: "rules of a role", items: 4_000, before: nothing, request: |n| {
        let rule = |n| json!({"apiGroups": [""], "resources": [format!("r{n}")], "verbs": ["get"]});
        post("/apis/rbac.authorization.k8s.io/v1/clusterroles", json!({"metadata": {"name": "r"}, "rules": list(n, rule)})) } },
    Shape { name: "webhooks", items: 500, before: nothing, request: |n| {
        let hook = |n| json!({"name": format!("h{n}.x.io"), "sideEffects": "None", "admissionReviewVersions": ["v1"], "clientConfig": {"url": "https://h/"}});
        post("/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", json!({"metadata": {"name": "h"}, "webhooks": list(n, hook)})) } },
    Shape { name: "properties of a CRD", items: 1_000, before: nothing, request: |n| {
        post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd((0..n).map(|n| (format!("p{n}"), json!({"type": "string", "pattern": "^a+$"}))).collect())) } },
    Shape { name: "items of a list of type map", items: 4_000, before: nothing, request: |n| post(GADGETS, gadget(json!({"keyed": keyed(n, "v")}))) },
    Shape { name: "changed items of a list of type map", items: 2_000, before: |n| Some((GADGETS, gadget(json!({"keyed": keyed(n, "v")})))), request: |n| {
        patch("/apis/x.io/v1/namespaces/default/gadgets/g", "application/merge-patch+json", json!({"spec": {"keyed": keyed(n, "w")}})) } },
    Shape { name: "applied items of a list of type map", items: 1_500, before: |n| Some((GADGETS, gadget(json!({"keyed": keyed(n, "v")})))), request: |n| {
        patch("/apis/x.io/v1/namespaces/default/gadgets/g", APPLY, gadget(json!({"keyed": keyed(n, "w")}))) } },
    Shape { name: "items of a set", items: 8_000, before: nothing, request: |n| post(GADGETS, gadget(json!({"set": list(n, |n| json!(format!("s{n}")))}))) },
    Shape { name: "mistakes in a custom resource", items: 5_000, before: nothing, request: |n| post(GADGETS, gadget(json!({"set": list(n, |n| json!(n))}))) },
    Shape { name: "operations of a JSON patch", items: 4_000, before: |_| Some((MAPS, map(json!({})))), request: |n| {
        let op = |n| json!({"op": "add", "path": format!("/data/k{n}"), "value": "v"});
        patch("/api/v1/namespaces/default/configmaps/m", JSON_PATCH, list(n, op)) } },
    Shape { name: "operations of a JSON patch on a list", items: 4_000, before: |n| Some((MAPS, map(json!({"finalizers": finalizers(n)})))), request: |n| {
        patch("/api/v1/namespaces/default/configmaps/m", JSON_PATCH, list(n, |_| json!({"op": "remove", "path": "/metadata/finalizers/0"}))) } },
    Shape { name: "strategic patch of a list of texts", items: 5_000, before: |n| Some((MAPS, map(json!({"finalizers": finalizers(n)})))), request: |n| {
        patch("/api/v1/namespaces/default/configmaps/m", STRATEGIC, json!({"metadata": {"finalizers": finalizers(n)}})) } },
    Shape { name: "strategic patch that takes texts out", items: 5_000, before: |n| Some((MAPS, map(json!({"finalizers": finalizers(n)})))), request: |n| {
        patch("/api/v1/namespaces/default/configmaps/m", STRATEGIC, json!({"metadata": {"$deleteFromPrimitiveList/finalizers": finalizers(n)}})) } },
    Shape { name: "strategic patch of a list of type map", items: 300, before: |n| Some((PODS, pod(json!({"containers": containers(n)})))), request: |n| {
        let items = list(n, |n| json!({"name": format!("c{n}"), "image": "j"}));
        patch("/api/v1/namespaces/default/pods/p", STRATEGIC, json!({"spec": {"containers": items, "$setElementOrder/containers": list(n, |n| json!({"name": format!("c{n}")}))}})) } },
];

/// Pods that a policy of Pod Security warns of.
#[rustfmt::skip]
const WARNED_OF: &[Shape] = &[
    Shape { name: "containers that violate Pod Security", items: 1_000, before: nothing, request: |n| post(WARNED, pod(json!({"containers": containers(n)}))) },
    Shape { name: "capabilities that violate Pod Security", items: 5_000, before: nothing, request: |n| {
        let security = json!({"capabilities": {"add": texts(n, "C")}, "seLinuxOptions": {"type": "x"}});
        post(WARNED, pod(json!({"containers": [{"name": "c", "image": "i", "securityContext": security}]}))) } },
    Shape { name: "volumes that violate Pod Security", items: 2_000, before: nothing, request: |n| {
        post(WARNED, pod(json!({"volumes": list(n, |n| json!({"name": format!("v{n}"), "hostPath": {"path": "/x"}}))}))) } },
    Shape { name: "profiles of containers that violate Pod Security", items: 1_000, before: nothing, request: |n| {
        let mut pod = pod(json!({"containers": containers(n)}));
        let key = |n| format!("container.apparmor.security.beta.kubernetes.io/c{n}");
        pod["metadata"]["annotations"] = (0..n).map(|n| (key(n), json!("unconfined"))).collect();
        post(WARNED, pod) } },
    Shape { name: "containers that an update compares for Pod Security", items: 500, before: |n| Some((WARNED, pod(json!({"containers": containers(n)})))), request: |n| {
        let items = list(n, |n| json!({"name": format!("c{n}"), "image": if n == 0 { "j" } else { "i" }}));
        patch("/api/v1/namespaces/warned/pods/p", STRATEGIC, json!({"spec": {"containers": items}})) } },
];

const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";

fn role(rules: Value) -> Value {
    json!({"metadata": {"name": "r"}, "rules": rules})
}

fn texts(count: usize, prefix: &str) -> Value {
    list(count, |n| json!(format!("{prefix}{n}")))
}

/// Requests of an ordinary user: administrators skip the escalation check.
#[rustfmt::skip]
const ORDINARY: &[Shape] = &[
    Shape { name: "rules of a role that the user holds", items: 4_000, before: nothing, request: |n| {
        post(ROLES, role(list(n, |n| json!({"apiGroups": [""], "resources": [format!("r{n}")], "verbs": ["get"]})))) } },
    Shape { name: "rules of a role that the user does not hold", items: 4_000, before: nothing, request: |n| {
        post(ROLES, role(list(n, |n| json!({"apiGroups": ["x"], "resources": [format!("r{n}")], "verbs": ["get"]})))) } },
    Shape { name: "resources of a rule that the user holds", items: 10_000, before: nothing, request: |n| {
        post(ROLES, role(json!([{"apiGroups": [""], "resources": texts(n, "r"), "verbs": ["get"]}]))) } },
    Shape { name: "names of a rule that the user does not hold", items: 10_000, before: nothing, request: |n| {
        post(ROLES, role(json!([{"apiGroups": ["x"], "resources": ["r"], "resourceNames": texts(n, "n"), "verbs": ["get"]}]))) } },
    Shape { name: "all lists of a rule that the user does not hold", items: 2_000, before: nothing, request: |n| {
        post(ROLES, role(json!([{"apiGroups": texts(n, "g"), "resources": texts(n, "r"), "resourceNames": texts(n, "n"), "verbs": texts(n, "v")}]))) } },
    Shape { name: "subjects of a binding", items: 4_000, before: nothing, request: |n| {
        let subject = |n| json!({"kind": "ServiceAccount", "name": format!("x{n}"), "namespace": "default"});
        post(BINDINGS, json!({"metadata": {"name": "b"}, "subjects": list(n, subject),
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "held"}})) } },
];

/// Returns the CPU time of this thread.
fn cpu() -> Duration {
    // The kernel updates the counter when a thread yields, otherwise every few milliseconds.
    std::thread::yield_now();
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(stat.split(' ').next().unwrap().parse().unwrap())
}

async fn server() -> Server {
    let server = Server::new(Options::simulated(Clock::system(), 1));
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "keyed": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "items": {
            "type": "object", "required": ["name"], "properties": {"name": {"type": "string"}, "value": {"type": "string"}}}},
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
    }}}});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
    let crd = json!({"metadata": {"name": "gadgets.x.io"}, "spec": {"group": "x.io", "scope": "Namespaced",
        "names": {"plural": "gadgets", "kind": "Gadget"}, "versions": [version]}});
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(send(&server, Method::POST, path, JSON, crd.to_string()).await.0, 201);
    let labels = json!({"pod-security.kubernetes.io/warn": "restricted"});
    let warned = json!({"metadata": {"name": "warned", "labels": labels}}).to_string();
    assert_eq!(send(&server, Method::POST, "/api/v1/namespaces", JSON, warned).await.0, 201);
    for namespace in ["default", "warned"] {
        let account = json!({"metadata": {"name": "default"}}).to_string();
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
        send(&server, Method::POST, &path, JSON, account).await;
    }
    let all = |group: &str| json!({"apiGroups": [group], "resources": ["*"], "verbs": ["get", "create"]});
    let held = json!({"metadata": {"name": "held"}, "rules": [all(""), all("rbac.authorization.k8s.io")]});
    let binding = json!({"metadata": {"name": "held"}, "subjects": [{"kind": "User", "name": "ann"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "held"}});
    for (path, object) in [(ROLES, held), (BINDINGS, binding)] {
        assert_eq!(send(&server, Method::POST, path, JSON, object.to_string()).await.0, 201);
    }
    server
}

/// Returns the minimum CPU time of a user's request with a number of items.
async fn cost(shape: &Shape, items: usize, user: &User) -> Duration {
    let server = server().await;
    if let Some((path, object)) = (shape.before)(items) {
        let (code, response, _) = send(&server, Method::POST, path, JSON, object.to_string()).await;
        assert_eq!(code, 201, "{}: {response:.300}", shape.name);
    }
    let (method, path, content_type, body) = (shape.request)(items);
    let path = format!("{path}?dryRun=All&fieldManager=m&force=true");
    let path = if content_type == APPLY { path } else { path.replace("&force=true", "") };
    let mut least = Duration::MAX;
    for _ in 0..4 {
        let start = cpu();
        let (code, response, _) =
            send_as(&server, user.clone(), method.clone(), &path, content_type, body.clone()).await;
        least = least.min(cpu() - start);
        let refused = response["message"].as_str().is_some_and(|message| message.contains("currently held"));
        assert!(code < 300 || code == 422 || code == 413 || refused, "{}: {code} {response:.300}", shape.name);
    }
    least
}

/// Measures a request; returns the error if it is too slow.
#[expect(clippy::print_stdout, reason = "figures of a measurement")]
async fn judge(shape: &Shape, user: &User) -> Option<String> {
    // Other load adds to a measurement: the least ones count.
    let (mut once, mut twice, mut ratio) = (Duration::MAX, Duration::MAX, f64::INFINITY);
    for _ in 0..8 {
        once = once.min(cost(shape, shape.items, user).await);
        twice = twice.min(cost(shape, 2 * shape.items, user).await);
        ratio = twice.as_secs_f64() / once.as_secs_f64();
        if ratio <= RATIO {
            break;
        }
    }
    let line = format!("{}: {once:?} for {}, {twice:?} for twice as many: {ratio:.2}", shape.name, shape.items);
    println!("{line}");
    (ratio > RATIO).then_some(line)
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn requests_take_linear_time() {
    let _alone = ALONE.lock().await;
    let (admin, ann) = (User::new("admin", &["system:masters"]), User::new("ann", &[]));
    let of_admin = SHAPES.iter().chain(WARNED_OF);
    let shapes = of_admin.map(|shape| (shape, &admin)).chain(ORDINARY.iter().map(|shape| (shape, &ann)));
    let (mut remaining, mut errors) = (Vec::from_iter(shapes), Vec::new());
    for _ in 0..ROUNDS {
        errors.clear();
        for (shape, user) in std::mem::take(&mut remaining) {
            if let Some(error) = judge(shape, user).await {
                errors.push(error);
                remaining.push((shape, user));
            }
        }
    }
    assert!(errors.is_empty(), "{errors:#?}");
}

/// Returns the CPU time of creating a definition, when 150 and when 300 exist.
async fn cost_of_definitions() -> [Duration; 2] {
    let server = server().await;
    let create = async |number: usize| {
        let (group, plural) = (format!("g{number}.y.io"), format!("things{number}"));
        let mut object = crd(json!({"text": {"type": "string"}}));
        object["metadata"]["name"] = format!("{plural}.{group}").into();
        object["spec"]["group"] = group.into();
        object["spec"]["names"] = json!({"plural": plural, "kind": format!("Thing{number}")});
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let start = cpu();
        assert_eq!(send(&server, Method::POST, path, JSON, object.to_string()).await.0, 201);
        cpu() - start
    };
    let mut least = [Duration::MAX; 2];
    for (range, least) in [0..150, 150..300].into_iter().zip(&mut least) {
        let mut costs = Vec::new();
        for number in range {
            costs.push(create(number).await);
        }
        *least = costs[costs.len() - 40..].iter().min().copied().unwrap();
    }
    least
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn definitions_take_linear_time() {
    let _alone = ALONE.lock().await;
    // More memory is slower; with quadratic time, the ratio would be 4.
    let mut ratio = f64::INFINITY;
    for _ in 0..ROUNDS {
        let least = cost_of_definitions().await;
        ratio = least[1].as_secs_f64() / least[0].as_secs_f64();
        println!("{least:?} for the last of 150 and of 300: {ratio:.2}");
        if ratio <= 3.2 {
            break;
        }
    }
    assert!(ratio <= 3.2, "ratio of the last of 300 and of 150 definitions: {ratio:.2}");
}
