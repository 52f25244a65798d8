//! Cluster-scoped objects that several installations share, such as the ClusterRole `metrics-reader` of a bundle that
//! is installed in two namespaces.
//!
//! CRDs are shared under rules of their own. Another object is shared if it is the same in both bundles. Versions of
//! one package also share a ClusterRole or ClusterRoleBinding: it grants what each of them needs, so that no
//! installation loses permissions by another one. What an upgrade no longer needs is removed when all installations
//! have this version. The labels of the object name one owner, and its annotations the others. When the owner is
//! deleted, the controller of ClusterServiceVersions makes another one the owner. In OLM, the last installation takes
//! the object, and nobody deletes it.

use super::actor::Actor;
use super::error::ExecutionError;
use super::grants::{grants_all_of, union};
use super::ownership::differs;
use crate::api::labels::{OWNER, OWNER_KIND, OWNER_NAMESPACE};
use crate::api::{ClusterServiceVersion, Step};
use kube::ResourceExt;
use serde_json::Value;

/// The use of an object that other operators use as well.
#[derive(Debug, PartialEq)]
pub(super) enum Sharing {
    /// No other operator uses it.
    Alone,
    /// The object is changed to another one, or stays as it is.
    With { users: Vec<String>, object: Option<Value> },
    /// The others need another object.
    Conflict { user: String, is_same_package: bool },
}

/// Creates the error of a step that conflicts with the object of another operator.
pub(super) fn conflict(step: &Step, user: &str, is_same_package: bool) -> ExecutionError {
    if is_same_package {
        return ExecutionError::new(format!(
            "{} {} is shared with ClusterServiceVersion {user}, another version of this operator, which needs it as it \
             is: waiting until {user} is upgraded to {} or uninstalled",
            step.resource.kind, step.resource.name, step.resolving
        ));
    }
    ExecutionError::new(format!(
        "{} {} belongs to ClusterServiceVersion {user}, which {} does not replace, and differs from that of its bundle: \
         uninstall that operator, or do not install this one",
        step.resource.kind, step.resource.name, step.resolving
    ))
}

/// Returns the use of an object that exists, with the other owners; `new` is the object of the bundle.
pub(super) async fn sharing(
    others: &[ClusterServiceVersion],
    csv: &ClusterServiceVersion,
    path: &str,
    (old, new): (&Value, &Value),
    manager: &Actor<'_>,
) -> kube::Result<Sharing> {
    if others.is_empty() {
        return Ok(Sharing::Alone);
    }
    let applied = manager.apply(path, new, true).await?;
    let users = || others.iter().map(name).collect();
    if !differs(old, &applied) && has_metadata(old, new) {
        return Ok(Sharing::With { users: users(), object: None });
    }
    let packages = csv.packages();
    let is_other = |other: &&ClusterServiceVersion| !other.packages().iter().any(|of| packages.contains(of));
    if let Some(other) = others.iter().find(is_other) {
        return Ok(Sharing::Conflict { user: name(other), is_same_package: false });
    }
    // All have this version: nobody needs more than it.
    if others.iter().all(|other| is_same_version(other, csv)) {
        return Ok(Sharing::With { users: users(), object: Some(new.clone()) });
    }
    Ok(match grown(old, new, &applied) {
        Some(object) => Sharing::With { users: users(), object },
        None => Sharing::Conflict { user: name(&others[0]), is_same_package: true },
    })
}

/// Returns true if two ClusterServiceVersions are those of one bundle. What they replace depends on their namespaces.
fn is_same_version(one: &ClusterServiceVersion, other: &ClusterServiceVersion) -> bool {
    let content = |csv: &ClusterServiceVersion| {
        let mut spec = csv.spec.clone();
        spec.replaces.clear();
        (csv.name_any(), spec)
    };
    content(one) == content(other)
}

/// Returns the object with which nobody loses permissions or metadata: the new one, none if the old one has all, or
/// both together; `None` if there is no such object.
fn grown(old: &Value, new: &Value, applied: &Value) -> Option<Option<Value>> {
    if grants_all_of(applied, old) && has_metadata(applied, old) {
        Some(Some(new.clone()))
    } else if grants_all_of(old, applied) && has_metadata(old, new) {
        Some(None)
    } else {
        has_metadata(applied, old).then(|| union(new, old)).flatten().map(Some)
    }
}

fn name(csv: &ClusterServiceVersion) -> String {
    format!("{}/{}", csv.namespace().unwrap_or_default(), csv.name_any())
}

/// Returns true if an object has the labels and annotations of another one, except for those of its owner.
fn has_metadata(object: &Value, other: &Value) -> bool {
    ["labels", "annotations"].into_iter().all(|field| {
        let wanted = other["metadata"][field].as_object().into_iter().flatten();
        let mut wanted = wanted.filter(|(name, _)| ![OWNER, OWNER_KIND, OWNER_NAMESPACE].contains(&name.as_str()));
        wanted.all(|(name, value)| object["metadata"][field][name] == *value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn shared_role_loses_nothing() {
        let role = |verbs: &[&str], labels: Value| {
            json!({"kind": "ClusterRole", "metadata": {"labels": labels},
                "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": verbs}]})
        };
        let none = || json!({});
        let (less, more) = (role(&["get"], none()), role(&["get", "list"], none()));
        assert_eq!(grown(&less, &more, &more), Some(Some(more.clone())));
        assert_eq!(grown(&more, &less, &less), Some(None));
        let other = role(&["watch"], none());
        let both = grown(&less, &other, &other).flatten().unwrap();
        assert_eq!(both["rules"], json!([other["rules"][0], less["rules"][0]]));
        assert_eq!(grown(&both, &other, &other), Some(None));
        let viewed = role(&["get"], json!({"rbac.authorization.k8s.io/aggregate-to-view": "true"}));
        assert_eq!(grown(&viewed, &more, &more), None, "viewers would lose their permissions");
    }

    #[test]
    fn versions_are_compared_without_what_they_replace() {
        let csv = |version: &str, replaces: &str| {
            let mut csv = ClusterServiceVersion::new(Some("a"), "memo.v1");
            (csv.spec.version, csv.spec.replaces) = (version.to_owned(), replaces.to_owned());
            csv
        };
        assert!(is_same_version(&csv("1.0.0", "memo.v0"), &csv("1.0.0", "")));
        assert!(!is_same_version(&csv("1.0.0", ""), &csv("1.0.1", "")));
    }

    #[test]
    fn owners_are_no_difference_of_metadata() {
        let object = |labels: Value| json!({"metadata": {"labels": labels}});
        let old = object(json!({"team": "red", OWNER: "a.v1", "more": "1"}));
        assert!(has_metadata(&old, &object(json!({"team": "red", OWNER: "b.v1"}))));
        assert!(has_metadata(&old, &json!({})));
        assert!(!has_metadata(&old, &object(json!({"team": "blue"}))));
        assert!(!has_metadata(&json!({}), &object(json!({"team": "blue"}))));
    }
}
