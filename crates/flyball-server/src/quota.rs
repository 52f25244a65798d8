//! Quota usage of objects: the names and amounts that resource quotas count by.
//!
//! Admission adds up with it what a write asks for, and a controller what there is. See
//! <https://kubernetes.io/docs/concepts/policy/resource-quotas/>.

use flyball_core::time::{SignedDuration, Timestamp, parse_rfc3339};
use flyball_core::{GroupResource, Object, Quantity};
use serde_json::Value;
use std::collections::BTreeMap;

/// Amounts by the names that quotas give them, such as `requests.cpu` and `count/secrets`.
pub type Amounts = BTreeMap<String, Quantity>;

/// Names by which quotas count objects from before there was `count/`.
const PLAIN: [&str; 7] =
    ["configmaps", "persistentvolumeclaims", "pods", "replicationcontrollers", "resourcequotas", "secrets", "services"];

/// Returns what an object uses at this time.
pub fn usage(resource: &GroupResource, object: &Object, now: Timestamp) -> Amounts {
    let one = Quantity::from_integer(1);
    let mut used = Amounts::from([(format!("count/{resource}"), one)]);
    let is_core = resource.group.is_empty();
    let plural = &*resource.resource;
    if !is_core || plural == "pods" && !counts(object, now) {
        return used;
    }
    if PLAIN.contains(&plural) {
        used.insert(plural.to_owned(), one);
    }
    match plural {
        "pods" => used.extend(compute(object)),
        "services" => used.extend(service(object)),
        "persistentvolumeclaims" => used.extend(claim(object)),
        _ => {}
    }
    used
}

/// Returns whether a pod uses anything still.
fn counts(pod: &Object, now: Timestamp) -> bool {
    let phase = pod.at(&["status", "phase"]).and_then(Value::as_str);
    let grace = pod.at(&["metadata", "deletionGracePeriodSeconds"]).and_then(Value::as_i64).unwrap_or(0);
    let until = pod.deletion_timestamp().and_then(parse_rfc3339);
    let is_past = until.is_some_and(|until| now.duration_since(until) > SignedDuration::from_secs(grace));
    !matches!(phase, Some("Succeeded" | "Failed")) && !is_past
}

fn compute(pod: &Object) -> Amounts {
    let mut used = Amounts::new();
    let is_standard =
        |name: &str| matches!(name, "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-");
    for (name, amount) in pod_requirements(pod, "requests") {
        if is_standard(&name) {
            used.insert(name.clone(), amount);
        }
        used.insert(format!("requests.{name}"), amount);
    }
    for (name, amount) in pod_requirements(pod, "limits").into_iter().filter(|(name, _)| is_standard(name)) {
        used.insert(format!("limits.{name}"), amount);
    }
    used
}

fn service(service: &Object) -> Amounts {
    let field = |name: &str| service.at(&["spec", name]);
    let ty = field("type").and_then(Value::as_str).unwrap_or_default();
    let ports = field("ports").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let allocates = field("allocateLoadBalancerNodePorts") != Some(&Value::Bool(false));
    let assigned = ports.iter().filter(|port| port["nodePort"].as_i64().unwrap_or(0) != 0).count();
    let (balancers, node_ports) = match ty {
        "NodePort" => (0, ports.len()),
        "LoadBalancer" => (1, if allocates { ports.len() } else { assigned }),
        _ => (0, 0),
    };
    let amount = |count: usize| Quantity::from_integer(i64::try_from(count).unwrap_or(i64::MAX));
    [("services.loadbalancers", amount(balancers)), ("services.nodeports", amount(node_ports))]
        .map(|(name, amount)| (name.to_owned(), amount))
        .into()
}

fn claim(claim: &Object) -> Amounts {
    let one = Quantity::from_integer(1);
    let asked = claim.at(&["spec", "resources", "requests", "storage"]).and_then(Value::as_str);
    let asked = asked.and_then(|asked| asked.parse().ok()).unwrap_or(Quantity::ZERO);
    let mut used = Amounts::from([("requests.storage".to_owned(), asked)]);
    let class = claim.at(&["spec", "storageClassName"]).and_then(Value::as_str).filter(|class| !class.is_empty());
    if let Some(class) = class {
        used.insert(format!("{class}.storageclass.storage.k8s.io/persistentvolumeclaims"), one);
        used.insert(format!("{class}.storageclass.storage.k8s.io/requests.storage"), asked);
    }
    used
}

/// Names the containers of a pod that do not say what a quota counts, with what they do not say.
pub(crate) fn unsaid<'q>(pod: &Object, hard: impl Iterator<Item = &'q String>) -> Vec<(String, Vec<String>)> {
    let needed: Vec<&String> = hard.filter(|name| field_of(name).is_some()).collect();
    let mut unsaid = Vec::new();
    for list in ["containers", "initContainers"] {
        for container in pod.at(&["spec", list]).and_then(Value::as_array).into_iter().flatten() {
            let is_said =
                |name: &str| field_of(name).is_none_or(|(field, name)| !container["resources"][field][name].is_null());
            let missing: Vec<String> =
                needed.iter().filter(|name| !is_said(name)).map(|name| (*name).clone()).collect();
            if !missing.is_empty() {
                unsaid.push((container["name"].as_str().unwrap_or_default().to_owned(), missing));
            }
        }
    }
    unsaid
}

/// Returns the field of a container's resources that a name of a quota stands for, if every container has to set it.
fn field_of(name: &str) -> Option<(&'static str, &str)> {
    let (field, name) = match name.split_once('.') {
        Some(("requests", name)) => ("requests", name),
        Some(("limits", name)) => ("limits", name),
        _ => ("requests", name),
    };
    matches!(name, "cpu" | "memory").then_some((field, name))
}

/// Returns whether a quota with this spec is about an object.
pub fn is_about(spec: &Value, resource: &GroupResource, object: &Object) -> bool {
    let is_pod = resource.group.is_empty() && &*resource.resource == "pods";
    let mut scopes = spec["scopes"].as_array().into_iter().flatten();
    let selected = spec["scopeSelector"]["matchExpressions"].as_array().into_iter().flatten();
    let scopes =
        scopes.all(|scope| is_pod && in_scope(object, scope.as_str().unwrap_or_default(), "Exists", &Value::Null));
    scopes
        && selected.into_iter().all(|term| {
            let text = |field: &str| term[field].as_str().unwrap_or_default().to_owned();
            is_pod && in_scope(object, &text("scopeName"), &text("operator"), &term["values"])
        })
}

fn in_scope(pod: &Object, scope: &str, operator: &str, values: &Value) -> bool {
    let has_deadline =
        pod.at(&["spec", "activeDeadlineSeconds"]).and_then(Value::as_i64).is_some_and(|limit| limit >= 0);
    let is_best_effort = || pod_requirements(pod, "requests").is_empty() && pod_requirements(pod, "limits").is_empty();
    match scope {
        "Terminating" => has_deadline,
        "NotTerminating" => !has_deadline,
        "BestEffort" => is_best_effort(),
        "NotBestEffort" => !is_best_effort(),
        "PriorityClass" => {
            let class = pod.at(&["spec", "priorityClassName"]).and_then(Value::as_str).unwrap_or_default();
            let is_listed = values.as_array().into_iter().flatten().any(|value| value == class);
            match operator {
                "In" => is_listed,
                "NotIn" => !is_listed,
                "DoesNotExist" => class.is_empty(),
                _ => !class.is_empty(),
            }
        }
        "CrossNamespacePodAffinity" => ["podAffinity", "podAntiAffinity"].iter().any(|affinity| {
            let affinity = pod.at(&["spec", "affinity", affinity]).cloned().unwrap_or_default();
            let list = |field: &str| affinity[field].as_array().cloned().unwrap_or_default();
            let preferred = list("preferredDuringSchedulingIgnoredDuringExecution").into_iter();
            let terms = preferred.map(|term| term["podAffinityTerm"].clone());
            let terms = terms.chain(list("requiredDuringSchedulingIgnoredDuringExecution"));
            let crosses = |term: Value| {
                !term["namespaceSelector"].is_null()
                    || term["namespaces"].as_array().is_some_and(|names| !names.is_empty())
            };
            terms.into_iter().any(crosses)
        }),
        _ => false,
    }
}

/// Reads amounts by name.
pub(crate) fn amounts(value: &Value) -> Amounts {
    let amounts = value.as_object().into_iter().flatten();
    amounts.filter_map(|(name, amount)| Some((name.clone(), amount.as_str()?.parse().ok()?))).collect()
}

/// Sums up the `requests` or `limits` of the containers that a pod runs at the same time.
pub(crate) fn pod_requirements(pod: &Object, field: &str) -> Amounts {
    let list = |list: &str| pod.at(&["spec", list]).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let add = |sums: &mut Amounts, more: &Amounts| {
        for (name, amount) in more {
            let sum = sums.entry(name.clone()).or_insert(Quantity::ZERO);
            *sum = sum.plus(amount);
        }
    };
    let (mut all, mut sidecars, mut first) = (Amounts::new(), Amounts::new(), Amounts::new());
    for container in list("containers") {
        add(&mut all, &amounts(&container["resources"][field]));
    }
    let most = |sums: &mut Amounts, other: &Amounts| {
        for (name, amount) in other {
            let sum = sums.entry(name.clone()).or_insert(*amount);
            if *amount > *sum {
                *sum = *amount;
            }
        }
    };
    for container in list("initContainers") {
        let own = amounts(&container["resources"][field]);
        let mut now = sidecars.clone();
        add(&mut now, &own);
        if container["restartPolicy"] == "Always" {
            add(&mut all, &own);
            sidecars.clone_from(&now);
        }
        most(&mut first, &now);
    }
    most(&mut all, &first);
    let own = pod.at(&["spec", "resources", field]).map(amounts).unwrap_or_default();
    all.extend(own.into_iter().filter(|(name, _)| matches!(name.as_str(), "cpu" | "memory")));
    all
}
