//! Permissions of the operator's account, and the kinds that follow from them.

use crate::api::{Cluster, Reference};
use crate::error::{Error, Result};
use serde_json::Value;
use std::collections::BTreeSet;

const RBAC: &str = "rbac.authorization.k8s.io";

/// Maximum number of kinds of children.
const MAX_KINDS: usize = 64;

/// Kinds of children of an operator that may create all kinds.
const COMMON: &[(&str, &str)] = &[
    ("", "ConfigMap"),
    ("", "Secret"),
    ("", "Service"),
    ("", "ServiceAccount"),
    ("", "PersistentVolumeClaim"),
    ("apps", "Deployment"),
    ("apps", "StatefulSet"),
    ("apps", "DaemonSet"),
    ("batch", "Job"),
    ("batch", "CronJob"),
    ("networking.k8s.io", "Ingress"),
    ("networking.k8s.io", "NetworkPolicy"),
    ("policy", "PodDisruptionBudget"),
    ("autoscaling", "HorizontalPodAutoscaler"),
    (RBAC, "Role"),
    (RBAC, "RoleBinding"),
];

/// Kinds that change without the operator.
const TRANSIENT: &[&str] =
    &["Pod", "Event", "Lease", "ReplicaSet", "Endpoints", "EndpointSlice", "ControllerRevision", "PodTemplate"];

/// The rules of the roles that bindings name.
#[derive(Clone, Debug, Default)]
pub(super) struct Grants(Vec<Value>);

/// Returns true if a group is not one of Kubernetes.
pub(crate) fn is_custom(group: &str) -> bool {
    group.contains('.') && !group.ends_with(".k8s.io")
}

/// Lists the bindings that name an account.
pub(super) async fn bindings(
    cluster: &Cluster,
    namespaces: &BTreeSet<String>,
    namespace: &str,
    account: &str,
) -> Result<Vec<Value>> {
    let mut found = cluster.list_of(RBAC, "ClusterRoleBinding", None).await?;
    for namespace in namespaces {
        found.extend(cluster.list_of(RBAC, "RoleBinding", Some(namespace)).await?);
    }
    let names = |binding: &Value| {
        let subjects = binding["subjects"].as_array();
        subjects.into_iter().flatten().any(|subject| is_account(subject, namespace, account))
    };
    Ok(found.into_iter().filter(names).collect())
}

/// Returns true if the subject of a binding is an account.
pub(crate) fn is_account(subject: &Value, namespace: &str, account: &str) -> bool {
    subject["kind"] == "ServiceAccount" && subject["namespace"] == namespace && subject["name"] == account
}

impl Grants {
    /// Reads the roles of bindings.
    pub(super) async fn of(cluster: &Cluster, bindings: &[Value]) -> Result<Self> {
        let mut rules = Vec::new();
        for binding in bindings {
            let role = &binding["roleRef"];
            let kind = role["kind"].as_str().unwrap_or_default();
            let namespace = binding["metadata"]["namespace"].as_str().filter(|_| kind == "Role");
            let reference = Reference::new(RBAC, kind, namespace, role["name"].as_str().unwrap_or_default());
            if let Some(Value::Array(all)) = cluster.get(&reference).await?.map(|mut role| role["rules"].take()) {
                rules.extend(all);
            }
        }
        Ok(Self(rules))
    }

    /// Returns the rules of an administrator.
    pub(super) fn all() -> Self {
        Self(vec![serde_json::json!({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]})])
    }

    /// Returns true if a rule that names the group allows one of the verbs.
    fn allows(&self, group: &str, resource: &str, verbs: &[&str]) -> bool {
        let has = |list: &Value, accepts: &dyn Fn(&str) -> bool| {
            list.as_array().into_iter().flatten().filter_map(Value::as_str).any(accepts)
        };
        let subresource = resource.split_once('/').map(|(_, name)| format!("*/{name}"));
        self.0.iter().any(|rule| {
            has(&rule["apiGroups"], &|one| one == group)
                && has(&rule["resources"], &|one| {
                    one == resource || one == "*" || subresource.as_deref().is_some_and(|sub| sub == one)
                })
                && has(&rule["verbs"], &|one| one == "*" || verbs.contains(&one))
        })
    }

    fn allows_all(&self) -> bool {
        let any = |list: &Value| list.as_array().is_some_and(|list| list.iter().any(|one| one == "*"));
        self.0.iter().any(|rule| any(&rule["apiGroups"]) && any(&rule["resources"]) && any(&rule["verbs"]))
    }

    /// Returns the custom kinds whose status the rules allow to write, and the named ones.
    pub(super) fn resource_kinds(&self, cluster: &Cluster, named: &[String]) -> Result<Vec<(String, String)>> {
        let mut found: Vec<(String, String)> = cluster
            .kinds()
            .filter(|kind| is_custom(&kind.resource.group))
            .filter(|kind| {
                let status = format!("{}/status", kind.resource.plural);
                self.allows(&kind.resource.group, &status, &["update", "patch"])
            })
            .map(|kind| (kind.resource.group.clone(), kind.resource.kind.clone()))
            .collect();
        for name in named {
            let fits = |group: &str, kind: &str, plural: &str| {
                let full = format!("{kind}.{group}");
                [kind, plural, &full].iter().any(|one| one.eq_ignore_ascii_case(name))
                    || format!("{plural}.{group}").eq_ignore_ascii_case(name)
            };
            let all = cluster.kinds().map(|kind| &kind.resource);
            let kind =
                all.filter(|kind| is_custom(&kind.group)).find(|kind| fits(&kind.group, &kind.kind, &kind.plural));
            let kind = kind.ok_or_else(|| Error::Target(format!("the cluster has no custom kind {name:?}")))?;
            let key = (kind.group.clone(), kind.kind.clone());
            if !found.contains(&key) {
                found.push(key);
            }
        }
        Ok(found)
    }

    /// Returns the namespaced kinds that the rules allow to create.
    pub(super) fn child_kinds(&self, cluster: &Cluster) -> Vec<(String, String)> {
        let all = self.allows_all();
        let kinds = cluster.kinds().filter(|kind| kind.is_namespaced).map(|kind| &kind.resource);
        let kinds = kinds.filter(|kind| !TRANSIENT.contains(&kind.kind.as_str())).filter(|kind| {
            let key = (kind.group.as_str(), kind.kind.as_str());
            self.allows(&kind.group, &kind.plural, &["create", "patch"]) || all && COMMON.contains(&key)
        });
        kinds.map(|kind| (kind.group.clone(), kind.kind.clone())).take(MAX_KINDS).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rules_allow_named_groups_only() {
        let grants = Grants(vec![
            json!({"apiGroups": ["example.com"], "resources": ["*/status"], "verbs": ["patch"]}),
            json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}),
        ]);
        for (group, resource, verb, expected) in [
            ("example.com", "sites/status", "patch", true),
            ("example.com", "sites", "patch", false),
            ("other.com", "sites/status", "patch", false),
            ("", "configmaps", "create", true),
            ("", "secrets", "create", false),
        ] {
            assert_eq!(grants.allows(group, resource, &[verb]), expected, "{group} {resource} {verb}");
        }
        assert!(
            !grants.allows_all() && is_custom("a.example.com") && !is_custom("apps") && !is_custom("policy.k8s.io")
        );
    }
}
