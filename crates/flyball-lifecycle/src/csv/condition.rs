//! The controller of OperatorConditions: permits the operator to report its conditions, and publishes them.
//!
//! Users choose the names of OperatorConditions, so a Role or binding of the same name that has another owner stays.

use crate::api::OperatorCondition;
use crate::api::labels;
use crate::install::reference;
use crate::patch::object;
use flyball::{Action, Condition, Context, Controller, Event, Kind, Reconcile, Result};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::core::ObjectMeta;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

const RBAC: &str = "rbac.authorization.k8s.io/v1";

struct OperatorConditions;

impl Reconcile for OperatorConditions {
    type Resource = OperatorCondition;

    async fn reconcile(&self, condition: &OperatorCondition, cx: &Context<OperatorCondition>) -> Result<Action> {
        let [role, binding] = rights(condition);
        match taken(condition, cx).await? {
            None => {
                cx.apply_unowned(&object(role)?).await?;
                cx.apply_unowned(&object(binding)?).await?;
            }
            Some(what) => cx.event(Event::warning(
                "NameTaken",
                format!("{what} belongs to others, so the operator cannot report conditions: delete or rename it"),
            )),
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

/// Returns the Role or binding with the name of an OperatorCondition that is not of it. Those without the label of the
/// manager are not in its caches, so the API server is asked before both exist.
async fn taken(condition: &OperatorCondition, cx: &Context<OperatorCondition>) -> Result<Option<String>> {
    let (namespace, name) = (condition.namespace().unwrap_or_default(), condition.name_any());
    let key = cx.sibling(&name);
    if let (Some(role), Some(binding)) = (cx.get::<Role>(&key).await?, cx.get::<RoleBinding>(&key).await?)
        && is_of(&role.metadata, &name)
        && is_of(&binding.metadata, &name)
    {
        return Ok(None);
    }
    let role = Api::<Role>::namespaced(cx.client().clone(), &namespace).get_opt(&name).await?;
    if role.is_some_and(|role| !is_of(&role.metadata, &name)) {
        return Ok(Some(format!("Role {namespace}/{name}")));
    }
    let binding = Api::<RoleBinding>::namespaced(cx.client().clone(), &namespace).get_opt(&name).await?;
    Ok(binding.filter(|binding| !is_of(&binding.metadata, &name)).map(|_| format!("RoleBinding {namespace}/{name}")))
}

/// Returns true if an OperatorCondition of this name owns an object.
fn is_of(meta: &ObjectMeta, name: &str) -> bool {
    meta.owner_references.iter().flatten().any(|owner| owner.kind == "OperatorCondition" && owner.name == name)
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
