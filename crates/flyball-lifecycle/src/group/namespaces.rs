//! Labels of target namespaces, which the webhooks of operators select.

use super::targets;
use crate::api::{OperatorGroup, labels};
use crate::patch::merge_patch;
use crate::rules::rule;
use flyball::{Action, Context, Controller, Predicate, Reconcile, Result};
use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt;
use serde_json::{Map, Value, json};

/// Labels namespaces with the UIDs of the groups that target them.
struct TargetLabels;

impl Reconcile for TargetLabels {
    type Resource = Namespace;

    async fn reconcile(&self, namespace: &Namespace, cx: &Context<Namespace>) -> Result<Action> {
        let groups = cx.list::<OperatorGroup>(None).await?;
        let changes = label_changes(namespace, &groups);
        if !changes.is_empty() {
            merge_patch(cx, namespace, "", &json!({"metadata": {"labels": changes}})).await?;
        }
        Ok(Action::done())
    }
}

/// Returns the labels to set, and those to remove as `null`.
fn label_changes(namespace: &Namespace, groups: &[OperatorGroup]) -> Map<String, Value> {
    let name = namespace.name_any();
    let is_target = |group: &&OperatorGroup| {
        let found = targets(group, std::slice::from_ref(namespace));
        group.metadata.deletion_timestamp.is_none() && found.is_ok_and(|targets| targets.contains(&name))
    };
    let mut changes = Map::new();
    for uid in groups.iter().filter(is_target).filter_map(ResourceExt::uid) {
        changes.insert(format!("{}{uid}", labels::OPERATOR_GROUP_UID_PREFIX), "".into());
    }
    for (label, value) in namespace.labels() {
        if !label.starts_with(labels::OPERATOR_GROUP_UID_PREFIX) {
            continue;
        }
        match changes.get(label) {
            Some(wanted) if *wanted == *value => drop(changes.remove(label)),
            Some(_) => {}
            None => drop(changes.insert(label.clone(), Value::Null)),
        }
    }
    changes
}

/// Returns the controller that labels target namespaces.
pub(crate) fn namespace_controller() -> Controller<impl Reconcile> {
    Controller::new(TargetLabels)
        .name("operatorgroup-namespaces")
        .watches::<OperatorGroup>(|_, caches| caches.keys::<Namespace>(None))
        .filter::<OperatorGroup>(Predicate::generation())
        .allows(rule("", &["namespaces"], &["patch"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_follow_the_targets_of_groups() {
        let check = |labels: Value, expected: Value| {
            let namespace: Namespace =
                serde_json::from_value(json!({"metadata": {"name": "a", "labels": labels}})).unwrap();
            let group = |uid: &str, spec: Value| -> OperatorGroup {
                serde_json::from_value(json!({"metadata": {"name": uid, "uid": uid}, "spec": spec})).unwrap()
            };
            let groups = [group("1", json!({"targetNamespaces": ["a", "b"]})), group("2", json!({}))];
            assert_eq!(Value::Object(label_changes(&namespace, &groups)), expected);
        };
        check(json!({"team": "red"}), json!({"olm.operatorgroup.uid/1": ""}));
        check(json!({"olm.operatorgroup.uid/1": ""}), json!({}));
        check(
            json!({"olm.operatorgroup.uid/1": "", "olm.operatorgroup.uid/gone": ""}),
            json!({"olm.operatorgroup.uid/gone": null}),
        );
    }
}
