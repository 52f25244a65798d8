//! The controller of OperatorConditions: permits the operator to report its conditions, and publishes them.

use crate::api::OperatorCondition;
use crate::api::labels;
use crate::install::reference;
use crate::patch::object;
use flyball::{Action, Condition, Context, Controller, Kind, Reconcile, Result};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::ResourceExt;
use serde_json::{Value, json};

const RBAC: &str = "rbac.authorization.k8s.io/v1";

struct OperatorConditions;

impl Reconcile for OperatorConditions {
    type Resource = OperatorCondition;

    async fn reconcile(&self, condition: &OperatorCondition, cx: &Context<OperatorCondition>) -> Result<Action> {
        for right in rights(condition) {
            cx.apply_unowned(&object(right)?).await?;
        }
        let conditions: Vec<Condition> = condition
            .spec
            .conditions
            .iter()
            .map(|reported| Condition { observed_generation: condition.metadata.generation, ..reported.clone() })
            .collect();
        if !conditions.is_empty() || !condition.status.conditions.is_empty() {
            cx.set_status(&json!({"conditions": conditions})).await?;
        }
        Ok(Action::done())
    }
}

/// Returns the role and the binding that permit the operator's service accounts to change their OperatorCondition only.
fn rights(condition: &OperatorCondition) -> [Value; 2] {
    let name = condition.name_any();
    let owner = reference("operators.coreos.com/v2", "OperatorCondition", &name, condition.uid().as_deref(), true);
    let metadata = json!({
        "name": name,
        "namespace": condition.namespace(),
        "labels": {labels::MANAGED: "true"},
        "ownerReferences": [owner],
    });
    let rule = json!({
        "apiGroups": [crate::api::GROUP],
        "resources": ["operatorconditions"],
        "resourceNames": [name],
        "verbs": ["get", "update", "patch"],
    });
    // A subject without a namespace is in that of the binding.
    let subjects: Vec<Value> = condition
        .spec
        .service_accounts
        .iter()
        .map(|account| json!({"kind": "ServiceAccount", "name": account}))
        .collect();
    [
        json!({"apiVersion": RBAC, "kind": "Role", "metadata": metadata, "rules": [rule]}),
        json!({
            "apiVersion": RBAC,
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            "subjects": subjects,
        }),
    ]
}

/// Returns the controller of OperatorConditions.
pub(super) fn controller() -> Controller<impl Reconcile> {
    let rbac = |name: &str| Kind::new("rbac.authorization.k8s.io", "v1", name);
    Controller::new(OperatorConditions)
        .owns::<Role>()
        .owns::<RoleBinding>()
        .dynamic(&rbac("Role"))
        .owns()
        .dynamic(&rbac("RoleBinding"))
        .owns()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operator_may_change_its_own_condition_only() {
        let mut condition = OperatorCondition::new(Some("demo"), "memo.v1");
        condition.spec.service_accounts = vec!["memo".into()];
        let [role, binding] = rights(&condition);
        assert_eq!(role["rules"][0]["resourceNames"], json!(["memo.v1"]));
        assert_eq!(binding["subjects"][0]["name"], "memo");
    }
}
