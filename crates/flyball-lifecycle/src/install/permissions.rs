//! Service accounts and their permissions.

use super::hash::{content_hash, hashed_name};
use super::owner::{add_labels, labels_of, owner_labels, owner_reference, reference};
use crate::api::{ClusterServiceVersion, Permission, labels};
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::ResourceExt;
use serde_json::{Value, json};
use std::collections::BTreeSet;

const RBAC: &str = "rbac.authorization.k8s.io/v1";

/// Returns the service accounts of a ClusterServiceVersion, its Roles in its own namespace, its ClusterRoles, and the
/// bindings of both: the steps of an InstallPlan, in their order.
///
/// They have exactly the rules of the ClusterServiceVersion.
pub fn permissions(csv: &ClusterServiceVersion) -> Vec<Value> {
    let (mut objects, mut names) = (Vec::new(), BTreeSet::new());
    let details = csv.spec.details();
    // A permission may occur twice.
    let mut is_new = |kind: &'static str, name: &str| names.insert((kind, name.to_owned()));
    for permission in &details.permissions {
        if is_new("ServiceAccount", &permission.service_account_name) {
            objects.push(service_account(csv, &permission.service_account_name));
        }
        let name = role_name(csv, permission);
        if is_new("Role", &name) {
            objects.push(owned(csv, role("Role", &name, &permission.rules)));
            objects.push(owned(csv, binding(csv, "RoleBinding", "Role", &name, permission)));
        }
    }
    for permission in &details.cluster_permissions {
        if is_new("ServiceAccount", &permission.service_account_name) {
            objects.push(service_account(csv, &permission.service_account_name));
        }
        let name = cluster_role_name(csv, permission);
        if is_new("ClusterRole", &name) {
            objects.push(labeled(csv, role("ClusterRole", &name, &permission.rules)));
            objects.push(labeled(csv, binding(csv, "ClusterRoleBinding", "ClusterRole", &name, permission)));
        }
    }
    objects
}

/// Returns the role of each permission, those of the namespace first: whether it is a ClusterRole, and its name.
pub(crate) fn role_names(csv: &ClusterServiceVersion) -> Vec<(bool, String)> {
    let details = csv.spec.details();
    let roles = details.permissions.iter().map(|permission| (false, role_name(csv, permission)));
    let cluster_roles = details.cluster_permissions.iter().map(|permission| (true, cluster_role_name(csv, permission)));
    roles.chain(cluster_roles).collect()
}

/// Returns ClusterRoles with the rules of the Roles of a ClusterServiceVersion, for an operator that watches all
/// namespaces, and their bindings. In addition they can read namespaces.
pub fn rights_in_all_namespaces(csv: &ClusterServiceVersion) -> Vec<Value> {
    let (mut objects, mut names) = (Vec::new(), BTreeSet::new());
    for permission in &csv.spec.details().permissions {
        let name = role_name(csv, permission);
        if !names.insert(name.clone()) {
            continue;
        }
        let mut cluster_role = labeled(csv, role("ClusterRole", &name, &permission.rules));
        if let Some(rules) = cluster_role["rules"].as_array_mut() {
            rules.push(json!({"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "list", "watch"]}));
        }
        objects.push(cluster_role);
        objects.push(labeled(csv, binding(csv, "ClusterRoleBinding", "ClusterRole", &name, permission)));
    }
    objects
}

/// Returns the Roles of a ClusterServiceVersion for a target namespace, and their bindings. The copy of the
/// ClusterServiceVersion in this namespace is their owner, so that they are deleted with it.
pub fn rights_in_target(csv: &ClusterServiceVersion, namespace: &str, copy_uid: &str) -> Vec<Value> {
    let (origin, name) = (csv.namespace().unwrap_or_default(), csv.name_any());
    let owner = reference("operators.coreos.com/v1alpha1", super::owner::KIND, &name, Some(copy_uid), false);
    let (mut objects, mut names) = (Vec::new(), BTreeSet::new());
    for permission in &csv.spec.details().permissions {
        let role_name = role_name(csv, permission);
        if !names.insert(role_name.clone()) {
            continue;
        }
        for mut object in
            [role("Role", &role_name, &permission.rules), binding(csv, "RoleBinding", "Role", &role_name, permission)]
        {
            object["metadata"]["namespace"] = namespace.into();
            object["metadata"]["ownerReferences"] = json!([owner]);
            add_labels(&mut object, owner_labels(namespace, &name, super::owner::KIND));
            add_labels(&mut object, [(labels::COPIED_FROM.to_owned(), origin.as_str().into())].into_iter().collect());
            objects.push(object);
        }
    }
    objects
}

fn role_name(csv: &ClusterServiceVersion, permission: &Permission) -> String {
    let name = csv.name_any();
    // It is the name of a ClusterRole as well, if the operator watches all namespaces.
    let content = json!([name, csv.namespace(), "namespaced", permission]);
    hashed_name(&format!("{name}-{}", permission.service_account_name), &content)
}

fn cluster_role_name(csv: &ClusterServiceVersion, permission: &Permission) -> String {
    hashed_name(&csv.name_any(), &json!([csv.name_any(), csv.namespace(), permission]))
}

fn service_account(csv: &ClusterServiceVersion, name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {
            "name": name,
            "namespace": csv.namespace(),
            "ownerReferences": [owner_reference(csv)],
        },
    })
}

fn role(kind: &str, name: &str, rules: &[PolicyRule]) -> Value {
    json!({
        "apiVersion": RBAC,
        "kind": kind,
        "metadata": {"name": name, "labels": {labels::PERMISSIONS_HASH: content_hash(&rules)}},
        "rules": rules,
    })
}

fn binding(csv: &ClusterServiceVersion, kind: &str, role_kind: &str, name: &str, permission: &Permission) -> Value {
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": role_kind, "name": name});
    let subject =
        json!({"kind": "ServiceAccount", "name": permission.service_account_name, "namespace": csv.namespace()});
    json!({
        "apiVersion": RBAC,
        "kind": kind,
        "metadata": {"name": name, "labels": {labels::PERMISSIONS_HASH: content_hash(&json!([role, subject]))}},
        "roleRef": role,
        "subjects": [subject],
    })
}

/// Places an object into the namespace of its owner.
fn owned(csv: &ClusterServiceVersion, object: Value) -> Value {
    let mut object = labeled(csv, object);
    object["metadata"]["namespace"] = json!(csv.namespace());
    object["metadata"]["ownerReferences"] = json!([owner_reference(csv)]);
    object
}

fn labeled(csv: &ClusterServiceVersion, mut object: Value) -> Value {
    add_labels(&mut object, labels_of(csv));
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    fn csv() -> ClusterServiceVersion {
        serde_json::from_value(json!({
            "metadata": {"name": "memo.v2.0.0", "namespace": "demo", "uid": "u1"},
            "spec": {"install": {"strategy": "deployment", "spec": {
                "permissions": [{"serviceAccountName": "memo", "rules": [
                    {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]},
                ]}],
                "clusterPermissions": [{"serviceAccountName": "memo", "rules": [
                    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]},
                ]}],
            }}},
        }))
        .unwrap()
    }

    #[test]
    fn permissions_have_exactly_the_rules_of_the_csv() {
        let objects = permissions(&csv());
        let kinds: Vec<_> = objects.iter().map(|object| object["kind"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"]);
        assert_eq!(objects[1]["rules"], json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]));
        assert_eq!(objects[3]["rules"], json!([{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}]));
        assert_eq!(objects[3]["metadata"]["labels"]["olm.owner.namespace"], "demo");
        assert_eq!(objects[2]["subjects"][0], json!({"kind": "ServiceAccount", "name": "memo", "namespace": "demo"}));
    }

    #[test]
    fn operators_of_all_namespaces_get_cluster_roles_for_their_roles() {
        let objects = rights_in_all_namespaces(&csv());
        assert_eq!(objects.len(), 2, "cluster permissions need no second role");
        assert_eq!(objects[0]["metadata"]["name"], permissions(&csv())[1]["metadata"]["name"]);
        assert_eq!(objects[0]["rules"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn repeated_permissions_share_their_objects() {
        let mut csv = csv();
        let details = &mut csv.spec.install.spec;
        details.permissions.push(details.permissions[0].clone());
        details.cluster_permissions.push(details.cluster_permissions[0].clone());
        assert_eq!(permissions(&csv).len(), 5);
        assert_eq!((rights_in_all_namespaces(&csv).len(), rights_in_target(&csv, "t", "u").len()), (2, 2));
        let names = role_names(&csv);
        assert_eq!((names.len(), names[0] == names[1], names[2] == names[3]), (4, true, true));
    }

    #[test]
    fn rights_in_a_target_belong_to_the_copy() {
        let objects = rights_in_target(&csv(), "target", "u2");
        assert_eq!(objects.len(), 2);
        for object in objects {
            assert_eq!(object["metadata"]["namespace"], "target");
            assert_eq!(object["metadata"]["ownerReferences"][0]["uid"], "u2");
            assert_eq!(object["metadata"]["labels"]["olm.copiedFrom"], "demo");
        }
    }
}
