//! Faults of admission: they concern only requests of the operator's service account.
//!
//! Policies and webhooks are objects of the whole cluster. A match condition on the user limits them to the operator;
//! see <https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/>.

use super::{Planner, not_applicable};
use crate::change::Change;
use crate::edit::Edit;
use crate::error::{Error, Result};
use crate::experiment::WebhookAction;
use serde_json::{Value, json};
use std::time::Duration;

const API: &str = "admissionregistration.k8s.io/v1";

/// Name of the match condition.
const CONDITION: &str = "only-the-operator";

impl Planner<'_> {
    /// Creates a policy that rejects writes of the operator, other than leases and events.
    pub(super) fn reject_writes(&self, operations: &[String]) -> Result<Vec<Change>> {
        self.check_account()?;
        let rule = |groups: &[&str], resources: &[&str]| {
            json!({"apiGroups": groups, "apiVersions": ["*"],
            "operations": operations, "resources": resources})
        };
        let metadata = self.metadata(None, "reject");
        let policy = json!({
            "apiVersion": API,
            "kind": "ValidatingAdmissionPolicy",
            "metadata": metadata,
            "spec": {
                "failurePolicy": "Ignore",
                "matchConstraints": {
                    "resourceRules": [rule(&["*"], &["*", "*/status"])],
                    "excludeResourceRules": [
                        rule(&["coordination.k8s.io"], &["leases"]), rule(&["", "events.k8s.io"], &["events"]),
                    ],
                },
                "matchConditions": [self.condition()],
                "validations": [{"expression": "false", "message": "rejected by an experiment of flyball chaos"}],
            },
        });
        let binding = json!({
            "apiVersion": API,
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": metadata,
            "spec": {"policyName": metadata["name"], "validationActions": ["Deny"]},
        });
        Ok(vec![Change::Create { object: policy }, Change::Create { object: binding }])
    }

    /// Creates a webhook that never responds, so that each write of the operator takes as long as its timeout.
    pub(super) fn delay_writes(&self, delay: Duration, url: &str) -> Result<Vec<Change>> {
        self.check_account()?;
        let operations = ["CREATE", "UPDATE", "DELETE"];
        let object = json!({
            "apiVersion": API,
            "kind": "ValidatingWebhookConfiguration",
            "metadata": self.metadata(None, "delay"),
            "webhooks": [{
                "name": "delay.chaos.flyball.dev",
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "failurePolicy": "Ignore",
                "timeoutSeconds": delay.as_secs(),
                "clientConfig": {"url": url},
                "matchConditions": [self.condition()],
                "rules": [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": operations,
                    "resources": ["*", "*/status"]}],
            }],
        });
        Ok(vec![Change::Create { object }])
    }

    fn condition(&self) -> Value {
        // A user name contains no quotes: names of namespaces and accounts are DNS names.
        json!({"name": CONDITION, "expression": format!("request.userInfo.username == '{}'", self.operator.user())})
    }

    /// Changes the webhooks whose service is that of the operator.
    pub(super) async fn disrupt_webhooks(&self, action: WebhookAction, name: Option<&str>) -> Result<Vec<Change>> {
        let mut changes = Vec::new();
        for own in &self.operator.webhooks {
            if name.is_some_and(|name| own["metadata"]["name"] != name) {
                continue;
            }
            let reference = crate::api::Reference::of(own);
            let live = self.cluster.get(&reference).await?;
            let live = live.ok_or_else(|| not_applicable(format!("{reference} does not exist")))?;
            let names: Vec<&str> = list(own).filter_map(|webhook| webhook["name"].as_str()).collect();
            let is_own = |webhook: &Value| webhook["name"].as_str().is_some_and(|name| names.contains(&name));
            let edits = match action {
                WebhookAction::Remove => Edit::remove_items(&live, "/webhooks", is_own).into_iter().collect(),
                WebhookAction::Ignore | WebhookAction::Fail => {
                    let policy = if action == WebhookAction::Fail { "Fail" } else { "Ignore" };
                    let edit = |name: &&str| {
                        Edit::set(&live, &format!("/webhooks/[name={name}]/failurePolicy"), Some(policy.into())).ok()
                    };
                    names.iter().filter_map(edit).collect::<Vec<_>>()
                }
            };
            if !edits.is_empty() {
                changes.push(Change::edit(&live, edits));
            }
        }
        match changes.is_empty() {
            true => Err(Error::NotApplicable("no webhook of the operator would change".to_owned())),
            false => Ok(changes),
        }
    }
}

fn list(configuration: &Value) -> impl Iterator<Item = &Value> {
    configuration["webhooks"].as_array().into_iter().flatten()
}
