//! What every cluster holds from the start: its namespaces, the default roles and who they are bound to.

use super::Rule;
use crate::server::Inner;
use flyball_core::Object;
use serde_json::{Value, json};

const RBAC: &str = "rbac.authorization.k8s.io";

/// A role as the list has it.
#[derive(Default)]
struct Role {
    name: String,
    /// The role that its rules are added to.
    to: Option<String>,
    /// The role whose added rules it has.
    from: Option<String>,
    bound: Vec<String>,
    rules: Vec<Rule>,
}

/// Reads the list of roles, which is part of the program.
fn roles() -> Vec<Role> {
    let mut roles: Vec<Role> = Vec::new();
    for line in include_str!("roles.txt").lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()) {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<String>>();
        if let Some(head) = line.strip_prefix("role ") {
            let (head, bound) = head.split_once(" : ").unwrap_or((head, ""));
            let head = words(head);
            let after = |word: &str| head.iter().position(|known| known == word).map(|at| head[at + 1].clone());
            roles.push(Role {
                to: after("to"),
                from: after("from"),
                bound: words(bound),
                name: head[0].clone(),
                rules: Vec::new(),
            });
        } else {
            let parts: Vec<Vec<String>> = line.split('|').map(words).collect();
            let [verbs, groups, targets] = &parts[..] else { panic!("a rule has three parts: {line}") };
            let rule = Rule { verbs: verbs.iter().flat_map(|verb| expand(verb)).collect(), ..Rule::default() };
            let rule = match groups.is_empty() {
                true => Rule { paths: targets.clone(), ..rule },
                false => Rule {
                    groups: groups
                        .iter()
                        .map(|group| if group == "core" { String::new() } else { group.clone() })
                        .collect(),
                    resources: targets.clone(),
                    ..rule
                },
            };
            roles.last_mut().expect("a rule follows its role").rules.push(rule);
        }
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

/// All rules of a role, with those that it takes over from others.
fn rules_of(roles: &[Role], role: &Role) -> Vec<Rule> {
    let Some(from) = &role.from else { return role.rules.clone() };
    roles.iter().filter(|other| other.to.as_ref() == Some(from)).flat_map(|other| rules_of(roles, other)).collect()
}

/// Adds to a role that has been there the rules of one that comes with this release, unless somebody has forbidden it. See
/// <https://kubernetes.io/docs/reference/access-authn-authz/rbac/#auto-reconciliation>.
pub(crate) fn add_rules(known: &mut Object, new: &Object) -> bool {
    let is_kept_up = known.at(&["metadata", "annotations", "rbac.authorization.kubernetes.io/autoupdate"]);
    // What others lend to a role is seen to by a controller.
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

/// Writes what a cluster holds from the start, as far as it is not there.
pub(crate) fn write(inner: &Inner) {
    let seed = |group: &str, plural: &str, value: Value| {
        inner.seed(group, "v1", plural, Object::try_from(value).expect("written as an object"))
    };
    for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
        seed("", "namespaces", json!({"metadata": {"name": name}}));
    }
    let roles = roles();
    for role in &roles {
        let labels = |to: &Option<String>| {
            let mut labels = json!({"kubernetes.io/bootstrapping": "rbac-defaults"});
            if let Some(to) = to {
                labels[format!("{RBAC}/aggregate-to-{to}")] = "true".into();
            }
            labels
        };
        let metadata = |labels: Value| json!({"name": role.name, "labels": labels, "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"}});
        let rules: Value = rules_of(&roles, role).iter().map(Rule::write).collect();
        let mut value = json!({"metadata": metadata(labels(&role.to)), "rules": rules});
        if let Some(from) = &role.from {
            value["aggregationRule"] =
                json!({"clusterRoleSelectors": [{"matchLabels": {format!("{RBAC}/aggregate-to-{from}"): "true"}}]});
        }
        seed(RBAC, "clusterroles", value);
        if role.bound.is_empty() {
            continue;
        }
        let subjects: Value =
            role.bound.iter().map(|group| json!({"apiGroup": RBAC, "kind": "Group", "name": group})).collect();
        let reference = json!({"apiGroup": RBAC, "kind": "ClusterRole", "name": role.name});
        seed(
            RBAC,
            "clusterrolebindings",
            json!({"metadata": metadata(labels(&None)), "roleRef": reference, "subjects": subjects}),
        );
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
        seed("scheduling.k8s.io", "priorityclasses", class);
    }
    let service = json!({
        "metadata": {"name": "kubernetes", "namespace": "default", "labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {"type": "ClusterIP", "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"],
                 "ports": [{"name": "https", "port": 443, "targetPort": 6443, "protocol": "TCP"}]},
    });
    seed("", "services", service);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aggregated_roles_hold_what_others_lend() {
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
