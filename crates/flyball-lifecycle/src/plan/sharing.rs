//! Cluster-scoped objects that several installations share, such as the ClusterRole `metrics-reader` of a bundle that
//! is installed in two namespaces.
//!
//! CRDs are shared under rules of their own. Another object is shared if it is the same in both bundles, or if all of
//! them are versions of one package: then the object of the newest version is used. Its labels name one owner, and its
//! annotations the others. When the owner is deleted, the controller of ClusterServiceVersions makes another one the
//! owner. In OLM, the last installation takes the object, and nobody deletes it.

use super::actor::Actor;
use super::error::ExecutionError;
use super::ownership::differs;
use crate::api::labels::{OWNER, OWNER_KIND, OWNER_NAMESPACE};
use crate::api::{ClusterServiceVersion, Step};
use crate::version::parse_tolerant;
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
    if !differs(old, &applied) && has_metadata(old, new) {
        return Ok(Sharing::With { users: others.iter().map(name).collect(), changes: false });
    }
    Ok(of_versions(csv, others))
}

/// Returns the use of an object that differs in the bundles of these ClusterServiceVersions.
fn of_versions(csv: &ClusterServiceVersion, others: &[ClusterServiceVersion]) -> Sharing {
    let packages = csv.packages();
    let is_other = |other: &&ClusterServiceVersion| !other.packages().iter().any(|of| packages.contains(of));
    if let Some(other) = others.iter().find(is_other) {
        return Sharing::Conflict { user: name(other) };
    }
    let version = parse_tolerant(&csv.spec.version);
    let changes = others.iter().all(|other| parse_tolerant(&other.spec.version) <= version);
    Sharing::With { users: others.iter().map(name).collect(), changes }
}

fn name(csv: &ClusterServiceVersion) -> String {
    format!("{}/{}", csv.namespace().unwrap_or_default(), csv.name_any())
}

/// Returns true if an object has the labels and annotations of another one, except for those of its owner.
fn has_metadata(old: &Value, new: &Value) -> bool {
    ["labels", "annotations"].into_iter().all(|field| {
        let wanted = new["metadata"][field].as_object().into_iter().flatten();
        let mut wanted = wanted.filter(|(name, _)| ![OWNER, OWNER_KIND, OWNER_NAMESPACE].contains(&name.as_str()));
        wanted.all(|(name, value)| old["metadata"][field][name] == *value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn newest_version_of_a_package_decides() {
        let csv = |package: &str, version: &str| -> ClusterServiceVersion {
            let of = json!({"type": "olm.package", "value": {"packageName": package, "version": version}});
            let properties = json!({"properties": [of]}).to_string();
            serde_json::from_value(json!({
                "metadata": {"name": format!("{package}.v{version}"), "namespace": "demo",
                    "annotations": {"operatorframework.io/properties": properties}},
                "spec": {"version": version},
            }))
            .unwrap()
        };
        let others = [csv("memo", "1.1.0"), csv("memo", "1.0.0")];
        let users = ["demo/memo.v1.1.0".to_owned(), "demo/memo.v1.0.0".to_owned()];
        let changes = |changes: bool| Sharing::With { users: users.to_vec(), changes };
        assert_eq!(of_versions(&csv("memo", "1.1.0"), &others), changes(true));
        assert_eq!(of_versions(&csv("memo", "1.0.0"), &others), changes(false));
        let conflict = Sharing::Conflict { user: "demo/memo.v1.1.0".to_owned() };
        assert_eq!(of_versions(&csv("other", "2.0.0"), &others), conflict);
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
