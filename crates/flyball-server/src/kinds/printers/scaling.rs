//! Horizontal pod autoscalers.

use super::{NONE, Row, UNKNOWN, UNSET, View, at, text};
use serde_json::Value;

pub(crate) fn first_version(view: &View<'_>) -> Row {
    let mut object = view.object.clone();
    super::super::scaling_v1::to_v2(&mut object);
    autoscaler(&View { object: &object, ..*view })
}

pub(crate) fn autoscaler(view: &View<'_>) -> Row {
    let reference = format!("{}/{}", view.text("spec.scaleTargetRef.kind"), view.text("spec.scaleTargetRef.name"));
    let current = view.list("status.currentMetrics");
    let metrics: Vec<String> =
        view.list("spec.metrics").iter().enumerate().map(|(i, metric)| target(metric, current.get(i))).collect();
    let shown = match metrics.as_slice() {
        [] => NONE.to_owned(),
        [first, second, more @ ..] if !more.is_empty() => format!("{first}, {second} + {} more...", more.len()),
        all => all.join(", "),
    };
    let least = view.at("spec.minReplicas").as_i64().map_or_else(|| UNSET.to_owned(), |least| least.to_string());
    Row::from([
        view.name(),
        reference.into(),
        shown.into(),
        least.into(),
        view.int("spec.maxReplicas").into(),
        view.int("status.currentReplicas").into(),
        view.age(),
    ])
}

/// Tells where a metric stands and where it should stand.
fn target(metric: &Value, current: Option<&Value>) -> String {
    let (field, named, averaged) = match text(metric, "type") {
        "External" => ("external", false, true),
        "Pods" => ("pods", false, false),
        "Object" => ("object", false, true),
        "Resource" => ("resource", true, false),
        "ContainerResource" => ("containerResource", true, false),
        _ => return "<unknown type>".into(),
    };
    let target = at(metric, field).get("target").unwrap_or(&Value::Null);
    let now = current.map_or(&Value::Null, |current| at(current, field));
    let now = |value: &str| now["current"][value].as_str().map_or_else(|| UNKNOWN.to_owned(), str::to_owned);
    let name = if named { format!("{}: ", text(at(metric, field), "name")) } else { String::new() };
    if let Some(average) = target["averageValue"].as_str() {
        let suffix = if averaged { " (avg)" } else { "" };
        return format!("{name}{}/{average}{suffix}", now("averageValue"));
    }
    if named {
        let percent = |value: &Value| value["averageUtilization"].as_i64().map(|percent| format!("{percent}%"));
        let now = current.and_then(|current| percent(&at(current, field)["current"]));
        return format!(
            "{name}{}/{}",
            now.as_deref().unwrap_or(UNKNOWN),
            percent(target).as_deref().unwrap_or("<auto>")
        );
    }
    format!("{}/{}", now("value"), target["value"].as_str().unwrap_or("0"))
}
