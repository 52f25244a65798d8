//! CustomResourceDefinitions without their schemas.

use k8s_openapi::ClusterResourceScope;
use kube::core::ObjectMeta;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::borrow::Cow;

/// A CustomResourceDefinition without its schemas, so that the cache of all of them is small.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Definition {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// Spec.
    pub spec: DefinitionSpec,
    /// Status.
    pub status: DefinitionStatus,
}

/// Spec of a [`Definition`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DefinitionSpec {
    /// Versions.
    pub versions: Vec<DefinitionVersion>,
    /// Conversion between the versions.
    pub conversion: Option<Value>,
    /// True if fields without a schema are kept.
    pub preserve_unknown_fields: Option<bool>,
}

/// Version of a [`Definition`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DefinitionVersion {
    /// Name.
    pub name: String,
    /// True if it is served.
    pub served: bool,
}

/// Status of a [`Definition`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DefinitionStatus {
    /// Conditions; API servers return `null` for a new CRD.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conditions: Option<Vec<DefinitionCondition>>,
}

/// Condition of a [`Definition`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DefinitionCondition {
    /// Type.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
}

impl Definition {
    /// Returns true if a version is served.
    pub fn serves(&self, version: &str) -> bool {
        self.spec.versions.iter().any(|served| served.name == version && served.served)
    }

    /// Returns true if the API server serves the kind.
    pub fn is_established(&self) -> bool {
        let conditions = || self.status.conditions.iter().flatten();
        let holds = |kind: &str| conditions().any(|c| c.kind == kind && c.status == "True");
        holds("Established") && holds("NamesAccepted")
    }
}

impl kube::Resource for Definition {
    type DynamicType = ();
    type Scope = ClusterResourceScope;

    fn kind(_: &()) -> Cow<'_, str> {
        "CustomResourceDefinition".into()
    }

    fn group(_: &()) -> Cow<'_, str> {
        "apiextensions.k8s.io".into()
    }

    fn version(_: &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural(_: &()) -> Cow<'_, str> {
        "customresourcedefinitions".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn new_definition_has_no_conditions() {
        let new = json!({"metadata": {"name": "memos.demo"}, "status": {"conditions": null, "storedVersions": null}});
        let new: Definition = serde_json::from_value(new).unwrap();
        assert!(!new.is_established());
        let condition = |kind: &str| json!({"type": kind, "status": "True"});
        let served = json!({"status": {"conditions": [condition("NamesAccepted"), condition("Established")]}});
        let served: Definition = serde_json::from_value(served).unwrap();
        assert!(served.is_established());
    }
}
