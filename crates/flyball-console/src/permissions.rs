//! The view of permissions: those of the user, and those of operators, compared with their use.
//!
//! An operator's granted permissions are the rules of the roles that are bound to its service account; its used ones
//! follow from the stores and the writes in its state and ledger.

use crate::operators::{Operator, Reconcile};
use crate::summary::{bounded, items, text};
use flyball_core::service_account;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Limit of rules and of uses in an answer.
const MAX_RULES: usize = 500;

/// A permitted action: a verb on a resource, or on a URL.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Use {
    pub(crate) group: String,
    pub(crate) resource: String,
    pub(crate) verb: String,
    /// Empty for all namespaces and for cluster-scoped objects.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) namespace: String,
}

/// A rule of a role, limited to a namespace or not.
#[derive(Clone, Debug)]
pub(crate) struct Grant {
    rule: Value,
    namespace: String,
    role: String,
}

impl Grant {
    /// Returns true if the rule permits the use.
    fn permits(&self, used: &Use) -> bool {
        let has = |field: &str, wanted: &str| {
            items(&self.rule[field]).any(|value| matches!(text(value), "*") || text(value) == wanted)
        };
        let is_here = self.namespace.is_empty() || self.namespace == used.namespace;
        // A rule for named objects permits some of the uses; which ones cannot be known here.
        is_here && has("apiGroups", &used.group) && has("resources", &used.resource) && has("verbs", &used.verb)
    }
}

/// Returns the rules of the roles that are bound to a service account.
pub(crate) fn grants(account: (&str, &str), roles: &[Value], bindings: &[Value]) -> Vec<Grant> {
    let (namespace, name) = account;
    let groups = service_account::group_names(namespace);
    let is_bound = |subject: &Value| match text(&subject["kind"]) {
        "ServiceAccount" => text(&subject["name"]) == name && text(&subject["namespace"]) == namespace,
        "Group" => groups.iter().any(|group| *group == text(&subject["name"])),
        "User" => text(&subject["name"]) == service_account::user_name(namespace, name),
        _ => false,
    };
    let mut found = Vec::new();
    for binding in bindings.iter().filter(|binding| items(&binding["subjects"]).any(is_bound)) {
        let scope = text(&binding["metadata"]["namespace"]);
        let role_ref = &binding["roleRef"];
        let is_role = |role: &&Value| {
            let place = if text(&role_ref["kind"]) == "Role" { scope } else { "" };
            text(&role["metadata"]["name"]) == text(&role_ref["name"]) && text(&role["metadata"]["namespace"]) == place
        };
        for role in roles.iter().filter(is_role) {
            let role_name = format!("{}/{}", text(&role_ref["kind"]).to_lowercase(), text(&role_ref["name"]));
            found.extend(items(&role["rules"]).map(|rule| Grant {
                rule: rule.clone(),
                namespace: scope.to_owned(),
                role: bounded(&role_name),
            }));
        }
    }
    found.truncate(MAX_RULES);
    found
}

/// Returns the uses of an operator, with the number of writes; `plurals` maps group and kind to the resource.
pub(crate) fn uses(
    index: usize,
    operator: &Operator,
    reconciles: &[Reconcile],
    plurals: &BTreeMap<(String, String), String>,
) -> BTreeMap<Use, u64> {
    let mut found: BTreeMap<Use, u64> = BTreeMap::new();
    for store in items(&operator.state["stores"]) {
        for verb in ["list", "watch"] {
            let field = |name: &str| bounded(text(&store[name]));
            let (group, resource, namespace) = (field("group"), field("resource"), field("namespace"));
            *found.entry(Use { group, resource, verb: verb.to_owned(), namespace }).or_default() += 1;
        }
    }
    for reconcile in reconciles.iter().filter(|reconcile| reconcile.operator == index) {
        for write in items(&reconcile.value["writes"]) {
            let object = &write["object"];
            let (group, kind) = (text(&object["group"]), text(&object["kind"]));
            let Some(plural) = plurals.get(&(group.to_owned(), kind.to_owned())) else { continue };
            let verb = match text(&write["verb"]) {
                "create" => "create",
                "apply" | "finalizer" | "client" => "patch",
                "update" => "update",
                "delete" => "delete",
                _ => continue,
            };
            let subresource = text(&write["subresource"]);
            let slash = if subresource.is_empty() { "" } else { "/" };
            let resource = bounded(&format!("{plural}{slash}{subresource}"));
            let (group, namespace) = (bounded(group), bounded(text(&object["namespace"])));
            *found.entry(Use { group, resource, verb: verb.to_owned(), namespace }).or_default() += 1;
        }
    }
    found
}

/// Compares granted and used permissions.
pub(crate) fn compare(grants: &[Grant], uses: &BTreeMap<Use, u64>) -> Value {
    let used: Vec<Value> = uses
        .iter()
        .take(MAX_RULES)
        .map(|(used, count)| {
            let by = grants.iter().find(|grant| grant.permits(used)).map(|grant| grant.role.as_str());
            json!({"use": used, "count": count, "role": by})
        })
        .collect();
    let granted = grants.iter().map(|grant| {
        let is_used = uses.keys().any(|used| grant.permits(used));
        let unused_verbs: Vec<&str> = items(&grant.rule["verbs"])
            .map(text)
            .filter(|verb| *verb != "*" && !uses.keys().any(|used| used.verb == *verb && grant.permits(used)))
            .collect();
        let is_wide = ["apiGroups", "resources", "verbs"]
            .iter()
            .any(|field| items(&grant.rule[*field]).any(|value| text(value) == "*"));
        json!({
            "role": grant.role, "namespace": grant.namespace, "rule": grant.rule, "used": is_used,
            "unusedVerbs": unused_verbs, "wide": is_wide,
        })
    });
    json!({"granted": granted.collect::<Vec<_>>(), "used": used})
}

/// Returns the reconciles that lacked a permission. Operators of older releases do not report whether a permission was
/// missing, or a quota or another rule of admission denied the request.
pub(crate) fn denials(reconciles: &[Reconcile]) -> Vec<Value> {
    let mut found = BTreeSet::new();
    let mut denials = Vec::new();
    for reconcile in reconciles {
        let error = text(&reconcile.value["error"]);
        let is_of_admission = reconcile.value["denial"] == "admission";
        if reconcile.value["status"] == 403
            && !is_of_admission
            && found.insert((reconcile.operator, bounded(error)))
            && denials.len() < 50
        {
            denials.push(json!({
                "operator": reconcile.operator, "controller": bounded(text(&reconcile.value["controller"])),
                "error": bounded(error), "reconcile": bounded(text(&reconcile.value["id"])),
                "time": text(&reconcile.value["began"]),
            }));
        }
    }
    denials
}

#[cfg(test)]
mod tests {
    use super::*;
    use flyball_core::time::parse_rfc3339;
    use std::sync::Arc;

    #[test]
    fn granted_permissions_are_compared_with_their_use() {
        let role = json!({"kind": "ClusterRole", "metadata": {"name": "op"}, "rules": [
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch", "create", "delete"]},
            {"apiGroups": ["*"], "resources": ["secrets"], "verbs": ["get"]},
        ]});
        let other = json!({"kind": "ClusterRole", "metadata": {"name": "other"}, "rules": [{"verbs": ["*"]}]});
        let binding = |role: &str, account: &str| {
            json!({"metadata": {"name": role}, "roleRef": {"kind": "ClusterRole", "name": role},
                "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": "ns"}]})
        };
        let grants = grants(("ns", "op"), &[role, other], &[binding("op", "op"), binding("other", "else")]);
        assert_eq!(grants.len(), 2);
        let state = json!({"stores": [{"group": "", "version": "v1", "kind": "Pod", "resource": "pods"}]});
        let operator = Operator { state: Arc::new(state), ..Operator::default() };
        let pod = json!({"group": "", "kind": "Pod", "namespace": "ns", "name": "p"});
        let writes =
            json!([{"verb": "create", "object": pod}, {"verb": "apply", "subresource": "status", "object": pod}]);
        let reconcile = Reconcile {
            operator: 0,
            began: parse_rfc3339("2026-01-01T00:00:00Z").expect("a time"),
            value: Arc::new(json!({"writes": writes, "error": "pods is forbidden", "status": 403})),
        };
        let plurals = BTreeMap::from([((String::new(), "Pod".to_owned()), "pods".to_owned())]);
        let compared = compare(&grants, &uses(0, &operator, &[reconcile.clone(), reconcile.clone()], &plurals));
        let uses: Vec<String> = items(&compared["used"])
            .map(|used| {
                let (verb, resource) = (&used["use"]["verb"], &used["use"]["resource"]);
                format!("{} {} {} {}", text(verb), text(resource), used["count"], text(&used["role"]))
            })
            .collect();
        let role = "clusterrole/op";
        let expected = [
            format!("create pods 2 {role}"),
            format!("list pods 1 {role}"),
            format!("watch pods 1 {role}"),
            "patch pods/status 2 ".to_owned(),
        ];
        assert_eq!(uses, expected);
        assert_eq!(compared["granted"][0]["unusedVerbs"], json!(["delete"]));
        assert_eq!((&compared["granted"][1]["used"], &compared["granted"][1]["wide"]), (&json!(false), &json!(true)));
        let other = |value| Reconcile { value: Arc::new(value), ..reconcile.clone() };
        let elsewhere = other(json!({"error": "the gate is forbidden"}));
        let denied = |error: &str, by: &str| other(json!({"error": error, "status": 403, "denial": by}));
        let (quota, role) = (denied("exceeded quota", "admission"), denied("cannot create", "authorization"));
        let found = denials(&[elsewhere, quota, role, reconcile.clone(), reconcile.clone()]);
        let errors: Vec<&str> = found.iter().map(|denial| text(&denial["error"])).collect();
        assert_eq!(errors, ["cannot create", "pods is forbidden"]);
    }
}
