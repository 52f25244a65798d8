//! Permissions in a CSV: those for namespaced resources follow the target namespaces of an OperatorGroup, those for
//! cluster-scoped resources do not.

use flyball_core::scope::CLUSTER_SCOPED;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Resources of reviews, which have no objects.
const REVIEWS: [(&str, &str); 4] = [
    ("authentication.k8s.io", "tokenreviews"),
    ("authorization.k8s.io", "subjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
];

/// The scopes of resources.
pub(super) struct Scopes {
    cluster: BTreeSet<(String, String)>,
    /// Groups whose resources are all known.
    known_groups: BTreeSet<String>,
}

impl Scopes {
    /// Creates a list of Kubernetes' resources, and those of these CRDs.
    pub(super) fn new(definitions: &[Value]) -> Self {
        let plural = |kind: &str| {
            let kind = kind.to_lowercase();
            match kind.strip_suffix('y') {
                Some(stem) => format!("{stem}ies"),
                None if kind.ends_with(['s', 'x']) => format!("{kind}es"),
                None => format!("{kind}s"),
            }
        };
        let mut cluster: BTreeSet<(String, String)> =
            CLUSTER_SCOPED.iter().map(|(group, kind)| ((*group).to_owned(), plural(kind))).collect();
        cluster.extend(REVIEWS.map(|(group, resource)| (group.to_owned(), resource.to_owned())));
        let mut known_groups = BTreeSet::new();
        for definition in definitions {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let group = text(&definition["spec"]["group"]);
            if definition["spec"]["scope"] == "Cluster" {
                cluster.insert((group.clone(), text(&definition["spec"]["names"]["plural"])));
            }
            known_groups.insert(group);
        }
        Self { cluster, known_groups }
    }

    /// Returns true if Kubernetes or the bundle defines the resource, and it is namespaced.
    fn is_namespaced(&self, group: &str, resource: &str) -> bool {
        let resource = resource.split('/').next().unwrap_or_default();
        // Groups of Kubernetes have no dot, or end in k8s.io.
        let is_known = !group.contains('.') || group.ends_with(".k8s.io") || self.known_groups.contains(group);
        let is_all = group == "*" || resource == "*";
        is_known && !is_all && !self.cluster.contains(&(group.to_owned(), resource.to_owned()))
    }

    /// Splits a rule into those for namespaced and for other resources.
    fn split(&self, rule: &Value) -> (Option<Value>, Option<Value>) {
        let texts = |field: &str| -> Vec<String> {
            let listed = rule[field].as_array().into_iter().flatten();
            listed.filter_map(|text| text.as_str().map(str::to_owned)).collect()
        };
        let (groups, resources) = (texts("apiGroups"), texts("resources"));
        let is_namespaced = |resource: &String| groups.iter().all(|group| self.is_namespaced(group, resource));
        let (namespaced, cluster): (Vec<String>, Vec<String>) = resources.into_iter().partition(is_namespaced);
        let with = |resources: Vec<String>| {
            let mut rule = rule.clone();
            rule["resources"] = json!(resources);
            rule
        };
        let is_other = !cluster.is_empty() || rule["nonResourceURLs"].is_array();
        let other = if rule["nonResourceURLs"].is_array() { rule.clone() } else { with(cluster) };
        ((!namespaced.is_empty()).then(|| with(namespaced)), is_other.then_some(other))
    }
}

/// Returns `permissions` and `clusterPermissions` of a CSV for the roles of an operator. If it can only be installed
/// for all namespaces, its cluster roles remain as they are.
pub(super) fn permissions(roles: &[Value], account: &str, scopes: &Scopes, follows_targets: bool) -> (Value, Value) {
    let (mut namespaced, mut cluster) = (Vec::new(), Vec::new());
    for role in roles {
        let is_cluster_role = role["kind"] == "ClusterRole";
        for rule in role["rules"].as_array().into_iter().flatten() {
            match (is_cluster_role, follows_targets) {
                (false, _) => push(&mut namespaced, rule.clone()),
                (true, false) => push(&mut cluster, rule.clone()),
                (true, true) => {
                    let (own, other) = scopes.split(rule);
                    own.into_iter().for_each(|rule| push(&mut namespaced, rule));
                    other.into_iter().for_each(|rule| push(&mut cluster, rule));
                }
            }
        }
    }
    let list = |rules: Vec<Value>| match rules.is_empty() {
        true => json!([]),
        false => json!([{"serviceAccountName": account, "rules": rules}]),
    };
    (list(namespaced), list(cluster))
}

fn push(rules: &mut Vec<Value>, rule: Value) {
    if !rules.contains(&rule) {
        rules.push(rule);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_split_by_scope() {
        let definition = json!({"spec": {"group": "a.example.com", "scope": "Cluster", "names": {"plural": "zones"}}});
        let scopes = Scopes::new(&[definition]);
        let rule = |groups: &[&str], resources: &[&str]| json!({"apiGroups": groups, "resources": resources, "verbs": ["get"]});
        let role = json!({"kind": "ClusterRole", "rules": [
            rule(&[""], &["pods", "nodes", "namespaces"]),
            rule(&["a.example.com"], &["zones", "zones/status", "sites"]),
            rule(&["other.example.com"], &["things"]),
            rule(&["authentication.k8s.io"], &["tokenreviews"]),
            rule(&["policy"], &["podsecuritypolicies", "poddisruptionbudgets"]),
            json!({"nonResourceURLs": ["/metrics"], "verbs": ["get"]}),
        ]});
        let own = json!({"kind": "Role", "rules": [rule(&["coordination.k8s.io"], &["leases"])]});
        let (namespaced, cluster) = permissions(&[role.clone(), own], "m", &scopes, true);
        let expected = json!([{"serviceAccountName": "m", "rules": [
            rule(&[""], &["pods"]), rule(&["a.example.com"], &["sites"]), rule(&["policy"], &["poddisruptionbudgets"]),
            rule(&["coordination.k8s.io"], &["leases"]),
        ]}]);
        assert_eq!(namespaced, expected);
        let expected = json!([{"serviceAccountName": "m", "rules": [
            rule(&[""], &["nodes", "namespaces"]), rule(&["a.example.com"], &["zones", "zones/status"]),
            rule(&["other.example.com"], &["things"]), rule(&["authentication.k8s.io"], &["tokenreviews"]),
            rule(&["policy"], &["podsecuritypolicies"]), json!({"nonResourceURLs": ["/metrics"], "verbs": ["get"]}),
        ]}]);
        assert_eq!(cluster, expected);
        let (namespaced, cluster) = permissions(std::slice::from_ref(&role), "m", &scopes, false);
        assert_eq!((namespaced, &cluster[0]["rules"]), (json!([]), &role["rules"]));
    }
}
