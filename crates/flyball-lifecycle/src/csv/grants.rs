//! Comparison, union and reduction of the permissions that ClusterRoles and ClusterRoleBindings grant.
//!
//! Installations share such objects. Annotations record what each of them needs, so that the object can lose what only
//! an installation needed that has left. Everyone who may change the object may write these annotations: they never
//! add a permission.

use crate::api::labels::{INSTALLED_ALONGSIDE_PREFIX, NEEDS_PREFIX};
use crate::install::content_hash;
use serde_json::{Map, Value, json};

/// Maximum number of rules or subjects of a union: each version may add some.
const MAX_ITEMS: usize = 1_000;

/// Returns true if a ClusterRole or ClusterRoleBinding grants at least what another one does. Objects of other kinds
/// are not comparable.
pub(crate) fn grants_all_of(object: &Value, other: &Value) -> bool {
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

/// Returns the rules or subjects of an object; `None` for other kinds, and if a controller sets the rules.
pub(crate) fn needs_of(object: &Value) -> Option<&Value> {
    let field = field_of(object)?;
    object[field].is_array().then(|| &object[field])
}

fn field_of(object: &Value) -> Option<&'static str> {
    match object["kind"].as_str()? {
        "ClusterRole" if object["aggregationRule"].is_null() => Some("rules"),
        "ClusterRoleBinding" => Some("subjects"),
        _ => None,
    }
}

/// Returns an object with the rules or subjects of another one.
pub(crate) fn with_grants_of(object: &Value, other: &Value) -> Value {
    let mut object = object.clone();
    if let Some(field) = field_of(&object) {
        object[field] = other[field].clone();
    }
    object
}

/// Returns the name of the annotation of a user, `namespace/name`.
pub(crate) fn user_annotation(user: &str) -> String {
    format!("{INSTALLED_ALONGSIDE_PREFIX}{}", &content_hash(&user)[..16])
}

/// Returns the name of the annotation with what a user needs, `namespace/name`.
pub(crate) fn needs_annotation(user: &str) -> String {
    format!("{NEEDS_PREFIX}{}", &content_hash(&user)[..16])
}

/// Returns what a user needs of an object according to its annotation.
pub(crate) fn recorded_needs(object: &Value, user: &str) -> Option<Value> {
    let recorded = object["metadata"]["annotations"][needs_annotation(user)].as_str()?;
    serde_json::from_str(recorded).ok().filter(Value::is_array)
}

/// Returns an object with no more than these users need of it. If the needs of one of them are not recorded, the object
/// stays as it is.
pub(crate) fn reduced<'u>(object: &Value, users: impl Iterator<Item = &'u str>) -> Value {
    let Some(field) = field_of(object) else { return object.clone() };
    let mut needs = Vec::new();
    for user in users {
        match recorded_needs(object, user) {
            Some(Value::Array(of_user)) => needs.extend(of_user),
            _ => return object.clone(),
        }
    }
    let is_granted_by = |granted: &[Value], wanted: &Value| match field {
        "rules" => granted.iter().any(|rule| covers(rule, wanted)),
        _ => granted.contains(wanted),
    };
    let current: Vec<Value> = items(object, field).cloned().collect();
    let mut left: Vec<Value> = current.iter().filter(|one| is_granted_by(&needs, one)).cloned().collect();
    for need in needs {
        if is_granted_by(&current, &need) && !is_granted_by(&left, &need) {
            left.push(need);
        }
    }
    let mut reduced = object.clone();
    if current.iter().all(|one| is_granted_by(&left, one)) {
        return reduced;
    }
    reduced[field] = left.into();
    reduced
}

/// Returns the merge patch that removes users from an object, with what only they need.
pub(crate) fn without_users(object: &Value, gone: &[String], left: &[String]) -> Value {
    let annotations = gone.iter().flat_map(|user| [user_annotation(user), needs_annotation(user)]);
    let is_set = |name: &String| !object["metadata"]["annotations"][name].is_null();
    let annotations: Map<String, Value> = annotations.filter(is_set).map(|name| (name, Value::Null)).collect();
    let mut patch = json!({"metadata": {"annotations": annotations}});
    let reduced = reduced(object, left.iter().map(String::as_str));
    if let Some(field) = field_of(object).filter(|_| !left.is_empty())
        && reduced[field] != object[field]
    {
        patch[field] = reduced[field].clone();
    }
    patch
}

/// Returns an object that also grants what another one of its kind and name does; `None` if there is none.
pub(crate) fn union(object: &Value, other: &Value) -> Option<Value> {
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
        // Names of objects have no wildcard.
        let is_wildcard = |one: &&Value| **one == "*" && field != "resourceNames";
        granted.iter().any(is_wildcard) || items(other, field).all(|one| granted.contains(&one))
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
        let of = |name: &str| json!({"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"], "resourceNames": [name]});
        check(json!([of("*")]), json!([of("a")]), false);
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

    /// Returns a role with these rules, and needs of users as recorded.
    fn shared(rules: &Value, needs: &[(&str, Value)]) -> Value {
        let annotations = needs.iter().flat_map(|(user, needs)| {
            [(user_annotation(user), (*user).into()), (needs_annotation(user), needs.to_string().into())]
        });
        let annotations: Map<String, Value> = annotations.collect();
        json!({"kind": "ClusterRole", "metadata": {"annotations": annotations}, "rules": rules})
    }

    #[test]
    fn role_is_reduced_to_what_its_users_need() {
        let rule = |verbs: &[&str]| json!({"nonResourceURLs": ["/metrics"], "verbs": verbs});
        let (get, head, both, all) = (rule(&["get"]), rule(&["head"]), rule(&["get", "head"]), rule(&["*"]));
        let check = |rules: &[&Value], needs: &[(&str, Value)], users: &[&str], expected: &[&Value]| {
            let reduced = reduced(&shared(&json!(rules), needs), users.iter().copied());
            assert_eq!(reduced["rules"], json!(expected), "{rules:?} {needs:?} {users:?}");
        };
        let needs = [("a/one", json!([get])), ("b/two", json!([head]))];
        check(&[&get, &head], &needs, &["a/one", "b/two"], &[&get, &head]);
        check(&[&get, &head], &needs, &["b/two"], &[&head]);
        check(&[&both], &needs, &["a/one"], &[&get]);
        check(&[&get, &head], &needs, &["b/two", "c/unknown"], &[&get, &head]);
        check(&[&get], &[("a/one", json!([all]))], &["a/one"], &[&get]);
        check(&[&get], &[("a/one", json!([head]))], &["a/one"], &[]);
    }

    #[test]
    fn annotations_never_add_a_permission() {
        let rule = |verbs: &[&str]| json!({"nonResourceURLs": ["/metrics"], "verbs": verbs});
        let claimed = shared(&json!([rule(&["get"])]), &[("a/one", json!([rule(&["*"])])), ("b/two", json!("text"))]);
        for users in [&["a/one"][..], &["b/two"], &[]] {
            let reduced = reduced(&claimed, users.iter().copied());
            assert!(grants_all_of(&claimed, &reduced), "{reduced}");
        }
    }

    #[test]
    fn users_leave_with_what_only_they_need() {
        let rule = |verbs: &[&str]| json!({"nonResourceURLs": ["/metrics"], "verbs": verbs});
        let rules = json!([rule(&["get"]), rule(&["head"])]);
        let needs = [("a/one", json!([rule(&["get"])])), ("b/two", json!([rule(&["head"])]))];
        let object = shared(&rules, &needs);
        let patch = without_users(&object, &["a/one".to_owned(), "c/three".to_owned()], &["b/two".to_owned()]);
        let annotations = json!({user_annotation("a/one"): null, needs_annotation("a/one"): null});
        assert_eq!(patch, json!({"metadata": {"annotations": annotations}, "rules": [rule(&["head"])]}));
        let kept = without_users(&object, &["a/one".to_owned()], &["b/two".to_owned(), "d/unknown".to_owned()]);
        assert!(kept.get("rules").is_none(), "{kept}");
    }
}
