//! Comparison and union of the permissions that ClusterRoles and ClusterRoleBindings grant.

use serde_json::Value;

/// Maximum number of rules or subjects of a union: each version may add some.
const MAX_ITEMS: usize = 1_000;

/// Returns true if a ClusterRole or ClusterRoleBinding grants at least what another one does. Objects of other kinds
/// are not comparable.
pub(super) fn grants_all_of(object: &Value, other: &Value) -> bool {
    let equal = |field: &str| object[field] == other[field];
    match object["kind"].as_str() {
        Some("ClusterRole") => {
            let granted: Vec<&Value> = items(object, "rules").collect();
            equal("aggregationRule") && items(other, "rules").all(|rule| granted.iter().any(|one| covers(one, rule)))
        }
        Some("ClusterRoleBinding") => {
            let granted: Vec<&Value> = items(object, "subjects").collect();
            equal("roleRef") && items(other, "subjects").all(|subject| granted.contains(&subject))
        }
        _ => false,
    }
}

/// Returns an object that also grants what another one of its kind and name does; `None` if there is none.
pub(super) fn union(object: &Value, other: &Value) -> Option<Value> {
    let equal = |field: &str| object[field] == other[field];
    let (field, is_possible) = match object["kind"].as_str()? {
        "ClusterRole" => ("rules", object["aggregationRule"].is_null() && other["aggregationRule"].is_null()),
        "ClusterRoleBinding" => ("subjects", equal("roleRef")),
        _ => return None,
    };
    let is_granted = |one: &&Value| match field {
        "rules" => items(object, field).any(|rule| covers(rule, one)),
        _ => items(object, field).any(|subject| subject == *one),
    };
    let all: Vec<Value> =
        items(object, field).chain(items(other, field).filter(|one| !is_granted(one))).cloned().collect();
    let mut union = object.clone();
    let is_possible = is_possible && all.len() <= MAX_ITEMS;
    union[field] = all.into();
    is_possible.then_some(union)
}

fn items<'v>(object: &'v Value, field: &str) -> impl Iterator<Item = &'v Value> {
    object[field].as_array().into_iter().flatten()
}

/// Returns true if a rule alone grants all that another one does.
fn covers(rule: &Value, other: &Value) -> bool {
    let has_all = |field: &str| {
        let granted: Vec<&Value> = items(rule, field).collect();
        granted.iter().any(|one| **one == "*") || items(other, field).all(|one| granted.contains(&one))
    };
    let is_empty = |rule: &Value| items(rule, "resourceNames").next().is_none();
    // A rule without names grants all objects.
    let has_names = is_empty(rule) || !is_empty(other) && has_all("resourceNames");
    has_names && ["apiGroups", "resources", "nonResourceURLs", "verbs"].into_iter().all(has_all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn role(rules: &Value) -> Value {
        json!({"kind": "ClusterRole", "rules": rules})
    }

    #[test]
    fn roles_are_compared_by_their_rules() {
        let rule =
            |resources: &[&str], verbs: &[&str]| json!({"apiGroups": [""], "resources": resources, "verbs": verbs});
        let check = |object: Value, other: Value, expected: bool| {
            assert_eq!(grants_all_of(&role(&object), &role(&other)), expected, "{object} {other}");
        };
        let (read, all) = (rule(&["pods"], &["get"]), rule(&["pods", "services"], &["*"]));
        check(json!([read]), json!([read]), true);
        check(json!([read]), json!([]), true);
        check(json!([]), json!([read]), false);
        check(json!([all]), json!([read]), true);
        check(json!([read]), json!([all]), false);
        let mut named = read.clone();
        named["resourceNames"] = json!(["a"]);
        check(json!([read]), json!([named]), true);
        check(json!([named]), json!([read]), false);
        let url = |verbs: &[&str]| json!({"nonResourceURLs": ["/metrics"], "verbs": verbs});
        check(json!([url(&["get", "head"])]), json!([url(&["get"])]), true);
        check(json!([url(&["get"])]), json!([url(&["get", "head"])]), false);
        check(json!([all]), json!([url(&["get"])]), false);
        let both = union(&role(&json!([read])), &role(&json!([named, url(&["get"])]))).unwrap();
        assert_eq!(both["rules"], json!([read, url(&["get"])]), "what is granted already is not repeated");
        let mut aggregated = role(&json!([read]));
        aggregated["aggregationRule"] = json!({"clusterRoleSelectors": []});
        assert_eq!(union(&aggregated, &role(&json!([]))), None, "a controller sets its rules");
    }

    #[test]
    fn bindings_are_compared_by_role_and_subjects() {
        let binding = |role: &str, subjects: &[&str]| {
            let subjects: Vec<Value> = subjects.iter().map(|name| json!({"kind": "User", "name": name})).collect();
            json!({"kind": "ClusterRoleBinding", "roleRef": {"kind": "ClusterRole", "name": role}, "subjects": subjects})
        };
        assert!(grants_all_of(&binding("a", &["one", "two"]), &binding("a", &["two"])));
        assert!(!grants_all_of(&binding("a", &["two"]), &binding("a", &["one", "two"])));
        assert!(!grants_all_of(&binding("b", &["two"]), &binding("a", &["two"])));
        let other = json!({"kind": "PriorityClass", "value": 1});
        assert!(!grants_all_of(&other, &other));
        let both = union(&binding("a", &["one"]), &binding("a", &["two", "one"])).unwrap();
        assert_eq!(both, binding("a", &["one", "two"]));
        assert_eq!(union(&binding("a", &["one"]), &binding("b", &["two"])), None);
        assert_eq!(union(&other, &other), None);
    }
}
