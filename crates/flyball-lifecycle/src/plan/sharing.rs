//! Cluster-scoped objects that several installations share, such as the ClusterRole `metrics-reader` of a bundle that
//! is installed in two namespaces.
//!
//! CRDs are shared under rules of their own. Another object is shared if it is the same in both bundles. Versions of
//! one package also share a ClusterRole or ClusterRoleBinding of which one grants all that the other does: then that
//! one is used. So no installation loses permissions by another one. Its labels name one owner, and its annotations the
//! others. When the owner is deleted, the controller of ClusterServiceVersions makes another one the owner. In OLM, the
//! last installation takes the object, and nobody deletes it.

use super::actor::Actor;
use super::error::ExecutionError;
use super::grants::grants_all_of;
use super::ownership::differs;
use crate::api::labels::{OWNER, OWNER_KIND, OWNER_NAMESPACE};
use crate::api::{ClusterServiceVersion, Step};
use kube::ResourceExt;
use serde_json::Value;

/// The use of an object that other operators use as well.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Sharing {
    /// No other operator uses it.
    Alone,
    /// The object stays as it is, or, if it is that of an older version, is changed.
    With { users: Vec<String>, changes: bool },
    /// The others need another object.
    Conflict { user: String },
}

/// Creates the error of a step that conflicts with the object of another operator.
pub(super) fn conflict(step: &Step, user: &str) -> ExecutionError {
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
        return Ok(Sharing::With { users: users(), changes: false });
    }
    let packages = csv.packages();
    let is_other = |other: &&ClusterServiceVersion| !other.packages().iter().any(|of| packages.contains(of));
    if let Some(other) = others.iter().find(is_other) {
        return Ok(Sharing::Conflict { user: name(other) });
    }
    Ok(match grown(old, new, &applied) {
        Some(changes) => Sharing::With { users: users(), changes },
        None => Sharing::Conflict { user: name(&others[0]) },
    })
}

/// Returns true if an object grants more than before after it is applied, false if it has done so already, and `None`
/// if it would lose something.
fn grown(old: &Value, new: &Value, applied: &Value) -> Option<bool> {
    if grants_all_of(applied, old) && has_metadata(applied, old) {
        Some(true)
    } else if grants_all_of(old, applied) && has_metadata(old, new) {
        Some(false)
    } else {
        None
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
        assert_eq!(grown(&less, &more, &more), Some(true));
        assert_eq!(grown(&more, &less, &less), Some(false));
        assert_eq!(grown(&less, &role(&["list"], none()), &role(&["list"], none())), None);
        let viewed = role(&["get"], json!({"rbac.authorization.k8s.io/aggregate-to-view": "true"}));
        assert_eq!(grown(&viewed, &more, &more), None, "viewers would lose their permissions");
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
