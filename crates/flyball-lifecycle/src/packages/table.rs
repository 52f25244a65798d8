//! PackageManifests as rows and columns, for kubectl.

use flyball_core::Clock;
use flyball_core::time::{human_duration, parse_rfc3339};
use serde_json::{Value, json};

/// The part of its object that a row contains besides the cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Include {
    Nothing,
    Metadata,
    Object,
}

impl Include {
    /// Reads the query parameter `includeObject`.
    pub(super) fn read(text: &str) -> Option<Self> {
        match text {
            "None" => Some(Self::Nothing),
            "" | "Metadata" => Some(Self::Metadata),
            "Object" => Some(Self::Object),
            _ => None,
        }
    }
}

/// Returns the table of objects.
pub(super) fn table(objects: &[Value], include: Include, clock: &Clock) -> Value {
    let column = |name: &str, format: &str, description: &str| json!({"name": name, "type": "string", "format": format, "description": description, "priority": 0});
    let columns = [
        column("Name", "name", "Name of the package."),
        column("Catalog", "", "Name of the catalog that contains the package."),
        column("Age", "", "Time since the catalog was created."),
    ];
    let rows: Vec<Value> = objects.iter().map(|object| row(object, include, clock)).collect();
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {}, "columnDefinitions": columns, "rows": rows,
    })
}

fn row(object: &Value, include: Include, clock: &Clock) -> Value {
    let created = object["metadata"]["creationTimestamp"].as_str().and_then(parse_rfc3339);
    let age = created.map(|created| human_duration(clock.now().duration_since(created)));
    let age = age.unwrap_or_else(|| "<unknown>".to_owned());
    let cells = json!([object["metadata"]["name"], object["status"]["catalogSourceDisplayName"], age]);
    let shown = match include {
        Include::Nothing => Value::Null,
        Include::Metadata => {
            json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
        }
        Include::Object => object.clone(),
    };
    json!({"cells": cells, "object": shown})
}
