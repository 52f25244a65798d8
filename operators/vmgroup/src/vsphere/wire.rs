//! The wire format of VI/JSON: typed references, property collections, and values with types.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;

/// Reference to an object of vCenter.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "_typeName", rename = "ManagedObjectReference")]
pub struct ManagedObject {
    /// Type of the object, such as `VirtualMachine`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its identifier in vCenter, such as `vm-12`.
    #[serde(rename = "value")]
    pub id: String,
}

impl ManagedObject {
    /// Creates a reference.
    pub fn new(kind: &str, id: &str) -> Self {
        Self { kind: kind.into(), id: id.into() }
    }

    pub(crate) fn from_value(value: &Value) -> Option<Self> {
        Self::deserialize(value).ok()
    }
}

impl fmt::Display for ManagedObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.id)
    }
}

/// Properties of one object, as a property collector returns them.
#[derive(Debug)]
pub(super) struct Properties {
    pub(super) object: ManagedObject,
    values: BTreeMap<String, Value>,
}

impl Properties {
    /// Parses an `ObjectContent`.
    pub(super) fn from_value(content: &Value) -> Option<Self> {
        let properties = content["propSet"].as_array().map_or(&[][..], Vec::as_slice);
        let values = properties.iter().filter_map(|p| Some((p["name"].as_str()?.to_owned(), p["val"].clone())));
        Some(Self { object: ManagedObject::from_value(&content["obj"])?, values: values.collect() })
    }

    /// Returns a data object.
    pub(super) fn get(&self, path: &str) -> &Value {
        self.values.get(path).unwrap_or(&Value::Null)
    }

    /// Returns a string or an enumeration value, without its type wrapper.
    pub(super) fn text(&self, path: &str) -> Option<&str> {
        let value = self.get(path);
        value.as_str().or_else(|| value["_value"].as_str())
    }

    pub(super) fn reference(&self, path: &str) -> Option<ManagedObject> {
        ManagedObject::from_value(self.get(path))
    }
}

/// Objects that a property collector reaches from its starting object.
#[derive(Clone, Copy, Debug)]
pub(super) enum Traversal {
    /// The starting object.
    Itself,
    /// The children of a folder.
    Children,
    /// All objects in a folder and its descendants.
    Below,
}

/// Body of a `RetrievePropertiesEx` for all objects of a type (or a subtype of it) in reach of `start`.
pub(super) fn property_request(start: &ManagedObject, traversal: Traversal, requested: &[(&str, &[&str])]) -> Value {
    let children = |on: Value| {
        json!([{"_typeName": "TraversalSpec", "name": "children", "type": "Folder", "path": "childEntity",
            "skip": false, "selectSet": on}])
    };
    let (skip, select) = match traversal {
        Traversal::Itself => (false, json!([])),
        Traversal::Children => (true, children(json!([]))),
        Traversal::Below => (true, children(json!([{"_typeName": "SelectionSpec", "name": "children"}]))),
    };
    let properties = requested
        .iter()
        .map(|(kind, paths)| json!({"_typeName": "PropertySpec", "type": kind, "all": false, "pathSet": paths}));
    json!({
        "_typeName": "RetrievePropertiesExRequestType",
        "specSet": [{
            "_typeName": "PropertyFilterSpec",
            "propSet": properties.collect::<Vec<_>>(),
            "objectSet": [{"_typeName": "ObjectSpec", "obj": start, "skip": skip, "selectSet": select}],
        }],
        "options": {"_typeName": "RetrieveOptions"},
    })
}
