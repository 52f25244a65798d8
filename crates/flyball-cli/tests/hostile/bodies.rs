//! Requests that are dear: bodies, patches and queries.

use crate::target::Target;
use hyper::body::Bytes;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// Number of concurrent senders.
const SENDERS: usize = 4;

const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
const MAPS: &str = "/api/v1/namespaces/play/configmaps";
const TOYS: &str = "/apis/example.com/v1/namespaces/play/toys";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/play/deployments";

const PODS: &str = "/api/v1/namespaces/play/pods";
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/play/roles";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/play/rolebindings";

const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const YAML: &str = "application/yaml";
const JSON_PATCH: &str = "application/json-patch+json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

struct Sent {
    name: &'static str,
    method: &'static str,
    path: String,
    media: &'static str,
    body: Bytes,
}

fn sent(name: &'static str, method: &'static str, path: &str, media: &'static str, body: impl Into<Bytes>) -> Sent {
    Sent { name, method, path: path.into(), media, body: body.into() }
}

/// Creates an object with a number of fields.
fn object(count: usize, field: impl Fn(usize) -> String) -> String {
    let fields: Vec<String> = (0..count).map(field).collect();
    format!("{{{}}}", fields.join(","))
}

fn nested(depth: usize, open: &str, middle: &str, close: &str) -> String {
    open.repeat(depth) + middle + &close.repeat(depth)
}

/// Bodies for objects of any kind.
fn objects(path: &str) -> Vec<Sent> {
    let unknown = |count| object(count, |n| format!("\"k{n}\":1"));
    let in_spec = |spec: &str| format!("{{\"metadata\":{{\"generateName\":\"h-\"}},\"spec\":{spec}}}");
    let metadata = |rest: &str| format!("{{\"metadata\":{{\"generateName\":\"h-\",{rest}}}}}");
    let strict = format!("{path}?fieldValidation=Strict");
    vec![
        sent("unknown keys", "POST", path, JSON, unknown(16_000)),
        sent("unknown keys, many", "POST", path, JSON, unknown(150_000)),
        sent("unknown keys, strictly", "POST", &strict, JSON, in_spec(&unknown(60_000))),
        sent("the same key", "POST", &strict, JSON, object(100_000, |_| "\"a\":1".into())),
        sent("deep objects", "POST", path, JSON, in_spec(&nested(120, "{\"a\":", "1", "}"))),
        sent("too deep objects", "POST", path, JSON, nested(400_000, "{\"a\":", "1", "}")),
        sent("too deep lists", "POST", path, JSON, in_spec(&nested(1_000_000, "[", "", "]"))),
        sent("wide lists", "POST", path, JSON, in_spec(&format!("[{}0]", "0,".repeat(700_000)))),
        sent("wide lists of objects", "POST", path, JSON, in_spec(&format!("[{}0]", "{},".repeat(400_000)))),
        sent("escapes", "POST", path, JSON, in_spec(&format!("{{\"a\":\"{}\"}}", "\\u0041".repeat(400_000)))),
        sent("long number", "POST", path, JSON, in_spec(&format!("{{\"a\":{}}}", "9".repeat(1_000_000)))),
        sent(
            "bad labels",
            "POST",
            path,
            JSON,
            metadata(&format!("\"labels\":{}", object(30_000, |n| format!("\"-{n}\":\"-\"")))),
        ),
        sent("owners", "POST", path, JSON, metadata(&format!("\"ownerReferences\":[{}]", owners(8000)))),
        sent("finalizers", "POST", path, JSON, metadata(&format!("\"finalizers\":[{}]", names(60_000)))),
        sent("flow YAML", "POST", path, YAML, nested(100_000, "{a: ", "1", "}")),
        sent("block YAML", "POST", path, YAML, (0..2000).map(|n| " ".repeat(n) + "a:\n").collect::<String>()),
        sent("aliases", "POST", path, YAML, aliases()),
        sent("protobuf", "POST", path, PROTOBUF, "k8s\0".to_owned() + &"\n\u{7f}".repeat(500_000)),
        sent("no end", "POST", path, JSON, in_spec(&"[".repeat(1000))),
    ]
}

fn owners(count: usize) -> String {
    let owner = |n: usize| format!("{{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"name\":\"o{n}\",\"uid\":\"u{n}\"}}");
    (0..count).map(owner).collect::<Vec<_>>().join(",")
}

fn names(count: usize) -> String {
    (0..count).map(|n| format!("\"example.com/f{n}\"")).collect::<Vec<_>>().join(",")
}

fn aliases() -> String {
    let line = |n: usize| format!("a{n}: &a{n} [{}]\n", vec![format!("*a{}", n - 1); 10].join(","));
    "a0: &a0 [x,x,x,x]\n".to_owned() + &(1..12).map(line).collect::<String>()
}

/// Texts that are slow to match with a pattern of the definition: see `PATTERN` in `server.rs`.
fn texts() -> Vec<Sent> {
    let toy = |spec: Value| json!({"metadata": {"generateName": "h-"}, "spec": spec}).to_string();
    let of = |length: usize| "a".repeat(length);
    let set = json!({"spec": {"code": of(1_000_000)}}).to_string();
    vec![
        sent("pattern, long text", "POST", TOYS, JSON, toy(json!({"code": of(3_000_000)}))),
        sent("pattern, many texts", "POST", TOYS, JSON, toy(json!({"codes": vec![of(100); 20_000]}))),
        sent("pattern, texts of some length", "POST", TOYS, JSON, toy(json!({"codes": vec![of(10_000); 200]}))),
        sent("pattern, patched", "PATCH", &format!("{TOYS}/mine"), MERGE, set),
    ]
}

/// Small bodies that defaulting makes large.
fn defaults() -> Vec<Sent> {
    let list = |count: usize| format!("[{}{{}}]", "{},".repeat(count - 1));
    let pod =
        |field: &str, count| format!("{{\"metadata\":{{\"name\":\"h\"}},\"spec\":{{\"{field}\":{}}}}}", list(count));
    let toy = |count| {
        format!(
            "{{\"apiVersion\":\"example.com/v1\",\"kind\":\"Toy\",\"metadata\":{{\"generateName\":\"h-\"}},\"filled\":{}}}",
            list(count)
        )
    };
    let mut all = Vec::new();
    for count in [30_000, 70_000, 200_000] {
        all.extend([
            sent("defaults, containers", "POST", PODS, JSON, pod("containers", count)),
            sent("defaults, volumes", "POST", PODS, JSON, pod("volumes", count)),
            sent("defaults, of a definition", "POST", TOYS, JSON, toy(count)),
            sent("defaults, applied", "PATCH", &format!("{TOYS}/mine?fieldManager=m&force=true"), APPLY, toy(count)),
            sent("defaults, protobuf", "POST", PODS, PROTOBUF, protobuf_pod(count)),
        ]);
    }
    all
}

/// A pod with a number of empty containers, as protobuf.
fn protobuf_pod(count: usize) -> Vec<u8> {
    let field = |number: u8, content: &[u8]| {
        let length = content.len();
        let length = [(length % 128) as u8 | 128, (length / 128 % 128) as u8 | 128, (length / 16384) as u8];
        [&[number << 3 | 2][..], &length, content].concat()
    };
    let kind = field(1, &[field(1, b"v1"), field(2, b"Pod")].concat());
    let pod = field(2, &[0x12, 0].repeat(count));
    [b"k8s\0".to_vec(), kind, field(2, &pod)].concat()
}

/// Large roles and bindings: the escalation check covers all of their rules.
fn rights() -> Vec<Sent> {
    let role = |count: usize| {
        let names = |letter: &str| (0..count).map(|n| format!("{letter}{n}")).collect::<Vec<_>>();
        json!({"metadata": {"generateName": "h-"}, "rules": [
            {"apiGroups": names("g"), "resources": names("r"), "verbs": names("v"), "resourceNames": names("n")}]})
    };
    let rules = |count: usize| {
        let rule = |n| json!({"apiGroups": [""], "resources": [format!("r{n}")], "verbs": ["get"]});
        json!({"metadata": {"generateName": "h-"}, "rules": (0..count).map(rule).collect::<Vec<_>>()})
    };
    let binding = |name: Value, count: usize| {
        let subject = |n| json!({"kind": "ServiceAccount", "name": format!("x{n}"), "namespace": "play"});
        json!({"metadata": name, "subjects": (0..count).map(subject).collect::<Vec<_>>(),
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "dev"}})
    };
    let relabeled = json!({"metadata": {"labels": {"a": "b"}}}).to_string();
    let mut all: Vec<Sent> =
        [20, 60, 200, 2000].map(|count| sent("rights, product", "POST", ROLES, JSON, role(count).to_string())).into();
    all.extend([
        sent("rights, rules", "POST", ROLES, JSON, rules(20_000).to_string()),
        sent("rights, subjects", "POST", BINDINGS, JSON, binding(json!({"name": "many"}), 20_000).to_string()),
        sent(
            "rights, other subjects",
            "PUT",
            &format!("{BINDINGS}/many"),
            JSON,
            binding(json!({"name": "many"}), 19_000).to_string(),
        ),
        sent("rights, labels", "PATCH", &format!("{BINDINGS}/many"), MERGE, relabeled),
        sent(
            "rights, asked",
            "POST",
            REVIEWS,
            JSON,
            json!({"spec": {"resourceAttributes": {
            "namespace": "play", "verb": "get", "resource": "secrets", "group": "x"}}})
            .to_string(),
        ),
        sent(
            "rights, more subjects",
            "POST",
            BINDINGS,
            JSON,
            binding(json!({"generateName": "h-"}), 5_000).to_string(),
        ),
        sent("rights, no roles", "DELETE", &format!("{ROLES}?labelSelector=!keep"), JSON, ""),
        sent("rights, taken back", "DELETE", &format!("{BINDINGS}?labelSelector=!keep"), JSON, ""),
    ]);
    all
}

/// Selectors whose requirements all objects meet, so that all are evaluated.
fn selectors(path: &str) -> Vec<Sent> {
    let absent: Vec<String> = (0..9000).map(|n| format!("!k{n:x}")).collect();
    let other: Vec<String> = (0..2500).map(|n| format!("a%20notin%20(k{n:x})")).collect();
    let names: Vec<String> = (0..2500).map(|n| format!("metadata.name!=k{n:x}")).collect();
    let mut all = Vec::new();
    for selector in [
        format!("labelSelector={}", absent.join(",")),
        format!("labelSelector={}", other.join(",")),
        format!("fieldSelector={}", names.join(",")),
    ] {
        all.push(sent("selector, list", "GET", &format!("{path}?{selector}"), JSON, ""));
        let watch = format!("{path}?{selector}&watch=1&resourceVersion=1&timeoutSeconds=1");
        all.push(sent("selector, watch", "GET", &watch, JSON, ""));
        all.push(sent("selector, deletion", "DELETE", &format!("{path}?{selector}&dryRun=All"), JSON, ""));
    }
    all
}

/// Reads and other requests.
fn queries(path: &str) -> Vec<Sent> {
    let get = |name, query: String| sent(name, "GET", &format!("{path}?{query}"), JSON, "");
    vec![
        get("label selector", format!("labelSelector={}", "a%20in%20(b),".repeat(3000))),
        get("label selector, brackets", format!("labelSelector={}", "(".repeat(50_000))),
        get("field selector", format!("fieldSelector={}", "metadata.name=a,".repeat(3500))),
        get("continue", format!("continue={}", "QUFB".repeat(14_000))),
        get("options", "dryRun=All&".repeat(5000)),
        get("future version", "resourceVersion=99999999".into()),
        get("past version", "resourceVersion=1&resourceVersionMatch=Exact".into()),
        get("numbers", "limit=9223372036854775807&resourceVersion=18446744073709551615".into()),
    ]
}

/// Patches of one object.
fn patches() -> Vec<Sent> {
    let (map, toy, app) = (format!("{MAPS}/mine"), format!("{TOYS}/mine"), format!("{DEPLOYMENTS}/mine"));
    let pointer = |op: &str, length: usize| json!([{"op": op, "path": "/a".repeat(length), "from": "/a".repeat(length), "value": null}]);
    let mut bomb = vec![json!({"op": "add", "path": "/spec", "value": {"a": vec!["x"; 10]}})];
    bomb.extend((0..40).map(|n| json!({"op": "copy", "from": "/spec", "path": format!("/spec/b{n}")})));
    let appends: Vec<Value> = (0..9000).map(|_| json!({"op": "add", "path": "/spec/a/-", "value": 1})).collect();
    let container =
        |n: usize| json!({"name": format!("c{n}"), "image": "i", "env": [{"name": format!("E{n}"), "value": "v"}]});
    let containers: Vec<Value> = (0..8000).map(container).collect();
    let volumes: Vec<Value> = (0..8000).map(|n| json!({"$patch": "delete", "name": format!("v{n}")})).collect();
    let template = |field: &str, value: Value| json!({"spec": {"template": {"spec": {field: value}}}}).to_string();
    let mut all: Vec<Sent> = ["test", "add", "copy", "move", "remove", "replace"]
        .into_iter()
        .flat_map(|op| {
            [100, 20_000, 200_000]
                .map(|length| sent("pointer", "PATCH", &toy, JSON_PATCH, pointer(op, length).to_string()))
        })
        .collect();
    all.extend([
        sent("copies", "PATCH", &toy, JSON_PATCH, Value::from(bomb).to_string()),
        sent("operations", "PATCH", &toy, JSON_PATCH, Value::from(appends).to_string()),
        sent("merge, deep", "PATCH", &toy, MERGE, nested(400_000, "{\"a\":", "1", "}")),
        sent(
            "merge, wide",
            "PATCH",
            &toy,
            MERGE,
            format!("{{\"spec\":{}}}", object(100_000, |n| format!("\"k{n}\":{{}}"))),
        ),
        sent("strategic, many", "PATCH", &app, STRATEGIC, template("containers", containers.into())),
        sent("strategic, deletions", "PATCH", &app, STRATEGIC, template("volumes", volumes.into())),
        sent(
            "strategic, orders",
            "PATCH",
            &app,
            STRATEGIC,
            template(
                "$setElementOrder/containers",
                (0..50_000).map(|n| json!({"name": n.to_string()})).collect::<Vec<_>>().into(),
            ),
        ),
        sent(
            "annotations",
            "PATCH",
            &map,
            MERGE,
            json!({"metadata": {"annotations": {"a": "x".repeat(400_000)}}}).to_string(),
        ),
        sent(
            "apply, wide",
            "PATCH",
            &format!("{toy}?fieldManager=m&force=true"),
            APPLY,
            format!(
                "{{\"apiVersion\":\"example.com/v1\",\"kind\":\"Toy\",\"metadata\":{{\"name\":\"mine\"}},\"spec\":{}}}",
                object(20_000, |n| format!("\"k{n}\":1"))
            ),
        ),
        sent(
            "apply, deep",
            "PATCH",
            &format!("{toy}?fieldManager=m&force=true"),
            APPLY,
            format!(
                "{{\"apiVersion\":\"example.com/v1\",\"kind\":\"Toy\",\"metadata\":{{\"name\":\"mine\"}},\"spec\":{}}}",
                nested(110, "{\"a\":", "1", "}")
            ),
        ),
    ]);
    all
}

/// The targets of patches.
fn own() -> Vec<Sent> {
    let deployment = json!({"metadata": {"name": "mine"}, "spec": {
        "replicas": 0, "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
    }});
    let toy = json!({"apiVersion": "example.com/v1", "kind": "Toy", "metadata": {"name": "mine"}, "spec": {"a": []}});
    vec![
        sent("own map", "POST", MAPS, JSON, json!({"metadata": {"name": "mine"}}).to_string()),
        sent("own toy", "POST", TOYS, JSON, toy.to_string()),
        sent("own deployment", "POST", DEPLOYMENTS, JSON, deployment.to_string()),
        sent("others", "DELETE", &format!("{TOYS}?labelSelector=!keep"), JSON, ""),
    ]
}

fn corpus(account: &str) -> Vec<Sent> {
    let mut all = objects(REVIEWS);
    all.extend(queries("/api/v1/configmaps"));
    all.extend(texts());
    all.extend(selectors(MAPS));
    if account == "nobody" {
        all.extend(objects(MAPS));
        return all;
    }
    all.extend(defaults());
    all.extend(rights());
    for path in [MAPS, TOYS, DEPLOYMENTS] {
        all.extend(own());
        all.extend(objects(path));
        all.extend(queries(path));
        all.extend(patches());
    }
    all
}

/// Sends all of it over and over.
pub(crate) fn begin(target: &Target, only: &str, attacks: &mut JoinSet<()>) {
    let all = || {
        corpus(&target.account).into_iter().filter(|sent| sent.name.starts_with("own") || sent.name.starts_with(only))
    };
    if all().all(|sent| sent.name.starts_with("own")) {
        return;
    }
    for n in 0..SENDERS {
        let target = target.clone();
        // Each begins elsewhere.
        let mut corpus: Vec<Sent> = all().collect();
        let length = corpus.len();
        corpus.rotate_left(n * length / SENDERS);
        attacks.spawn(async move {
            let mut sender = None;
            for sent in corpus.iter().cycle() {
                if sender.is_none() {
                    sender = target.http().await;
                }
                if let Some(open) = &mut sender {
                    let answer = target.send(open, sent.method, &sent.path, sent.media, sent.body.clone()).await;
                    if answer.is_none() {
                        sender = None;
                    }
                }
                sleep(Duration::from_millis(2)).await;
            }
        });
    }
}
