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
    /// True if writes of the status count as well.
    pub(crate) status: bool,
}

impl Scope {
    pub(crate) fn of<T: Resource>() -> Self {
        let (namespaces, objects, conditions) = (None, None, Vec::new());
        Self { kind: Kind::of::<T>(), optional: false, namespaces, objects, conditions, status: false }
    }

    /// Builds the match criteria; `rules` is the name of the field that lists resources.
    pub(crate) fn constraints(&self, rules: &str, operations: &[&str]) -> Value {
        let (gvk, resource) = (self.kind.gvk(), self.kind.resource());
        let mut resources = vec![resource.resource.to_string()];
        if self.status {
            resources.push(format!("{}/status", resource.resource));
        }
        let rule = json!({
            "apiGroups": [&*gvk.group],
            "apiVersions": [&*gvk.version],
            "operations": operations,
            "resources": resources,
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

/// Declares the builder methods that restrict a webhook or a policy to some writes.
macro_rules! scope_methods {
    ($subject:literal, $when_optional:literal) => {
        #[doc = concat!("Admits writes ", $when_optional, "; they are rejected by default.")]
        #[doc(alias = "failurePolicy")]
        pub fn optional(mut self) -> Self {
            self.declared.scope.optional = true;
            self
        }

        #[doc = concat!("Restricts the ", $subject, " to objects in namespaces with these labels.")]
        #[doc(alias = "namespaceSelector")]
        pub fn namespace_selector(mut self, selector: LabelSelector) -> Self {
            self.declared.scope.namespaces = Some(selector);
            self
        }

        #[doc = concat!("Restricts the ", $subject, " to objects with these labels.")]
        #[doc(alias = "objectSelector")]
        pub fn object_selector(mut self, selector: LabelSelector) -> Self {
            self.declared.scope.objects = Some(selector);
            self
        }

        #[doc = concat!("Restricts the ", $subject, " to writes for which this CEL expression is true, such as")]
        /// `!has(object.metadata.deletionTimestamp)` or `request.userInfo.username != 'admin'`.
        #[doc(alias = "matchConditions")]
        pub fn match_condition(mut self, name: impl Into<String>, expression: impl Into<String>) -> Self {
            self.declared.scope.conditions.push(MatchCondition { name: name.into(), expression: expression.into() });
            self
        }
    };
}

pub(crate) use scope_methods;
