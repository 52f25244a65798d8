//! Roles: of the operator, derived by its program, and of users of its kinds.

use super::{ConfigDirectory, InstallTarget, ManifestFile, object};
use flyball::description::Description;
use flyball::is_aggregated_role;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

const API: &str = "rbac.authorization.k8s.io";
const VERSION: &str = "rbac.authorization.k8s.io/v1";

/// Builds the installed roles and bindings from a role of the program.
pub(super) fn role_manifests(mut role: Value, part: &str, target: &InstallTarget) -> Vec<ManifestFile> {
    let namespace = role["metadata"]["namespace"].as_str().map(str::to_owned);
    if part == "metrics-reader" {
        return vec![ManifestFile::new(ConfigDirectory::Rbac, "metrics_reader_role", role)];
    }
    if is_aggregated_role(&role) {
        return vec![ManifestFile::new(ConfigDirectory::Rbac, format!("{}_role", part.replace('-', "_")), role)];
    }
    let rules = role["rules"].as_array().cloned().unwrap_or_default();
    let (asking, own): (Vec<Value>, Vec<Value>) = rules.into_iter().partition(creates_access_reviews);
    let mut manifests = Vec::new();
    if !asking.is_empty() {
        let mut auth = object(VERSION, "ClusterRole", &target.object_name("metrics-auth-role"), None);
        auth["rules"] = asking.into();
        manifests.extend(with_binding(auth, "metrics_auth_role", target));
    }
    // The role with all permissions of the operator has the operator's name.
    let base = if target.name() == part { "manager" } else { part };
    role["metadata"]["name"] = target.object_name(&format!("{base}-role")).into();
    role["rules"] = merge_rules(own).into();
    let folder = namespace.as_deref().filter(|namespace| *namespace != target.namespace);
    let file = match (base, folder) {
        ("manager", None) if namespace.is_some() => "role_in_system".to_owned(),
        ("manager", None) => "role".to_owned(),
        ("manager", Some(namespace)) => format!("role_in_{namespace}"),
        (base, _) => format!("{}_role", base.replace('-', "_")),
    };
    if role["rules"] != json!([]) {
        manifests.extend(with_binding(role, &file, target));
    }
    manifests
}

/// Returns true if a rule is for the authorization of metrics.
fn creates_access_reviews(rule: &Value) -> bool {
    rule["verbs"] == json!(["create"])
        && (rule["resources"] == json!(["tokenreviews"]) || rule["resources"] == json!(["subjectaccessreviews"]))
}

/// Sums rules up to one for each resource, in the order of groups and resources.
fn merge_rules(rules: Vec<Value>) -> Vec<Value> {
    let mut sums: BTreeMap<String, (Value, BTreeSet<String>)> = BTreeMap::new();
    for mut rule in rules {
        let verbs = rule.as_object_mut().and_then(|rule| rule.remove("verbs")).unwrap_or_default();
        let verbs = verbs.as_array().into_iter().flatten().filter_map(|verb| verb.as_str().map(str::to_owned));
        let key = format!("{} {} {rule}", rule["apiGroups"], rule["resources"]);
        sums.entry(key).or_insert_with(|| (rule, BTreeSet::new())).1.extend(verbs);
    }
    let rule = |(mut rule, verbs): (Value, BTreeSet<String>)| {
        rule["verbs"] = json!(verbs);
        rule
    };
    sums.into_values().map(rule).collect()
}

/// Binds a role to the operator's account.
fn with_binding(role: Value, file: &str, target: &InstallTarget) -> [ManifestFile; 2] {
    let (kind, name) = (role["kind"].as_str().unwrap_or_default().to_owned(), role["metadata"]["name"].clone());
    let namespace = role["metadata"]["namespace"].as_str();
    let binding_name = format!("{}binding", name.as_str().unwrap_or_default());
    let mut binding = object(VERSION, &format!("{kind}Binding"), &binding_name, namespace);
    binding["roleRef"] = json!({"apiGroup": API, "kind": kind, "name": name});
    binding["subjects"] = json!([{"kind": "ServiceAccount", "name": target.account(), "namespace": target.namespace}]);
    [
        ManifestFile::new(ConfigDirectory::Rbac, file, role),
        ManifestFile::new(ConfigDirectory::Rbac, format!("{file}_binding"), binding),
    ]
}

/// Creates the service account, and the viewer, editor and admin roles of each kind.
pub(super) fn manifests(description: &Description, target: &InstallTarget) -> Vec<ManifestFile> {
    let account = object("v1", "ServiceAccount", &target.account(), Some(&target.namespace));
    let mut manifests = vec![ManifestFile::new(ConfigDirectory::Rbac, "service_account", account)];
    let kinds: Vec<&str> = description.definitions.iter().map(|definition| definition.kind.as_str()).collect();
    for definition in &description.definitions {
        let (plural, group) = definition.name.split_once('.').unwrap_or((&definition.name, ""));
        let alone = kinds.iter().filter(|kind| **kind == definition.kind).count() == 1;
        let kind = if alone { definition.kind.to_lowercase() } else { definition.name.clone() };
        let roles = [
            ("admin", json!(["*"])),
            ("editor", json!(["create", "delete", "get", "list", "patch", "update", "watch"])),
            ("viewer", json!(["get", "list", "watch"])),
        ];
        for (role_name, verbs) in roles {
            let mut role =
                object(VERSION, "ClusterRole", &target.object_name(&format!("{kind}-{role_name}-role")), None);
            role["rules"] = json!([
                {"apiGroups": [group], "resources": [plural], "verbs": verbs},
                {"apiGroups": [group], "resources": [format!("{plural}/status")], "verbs": ["get"]},
            ]);
            manifests.push(ManifestFile::new(ConfigDirectory::Rbac, format!("{kind}_{role_name}_role"), role));
        }
    }
    manifests
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_of_one_resource_are_merged() {
        let rule = |resource: &str, verbs: Value| json!({"apiGroups": ["a"], "resources": [resource], "verbs": verbs});
        let named = json!({"apiGroups": ["a"], "resources": ["x"], "resourceNames": ["n"], "verbs": ["get"]});
        let rules =
            vec![rule("y", json!(["get"])), named.clone(), rule("x", json!(["watch"])), rule("x", json!(["get"]))];
        assert_eq!(merge_rules(rules), [named, rule("x", json!(["get", "watch"])), rule("y", json!(["get"]))]);
    }
}
