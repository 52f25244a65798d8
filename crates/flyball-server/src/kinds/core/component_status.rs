//! Component statuses: read-only and deprecated.

use super::GROUP;
use crate::kinds::kind::{Kind, Verbs};
use crate::kinds::printer::{Heading, Row, View, text};
use serde_json::Value;

pub(crate) static KIND: Kind = Kind::new(GROUP, "v1", "ComponentStatus", "componentstatuses")
    .printed(COLUMNS, row)
    .short(&["cs"])
    .cluster()
    .verbs(Verbs::ReadOnly);

const COLUMNS: &[Heading] = &[
    Heading::NAME,
    Heading::text("Status", "Status of the component conditions"),
    Heading::text("Message", "Message of the component conditions"),
    Heading::text("Error", "Error of the component conditions"),
];

fn row(view: &View<'_>) -> Row {
    let healthy = view.list("conditions").iter().find(|condition| text(condition, "type") == "Healthy");
    let status = match healthy {
        None => "Unknown",
        Some(condition) if text(condition, "status") == "True" => "Healthy",
        Some(_) => "Unhealthy",
    };
    let cell = |field: &str| Value::from(healthy.map_or("", |condition| text(condition, field)));
    Row::from([view.name(), status.into(), cell("message"), cell("error")])
}
