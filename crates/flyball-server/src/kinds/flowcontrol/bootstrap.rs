//! The flow schemas and priority levels of every new cluster.
//!
//! Two of each are mandatory and may not change. See
//! <https://kubernetes.io/docs/concepts/cluster-administration/flow-control/#defaults>.

use serde_json::{Value, json};

const USERS: [&str; 2] = ["system:unauthenticated", "system:authenticated"];

/// A limit: shares, lendable percentage, and queues with hand size, if any.
type Limit = (&'static str, i64, i64, Option<(i64, i64)>);

const LEVELS: [Limit; 7] = [
    ("catch-all", 5, 0, None),
    ("system", 30, 33, Some((64, 6))),
    ("node-high", 40, 25, Some((64, 6))),
    ("leader-election", 10, 0, Some((16, 4))),
    ("workload-high", 40, 50, Some((128, 6))),
    ("workload-low", 100, 90, Some((128, 6))),
    ("global-default", 20, 50, Some((128, 6))),
];

/// Returns the priority levels.
pub(super) fn levels() -> impl Iterator<Item = Value> {
    let exempt = object("exempt", exempt_level(), json!({}));
    std::iter::once(exempt).chain(LEVELS.iter().map(|limit| object(limit.0, limited(limit), json!({}))))
}

/// Returns the flow schemas.
pub(super) fn flow_schemas() -> impl Iterator<Item = Value> {
    schemas().into_iter().map(|(name, spec)| {
        let level = spec["priorityLevelConfiguration"]["name"].as_str().unwrap_or_default();
        let message =
            format!("This FlowSchema references the PriorityLevelConfiguration object named \"{level}\" and it exists");
        // The time of the server's start.
        let condition = json!({
            "type": "Dangling", "status": "False", "reason": "Found", "message": message,
            "lastTransitionTime": "1970-01-01T00:00:00Z",
        });
        object(name, spec, json!({"conditions": [condition]}))
    })
}

/// Returns the required spec of a flow schema, if it is mandatory.
pub(super) fn mandatory_schema(name: &str) -> Option<Value> {
    let is_mandatory = matches!(name, "exempt" | "catch-all");
    schemas().into_iter().find(|(known, _)| is_mandatory && *known == name).map(|(_, spec)| spec)
}

/// Returns the required spec of a priority level, if it is mandatory.
pub(super) fn mandatory_level(name: &str) -> Option<Value> {
    match name {
        "exempt" => Some(exempt_level()),
        "catch-all" => Some(limited(&LEVELS[0])),
        _ => None,
    }
}

fn object(name: &str, spec: Value, status: Value) -> Value {
    let annotations = json!({"apf.kubernetes.io/autoupdate-spec": "true"});
    json!({"metadata": {"name": name, "annotations": annotations}, "spec": spec, "status": status})
}

fn exempt_level() -> Value {
    json!({"type": "Exempt", "exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0}})
}

fn limited((_, shares, lendable, queues): &Limit) -> Value {
    let response = match queues {
        Some((queues, hand)) => {
            json!({"type": "Queue", "queuing": {"queues": queues, "handSize": hand, "queueLengthLimit": 50}})
        }
        None => json!({"type": "Reject"}),
    };
    let limited = json!({"nominalConcurrencyShares": shares, "lendablePercent": lendable, "limitResponse": response});
    json!({"type": "Limited", "limited": limited})
}

fn groups(names: &[&str]) -> Value {
    names.iter().map(|name| json!({"kind": "Group", "group": {"name": name}})).collect()
}

fn users(names: &[&str], accounts: &[&str]) -> Value {
    let users = names.iter().map(|name| json!({"kind": "User", "user": {"name": name}}));
    let account =
        |name| json!({"kind": "ServiceAccount", "serviceAccount": {"namespace": "kube-system", "name": name}});
    users.chain(accounts.iter().map(account)).collect()
}

fn on(verbs: &[&str], group: &str, resources: &[&str], cluster: bool) -> Value {
    let mut rule = json!({"verbs": verbs, "apiGroups": [group], "resources": resources, "namespaces": ["*"]});
    if cluster {
        rule["clusterScope"] = true.into();
    }
    rule
}

/// A rule that matches all requests of these subjects.
fn everything(subjects: Value) -> Value {
    let paths = json!([{"verbs": ["*"], "nonResourceURLs": ["*"]}]);
    json!({"subjects": subjects, "resourceRules": [on(&["*"], "*", &["*"], true)], "nonResourceRules": paths})
}

fn some(subjects: Value, rules: &[Value]) -> Value {
    json!({"subjects": subjects, "resourceRules": rules})
}

fn schemas() -> Vec<(&'static str, Value)> {
    const WRITE: &[&str] = &["get", "create", "update"];
    let (manager, scheduler) = ("system:kube-controller-manager", "system:kube-scheduler");
    let leases = || on(WRITE, "coordination.k8s.io", &["leases"], false);
    let nodes =
        [on(&["*"], "", &["nodes", "nodes/status"], true), on(&["*"], "coordination.k8s.io", &["leases"], false)];
    let probes = json!({
        "subjects": groups(&USERS),
        "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/healthz", "/readyz", "/livez"]}],
    });
    let endpoints = users(&[manager], &["endpoint-controller", "endpointslicemirroring-controller"]);
    let list = [
        ("exempt", "exempt", 1, "", everything(groups(&["system:masters"]))),
        ("catch-all", "catch-all", 10_000, "ByUser", everything(groups(&USERS))),
        ("system-nodes", "system", 500, "ByUser", everything(groups(&["system:nodes"]))),
        ("system-node-high", "node-high", 400, "ByUser", some(groups(&["system:nodes"]), &nodes)),
        ("probes", "exempt", 2, "", probes),
        (
            "system-leader-election",
            "leader-election",
            100,
            "ByUser",
            some(users(&[manager, scheduler], &["*"]), &[leases()]),
        ),
        (
            "endpoint-controller",
            "workload-high",
            150,
            "ByUser",
            some(endpoints, &[on(WRITE, "", &["endpoints"], false)]),
        ),
        ("workload-leader-election", "leader-election", 200, "ByUser", some(users(&[], &["*"]), &[leases()])),
        ("kube-controller-manager", "workload-high", 800, "ByNamespace", everything(users(&[manager], &[]))),
        ("kube-scheduler", "workload-high", 800, "ByNamespace", everything(users(&[scheduler], &[]))),
        ("kube-system-service-accounts", "workload-high", 900, "ByNamespace", everything(users(&[], &["*"]))),
        ("service-accounts", "workload-low", 9000, "ByUser", everything(groups(&["system:serviceaccounts"]))),
        ("global-default", "global-default", 9900, "ByUser", everything(groups(&USERS))),
    ];
    let spec = |(name, level, precedence, method, rule): (&'static str, &str, i64, &str, Value)| {
        let mut spec =
            json!({"priorityLevelConfiguration": {"name": level}, "matchingPrecedence": precedence, "rules": [rule]});
        if !method.is_empty() {
            spec["distinguisherMethod"] = json!({"type": method});
        }
        (name, spec)
    };
    list.into_iter().map(spec).collect()
}
