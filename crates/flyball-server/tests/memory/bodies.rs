//! Bodies whose objects take almost as much memory as the limit of an object allows.

use serde_json::{Value, json};

pub(crate) const TOYS: &str = "/apis/example.com/v1/namespaces/default/toys";

/// A body for an object `a`.
pub(crate) struct Sent {
    pub(crate) name: &'static str,
    pub(crate) path: &'static str,
    pub(crate) api_version: &'static str,
    pub(crate) kind: &'static str,
    /// True if the object can be stored.
    pub(crate) is_stored: bool,
    pub(crate) body: String,
}

/// A kind with a free map, a keyed list, a set, and a map of numbers.
pub(crate) fn definition() -> String {
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let text = json!({"type": "string"});
    let item = json!({"type": "object", "required": ["name"], "properties": {"name": text, "value": text}});
    let keyed = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "items": item});
    let set = json!({"type": "array", "x-kubernetes-list-type": "set", "items": text});
    let numbers = json!({"type": "object", "additionalProperties": {"type": "integer"}});
    let schema = json!({"type": "object", "properties": {"spec": any, "keyed": keyed, "set": set, "numbers": numbers}});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
    let names = json!({"plural": "toys", "kind": "Toy"});
    let spec = json!({"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]});
    json!({"metadata": {"name": "toys.example.com"}, "spec": spec}).to_string()
}

fn list(count: usize, item: impl Fn(usize) -> String) -> String {
    format!("[{}]", (0..count).map(item).collect::<Vec<_>>().join(","))
}

fn map(count: usize, entry: impl Fn(usize) -> String) -> String {
    format!("{{{}}}", (0..count).map(entry).collect::<Vec<_>>().join(","))
}

fn toy(name: &'static str, fields: &str) -> Sent {
    sent(name, TOYS, "example.com/v1", "Toy", "", fields)
}

fn sent(
    name: &'static str,
    path: &'static str,
    api_version: &'static str,
    kind: &'static str,
    metadata: &str,
    fields: &str,
) -> Sent {
    let body = format!(
        "{{\"apiVersion\":\"{api_version}\",\"kind\":\"{kind}\",\"metadata\":{{\"name\":\"a\"{metadata}}},{fields}}}"
    );
    Sent { name, path, api_version, kind, is_stored: true, body }
}

fn config_map(name: &'static str, metadata: &str, fields: &str) -> Sent {
    sent(name, "/api/v1/namespaces/default/configmaps", "v1", "ConfigMap", metadata, fields)
}

fn review(name: &'static str, fields: &str) -> Sent {
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let review = sent(name, path, "authorization.k8s.io/v1", "SelfSubjectAccessReview", "", fields);
    Sent { is_stored: false, ..review }
}

fn role(name: &'static str, rules: usize) -> Sent {
    const RBAC: &str = "rbac.authorization.k8s.io/v1";
    let rule = |_| r#"{"apiGroups":[""],"resources":["r"],"verbs":["get"]}"#.to_owned();
    let path = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
    sent(name, path, RBAC, "Role", "", &format!("\"rules\":{}", list(rules, rule)))
}

fn deployment(name: &'static str, containers: usize) -> Sent {
    let container = |n| format!(r#"{{"name":"c{n}","image":"i"}}"#);
    let mut spec: Value = json!({"selector": {"matchLabels": {"a": "b"}}});
    spec["template"] = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": "CONTAINERS"}});
    let spec = spec.to_string().replace("\"CONTAINERS\"", &list(containers, container));
    let path = "/apis/apps/v1/namespaces/default/deployments";
    sent(name, path, "apps/v1", "Deployment", "", &format!("\"spec\":{spec}"))
}

pub(crate) fn all() -> Vec<Sent> {
    let small = |n: usize| format!("\"k{n}\":1");
    let spec = |spec: String| format!("\"spec\":{spec}");
    let ordinary = |n: usize| format!(r#"{{"name":"container-{n}","value":"some value","ports":[1,2,3]}}"#);
    let owner = |n: usize| format!(r#"{{"apiVersion":"v1","kind":"Pod","name":"o{n}","uid":"u{n}"}}"#);
    let bad_label = |n: usize| format!("\"-{n}\":\"-\"");
    vec![
        toy("list of small objects", &spec(format!("{{\"a\":{}}}", list(45_000, |_| "{\"k\":1}".into())))),
        toy("map of small objects", &spec(map(40_000, |n| format!("\"k{n}\":{{\"a\":1}}")))),
        toy("map of few small objects", &spec(map(20_000, |n| format!("\"k{n}\":{{\"a\":1}}")))),
        toy("wide map", &spec(map(200_000, small))),
        toy("half as wide a map", &spec(map(100_000, small))),
        toy("map of numbers", &format!("\"numbers\":{}", map(100_000, small))),
        toy("wide list", &spec(format!("{{\"a\":{}}}", list(700_000, |_| "0".into())))),
        toy("keyed list", &format!("\"keyed\":{}", list(45_000, |n| format!("{{\"name\":\"k{n}\"}}")))),
        toy("short keyed list", &format!("\"keyed\":{}", list(10_000, |n| format!("{{\"name\":\"k{n}\"}}")))),
        toy("set", &format!("\"set\":{}", list(100_000, |n| format!("\"k{n}\"")))),
        toy("text", &spec(format!("{{\"a\":\"{}\"}}", "x".repeat(3_000_000)))),
        toy("ordinary object", &spec(format!("{{\"a\":{}}}", list(20_000, ordinary)))),
        config_map("wide config map", "", &format!("\"data\":{}", map(90_000, |n| format!("\"k{n}\":\"\"")))),
        config_map("owners", &format!(",\"ownerReferences\":{}", list(8000, owner)), "\"data\":{}"),
        config_map("bad owners", &format!(",\"ownerReferences\":{}", list(40_000, |_| "{}".into())), "\"data\":{}"),
        config_map(
            "finalizers",
            &format!(",\"finalizers\":{}", list(60_000, |n| format!("\"example.com/f{n}\""))),
            "\"data\":{}",
        ),
        config_map("bad labels", &format!(",\"labels\":{}", map(30_000, bad_label)), "\"data\":{}"),
        deployment("containers", 12_000),
        role("rules", 30_000),
        review("unknown keys of a review", &spec(map(150_000, small))),
        review("small objects of a review", &spec(format!("{{\"x\":{}}}", list(45_000, |_| "{\"k\":1}".into())))),
    ]
}
