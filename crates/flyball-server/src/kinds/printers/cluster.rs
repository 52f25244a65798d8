//! The cluster itself: its nodes, namespaces, services of the API.

use super::{NONE, Row, UNKNOWN, View, text};
use serde_json::Value;

pub(crate) fn namespace(view: &View<'_>) -> Row {
    Row::from([view.name(), view.text("status.phase").into(), view.age()])
}

pub(crate) fn node(view: &View<'_>) -> Row {
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

pub(crate) fn component(view: &View<'_>) -> Row {
    let healthy = view.list("conditions").iter().find(|condition| text(condition, "type") == "Healthy");
    let status = match healthy {
        None => "Unknown",
        Some(condition) if text(condition, "status") == "True" => "Healthy",
        Some(_) => "Unhealthy",
    };
    let said = |field: &str| Value::from(healthy.map_or("", |condition| text(condition, field)));
    Row::from([view.name(), status.into(), said("message"), said("error")])
}

pub(crate) fn api_service(view: &View<'_>) -> Row {
    let service = view.at("spec.service");
    let served = if service.is_null() {
        "Local".into()
    } else {
        format!("{}/{}", text(service, "namespace"), text(service, "name"))
    };
    let condition = view.list("status.conditions").iter().find(|condition| text(condition, "type") == "Available");
    let available = match condition {
        None => "Unknown".to_owned(),
        Some(condition) if text(condition, "status") == "True" => "True".to_owned(),
        Some(condition) => format!("{} ({})", text(condition, "status"), text(condition, "reason")),
    };
    Row::from([view.name(), served.into(), available.into(), view.age()])
}
