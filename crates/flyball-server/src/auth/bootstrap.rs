//! Bootstrap objects: the namespaces of every cluster, the default roles and their bindings.

use super::Rule;
use crate::kinds::{
    self, CLUSTER_ROLE, CLUSTER_ROLE_BINDING, Kind, NAMESPACE, PRIORITY_CLASS, ROLE, ROLE_BINDING, SERVICE,
    SERVICE_ACCOUNT,
};
use flyball_core::Object;
use serde_json::{Value, json};

const RBAC: &str = "rbac.authorization.k8s.io";

/// An entry of the list of roles.
#[derive(Default)]
struct Role {
    /// The namespace of a role; `None` for a cluster role.
    namespace: Option<String>,
    name: String,
    /// The role that its rules are added to.
    to: Option<String>,
    /// The role whose added rules it has.
    from: Option<String>,
    /// The name of its binding, if it has one.
    binding: Option<String>,
    subjects: Vec<Value>,
    rules: Vec<Rule>,
}

impl Role {
    /// Reads `[NAMESPACE/]NAME [to AGGREGATE] [from AGGREGATE] [by BINDING] [: SUBJECT…]`.
    fn read(line: &str) -> Self {
        let (head, bound) = line.split_once(" : ").map_or((line, None), |(head, bound)| (head, Some(bound)));
        let head = words(head);
        let after = |word: &str| head.iter().position(|known| known == word).map(|at| head[at + 1].clone());
        let (namespace, name) = match head[0].split_once('/') {
            Some((namespace, name)) => (Some(namespace.to_owned()), name.to_owned()),
            None => (None, head[0].clone()),
        };
        let subjects =
            bound.into_iter().flat_map(words).filter(|word| word != "-").map(|word| subject(&word)).collect();
        let binding = bound.map(|_| after("by").unwrap_or_else(|| name.clone()));
        Self { namespace, name, to: after("to"), from: after("from"), binding, subjects, rules: Vec::new() }
    }
}

/// Reads `GROUP`, `user/NAME` or `account/NAME`.
fn subject(word: &str) -> Value {
    match word.split_once('/') {
        Some(("account", name)) => json!({"kind": SERVICE_ACCOUNT.kind, "name": name, "namespace": "kube-system"}),
        Some((_, name)) => json!({"apiGroup": RBAC, "kind": "User", "name": name}),
        None => json!({"apiGroup": RBAC, "kind": "Group", "name": word}),
    }
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// Reads the list of roles, which is part of the program.
fn roles() -> Vec<Role> {
    let mut roles: Vec<Role> = Vec::new();
    for line in include_str!("roles.txt").lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()) {
        if let Some(role) = line.strip_prefix("role ") {
            roles.push(Role::read(role));
            continue;
        }
        let mut parts = line.split('|').map(words);
        let mut part = || parts.next().unwrap_or_default();
        let (verbs, groups, targets, names) = (part(), part(), part(), part());
        let rule = Rule { verbs: verbs.iter().flat_map(|verb| expand(verb)).collect(), names, ..Rule::default() };
        let group = |group: String| if group == "core" { String::new() } else { group };
        let rule = match groups.is_empty() {
            true => Rule { paths: targets, ..rule },
            false => Rule { groups: groups.into_iter().map(group).collect(), resources: targets, ..rule },
        };
        roles.last_mut().expect("a rule follows its role").rules.push(rule);
    }
    roles
}

fn expand(verb: &str) -> Vec<String> {
    let verbs: &[&str] = match verb {
        "read" => &["get", "list", "watch"],
        "write" => &["create", "delete", "deletecollection", "patch", "update"],
        verb => &[verb],
    };
    verbs.iter().map(|verb| (*verb).to_owned()).collect()
}

/// Returns all rules of a role, including aggregated ones.
fn rules_of(roles: &[Role], role: &Role) -> Vec<Rule> {
    let Some(from) = &role.from else { return role.rules.clone() };
    roles.iter().filter(|other| other.to.as_ref() == Some(from)).flat_map(|other| rules_of(roles, other)).collect()
}

/// Adds the rules of this release's role to an existing role, unless its annotation disables that.
/// See <https://kubernetes.io/docs/reference/access-authn-authz/rbac/#auto-reconciliation>.
pub(crate) fn add_rules(known: &mut Object, new: &Object) -> bool {
    let is_kept_up = known.at(&["metadata", "annotations", "rbac.authorization.kubernetes.io/autoupdate"]);
    // A controller maintains aggregated rules.
    if is_kept_up != Some(&"true".into()) || known.get("aggregationRule").is_some_and(|rule| !rule.is_null()) {
        return false;
    }
    let rules = |role: &Object| role.get("rules").and_then(Value::as_array).cloned().unwrap_or_default();
    let mut all = rules(known);
    let read: Vec<Rule> = all.iter().map(Rule::read).collect();
    let before = all.len();
    all.extend(rules(new).into_iter().filter(|rule| !read.contains(&Rule::read(rule))));
    let is_more = all.len() > before;
    if is_more {
        known.insert("rules".into(), all.into());
    }
    is_more
}

/// Returns the bootstrap objects of a cluster, with their kinds.
pub(crate) fn objects() -> Vec<(&'static Kind, Object)> {
    let mut all: Vec<(&Kind, Value)> = Vec::new();
    for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
        all.push((&NAMESPACE, json!({"metadata": {"name": name}})));
    }
    let roles = roles();
    for role in &roles {
        write_role(&roles, role, &mut all);
    }
    for (name, value, description) in [
        (
            "system-node-critical",
            2_000_001_000,
            "Used for system critical pods that must not be moved from their current node.",
        ),
        (
            "system-cluster-critical",
            2_000_000_000,
            "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
        ),
    ] {
        let class = json!({"metadata": {"name": name}, "value": value, "description": description, "preemptionPolicy": "PreemptLowerPriority"});
        all.push((&PRIORITY_CLASS, class));
    }
    let service = json!({
        "metadata": {"name": "kubernetes", "namespace": "default", "labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {"type": "ClusterIP", "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"],
                 "ports": [{"name": "https", "port": 443, "targetPort": 6443, "protocol": "TCP"}]},
    });
    all.push((&SERVICE, service));
    all.extend(kinds::flow_objects());
    let object = |value| Object::try_from(value).expect("written as an object");
    all.into_iter().map(|(kind, value)| (kind, object(value))).collect()
}

/// Adds a role, and its binding if it has one.
fn write_role(roles: &[Role], role: &Role, all: &mut Vec<(&Kind, Value)>) {
    let metadata = |name: &str, to: Option<&String>| {
        let mut labels = json!({"kubernetes.io/bootstrapping": "rbac-defaults"});
        if let Some(to) = to {
            labels[format!("{RBAC}/aggregate-to-{to}")] = "true".into();
        }
        let annotations = json!({"rbac.authorization.kubernetes.io/autoupdate": "true"});
        let mut metadata = json!({"name": name, "labels": labels, "annotations": annotations});
        if let Some(namespace) = &role.namespace {
            metadata["namespace"] = namespace.as_str().into();
        }
        metadata
    };
    let rules: Value = rules_of(roles, role).iter().map(Rule::write).collect();
    let mut value = json!({"metadata": metadata(&role.name, role.to.as_ref()), "rules": rules});
    if let Some(from) = &role.from {
        value["aggregationRule"] =
            json!({"clusterRoleSelectors": [{"matchLabels": {format!("{RBAC}/aggregate-to-{from}"): "true"}}]});
    }
    let (kind, bindings) = match role.namespace {
        Some(_) => (&ROLE, &ROLE_BINDING),
        None => (&CLUSTER_ROLE, &CLUSTER_ROLE_BINDING),
    };
    all.push((kind, value));
    if let Some(binding) = &role.binding {
        let mut value = json!({
            "metadata": metadata(binding, None),
            "roleRef": {"apiGroup": RBAC, "kind": kind.kind, "name": role.name},
        });
        if !role.subjects.is_empty() {
            value["subjects"] = role.subjects.clone().into();
        }
        all.push((bindings, value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aggregated_roles_include_the_rules_of_other_roles() {
        let roles = roles();
        let rules = |name: &str| rules_of(&roles, roles.iter().find(|role| role.name == name).expect("a default role"));
        let read = Rule {
            groups: vec![String::new()],
            resources: vec!["namespaces".into()],
            verbs: expand("read"),
            ..Rule::default()
        };
        assert!(rules("view").contains(&read));
        assert!(rules("edit").len() > rules("view").len());
        assert!(rules("admin").len() > rules("edit").len());
    }
}
