//! Permissions that an operator needs because it creates Roles and bindings that grant them.
//!
//! The API server prevents privilege escalation: granting a permission requires having it. See
//! <https://kubernetes.io/docs/reference/access-authn-authz/rbac/#privilege-escalation-prevention-and-bootstrapping>.

use crate::resources::Resource;
use k8s_openapi::api::rbac::v1::PolicyRule;
use serde_json::Value;

/// The API group of Roles and bindings.
const GROUP: &str = "rbac.authorization.k8s.io";

/// Returns the rules required to create these objects: those of all Roles, and the verb `bind` on roles that are not
/// among them.
pub(crate) fn granted(resources: &[Resource]) -> Vec<PolicyRule> {
    let rbac: Vec<&Resource> =
        resources.iter().filter(|resource| resource.api_version.starts_with(&format!("{GROUP}/"))).collect();
    let mut rules = Vec::new();
    for resource in &rbac {
        match resource.kind.as_str() {
            "Role" | "ClusterRole" => {
                let own_rules = resource.object["rules"].as_array().into_iter().flatten();
                // An invalid rule is rejected when the Role is created.
                rules.extend(own_rules.filter_map(|rule| serde_json::from_value(rule.clone()).ok()));
            }
            "RoleBinding" | "ClusterRoleBinding" => {
                let role = &resource.object["roleRef"];
                let is_role = |other: &&&Resource| role["kind"] == *other.kind && role["name"] == *other.name();
                if rbac.iter().find(is_role).is_none() {
                    rules.extend(bind(role));
                }
            }
            _ => {}
        }
    }
    rules
}

fn bind(role: &Value) -> Option<PolicyRule> {
    let resource = match role["kind"].as_str()? {
        "Role" => "roles",
        "ClusterRole" => "clusterroles",
        _ => return None,
    };
    Some(PolicyRule {
        api_groups: Some(vec![GROUP.into()]),
        resources: Some(vec![resource.into()]),
        resource_names: Some(vec![role["name"].as_str()?.into()]),
        verbs: vec!["bind".into()],
        ..PolicyRule::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rules_include_the_permissions_that_roles_grant() {
        let resource = |kind: &str, name: &str, more: Value| {
            let mut object =
                json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": name}});
            object.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            Resource::of("a.yaml", &object).unwrap().remove(0)
        };
        let bound = |kind: &str, name: &str| json!({"roleRef": {"kind": kind, "name": name}});
        let rules = granted(&[
            resource("Role", "a", json!({"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}, 1]})),
            resource("RoleBinding", "a", bound("Role", "a")),
            resource("RoleBinding", "b", bound("ClusterRole", "view")),
        ]);
        let texts: Vec<String> = rules.iter().map(|rule| json!(rule).to_string()).collect();
        assert_eq!(
            texts,
            [
                r#"{"apiGroups":[""],"resources":["pods"],"verbs":["get"]}"#,
                r#"{"apiGroups":["rbac.authorization.k8s.io"],"resourceNames":["view"],"resources":["clusterroles"],"verbs":["bind"]}"#,
            ]
        );
    }
}
