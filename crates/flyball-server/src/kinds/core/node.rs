//! Nodes: taints, capacity and the addresses of their pods.

use super::GROUP;
use crate::kinds::display::internal;
use crate::kinds::field::{Errors, Field};
use crate::kinds::fill::Fields;
use crate::kinds::kind::{Checks, Kind};
use crate::kinds::printer::{Heading, NONE, Row, UNKNOWN, View, text};
use crate::kinds::rules::{address, label, resource};
use crate::kinds::subresource::{Part, Subresource as Sub};
use flyball_core::Object;
use flyball_core::field::FieldError;
use flyball_core::names::label_value;
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashSet};

pub(crate) static KIND: Kind = Kind::new(GROUP, "v1", "Node", "nodes")
    .registry_path("minions")
    .created_with_status()
    .printed(COLUMNS, row)
    .default(default)
    .checks(Checks::Whole)
    .prepare(|node, _, _, _| unite_pod_cidrs(node))
    .validate(validate)
    .short(&["no"])
    .cluster()
    .subresources(&[Sub::NODE_PROXY, Sub::STATUS])
    .fields(&["spec.unschedulable"], unschedulable);

const COLUMNS: &[Heading] = &[
    Heading::NAME,
    Heading::text("Status", "The status of the node"),
    Heading::text("Roles", "The roles of the node"),
    Heading::AGE,
    Heading::text("Version", "Kubelet Version reported by the node."),
    Heading::text(
        "Internal-IP",
        "List of addresses reachable to the node. Queried from cloud provider, if available. More info: \
         https://kubernetes.io/docs/reference/node/node-status/#addresses Note: This field is declared as mergeable, \
         but the merge key is not sufficiently unique, which can cause data corruption when it is merged. Callers \
         should instead use a full-replacement patch. See https://pr.k8s.io/79391 for an example. Consumers should \
         assume that addresses can change during the lifetime of a Node. However, there are some exceptions where \
         this may not be possible, such as Pods that inherit a Node's address in its own status or consumers of the \
         downward API (status.hostIP).",
    )
    .wide(),
    Heading::text(
        "External-IP",
        "List of addresses reachable to the node. Queried from cloud provider, if available. More info: \
         https://kubernetes.io/docs/reference/node/node-status/#addresses Note: This field is declared as mergeable, \
         but the merge key is not sufficiently unique, which can cause data corruption when it is merged. Callers \
         should instead use a full-replacement patch. See https://pr.k8s.io/79391 for an example. Consumers should \
         assume that addresses can change during the lifetime of a Node. However, there are some exceptions where \
         this may not be possible, such as Pods that inherit a Node's address in its own status or consumers of the \
         downward API (status.hostIP).",
    )
    .wide(),
    Heading::text("OS-Image", "OS Image reported by the node from /etc/os-release (e.g. Debian GNU/Linux 7 (wheezy)).")
        .wide(),
    Heading::text("Kernel-Version", "Kernel Version reported by the node from 'uname -r' (e.g. 3.16.0-0.bpo.4-amd64).")
        .wide(),
    Heading::text(
        "Container-Runtime",
        "ContainerRuntime Version reported by the node through runtime remote API (e.g. containerd://1.4.2).",
    )
    .wide(),
];

fn default(node: &mut Object) {
    let status = node.inner_or_new("status");
    if let Some(capacity) = status.get("capacity").cloned() {
        status.fill("allocatable", capacity);
    }
    // A client that sets one of them owns both.
    unite_pod_cidrs(node);
}

/// Synchronizes the older field `podCIDR` and `podCIDRs`, which are one field of the internal type.
fn unite_pod_cidrs(node: &mut Object) {
    let all = node.at(&["spec", "podCIDRs"]).and_then(Value::as_array).cloned().unwrap_or_default();
    let single = node.at(&["spec", "podCIDR"]).and_then(Value::as_str).unwrap_or_default().to_owned();
    let Some(spec) = node.get_mut("spec").and_then(Value::as_object_mut) else { return };
    // The older field takes precedence.
    if single.is_empty() {
        if let Some(first) = all.first() {
            spec.insert("podCIDR".into(), first.clone());
        }
    } else if all.first().is_none_or(|first| *first != single.as_str()) {
        spec.insert("podCIDRs".into(), json!([single]));
    }
}

/// Validates updates of a node like new objects, and then as updates.
fn validate(object: &Object, old: Option<&Object>, part: Part) -> Errors {
    let mut errors = if part == Part::Status { Errors::new() } else { validate_as(object, None, part) };
    if old.is_some() {
        errors.extend(validate_as(object, old, part));
    }
    errors
}

fn validate_as(object: &Object, old: Option<&Object>, part: Part) -> Errors {
    let root = Field::root(object);
    let (spec, status) = (root.at("spec"), root.at("status"));
    let mut errors = Errors::new();
    let blocks = spec.at("podCIDRs");
    if old.is_none() {
        errors.extend(taints(&spec));
    }
    for amounts in ["capacity", "allocatable"] {
        let amounts = status.at(amounts);
        for (name, amount) in amounts.value().as_object().into_iter().flatten() {
            let path = amounts.path().field(name);
            errors.extend(resource::amount_for(&Field::new(path, amount), name));
        }
    }
    let Some(old) = old else {
        errors.extend(blocks.items().flat_map(|block| address::check_block(&block)));
        let sixth = blocks.texts().filter(|block| block.contains(':')).count();
        if blocks.len() > 2 || blocks.len() == 2 && sixth != 1 {
            errors.push(blocks.invalid("may specify no more than one CIDR for each IP family"));
        }
        return errors;
    };
    let (addresses, mut seen) = (status.at("addresses"), HashSet::new());
    for item in addresses.items().filter(|item| !seen.insert(item.value())) {
        errors.push(item.duplicate_of(internal("NodeAddress", item.value())));
    }
    let before = Field::root(old);
    let earlier = before.at("spec.podCIDRs");
    if part == Part::Whole && !earlier.is_empty() {
        const POD_CIDR_IMMUTABLE: &str = "node updates may not change podCIDR except from \"\" to valid";
        if earlier.len() != blocks.len() {
            errors.push(blocks.forbidden(POD_CIDR_IMMUTABLE));
        } else {
            let changed = earlier.list().iter().zip(blocks.list()).filter(|(old, new)| old != new);
            errors.extend(changed.map(|_| blocks.forbidden(POD_CIDR_IMMUTABLE)));
        }
    }
    let provider = spec.at("providerID");
    if !before.at("spec.providerID").is_empty() && provider.value() != before.at("spec.providerID").value() {
        errors.push(provider.forbidden("node updates may not change providerID except from \"\" to valid"));
    }
    errors.extend(taints(&spec));
    errors
}

/// Validates the taints of a node; the paths of errors begin with `metadata`.
fn taints(spec: &Field<'_>) -> Errors {
    let mut errors = Errors::new();
    let list = spec.at("taints");
    let metadata = flyball_core::field::Path::new("metadata");
    let path = metadata.field("taints");
    let taints = Field::new(path, list.value());
    let mut seen: BTreeSet<(String, String)> = BTreeSet::new();
    for taint in taints.items() {
        let (value, effect) = (taint.at("value"), taint.at("effect"));
        errors.extend(label::key(&taint.at("key")));
        let wrong = label_value(value.text());
        if !wrong.is_empty() {
            errors.push(value.invalid_as(value.text(), wrong.join(";")));
        }
        errors.extend(effect.must_be_one_of(&["NoSchedule", "PreferNoSchedule", "NoExecute"]));
        let key = (taint.at("key").text().to_owned(), effect.text().to_owned());
        if seen.contains(&key) {
            let error = taint.duplicate_of(internal("Taint", taint.value()));
            errors.push(FieldError { detail: "taints must be unique by key and effect pair".into(), ..error });
        }
        seen.insert(key);
    }
    errors
}

/// Returns the value of the field selector `spec.unschedulable`.
fn unschedulable(node: &Object, _: &str) -> String {
    node.at(&["spec", "unschedulable"]).and_then(Value::as_bool).unwrap_or_default().to_string()
}

fn row(view: &View<'_>) -> Row {
    let ready = view.list("status.conditions").iter().rfind(|condition| text(condition, "type") == "Ready");
    let mut status = match ready {
        None => "Unknown",
        Some(condition) if text(condition, "status") == "True" => "Ready",
        Some(_) => "NotReady",
    }
    .to_owned();
    if view.flag("spec.unschedulable") {
        status += ",SchedulingDisabled";
    }
    let mut kernel = view.text_or("status.nodeInfo.kernelVersion", UNKNOWN).as_str().unwrap_or_default().to_owned();
    let architecture = view.text("status.nodeInfo.architecture");
    if !architecture.is_empty() {
        kernel += &format!(" ({architecture})");
    }
    let address = |kind: &str| {
        let mut addresses = view.list("status.addresses").iter();
        Value::from(
            addresses.find(|address| text(address, "type") == kind).map_or(NONE, |address| text(address, "address")),
        )
    };
    Row::from([
        view.name(),
        status.into(),
        roles(view).into(),
        view.age(),
        view.text("status.nodeInfo.kubeletVersion").into(),
        address("InternalIP"),
        address("ExternalIP"),
        view.text_or("status.nodeInfo.osImage", UNKNOWN),
        kernel.into(),
        view.text_or("status.nodeInfo.containerRuntimeVersion", UNKNOWN),
    ])
}

fn roles(view: &View<'_>) -> String {
    let labels = view.object.labels().into_iter().flatten();
    let role = |(key, value): (&'_ String, &Value)| match key.strip_prefix("node-role.kubernetes.io/") {
        Some(role) => Some(role.to_owned()),
        None if key == "kubernetes.io/role" => value.as_str().map(str::to_owned),
        None => None,
    };
    let mut roles: Vec<String> = labels.filter_map(role).filter(|role| !role.is_empty()).collect();
    roles.sort();
    roles.dedup();
    if roles.is_empty() { NONE.into() } else { roles.join(",") }
}
