//! The pages `/debug/flyball` of operators.

use flyball_core::time::{Timestamp, parse_rfc3339};
use serde::{Deserialize, Serialize};
use std::fmt;

/// An object in a page.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Object {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) namespace: Option<String>,
    pub(crate) name: String,
}

impl Object {
    /// Returns the identity of an object that the API server returned.
    pub(super) fn of(object: &serde_json::Value) -> Self {
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        let api_version = text(&object["apiVersion"]);
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", &api_version));
        Self {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: text(&object["kind"]),
            namespace: object["metadata"]["namespace"].as_str().map(str::to_owned),
            name: text(&object["metadata"]["name"]),
        }
    }

    pub(super) fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// Returns true if both are the same object, in any version of its kind.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let id = |object: &Self| {
            let Self { group, kind, namespace, name, .. } = object;
            (group.clone(), kind.clone(), namespace.clone(), name.clone())
        };
        id(self) == id(other)
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind.to_lowercase(), self.name)
    }
}

/// The first page of an operator.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Overview {
    pub(super) operator: String,
    /// The field manager, empty if the operator does not report it.
    pub(super) field_manager: String,
    pub(super) lease: Option<Lease>,
    pub(super) stores: Vec<Store>,
}

impl Overview {
    /// Returns the field manager, which is the name of the operator unless it reports another one.
    pub(super) fn manager(&self) -> &str {
        if self.field_manager.is_empty() { &self.operator } else { &self.field_manager }
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Lease {
    pub(super) holder: String,
    pub(super) leading: bool,
    pub(super) error: Option<PageError>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PageError {
    pub(super) message: String,
    pub(super) since: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Store {
    pub(super) group: String,
    pub(super) kind: String,
    pub(super) resource: String,
    pub(super) namespace: Option<String>,
    pub(super) synced: bool,
    pub(super) absent: bool,
    pub(super) selection: Option<String>,
    pub(super) error: Option<PageError>,
    pub(super) changed: Option<String>,
    pub(super) cached: bool,
    pub(super) may_be_selected: Option<bool>,
}

/// The page with reconciles.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Reconciles {
    pub(super) reconciles: Vec<Reconcile>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Reconcile {
    pub(super) id: String,
    pub(super) controller: String,
    pub(super) object: Object,
    pub(super) resource_version: Option<String>,
    pub(super) began: String,
    pub(super) causes: Vec<Cause>,
    pub(super) writes: Vec<Write>,
    pub(super) outcome: String,
    pub(super) error: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Cause {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) object: Object,
    pub(super) before: Option<String>,
    pub(super) after: Option<String>,
    pub(super) name: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Write {
    pub(super) object: Object,
    pub(super) verb: String,
    pub(super) subresource: String,
    pub(super) before: Option<String>,
    pub(super) after: Option<String>,
    pub(super) result: String,
    pub(super) fields: Vec<String>,
}

/// The page about an object.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ObjectPage {
    pub(super) leading: bool,
    pub(super) controllers: Vec<ControllerState>,
    pub(super) stores: Vec<Store>,
}

/// The state of an object in a controller.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ControllerState {
    pub(super) name: String,
    pub(super) active: bool,
    pub(super) waits_for: Vec<String>,
    pub(super) cached: bool,
    pub(super) paused: bool,
    pub(super) key: Option<Key>,
    pub(super) filtered: Vec<Filtered>,
    pub(super) last: Option<Reconcile>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Key {
    pub(super) state: String,
    pub(super) since: Option<String>,
    pub(super) until: Option<String>,
    pub(super) failures: u32,
    pub(super) writes: Vec<PendingWrite>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PendingWrite {
    #[serde(flatten)]
    pub(super) object: Object,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Filtered {
    pub(super) after: Option<String>,
    pub(super) at: String,
}

/// Parses a time of a page.
pub(super) fn time(text: &str) -> Option<Timestamp> {
    parse_rfc3339(text)
}
