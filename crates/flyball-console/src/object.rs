//! Coordinates of objects: those of the ledger, and those of the API.

use crate::summary::text;
use serde::Serialize;
use serde_json::Value;

/// Coordinates of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ObjectRef {
    pub(crate) group: String,
    pub(crate) kind: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl ObjectRef {
    /// Reads the coordinates in a ledger.
    pub(crate) fn of(value: &Value) -> Self {
        let field = |name: &str| text(&value[name]).to_owned();
        Self { group: field("group"), kind: field("kind"), namespace: field("namespace"), name: field("name") }
    }

    /// Returns true if a value of a ledger refers to this object.
    pub(crate) fn is(&self, value: &Value) -> bool {
        text(&value["name"]) == self.name
            && text(&value["kind"]) == self.kind
            && text(&value["group"]) == self.group
            && text(&value["namespace"]) == self.namespace
    }
}
