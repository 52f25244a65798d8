//! Events, in the words of either group.

use super::{Row, View, text};

pub(crate) fn new(view: &View<'_>) -> Row {
    let mut object = view.object.clone();
    super::super::event::to_core(&mut object);
    core(&View { object: &object, ..*view })
}

pub(crate) fn core(view: &View<'_>) -> Row {
    let series = view.at("series");
    let first = [view.text("firstTimestamp"), view.text("eventTime")]
        .into_iter()
        .find(|time| !time.is_empty())
        .unwrap_or_default();
    let last = [text(series, "lastObservedTime"), view.text("lastTimestamp"), first];
    let last = last.into_iter().find(|time| !time.is_empty()).unwrap_or_default();
    let count = match series["count"].as_i64() {
        Some(count) => count,
        None => view.int("count").max(1),
    };
    let (kind, name) = (view.text("involvedObject.kind").to_lowercase(), view.text("involvedObject.name"));
    let target = if name.is_empty() { kind } else { format!("{kind}/{name}") };
    let either = |paths: [&str; 2]| paths.map(|path| view.text(path)).into_iter().find(|text| !text.is_empty());
    let source = [either(["source.component", "reportingComponent"]), either(["source.host", "reportingInstance"])];
    let source = match source {
        [component, None] => component.unwrap_or_default().to_owned(),
        [component, Some(host)] => format!("{}, {host}", component.unwrap_or_default()),
    };
    Row::from([
        view.since(last).into(),
        view.text("type").into(),
        view.text("reason").into(),
        target.into(),
        view.text("involvedObject.fieldPath").into(),
        source.into(),
        view.text("message").trim().into(),
        view.since(first).into(),
        count.into(),
        view.name(),
    ])
}
