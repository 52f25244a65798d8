//! The writes that a webhook or a policy applies to.

use crate::kind::{Kind, Resource};
use k8s_openapi::api::admissionregistration::v1::MatchCondition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::{Value, json};

/// The group of admission configurations.
pub(crate) const ADMISSION: &str = "admissionregistration.k8s.io";

/// The selected objects of one kind, for webhooks and policies.
pub(crate) struct Scope {
    pub(crate) kind: Kind,
    /// True if writes pass while the webhook cannot be called (failure policy `Ignore`).
    pub(crate) optional: bool,
    pub(crate) namespaces: Option<LabelSelector>,
    pub(crate) objects: Option<LabelSelector>,
    pub(crate) conditions: Vec<MatchCondition>,
}

impl Scope {
    pub(crate) fn of<T: Resource>() -> Self {
        Self { kind: Kind::of::<T>(), optional: false, namespaces: None, objects: None, conditions: Vec::new() }
    }

    /// Builds the match criteria; `rules` is the name of the field that lists resources.
    pub(crate) fn constraints(&self, rules: &str, operations: &[&str]) -> Value {
        let (gvk, resource) = (self.kind.gvk(), self.kind.resource());
        let rule = json!({
            "apiGroups": [&*gvk.group],
            "apiVersions": [&*gvk.version],
            "operations": operations,
            "resources": [&*resource.resource],
            "scope": if self.kind.is_namespaced() { "Namespaced" } else { "Cluster" },
        });
        let mut constraints = json!({"matchPolicy": "Equivalent", rules: [rule]});
        for (field, selector) in [("namespaceSelector", &self.namespaces), ("objectSelector", &self.objects)] {
            if let Some(selector) = selector {
                constraints[field] = json!(selector);
            }
        }
        constraints
    }

    /// Sets the `failurePolicy`.
    pub(crate) fn failure_policy(&self) -> &'static str {
        if self.optional { "Ignore" } else { "Fail" }
    }
}
