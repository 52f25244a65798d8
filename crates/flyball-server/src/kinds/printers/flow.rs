//! Flow schemas and priority levels.

use super::{NONE, Row, View, text};
use serde_json::Value;

pub(crate) fn schema(view: &View<'_>) -> Row {
    let dangling = view.list("status.conditions").iter().rfind(|condition| text(condition, "type") == "Dangling");
    Row::from([
        view.name(),
        view.text("spec.priorityLevelConfiguration.name").into(),
        view.int("spec.matchingPrecedence").into(),
        view.text_or("spec.distinguisherMethod.type", NONE),
        view.age(),
        dangling.map_or("?", |condition| text(condition, "status")).into(),
    ])
}

pub(crate) fn level(view: &View<'_>) -> Row {
    let number = |path: &str| match view.at(&format!("spec.limited.{path}")) {
        Value::Null => NONE.into(),
        number => number.clone(),
    };
    Row::from([
        view.name(),
        view.text("spec.type").into(),
        number("nominalConcurrencyShares"),
        number("limitResponse.queuing.queues"),
        number("limitResponse.queuing.handSize"),
        number("limitResponse.queuing.queueLengthLimit"),
        view.age(),
    ])
}
