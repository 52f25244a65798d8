//! ClusterRoles for users of the lifecycle manager, with the names and rules of OLM.
//!
//! Kubernetes aggregates them to `admin`, `edit` and `view`. So an administrator of a namespace can subscribe to
//! packages, and read why nothing is installed.

use crate::api::GROUP;
use crate::packages;
use crate::rules::rule;
use flyball::Operator;

const ADMIN: &str = "admin";
const EDIT: &str = "edit";
const VIEW: &str = "view";
const READ: [&str; 3] = ["get", "list", "watch"];

/// Adds the roles to the manifests of an operator.
pub(super) fn add_to(operator: Operator) -> Operator {
    let write = vec![
        rule(GROUP, &["subscriptions"], &["create", "update", "patch", "delete"]),
        rule(GROUP, &["clusterserviceversions", "catalogsources", "installplans", "subscriptions"], &["delete"]),
    ];
    let read = vec![
        rule(
            GROUP,
            &["clusterserviceversions", "catalogsources", "installplans", "subscriptions", "operatorgroups"],
            &READ,
        ),
        rule(packages::GROUP, &[packages::RESOURCE, &format!("{}/icon", packages::RESOURCE)], &READ),
    ];
    // OLM does not have it: `flyball olm why` explains what holds an upgrade back.
    let conditions = vec![rule(GROUP, &["operatorconditions"], &READ)];
    // OLM creates these for the APIService of its packageserver.
    let of_packages = |verbs: &[&str]| vec![rule(packages::GROUP, &[packages::RESOURCE], verbs)];
    operator
        .aggregated_role("aggregate-olm-edit", &[ADMIN, EDIT], write)
        .aggregated_role("aggregate-olm-view", &[ADMIN, EDIT, VIEW], read)
        .aggregated_role("aggregate-flyball-olm-view", &[ADMIN, EDIT, VIEW], conditions)
        .aggregated_role("packagemanifests-v1-admin", &[ADMIN], of_packages(&["*"]))
        .aggregated_role("packagemanifests-v1-edit", &[EDIT], of_packages(&["create", "update", "patch", "delete"]))
        .aggregated_role("packagemanifests-v1-view", &[VIEW], of_packages(&READ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// Compares a role with that of `0000_50_olm_09-aggregated.clusterrole.yaml` of OLM.
    fn check(name: &str, levels: &[&str], rules: &[(&str, &[&str], &[&str])]) {
        let manifests = add_to(Operator::new("test")).manifests();
        let role = manifests.iter().find(|object| object["metadata"]["name"] == name).unwrap();
        let label = |level: &&str| (format!("rbac.authorization.k8s.io/aggregate-to-{level}"), Value::from("true"));
        assert_eq!(role["metadata"]["labels"], levels.iter().map(label).collect::<Value>(), "{name}");
        let rule = |(group, resources, verbs): &(&str, &[&str], &[&str])| json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
        assert_eq!(role["rules"], rules.iter().map(rule).collect::<Value>(), "{name}");
    }

    #[test]
    fn roles_are_those_of_olm() {
        let all = ["clusterserviceversions", "catalogsources", "installplans", "subscriptions"];
        check(
            "aggregate-olm-edit",
            &["admin", "edit"],
            &[
                ("operators.coreos.com", &["subscriptions"], &["create", "update", "patch", "delete"]),
                ("operators.coreos.com", &all, &["delete"]),
            ],
        );
        let read = ["get", "list", "watch"];
        check(
            "aggregate-olm-view",
            &["admin", "edit", "view"],
            &[
                ("operators.coreos.com", &[&all[..], &["operatorgroups"]].concat(), &read),
                ("packages.operators.coreos.com", &["packagemanifests", "packagemanifests/icon"], &read),
            ],
        );
    }
}
