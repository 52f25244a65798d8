//! Faults as data, and their properties.

use super::duration;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::Duration;

/// An object in a namespace of the operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObjectName {
    /// API group; may be omitted for built-in kinds and if only one group has the kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Kind.
    pub kind: String,
    /// Namespace; defaults to that of the operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
}

/// An injectable fault, with its parameters. The names are those of operator-chaos where it has the fault.
#[doc(alias("PodChaos", "NetworkChaos"))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum Fault {
    /// Deletes pods of the operator without a grace period.
    PodKill {
        /// All pods instead of one.
        #[serde(default)]
        all: bool,
    },
    /// Sets a field of an object of the operator, or removes it.
    #[serde(alias = "CRDMutation")]
    FieldDrift {
        /// The object.
        object: ObjectName,
        /// The path: a JSON pointer, with `[name=NAME]` for items of lists.
        path: String,
        /// The value; the field is removed without one.
        #[serde(default)]
        value: Option<Value>,
    },
    /// Changes a key of a ConfigMap.
    ConfigDrift {
        /// The ConfigMap.
        name: String,
        /// Its namespace; defaults to that of the operator.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        namespace: Option<String>,
        /// The key.
        key: String,
        /// The value.
        #[serde(default = "default_text")]
        value: String,
    },
    /// Overwrites or removes a label.
    LabelStomping {
        /// The object.
        object: ObjectName,
        /// The key of the label.
        label: String,
        /// The value; the label is removed without one.
        #[serde(default)]
        value: Option<String>,
    },
    /// Removes the owner references.
    OwnerRefOrphan {
        /// The object.
        object: ObjectName,
    },
    /// Deletes an object that has a finalizer of the experiment, so that it stays until the fault ends.
    FinalizerBlock {
        /// The object.
        object: ObjectName,
    },
    /// Deletes an object.
    ResourceDeletion {
        /// The object.
        object: ObjectName,
    },
    /// Deletes a Secret. Its contents are kept in the state file only.
    SecretDeletion {
        /// The Secret.
        name: String,
        /// Its namespace; defaults to that of the operator.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        namespace: Option<String>,
    },
    /// Deletes the lease of the leader election, or sets another holder.
    LeaderElectionDisrupt {
        /// Sets another holder instead of deleting the lease.
        #[serde(default)]
        steal: bool,
    },
    /// Isolates the pods of the operator by a NetworkPolicy.
    NetworkPartition {},
    /// Forbids new pods by a ResourceQuota, and deletes a pod of the operator.
    QuotaExhaustion {},
    /// Blocks evictions of the operator's pods by a PodDisruptionBudget.
    PDBBlock {},
    /// Removes the operator's service account from its bindings.
    RBACRevoke {
        /// One binding instead of all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        binding: Option<String>,
    },
    /// Rejects writes of the operator, by a policy that concerns only its service account.
    WriteRejection {
        /// Rejected operations: CREATE, UPDATE, DELETE.
        #[serde(default = "default_operations")]
        operations: Vec<String>,
    },
    /// Delays writes of the operator, by a webhook without a response that concerns only its service account.
    WebhookLatency {
        /// The delay, up to 30 s.
        #[serde(default = "default_delay", with = "duration")]
        delay: Duration,
        /// Address of the webhook; it must accept connections and not respond, or drop packets.
        #[serde(default = "default_url")]
        url: String,
    },
    /// Delays each request of an operator that runs as a process.
    ApiLatency {
        /// The delay.
        #[serde(default = "default_latency", with = "duration")]
        delay: Duration,
    },
    /// Rejects each n-th request of an operator that runs as a process.
    #[serde(alias = "ClientFault")]
    ApiErrors {
        /// The code: 409, 429, 500, 503 or 504.
        code: u16,
        /// The n.
        #[serde(default = "default_every")]
        every: u64,
    },
    /// Loses the response of each n-th write of an operator that runs as a process.
    LostResponses {
        /// The n.
        #[serde(default = "default_every")]
        every: u64,
    },
    /// Breaks the connections of an operator that runs as a process, again and again.
    WatchCut {
        /// The interval.
        #[serde(default = "default_latency", with = "duration")]
        interval: Duration,
    },
    /// Changes the failure policy of the operator's webhooks, or removes them.
    WebhookDisrupt {
        /// The change.
        #[serde(default)]
        action: WebhookAction,
        /// One configuration instead of all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
    },
    /// Scales the operator to zero.
    DeploymentScaleZero {},
    /// Sets an image that cannot be pulled.
    ImageCorrupt {
        /// The container; defaults to the first one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        container: Option<String>,
    },
    /// Sets a command that does not exist.
    CrashLoopInject {
        /// The container; defaults to the first one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        container: Option<String>,
    },
    /// Rolls out another pod template, and rolls it back at the end: an upgrade and a downgrade.
    Upgrade {
        /// The pod template.
        template: Box<Value>,
        /// Deletes all pods of the operator in the middle.
        #[serde(default)]
        interrupted: bool,
    },
}

/// A change of webhook configurations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum WebhookAction {
    /// Errors of the webhook are ignored.
    #[default]
    Ignore,
    /// Errors of the webhook reject the request.
    Fail,
    /// The webhooks are removed.
    Remove,
}

/// The expected reaction of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Expectation {
    /// The operator recovers while the fault is in place.
    Repair,
    /// The operator recovers after the fault has ended.
    Survive,
}

/// Risk of a fault for the users of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Risk {
    /// One object of the operator changes.
    Low,
    /// The operator is interrupted.
    Medium,
    /// Other users are concerned, or contents of Secrets are copied to the state file.
    High,
}

fn default_text() -> String {
    "flyball-chaos".to_owned()
}

fn default_operations() -> Vec<String> {
    ["CREATE", "UPDATE", "DELETE"].map(str::to_owned).to_vec()
}

pub(crate) fn default_delay() -> Duration {
    Duration::from_secs(5)
}

pub(crate) fn default_latency() -> Duration {
    Duration::from_secs(2)
}

pub(crate) fn default_every() -> u64 {
    3
}

/// An address of a network for documentation, to which no packets are routed; see RFC 5737.
pub(crate) fn default_url() -> String {
    "https://192.0.2.1/delay".to_owned()
}

impl Fault {
    /// Returns its name.
    pub fn name(&self) -> &'static str {
        match self {
            Self::PodKill { .. } => "PodKill",
            Self::FieldDrift { .. } => "FieldDrift",
            Self::ConfigDrift { .. } => "ConfigDrift",
            Self::LabelStomping { .. } => "LabelStomping",
            Self::OwnerRefOrphan { .. } => "OwnerRefOrphan",
            Self::FinalizerBlock { .. } => "FinalizerBlock",
            Self::ResourceDeletion { .. } => "ResourceDeletion",
            Self::SecretDeletion { .. } => "SecretDeletion",
            Self::LeaderElectionDisrupt { .. } => "LeaderElectionDisrupt",
            Self::NetworkPartition {} => "NetworkPartition",
            Self::QuotaExhaustion {} => "QuotaExhaustion",
            Self::PDBBlock {} => "PDBBlock",
            Self::RBACRevoke { .. } => "RBACRevoke",
            Self::WriteRejection { .. } => "WriteRejection",
            Self::WebhookLatency { .. } => "WebhookLatency",
            Self::WebhookDisrupt { .. } => "WebhookDisrupt",
            Self::ApiLatency { .. } => "ApiLatency",
            Self::ApiErrors { .. } => "ApiErrors",
            Self::LostResponses { .. } => "LostResponses",
            Self::WatchCut { .. } => "WatchCut",
            Self::DeploymentScaleZero {} => "DeploymentScaleZero",
            Self::ImageCorrupt { .. } => "ImageCorrupt",
            Self::CrashLoopInject { .. } => "CrashLoopInject",
            Self::Upgrade { .. } => "Upgrade",
        }
    }

    /// Returns the risk.
    pub fn risk(&self) -> Risk {
        match self {
            Self::FieldDrift { .. }
            | Self::ConfigDrift { .. }
            | Self::LabelStomping { .. }
            | Self::OwnerRefOrphan { .. }
            | Self::PDBBlock {} => Risk::Low,
            Self::SecretDeletion { .. } | Self::WebhookDisrupt { .. } | Self::QuotaExhaustion {} => Risk::High,
            _ => Risk::Medium,
        }
    }

    /// Returns the expected reaction, unless the experiment names another one.
    pub fn expectation(&self) -> Expectation {
        match self {
            Self::PodKill { .. }
            | Self::FieldDrift { .. }
            | Self::ConfigDrift { .. }
            | Self::LabelStomping { .. }
            | Self::OwnerRefOrphan { .. }
            | Self::ResourceDeletion { .. }
            | Self::SecretDeletion { .. }
            | Self::LeaderElectionDisrupt { .. } => Expectation::Repair,
            _ => Expectation::Survive,
        }
    }

    /// Returns true if a fault concerns the operator, and not only an object of it.
    pub(crate) fn interrupts(&self) -> bool {
        !matches!(
            self,
            Self::FieldDrift { .. }
                | Self::ConfigDrift { .. }
                | Self::LabelStomping { .. }
                | Self::OwnerRefOrphan { .. }
                | Self::FinalizerBlock { .. }
                | Self::ResourceDeletion { .. }
                | Self::SecretDeletion { .. }
        )
    }

    /// Returns true if an operator cannot write while the fault is in place.
    pub(crate) fn stops_writes(&self) -> bool {
        matches!(
            self,
            Self::NetworkPartition {}
                | Self::RBACRevoke { .. }
                | Self::WriteRejection { .. }
                | Self::DeploymentScaleZero {}
        )
    }

    /// Returns true if a fault replaces or restarts pods.
    pub(crate) fn replaces_pods(&self) -> bool {
        matches!(
            self,
            Self::PodKill { .. }
                | Self::QuotaExhaustion {}
                | Self::DeploymentScaleZero {}
                | Self::ImageCorrupt { .. }
                | Self::CrashLoopInject { .. }
                | Self::Upgrade { .. }
        )
    }

    /// Returns the invalid field, and the remedy.
    pub(super) fn problem(&self) -> Option<(&'static str, String)> {
        match self {
            Self::FieldDrift { path, .. } if !path.starts_with('/') || path.len() < 2 => {
                Some(("spec.fault.path", "expected a path such as /spec/replicas".to_owned()))
            }
            Self::FieldDrift { path, .. } if !(path.starts_with("/spec/") || path.starts_with("/data/")) => Some((
                "spec.fault.path",
                "only fields below /spec and /data drift; use LabelStomping or OwnerRefOrphan for metadata".to_owned(),
            )),
            Self::LabelStomping { label, .. } if !flyball_core::names::qualified_name(label).is_empty() => {
                Some(("spec.fault.label", "expected the key of a label".to_owned()))
            }
            Self::LabelStomping { value: Some(value), .. } if !flyball_core::names::label_value(value).is_empty() => {
                Some(("spec.fault.value", "expected the value of a label".to_owned()))
            }
            Self::WebhookLatency { delay, .. } if delay.as_secs() == 0 || delay.as_secs() > 30 => {
                Some(("spec.fault.delay", "expected a duration from 1s to 30s".to_owned()))
            }
            Self::WebhookLatency { url, .. } if !url.starts_with("https://") => {
                Some(("spec.fault.url", "webhooks need https".to_owned()))
            }
            Self::ApiErrors { code, .. } if ![409, 429, 500, 503, 504].contains(code) => {
                Some(("spec.fault.code", "expected 409, 429, 500, 503 or 504".to_owned()))
            }
            Self::ApiErrors { every, .. } | Self::LostResponses { every } if *every == 0 => {
                Some(("spec.fault.every", "expected at least 1".to_owned()))
            }
            Self::ApiLatency { delay: time } | Self::WatchCut { interval: time }
                if *time < Duration::from_millis(10) || *time > Duration::from_secs(60) =>
            {
                Some(("spec.fault", "expected a duration from 10ms to 1m".to_owned()))
            }
            Self::WriteRejection { operations } => {
                let is_valid = |one: &String| ["CREATE", "UPDATE", "DELETE"].contains(&one.as_str());
                let problem = "expected CREATE, UPDATE and DELETE".to_owned();
                (operations.is_empty() || !operations.iter().all(is_valid))
                    .then_some(("spec.fault.operations", problem))
            }
            _ => None,
        }
    }
}
