//! Operator: the objects of an operator in one place.

use super::{GROUP, is_default, kind};
use k8s_openapi::ClusterResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::{Deserialize, Serialize};
use serde_json::Value;

kind! {
    /// All objects that belong to an operator.
    Operator, "Operator", GROUP, "v1", "operators", ClusterResourceScope, OperatorSpec, OperatorStatus
}

/// Desired state of an [`Operator`], which has no fields.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OperatorSpec {}

/// ClusterObjects state of an [`Operator`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OperatorStatus {
    /// Objects of the operator.
    #[serde(skip_serializing_if = "is_default")]
    pub components: Option<Components>,
}

/// Objects of an operator: their label selector, and references to them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Components {
    /// Selector of the objects.
    pub label_selector: LabelSelector,
    /// References to the objects.
    #[serde(skip_serializing_if = "is_default")]
    pub refs: Vec<ComponentReference>,
}

/// A reference to an object of an operator.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ComponentReference {
    /// API version of the object.
    pub api_version: String,
    /// Kind of the object.
    pub kind: String,
    /// Namespace of the object.
    #[serde(skip_serializing_if = "is_default")]
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// Conditions of the object.
    #[serde(skip_serializing_if = "is_default")]
    pub conditions: Vec<Value>,
}
