//! Faults of the operator's pods and of its Deployment.

use super::{Planner, not_applicable, one_edit};
use crate::change::Change;
use crate::edit::Edit;
use crate::error::{Error, Result};
use serde_json::{Value, json};

impl Planner<'_> {
    /// Deletes one pod, or all.
    pub(super) async fn kill(&self, all: bool) -> Result<Vec<Change>> {
        let pods = self.operator.pods(self.cluster).await?;
        if pods.is_empty() {
            return Err(not_applicable("the operator has no pod".to_owned()));
        }
        Ok(pods.iter().take(if all { usize::MAX } else { 1 }).map(Change::delete).collect())
    }

    /// Isolates the pods: a policy without rules denies all traffic.
    pub(super) fn partition(&self) -> Change {
        let object = json!({
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": self.metadata(Some(&self.operator.namespace), "partition"),
            "spec": {"podSelector": self.operator.deployment["spec"]["selector"], "policyTypes": ["Ingress", "Egress"]},
        });
        Change::Create { object }
    }

    /// Forbids new pods, and deletes a pod, which cannot be replaced then.
    pub(super) async fn exhaust_quota(&self) -> Result<Vec<Change>> {
        let others = self.cluster.list_of("apps", "Deployment", Some(&self.operator.namespace)).await?;
        let foreign = others.iter().find(|one| {
            let uid = &one["metadata"]["uid"];
            *uid != self.operator.deployment["metadata"]["uid"]
                && !self.operator.children.iter().any(|child| child["metadata"]["uid"] == *uid)
        });
        if let Some(foreign) = foreign {
            let other = crate::api::Reference::of(foreign);
            return Err(Error::refused(format!("a quota would concern {other}, which is not of the operator")));
        }
        let object = json!({
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": self.metadata(Some(&self.operator.namespace), "quota"),
            "spec": {"hard": {"pods": "0"}},
        });
        let mut changes = vec![Change::Create { object }];
        changes.extend(self.kill(false).await?);
        Ok(changes)
    }

    /// Forbids evictions.
    pub(super) fn block_evictions(&self) -> Change {
        let object = json!({
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": self.metadata(Some(&self.operator.namespace), "budget"),
            "spec": {"maxUnavailable": 0, "selector": self.operator.deployment["spec"]["selector"]},
        });
        Change::Create { object }
    }

    /// Sets a field of a container.
    pub(super) fn edit_container(&self, name: Option<&str>, field: &str, value: Value) -> Result<Vec<Change>> {
        let deployment = &self.operator.deployment;
        let first = deployment["spec"]["template"]["spec"]["containers"][0]["name"].as_str();
        let name = name.or(first).ok_or_else(|| not_applicable("the operator has no container".to_owned()))?;
        one_edit(deployment, &format!("/spec/template/spec/containers/[name={name}]/{field}"), Some(value))
    }

    /// Rolls out a template; interrupted by the death of all pods.
    pub(super) async fn upgrade(&self, template: &Value, interrupted: bool) -> Result<(Vec<Change>, Vec<Change>)> {
        let deployment = &self.operator.deployment;
        let labels = deployment["spec"]["selector"]["matchLabels"].as_object();
        let has_label = |(key, value): (&String, &Value)| template["metadata"]["labels"][key] == *value;
        if !labels.into_iter().flatten().all(has_label) {
            return Err(not_applicable("the pod template does not have the labels of the selector".to_owned()));
        }
        let edit = Edit::set(deployment, "/spec/template", Some(template.clone()));
        let edit = edit.map_err(|error| not_applicable(error.to_string()))?;
        let later = if interrupted { self.kill(true).await? } else { Vec::new() };
        Ok((vec![Change::edit(deployment, vec![edit])], later))
    }
}
