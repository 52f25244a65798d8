//! Tables: objects as rows and columns, for people.
//!
//! See <https://kubernetes.io/docs/reference/using-api/api-concepts/#receiving-resources-as-tables>.

use crate::catalog::Resource;
use crate::custom;
use crate::kinds::{Row, View};
use flyball_core::{Clock, Object, Status};
use serde_json::{Map, Value, json};

/// The part of its object that a row contains besides the cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Include {
    Nothing,
    Metadata,
    Object,
}

impl Include {
    /// Reads the query parameter `includeObject`.
    pub(crate) fn read(text: &str) -> Result<Self, Status> {
        match text {
            "None" => Ok(Self::Nothing),
            "" | "Metadata" => Ok(Self::Metadata),
            "Object" => Ok(Self::Object),
            other => {
                let given = flyball_core::field::go_quote(other);
                let why =
                    format!("includeObject: Invalid value: {given}: must be 'Metadata', 'Object', 'None', or empty");
                Err(Status::bad_request(format!("Unable to convert to Table as requested: {why}")))
            }
        }
    }
}

/// Writes the headings of a table.
pub(crate) fn headings(resource: &Resource) -> Value {
    let heading = |name: &str, ty: &str, format: &str, description: &str, priority: i64| json!({"name": name, "type": ty, "format": format, "description": description, "priority": priority});
    let own = resource.columns().iter().map(|c| heading(c.name, c.ty, c.format, c.description, c.priority));
    let declared = resource.custom().into_iter().flat_map(|custom| &custom.columns).map(|c| {
        let description = if c.description.is_empty() {
            format!("Custom resource definition column (in JSONPath format): {}", c.path)
        } else {
            c.description.clone()
        };
        heading(&c.name, &c.ty, &c.format, &description, c.priority)
    });
    own.chain(declared).collect()
}

/// Writes the row of an object, which contains `kind` and `apiVersion`.
pub(crate) fn row(resource: &Resource, object: &Object, include: Include, clock: &Clock) -> Value {
    let Row { mut cells, conditions } = resource.row(&View { object, clock });
    cells.extend(resource.custom().into_iter().flat_map(|custom| custom::cells(&custom.columns, object, clock)));
    let mut row = Map::new();
    row.insert("cells".into(), cells.into());
    if let Some(conditions) = conditions {
        row.insert("conditions".into(), conditions);
    }
    let shown = match include {
        Include::Nothing => Value::Null,
        Include::Metadata => metadata_only(object),
        Include::Object => object.as_value().clone(),
    };
    row.insert("object".into(), shown);
    Value::Object(row)
}

/// Returns the `PartialObjectMetadata` of an object.
pub(crate) fn metadata_only(object: &Object) -> Value {
    let metadata = object.get("metadata").cloned().unwrap_or_else(|| json!({}));
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
}

/// Returns a `Table`.
pub(crate) fn table(metadata: Value, headings: Value, rows: Vec<Value>) -> Value {
    json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "columnDefinitions": headings, "rows": rows})
}
