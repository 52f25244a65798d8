//! ClusterRoles for the users of an operator's APIs.

use super::ProvidedApi;
use crate::api::{ClusterServiceVersion, OperatorGroup, labels};
use crate::install::{content_hash, owner_labels, reference};
use flyball::{Action, Context, Controller, ObjectKey, Reconcile, Result};
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::ResourceExt;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Longest name of a ClusterRole.
const MAX_NAME: usize = 253;
/// Kind in the labels of the roles of a group.
const GROUP_KIND: &str = "OperatorGroup";
/// Kind of CRDs in owner references: in lower case, as in OLM, which the garbage collector accepts.
const CRD_KIND: &str = "customresourcedefinition";
/// Levels of access, with their verbs.
const LEVELS: [(&str, &[&str]); 3] =
    [("admin", &["*"]), ("edit", &["create", "update", "patch", "delete"]), ("view", &["get", "list", "watch"])];

/// Returns the ClusterRoles of a group: one for each level, which aggregate those of its APIs.
pub(super) fn group_roles(group: &OperatorGroup, apis: &BTreeSet<ProvidedApi>) -> Vec<Value> {
    let (namespace, name) = (group.namespace().unwrap_or_default(), group.name_any());
    let role = |(level, _): (&str, &[&str])| {
        let hash = content_hash(&json!([namespace, name, level]));
        let fixed = "olm.og..-".len() + level.len() + hash.len();
        let short: String = name.chars().take(MAX_NAME - fixed).collect();
        let mut labels = owner_labels(&namespace, &name, GROUP_KIND);
        labels.insert(labels::MANAGED.into(), "true".into());
        let mut role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": format!("olm.og.{short}.{level}-{hash}"), "labels": labels},
        });
        if !apis.is_empty() {
            let selectors: BTreeSet<String> = apis.iter().map(|api| aggregation_label(api, level)).collect();
            let selectors: Vec<Value> =
                selectors.into_iter().map(|label| json!({"matchLabels": {label: "true"}})).collect();
            role["aggregationRule"] = json!({"clusterRoleSelectors": selectors});
        }
        role
    };
    LEVELS.into_iter().map(role).collect()
}

/// Returns the ClusterRoles to use the APIs that a ClusterServiceVersion owns: Kubernetes aggregates them to its roles
/// `admin`, `edit` and `view`, and groups to theirs. They are deleted with the CRD or the APIService.
///
/// `uids` are those of the CRDs and APIServices by name; an API whose object does not exist has no roles.
pub(crate) fn api_roles(csv: &ClusterServiceVersion, uids: &BTreeMap<String, String>) -> Vec<Value> {
    let mut roles = Vec::new();
    for owned in &csv.spec.crds.owned {
        let (Some(uid), Some((plural, group))) = (uids.get(&owned.name), owned.name.split_once('.')) else { continue };
        let api = ProvidedApi { kind: owned.kind.clone(), version: owned.version.clone(), group: group.into() };
        let crd = reference("apiextensions.k8s.io/v1", CRD_KIND, &owned.name, Some(uid), false);
        let prefix = format!("{}-{}-", owned.name, owned.version);
        for (level, verbs) in LEVELS {
            let rule = json!({"apiGroups": [group], "resources": [plural], "verbs": verbs});
            roles.push(api_role(&format!("{prefix}{level}"), level, &api, &crd, &rule));
        }
        let rule = json!({
            "apiGroups": ["apiextensions.k8s.io"],
            "resources": ["customresourcedefinitions"],
            "resourceNames": [owned.name],
            "verbs": ["get"],
        });
        roles.push(api_role(&format!("{prefix}crdview"), "view", &api, &crd, &rule));
    }
    for owned in &csv.spec.api_services.owned {
        let Some(uid) = uids.get(&owned.api_service_name()) else { continue };
        let api = ProvidedApi { kind: owned.kind.clone(), version: owned.version.clone(), group: owned.group.clone() };
        let service = reference("apiregistration.k8s.io/v1", "APIService", &owned.api_service_name(), Some(uid), false);
        for (level, verbs) in LEVELS {
            let rule = json!({"apiGroups": [owned.group], "resources": [owned.name], "verbs": verbs});
            let name = format!("{}-{}-{level}", owned.name, owned.version);
            roles.push(api_role(&name, level, &api, &service, &rule));
        }
    }
    roles
}

fn api_role(name: &str, level: &str, api: &ProvidedApi, owner: &Value, rule: &Value) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {
            "name": name,
            "labels": {
                labels::MANAGED: "true",
                format!("rbac.authorization.k8s.io/aggregate-to-{level}"): "true",
                aggregation_label(api, level): "true",
            },
            "ownerReferences": [owner],
        },
        "rules": [rule],
    })
}

/// Returns the label of the roles of an API. It has a hash instead of the name, which may be longer than a label.
fn aggregation_label(api: &ProvidedApi, level: &str) -> String {
    let hash = content_hash(&api.to_string()).to_lowercase();
    format!("{}{}-{level}", labels::AGGREGATE_PREFIX, &hash[..16])
}

/// Deletes the ClusterRoles of groups that are gone: a group has no finalizer, and a cluster-scoped object cannot have
/// it as owner.
struct GroupRoles;

impl Reconcile for GroupRoles {
    type Resource = ClusterRole;

    async fn reconcile(&self, role: &ClusterRole, cx: &Context<ClusterRole>) -> Result<Action> {
        if let Some(group) = group_of(role)
            && cx.get::<OperatorGroup>(&group).await?.is_none()
        {
            cx.delete(role).await?;
        }
        Ok(Action::done())
    }
}

/// Returns the group that a role belongs to.
pub(super) fn group_of(role: &ClusterRole) -> Option<ObjectKey> {
    let label = |name: &str| role.labels().get(name).map(String::as_str);
    (label(labels::OWNER_KIND) == Some(GROUP_KIND))
        .then(|| Some(ObjectKey::new(Some(label(labels::OWNER_NAMESPACE)?), label(labels::OWNER)?)))
        .flatten()
}

/// Returns the controller that deletes the roles of groups that are gone.
pub(crate) fn role_controller() -> Controller<impl Reconcile> {
    Controller::new(GroupRoles)
        .name("operatorgroup-roles")
        .owns::<ClusterRole>()
        .refers_to::<OperatorGroup>(|role| group_of(role).into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_of_a_group_aggregate_those_of_its_apis() {
        let group = OperatorGroup::new(Some("demo"), &"g".repeat(300));
        let csv: ClusterServiceVersion =
            serde_json::from_value(json!({"spec": {"customresourcedefinitions": {"owned": [
                {"name": "memos.demo.flyball.dev", "version": "v1", "kind": "Memo"},
            ]}}}))
            .unwrap();
        let uids = [("memos.demo.flyball.dev".to_owned(), "u".to_owned())].into();
        let roles = group_roles(&group, &super::super::ProvidedApis::of(&csv).0);
        let api = api_roles(&csv, &uids);
        assert_eq!((roles.len(), api.len()), (3, 4));
        for role in &roles {
            assert!(role["metadata"]["name"].as_str().unwrap().len() <= MAX_NAME);
        }
        let selector = &roles[0]["aggregationRule"]["clusterRoleSelectors"][0]["matchLabels"];
        let (label, _) = selector.as_object().unwrap().iter().next().unwrap();
        assert_eq!(api[0]["metadata"]["labels"][label], "true");
        assert!(label.split('/').nth(1).unwrap().len() <= 63, "{label}");
        assert_eq!(api[3]["metadata"]["name"], "memos.demo.flyball.dev-v1-crdview");
        assert!(group_roles(&group, &BTreeSet::new())[0].get("aggregationRule").is_none());
        assert!(api_roles(&csv, &BTreeMap::new()).is_empty());
    }
}
