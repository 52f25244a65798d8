//! The default suite: experiments that fit to the objects that an operator has.

use crate::api::Reference;
use crate::experiment::{Experiment, Fault, ObjectName, WebhookAction, default_every, default_latency};
use crate::operator::Operator;
use serde_json::Value;

/// Kinds of children that are deleted or changed, by the size of the interruption.
const DRIFTED: &[&str] =
    &["ConfigMap", "Service", "ServiceAccount", "Role", "RoleBinding", "Deployment", "StatefulSet"];

/// Returns the experiments for an operator, the least risky ones first.
pub fn suite(operator: &Operator) -> Vec<Experiment> {
    let mut experiments = drifts(operator);
    let mut add = |name: &str, fault: Fault| experiments.push(Experiment::new(name, fault));
    if operator.is_process() {
        let (every, time) = (default_every(), default_latency());
        add("process-kill", Fault::PodKill { all: false });
        add("network-partition", Fault::NetworkPartition {});
        add("api-latency", Fault::ApiLatency { delay: time });
        for code in [409, 429, 500] {
            add(&format!("api-errors-{code}"), Fault::ApiErrors { code, every });
        }
        add("lost-responses", Fault::LostResponses { every });
        add("watch-cut", Fault::WatchCut { interval: time });
        return experiments;
    }
    add("pod-kill", Fault::PodKill { all: false });
    if operator.deployment["spec"]["replicas"].as_u64().unwrap_or(1) > 1 {
        add("pod-kill-all", Fault::PodKill { all: true });
    }
    if !operator.leases.is_empty() {
        add("lease-deleted", Fault::LeaderElectionDisrupt { steal: false });
        add("lease-stolen", Fault::LeaderElectionDisrupt { steal: true });
    }
    add("evictions-blocked", Fault::PDBBlock {});
    add("network-partition", Fault::NetworkPartition {});
    add("rbac-revoked", Fault::RBACRevoke { binding: None });
    let operations = ["CREATE", "UPDATE", "DELETE"].map(str::to_owned).to_vec();
    add("writes-rejected", Fault::WriteRejection { operations });
    add("writes-delayed", delayed());
    add("scaled-to-zero", Fault::DeploymentScaleZero {});
    add("crash-loop", Fault::CrashLoopInject { container: None });
    add("image-missing", Fault::ImageCorrupt { container: None });
    add("quota-exhausted", Fault::QuotaExhaustion {});
    if !operator.webhooks.is_empty() {
        add("webhooks-ignored", Fault::WebhookDisrupt { action: WebhookAction::Ignore, name: None });
        add("webhooks-removed", Fault::WebhookDisrupt { action: WebhookAction::Remove, name: None });
    }
    experiments
}

fn delayed() -> Fault {
    Fault::WebhookLatency { delay: crate::experiment::default_delay(), url: crate::experiment::default_url() }
}

/// Returns changes of children: one child of each kind.
fn drifts(operator: &Operator) -> Vec<Experiment> {
    let mut experiments = Vec::new();
    for kind in DRIFTED {
        let Some(child) = operator.children.iter().find(|child| child["kind"] == *kind) else { continue };
        let object = name_of(child);
        let word = kind.to_lowercase();
        let mut add = |name: &str, fault: Fault| experiments.push(Experiment::new(format!("{word}-{name}"), fault));
        if let Some((key, _)) = child["metadata"]["labels"].as_object().and_then(|labels| labels.iter().next()) {
            add(
                "label",
                Fault::LabelStomping {
                    object: object.clone(),
                    label: key.clone(),
                    value: Some("flyball-chaos".to_owned()),
                },
            );
        }
        if let Some(fault) = content_drift(child, &object) {
            add("drift", fault);
        }
        add("orphaned", Fault::OwnerRefOrphan { object: object.clone() });
        add("deleted", Fault::ResourceDeletion { object: object.clone() });
        if *kind == "ConfigMap" {
            add("deletion-blocked", Fault::FinalizerBlock { object });
        }
    }
    if let Some(secret) = operator.children.iter().find(|child| child["kind"] == "Secret") {
        let Reference { name, namespace, .. } = Reference::of(secret);
        experiments.push(Experiment::new("secret-deleted", Fault::SecretDeletion { name, namespace }));
    }
    experiments
}

/// Returns the change of a field that the operator sets.
fn content_drift(child: &Value, object: &ObjectName) -> Option<Fault> {
    let drift = |path: &str, value: Value| {
        Some(Fault::FieldDrift { object: object.clone(), path: path.to_owned(), value: Some(value) })
    };
    match child["kind"].as_str()? {
        "ConfigMap" => {
            let (key, _) = child["data"].as_object()?.iter().next()?;
            let (name, namespace) = (object.name.clone(), object.namespace.clone());
            Some(Fault::ConfigDrift { name, namespace, key: key.clone(), value: "flyball-chaos".to_owned() })
        }
        "Deployment" | "StatefulSet" => {
            let replicas = child["spec"]["replicas"].as_u64()?;
            drift("/spec/replicas", (replicas + 1).into())
        }
        "Service" => {
            let port = &child["spec"]["ports"][0];
            let value = if port["port"] == 65_123 { 65_124 } else { 65_123 };
            port["port"].as_u64().and_then(|_| drift("/spec/ports/0/port", value.into()))
        }
        _ => None,
    }
}

fn name_of(object: &Value) -> ObjectName {
    let Reference { group, kind, namespace, name } = Reference::of(object);
    ObjectName { group: Some(group), kind, namespace, name }
}
