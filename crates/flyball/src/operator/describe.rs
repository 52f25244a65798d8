//! What an operator is, as data: its controllers, kinds, webhooks, policies and permissions.

use super::Operator;
use crate::controller::ControllerDescription;
use k8s_openapi::api::rbac::v1::PolicyRule;
use serde::{Deserialize, Serialize};

/// What an operator is, by its own declaration.
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
    /// Its version, if it says which.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The namespaces that it is limited to; none means all.
    #[serde(default)]
    pub namespaces: Vec<String>,
    /// The kinds that it brings.
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
    /// The lease by which its replicas agree on a leader; none if all of them act.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<LeaseDescription>,
    /// What it may do in the cluster.
    #[serde(default)]
    pub rules: Vec<PolicyRule>,
}

/// A kind that an operator brings.
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
    /// Whether it is served.
    pub served: bool,
    /// Whether objects are stored in it.
    pub storage: bool,
    /// The columns that `kubectl get` shows besides name and age.
    #[serde(default)]
    pub columns: Vec<String>,
}

/// A leader election. Times are in seconds.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct LeaseDescription {
    /// Name of the lease.
    pub name: String,
    /// Its namespace; none means that of the operator's pod or context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// After how long without a change others take over.
    pub lease_duration: f64,
    /// How long the leader tries to renew it.
    pub renew_deadline: f64,
    /// How often the leader renews it.
    pub retry_period: f64,
}

/// The webhooks of one kind.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct WebhookDescription {
    /// The kind, as `plural.version.group`.
    pub kind: String,
    /// What is asked: `defaults`, `validates`, `converts`.
    pub asked: Vec<String>,
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

impl Operator {
    /// Tells what the operator is.
    pub fn describe(&self) -> Description {
        let definitions = self.crds.iter().map(|crd| DefinitionDescription {
            name: crd.metadata.name.clone().unwrap_or_default(),
            kind: crd.spec.names.kind.clone(),
            scope: crd.spec.scope.clone(),
            versions: crd
                .spec
                .versions
                .iter()
                .map(|version| VersionDescription {
                    name: version.name.clone(),
                    served: version.served,
                    storage: version.storage,
                    columns: version
                        .additional_printer_columns
                        .iter()
                        .flatten()
                        .map(|column| column.name.clone())
                        .collect(),
                })
                .collect(),
        });
        let webhooks = self.webhooks.iter().map(|webhook| WebhookDescription {
            kind: webhook.scope.kind.qualified(),
            asked: webhook.duties().into_iter().map(str::to_owned).collect(),
        });
        let policies = self
            .policies
            .iter()
            .map(|policy| PolicyDescription { kind: policy.kind().qualified(), rules: policy.told() });
        let lease = self.election.as_ref().map(|election| LeaseDescription {
            name: election.lease.clone().unwrap_or_else(|| self.installed_name().to_owned()),
            namespace: self.home.clone(),
            lease_duration: election.lease_duration.as_secs_f64(),
            renew_deadline: election.renew_deadline.as_secs_f64(),
            retry_period: election.retry_period.as_secs_f64(),
        });
        Description {
            lease,
            name: self.name.clone(),
            version: self.version.map(str::to_owned),
            namespaces: self.namespaces.iter().cloned().collect(),
            definitions: definitions.collect(),
            controllers: self.controllers.iter().map(|controller| controller.describe()).collect(),
            webhooks: webhooks.collect(),
            policies: policies.collect(),
            rules: self.rules(),
        }
    }
}
