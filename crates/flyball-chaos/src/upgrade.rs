//! Simulation of an upgrade: experiments from the differences between an operator and the manifests of its next
//! version.
//!
//! The Deployment itself is upgraded and rolled back; other differences become faults of the running version that show
//! the effect of the difference: a renamed Deployment loses its pods, an operator that moves to another namespace loses
//! its network, removed permissions and webhooks are removed.

use crate::api::Reference;
use crate::experiment::{Experiment, Fault, WebhookAction};
use crate::operator::Operator;
use crate::text::clean;
use serde_json::Value;
use std::collections::BTreeSet;

/// Experiments for the differences between two versions of an operator.
#[derive(Clone, Debug, Default)]
pub struct Upgrade {
    /// The experiments in order.
    pub experiments: Vec<Experiment>,
    /// Differences, also those without an experiment.
    pub notes: Vec<String>,
}

/// Compares an operator with the manifests of its next version.
pub fn upgrade(operator: &Operator, manifests: &[Value]) -> Upgrade {
    let mut upgrade = Upgrade::default();
    upgrade.compare_deployments(operator, manifests);
    upgrade.compare_webhooks(operator, manifests);
    upgrade.compare_bindings(operator, manifests);
    upgrade
}

impl Upgrade {
    fn add(&mut self, name: &str, fault: Fault, description: String) {
        self.notes.push(description.clone());
        let mut experiment = Experiment::new(name, fault);
        experiment.spec.description = Some(description);
        self.experiments.push(experiment);
    }

    fn compare_deployments(&mut self, operator: &Operator, manifests: &[Value]) {
        let deployments: Vec<&Value> = manifests.iter().filter(|one| one["kind"] == "Deployment").collect();
        let own = &operator.deployment["metadata"];
        let is_here = |one: &&&Value| {
            let namespace = one["metadata"]["namespace"].as_str();
            namespace.is_none_or(|namespace| namespace == operator.namespace)
        };
        let same = deployments.iter().find(|one| one["metadata"]["name"] == own["name"] && is_here(one));
        if let Some(next) = same {
            let template = &next["spec"]["template"];
            if next["spec"]["selector"]["matchLabels"] != operator.deployment["spec"]["selector"]["matchLabels"] {
                self.notes.push("the selector of the Deployment changes, which the API server rejects".to_owned());
                return;
            }
            for (name, interrupted, text) in [
                ("upgrade", false, "the next pod template is rolled out, and rolled back"),
                ("upgrade-interrupted", true, "all pods die during the upgrade"),
            ] {
                let fault = Fault::Upgrade { template: Box::new(template.clone()), interrupted };
                self.add(name, fault, text.to_owned());
            }
            return;
        }
        match deployments.iter().find(|one| one["metadata"]["name"] == own["name"]) {
            Some(moved) => {
                let namespace = clean(moved["metadata"]["namespace"].as_str().unwrap_or_default());
                let text = format!("the operator moves to the namespace {namespace}: the old one loses its network");
                self.add("upgrade-moved", Fault::NetworkPartition {}, text);
            }
            None => {
                let names: Vec<String> = deployments
                    .iter()
                    .take(5)
                    .map(|one| clean(one["metadata"]["name"].as_str().unwrap_or_default()))
                    .collect();
                let text = format!("the Deployment {} is replaced by {:?}", operator.label(), names);
                self.add("upgrade-renamed", Fault::PodKill { all: true }, text);
            }
        }
    }

    fn compare_webhooks(&mut self, operator: &Operator, manifests: &[Value]) {
        let kinds = ["ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"];
        let next: BTreeSet<Reference> =
            manifests.iter().filter(|one| kinds.iter().any(|kind| one["kind"] == *kind)).map(Reference::of).collect();
        let now: BTreeSet<Reference> = operator.webhooks.iter().map(Reference::of).collect();
        for removed in now.difference(&next) {
            let fault = Fault::WebhookDisrupt { action: WebhookAction::Remove, name: Some(removed.name.clone()) };
            self.add(&format!("upgrade-without-webhooks-{}", removed.name), fault, format!("{removed} is removed"));
        }
        for added in next.difference(&now) {
            // It does not exist yet: its effect is a delay of writes.
            let (delay, url) = (crate::experiment::default_delay(), crate::experiment::default_url());
            let fault = Fault::WebhookLatency { delay, url };
            self.add(
                &format!("upgrade-with-webhooks-{}", added.name),
                fault,
                format!("{added} is added, and slow at first"),
            );
        }
    }

    fn compare_bindings(&mut self, operator: &Operator, manifests: &[Value]) {
        let next: BTreeSet<&str> = manifests
            .iter()
            .filter(|one| one["kind"] == "RoleBinding" || one["kind"] == "ClusterRoleBinding")
            .filter_map(|one| one["metadata"]["name"].as_str())
            .collect();
        for binding in &operator.bindings {
            let Some(name) = binding["metadata"]["name"].as_str().filter(|name| !next.contains(name)) else { continue };
            let fault = Fault::RBACRevoke { binding: Some(name.to_owned()) };
            let text = format!("{} is not part of the next version", Reference::of(binding));
            self.add(&format!("upgrade-without-binding-{name}"), fault, text);
        }
    }
}
