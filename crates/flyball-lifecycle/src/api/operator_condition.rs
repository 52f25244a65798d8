//! OperatorCondition: conditions that an operator reports to the lifecycle manager.

use super::{GROUP, is_default, kind};
use flyball::Condition;
use k8s_openapi::NamespaceResourceScope;
use serde::{Deserialize, Serialize};

kind! {
    /// Conditions that an operator reports, such as whether it can be upgraded.
    OperatorCondition, "OperatorCondition", GROUP, "v2", "operatorconditions",
    NamespaceResourceScope, OperatorConditionSpec, OperatorConditionStatus
}

/// Desired state of an [`OperatorCondition`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OperatorConditionSpec {
    /// Service accounts that may change the conditions.
    #[serde(skip_serializing_if = "is_default")]
    pub service_accounts: Vec<String>,
    /// Deployments that belong to the operator.
    #[serde(skip_serializing_if = "is_default")]
    pub deployments: Vec<String>,
    /// Conditions of a person, which take precedence over those of the operator.
    #[serde(skip_serializing_if = "is_default")]
    pub overrides: Vec<Condition>,
    /// Conditions that the operator reports.
    #[serde(skip_serializing_if = "is_default")]
    pub conditions: Vec<Condition>,
}

/// ClusterObjects state of an [`OperatorCondition`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OperatorConditionStatus {
    /// Conditions of the spec that apply to the current generation.
    #[serde(skip_serializing_if = "is_default")]
    pub conditions: Vec<Condition>,
}
