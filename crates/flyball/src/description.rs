//! The description of an operator as data: controllers, kinds, webhooks, policies and permissions.
//!
//! [`Operator::describe`](crate::Operator::describe) returns it, and `my-operator describe` prints it as JSON.

use k8s_openapi::api::rbac::v1::PolicyRule;
use serde::{Deserialize, Serialize};

/// The declarations of an operator: its kinds, controllers, webhooks, policies and permissions.
///
/// Every operator prints it as JSON when it is run as `my-operator describe`; `flyball describe operator` shows it.
///
/// ```
/// # use flyball::{Action, Context, Controller, Operator, Reconcile, Result};
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # struct Sites;
/// # impl Reconcile for Sites {
/// #     type Resource = ConfigMap;
/// #     async fn reconcile(&self, _: &ConfigMap, _: &Context<ConfigMap>) -> Result<Action> { Ok(Action::done()) }
/// # }
/// let described = Operator::new("site-operator").controller(Controller::new(Sites)).describe();
/// assert_eq!(described.controllers[0].reconciles, "configmaps.v1");
/// ```
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Description {
    /// Its name.
    pub name: String,
    /// Its version, if one is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The namespaces that it is limited to; all if empty.
    #[serde(default)]
    pub namespaces: Vec<String>,
    /// The custom resource definitions in its manifests.
    #[serde(default)]
    pub definitions: Vec<DefinitionDescription>,
    /// Its controllers.
    #[serde(default)]
    pub controllers: Vec<ControllerDescription>,
    /// Its webhooks.
    #[serde(default)]
    pub webhooks: Vec<WebhookDescription>,
    /// Its policies.
    #[serde(default)]
    pub policies: Vec<PolicyDescription>,
    /// The lease of its leader election; `None` if all replicas are active.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<LeaseDescription>,
    /// Its RBAC rules.
    #[serde(default)]
    pub rules: Vec<PolicyRule>,
}

/// A custom resource definition.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct DefinitionDescription {
    /// Name of the definition, such as `sites.example.com`.
    pub name: String,
    /// The kind's bare name.
    pub kind: String,
    /// `Namespaced` or `Cluster`.
    pub scope: String,
    /// Its versions.
    pub versions: Vec<VersionDescription>,
}

/// One version of a kind.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct VersionDescription {
    /// Its name.
    pub name: String,
    /// True if it is served.
    pub served: bool,
    /// True if objects are stored in it.
    pub storage: bool,
    /// The columns that `kubectl get` shows besides name and age.
    #[serde(default)]
    pub columns: Vec<String>,
}

/// A controller: its kinds, finalizer and concurrency. Kinds are written as `plural.version.group`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ControllerDescription {
    /// Its name.
    pub name: String,
    /// The kind that it reconciles.
    pub reconciles: String,
    /// The kinds that it owns.
    #[serde(default)]
    pub owns: Vec<String>,
    /// The other kinds that it watches.
    #[serde(default)]
    pub watches: Vec<String>,
    /// The finalizer that it sets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finalizer: Option<String>,
    /// Objects that it reconciles at the same time.
    pub concurrency: usize,
}

/// A leader election. Times are in seconds.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct LeaseDescription {
    /// Name of the lease.
    pub name: String,
    /// Its namespace; `None` for that of the operator's pod or context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Time without a renewal after which another replica takes over.
    pub lease_duration: f64,
    /// Time in which the leader tries to renew it.
    pub renew_deadline: f64,
    /// Interval at which the leader renews it.
    pub retry_period: f64,
}

/// The webhooks of one kind.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct WebhookDescription {
    /// The kind, as `plural.version.group`.
    pub kind: String,
    /// Calls that are served: `defaults`, `validates`, `converts`.
    pub calls: Vec<String>,
}

/// The policy of one kind.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct PolicyDescription {
    /// The kind, as `plural.version.group`.
    pub kind: String,
    /// Its defaults, such as `spec.replicas = 3`, and its rules, in CEL.
    pub rules: Vec<String>,
}
