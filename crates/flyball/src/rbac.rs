//! RBAC rules of an operator, derived from the declarations of its controllers.
//!
//! See <https://kubernetes.io/docs/reference/access-authn-authz/rbac/>.

use crate::kind::Kind;
use flyball_core::GroupResource;
use k8s_openapi::api::rbac::v1::PolicyRule;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Verbs on one resource that a controller needs.
#[derive(Clone, Debug)]
pub(crate) struct Grant {
    resource: GroupResource,
    namespaced: bool,
    verbs: &'static [&'static str],
    /// The namespaces of the grant; all namespaces of the operator if empty.
    namespaces: BTreeSet<String>,
}

impl Grant {
    /// Grants verbs on a kind, or on a subresource of it.
    pub(crate) fn new(kind: &Kind, subresource: &str, verbs: &'static [&'static str]) -> Self {
        let GroupResource { group, resource } = kind.resource();
        let resource = if subresource.is_empty() { resource.to_string() } else { format!("{resource}/{subresource}") };
        let (resource, namespaced) = (GroupResource::new(group, &resource), kind.is_namespaced());
        Self { resource, namespaced, verbs, namespaces: BTreeSet::new() }
    }

    /// Returns true if it is for a kind, or a subresource of it.
    pub(crate) fn is_of(&self, kind: &Kind) -> bool {
        let resource = self.resource.resource.split('/').next().unwrap_or_default();
        self.resource.group == kind.resource().group && *resource == *kind.resource().resource
    }

    /// Grants it in these namespaces only.
    pub(crate) fn within(self, namespaces: &BTreeSet<String>) -> Self {
        Self { namespaces: namespaces.clone(), ..self }
    }

    /// Grants the permissions to publish events.
    pub(crate) fn events() -> Self {
        let (resource, verbs) = (GroupResource::new("events.k8s.io", "events"), &["create", "patch"]);
        Self { resource, namespaced: true, verbs, namespaces: BTreeSet::new() }
    }
}

/// Merges grants to one rule per resource, in the order of group and resource.
pub(crate) fn rules<'a>(grants: impl IntoIterator<Item = &'a Grant>) -> Vec<PolicyRule> {
    let mut verbs: BTreeMap<&GroupResource, BTreeSet<&str>> = BTreeMap::new();
    for grant in grants {
        verbs.entry(&grant.resource).or_default().extend(grant.verbs);
    }
    let rule = |(resource, verbs): (&GroupResource, BTreeSet<&str>)| PolicyRule {
        api_groups: Some(vec![resource.group.to_string()]),
        resources: Some(vec![resource.resource.to_string()]),
        verbs: verbs.into_iter().map(str::to_owned).collect(),
        ..PolicyRule::default()
    };
    verbs.into_iter().map(rule).collect()
}

/// Prefix of the labels by which Kubernetes aggregates a ClusterRole to others; see
/// <https://kubernetes.io/docs/reference/access-authn-authz/rbac/#aggregated-clusterroles>.
const AGGREGATION_PREFIX: &str = "rbac.authorization.k8s.io/aggregate-to-";

/// Creates a ClusterRole that is aggregated to those of these levels.
pub(crate) fn aggregated_role(name: &str, levels: &[&str], rules: &[PolicyRule]) -> Value {
    let labels: BTreeMap<String, &str> =
        levels.iter().map(|level| (format!("{AGGREGATION_PREFIX}{level}"), "true")).collect();
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name, "labels": labels},
        "rules": rules,
    })
}

/// Returns true if a role is [for users](crate::Operator::aggregated_role), and not bound to the operator's account.
#[doc(hidden)]
pub fn is_aggregated_role(role: &Value) -> bool {
    let labels = role["metadata"]["labels"].as_object();
    labels.is_some_and(|labels| labels.keys().any(|name| name.starts_with(AGGREGATION_PREFIX)))
}

/// Creates the roles for these grants: one for the cluster, or one in each namespace and one for cluster-scoped
/// kinds.
///
/// `extra` rules are added to the roles for namespaced objects, `cluster` rules to the cluster role.
pub(crate) fn roles(
    name: &str,
    grants: &[Grant],
    extra: &[PolicyRule],
    cluster: &[PolicyRule],
    namespaces: &BTreeSet<String>,
) -> Vec<Value> {
    let role = |kind: &str, namespace: Option<&str>, rules: Vec<PolicyRule>| {
        let mut role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": kind,
            "metadata": {"name": name},
            "rules": rules,
        });
        if let Some(namespace) = namespace {
            role["metadata"]["namespace"] = namespace.into();
        }
        role
    };
    let places = |grant: &Grant| match (grant.namespaced, grant.namespaces.is_empty()) {
        (false, _) => BTreeSet::new(),
        (true, true) => namespaces.clone(),
        (true, false) => grant.namespaces.clone(),
    };
    let mut roles = Vec::new();
    let mut everywhere = rules(grants.iter().filter(|grant| places(grant).is_empty()));
    if namespaces.is_empty() {
        everywhere.extend_from_slice(extra);
    }
    everywhere.extend_from_slice(cluster);
    if !everywhere.is_empty() {
        roles.push(role("ClusterRole", None, everywhere));
    }
    for namespace in grants.iter().flat_map(places).chain(namespaces.clone()).collect::<BTreeSet<String>>() {
        let mut rules = rules(grants.iter().filter(|grant| places(grant).contains(&namespace)));
        if namespaces.contains(&namespace) {
            rules.extend_from_slice(extra);
        }
        if !rules.is_empty() {
            roles.push(role("Role", Some(&namespace), rules));
        }
    }
    roles
}

/// Creates the role for leader election and its events: in the namespace of the lease, and limited to this lease.
pub(crate) fn election_role(operator: &str, namespace: &str, lease: &str) -> Value {
    let rule = |verbs: Value| json!({"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": verbs});
    // The verb `create` cannot be restricted by name.
    let (create, mut keep) = (rule(json!(["create"])), rule(json!(["get", "list", "update", "watch"])));
    keep["resourceNames"] = json!([lease]);
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": format!("{operator}-leader-election"), "namespace": namespace},
        "rules": [create, keep, {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"]}],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::apps::v1::Deployment;
    use k8s_openapi::api::core::v1::{ConfigMap, Node};

    #[test]
    fn grants_on_one_resource_become_one_rule() {
        let grants = [
            Grant::new(&Kind::of::<Deployment>(), "", &["get", "list"]),
            Grant::new(&Kind::of::<ConfigMap>(), "", &["watch"]),
            Grant::new(&Kind::of::<Deployment>(), "", &["create", "get"]),
            Grant::new(&Kind::of::<Deployment>(), "status", &["patch"]),
        ];
        let texts: Vec<String> = rules(&grants)
            .iter()
            .map(|rule| {
                format!(
                    "{:?} {:?} {}",
                    rule.api_groups.as_ref().unwrap(),
                    rule.resources.as_ref().unwrap(),
                    rule.verbs.join(",")
                )
            })
            .collect();
        assert_eq!(
            texts,
            [
                r#"[""] ["configmaps"] watch"#,
                r#"["apps"] ["deployments"] create,get,list"#,
                r#"["apps"] ["deployments/status"] patch"#,
            ]
        );
    }

    #[test]
    fn namespaced_operator_gets_roles_per_namespace() {
        let grants =
            [Grant::new(&Kind::of::<ConfigMap>(), "", &["get"]), Grant::new(&Kind::of::<Node>(), "", &["get"])];
        let names = |namespaces: &[&str]| {
            let namespaces = namespaces.iter().map(|n| n.to_string()).collect();
            let name = |role: &Value| {
                format!("{} {} {}", role["kind"], role["metadata"], role["rules"].as_array().unwrap().len())
            };
            roles("op", &grants, &[], &[], &namespaces).iter().map(name).collect::<Vec<_>>()
        };
        let narrow = [grants[0].clone().within(&["c".to_owned()].into()), grants[1].clone()];
        let placed = roles("op", &narrow, &[], &[], &["a".to_owned()].into());
        let placed: Vec<String> = placed.iter().map(|role| format!("{} {}", role["metadata"], role["rules"])).collect();
        let (map, node) = (rules(&narrow[..1]), rules(&narrow[1..]));
        let expected = [(r#"{"name":"op"}"#, json!(node)), (r#"{"name":"op","namespace":"c"}"#, json!(map))];
        assert_eq!(placed, expected.map(|(metadata, rules)| format!("{metadata} {rules}")));
        assert_eq!(names(&[]), [r#""ClusterRole" {"name":"op"} 2"#]);
        assert_eq!(
            names(&["a", "b"]),
            [
                r#""ClusterRole" {"name":"op"} 1"#,
                r#""Role" {"name":"op","namespace":"a"} 1"#,
                r#""Role" {"name":"op","namespace":"b"} 1"#,
            ]
        );
    }
}
