//! The relevant parts of request bodies.

use crate::vsphere::ManagedObject;
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Login {
    pub(super) user_name: String,
    pub(super) password: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RetrieveProperties {
    pub(super) spec_set: Vec<FilterSpec>,
}

/// Filter of a property collector.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FilterSpec {
    pub(super) prop_set: Vec<PropertySpec>,
    pub(super) object_set: Vec<ObjectSpec>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PropertySpec {
    #[serde(rename = "type")]
    pub(super) kind: String,
    #[serde(default)]
    pub(super) path_set: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ObjectSpec {
    pub(super) obj: ManagedObject,
    #[serde(default)]
    pub(super) skip: bool,
    #[serde(default)]
    pub(super) select_set: Vec<SelectionSpec>,
}

/// A step from objects of a type to others; without a path, the name of such a step.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SelectionSpec {
    pub(super) name: Option<String>,
    #[serde(rename = "type")]
    pub(super) kind: Option<String>,
    pub(super) path: Option<String>,
    #[serde(default)]
    pub(super) select_set: Vec<SelectionSpec>,
}

#[derive(Deserialize)]
pub(super) struct ContinueRetrieveProperties {
    pub(super) token: String,
}

#[derive(Deserialize)]
pub(super) struct FindChild {
    pub(super) entity: ManagedObject,
    pub(super) name: String,
}

#[derive(Deserialize)]
pub(super) struct CreateFolder {
    pub(super) name: String,
}

#[derive(Deserialize)]
pub(super) struct CloneVm {
    pub(super) folder: ManagedObject,
    pub(super) name: String,
    pub(super) spec: CloneSpec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CloneSpec {
    pub(super) location: RelocateSpec,
    #[serde(default)]
    pub(super) config: ConfigSpec,
    pub(super) power_on: bool,
    pub(super) template: bool,
}

#[derive(Deserialize)]
pub(super) struct RelocateSpec {
    pub(super) pool: Option<ManagedObject>,
}

#[derive(Deserialize, Default)]
pub(super) struct ConfigSpec {
    #[serde(rename = "numCPUs")]
    pub(super) cpus: Option<i64>,
    #[serde(rename = "memoryMB")]
    pub(super) memory_mib: Option<i64>,
}
