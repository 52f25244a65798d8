//! Configuration, and who may do what.

use super::{NONE, Row, UNSET, View, text};
use serde_json::Value;

fn count(value: &Value) -> usize {
    value.as_object().map_or(0, serde_json::Map::len)
}

pub(crate) fn config_map(view: &View<'_>) -> Row {
    Row::from([view.name(), (count(view.at("data")) + count(view.at("binaryData"))).into(), view.age()])
}

pub(crate) fn secret(view: &View<'_>) -> Row {
    Row::from([view.name(), view.text("type").into(), count(view.at("data")).into(), view.age()])
}

pub(crate) fn named(view: &View<'_>) -> Row {
    Row::from([view.name(), view.age()])
}

pub(crate) fn lease(view: &View<'_>) -> Row {
    Row::from([view.name(), view.text("spec.holderIdentity").into(), view.age()])
}

pub(crate) fn priority_class(view: &View<'_>) -> Row {
    let policy = view.text("preemptionPolicy").into();
    Row::from([view.name(), view.int("value").into(), view.flag("globalDefault").into(), view.age(), policy])
}

pub(crate) fn runtime_class(view: &View<'_>) -> Row {
    Row::from([view.name(), view.text("handler").into(), view.age()])
}

pub(crate) fn resource_quota(view: &View<'_>) -> Row {
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    let mut hard: Vec<_> = view.at("status.hard").as_object().into_iter().flatten().collect();
    hard.sort_by_key(|(name, _)| name.as_str());
    let used = view.at("status.used");
    for (name, hard) in hard {
        let used = used.get(name).and_then(Value::as_str).unwrap_or("0");
        let shown = format!("{name}: {used}/{}", hard.as_str().unwrap_or_default());
        if name.starts_with("limits.") { limits.push(shown) } else { requests.push(shown) }
    }
    Row::from([view.name(), requests.join(", ").into(), limits.join(", ").into(), view.age()])
}

pub(crate) fn role_binding(view: &View<'_>) -> Row {
    let role = format!("{}/{}", view.text("roleRef.kind"), view.text("roleRef.name"));
    let of = |kind: &str| {
        let subjects = view.list("subjects").iter().filter(|subject| text(subject, "kind") == kind);
        let name = |subject: &Value| match text(subject, "namespace") {
            namespace if kind == "ServiceAccount" && !namespace.is_empty() => {
                format!("{namespace}/{}", text(subject, "name"))
            }
            _ => text(subject, "name").to_owned(),
        };
        Value::from(subjects.map(name).collect::<Vec<_>>().join(", "))
    };
    Row::from([view.name(), role.into(), view.age(), of("User"), of("Group"), of("ServiceAccount")])
}

pub(crate) fn webhooks(view: &View<'_>) -> Row {
    Row::from([view.name(), view.list("webhooks").len().into(), view.age()])
}

pub(crate) fn validating_policy(view: &View<'_>) -> Row {
    policy(view, "spec.validations")
}

pub(crate) fn mutating_policy(view: &View<'_>) -> Row {
    policy(view, "spec.mutations")
}

fn policy(view: &View<'_>, rules: &str) -> Row {
    let kind = view.at("spec.paramKind");
    let kind =
        if kind.is_null() { UNSET.into() } else { format!("{}/{}", text(kind, "apiVersion"), text(kind, "kind")) };
    Row::from([view.name(), view.list(rules).len().into(), kind.into(), view.age()])
}

pub(crate) fn policy_binding(view: &View<'_>) -> Row {
    let reference = view.at("spec.paramRef");
    let shown = match (text(reference, "name"), text(reference, "namespace")) {
        ("", _) => UNSET.to_owned(),
        (name, "") => format!("*/{name}"),
        (name, namespace) => format!("{namespace}/{name}"),
    };
    Row::from([view.name(), view.text("spec.policyName").into(), shown.into(), view.age()])
}

pub(crate) fn signing_request(view: &View<'_>) -> Row {
    let conditions: Vec<&str> =
        view.list("status.conditions").iter().map(|condition| text(condition, "type")).collect();
    let has = |condition: &str| conditions.contains(&condition);
    let mut status = if has("Denied") {
        "Denied"
    } else if has("Approved") {
        "Approved"
    } else {
        "Pending"
    }
    .to_owned();
    if has("Failed") {
        status += ",Failed";
    }
    if !view.text("status.certificate").is_empty() {
        status += ",Issued";
    }
    let seconds = view.at("spec.expirationSeconds").as_i64();
    let duration = seconds
        .map(|seconds| flyball_core::time::human_duration(flyball_core::time::SignedDuration::from_secs(seconds)));
    Row::from([
        view.name(),
        view.age(),
        view.text_or("spec.signerName", NONE),
        view.text("spec.username").into(),
        duration.unwrap_or_else(|| NONE.into()).into(),
        status.into(),
    ])
}
