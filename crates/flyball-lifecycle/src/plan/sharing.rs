//! Cluster-scoped objects that several installations share, such as the ClusterRole `metrics-reader` of a bundle that
//! is installed in two namespaces.
//!
//! CRDs are shared under rules of their own. Another object is shared if it is the same in both bundles. Versions of
//! one package also share a ClusterRole or ClusterRoleBinding: it grants what each of them needs, so that no
//! installation loses permissions by another one. The labels of the object name one owner, and its annotations all that
//! share it, with what each of them needs. When one of them is deleted, as the old version after an upgrade, the
//! controller of ClusterServiceVersions removes what nobody else needs. When the owner is deleted, it makes another one
//! the owner. In OLM, the last installation takes the object, and nobody deletes it.

use super::actor::{Actor, message_of};
use super::error::ExecutionError;
use super::ownership::differs;
use crate::api::labels::{OWNER, OWNER_KIND, OWNER_NAMESPACE};
use crate::api::{ClusterServiceVersion, Step};
use crate::csv::{grants_all_of, needs_of, recorded_needs, reduced, union, with_grants_of};
use kube::ResourceExt;
use serde_json::Value;
use std::collections::BTreeMap;

/// The use of an object that other operators use as well.
#[derive(Debug, PartialEq)]
pub(super) enum Sharing {
    /// No other operator uses it.
    Alone,
    /// The object is changed to another one, or stays as it is. `needs` are the rules or subjects that each user needs,
    /// if they are known.
    With { users: Vec<String>, object: Option<Value>, needs: BTreeMap<String, Value> },
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

/// Checks that the service account of a plan, if it has one, may write an object that is shared with others: the union
/// of the permissions may contain some that the account does not have.
pub(super) async fn check_account(
    step: &Step,
    path: &str,
    object: &Value,
    users: &[String],
    installer: &Actor<'_>,
) -> Result<(), ExecutionError> {
    if !installer.is_limited() {
        return Ok(());
    }
    match installer.apply(path, object, true).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_forbidden() => Err(ExecutionError::new(format!(
            "{} {} is shared with ClusterServiceVersion {}, and the service account of the OperatorGroup may not write \
             it with the permissions of both: grant them to the account, or uninstall one of them: {}",
            step.resource.kind,
            step.resource.name,
            users.join(", "),
            status.message
        ))),
        Err(error) => {
            Err(ExecutionError::new(format!("{} {}: {}", step.resource.kind, step.resource.name, message_of(&error))))
        }
    }
}

/// Returns the use of an object that exists, with the other owners; `new` is the object of the bundle.
pub(super) async fn sharing(
    others: &[ClusterServiceVersion],
    csv: (&str, &ClusterServiceVersion),
    path: &str,
    (old, new): (&Value, &Value),
    manager: &Actor<'_>,
) -> kube::Result<Sharing> {
    if others.is_empty() {
        return Ok(Sharing::Alone);
    }
    let (namespace, csv) = csv;
    let applied = manager.apply(path, new, true).await?;
    let users: Vec<String> = others.iter().map(name).collect();
    // The object has at least what those need that have not recorded it.
    let needs_of_others = users
        .iter()
        .filter_map(|user| Some((user.clone(), recorded_needs(old, user).or_else(|| needs_of(old).cloned())?)));
    let own = needs_of(&applied).map(|needs| (format!("{namespace}/{}", csv.name_any()), needs.clone()));
    let needs = needs_of_others.chain(own).collect();
    if !differs(old, &applied) && has_metadata(old, new) {
        return Ok(Sharing::With { users, object: None, needs });
    }
    let packages = csv.packages();
    let is_other = |other: &&ClusterServiceVersion| !other.packages().iter().any(|of| packages.contains(of));
    if let Some(other) = others.iter().find(is_other) {
        return Ok(Sharing::Conflict { user: name(other), is_same_package: false });
    }
    let is_same_version = others.iter().all(|other| is_same_version(other, csv));
    let needed = reduced(old, users.iter().map(String::as_str));
    Ok(match grown((old, &needed), new, &applied, is_same_version) {
        Some(object) => Sharing::With { users, object, needs },
        None => Sharing::Conflict { user: name(&others[0]), is_same_package: true },
    })
}

/// Returns true if two ClusterServiceVersions of a package have the same name and version. Their specs may differ: the
/// API server adds defaults, and what they replace depends on their namespaces.
fn is_same_version(one: &ClusterServiceVersion, other: &ClusterServiceVersion) -> bool {
    one.name_any() == other.name_any() && one.spec.version == other.spec.version
}

/// Returns the object with which nobody loses permissions or metadata: the new one, none if the old one has all, or
/// both together; `None` if there is no such object. `needed` is the old one with what others need. If all have the
/// same version, its metadata replaces that of the old one.
fn grown(
    (old, needed): (&Value, &Value),
    new: &Value,
    applied: &Value,
    is_same_version: bool,
) -> Option<Option<Value>> {
    let keeps_metadata = is_same_version || has_metadata(applied, old);
    // The permissions of these objects are not comparable.
    let is_whole = needs_of(applied).is_none();
    if keeps_metadata && (grants_all_of(applied, needed) || is_whole && is_same_version) {
        Some(Some(new.clone()))
    } else if !differs(old, needed) && grants_all_of(old, applied) && has_metadata(old, new) {
        Some(None)
    } else {
        keeps_metadata.then(|| union(&with_grants_of(new, applied), needed)).flatten().map(Some)
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
    use crate::api::WebhookDescription;
    use serde_json::json;

    #[test]
    fn shared_role_loses_nothing() {
        let role = |verbs: &[&str], labels: Value| {
            json!({"kind": "ClusterRole", "metadata": {"labels": labels},
                "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": verbs}]})
        };
        let none = || json!({});
        let grown = |old: &Value, new: &Value| grown((old, old), new, new, false);
        let (less, more) = (role(&["get"], none()), role(&["get", "list"], none()));
        assert_eq!(grown(&less, &more), Some(Some(more.clone())));
        assert_eq!(grown(&more, &less), Some(None));
        let other = role(&["watch"], none());
        let both = grown(&less, &other).flatten().unwrap();
        assert_eq!(both["rules"], json!([other["rules"][0], less["rules"][0]]));
        assert_eq!(grown(&both, &other), Some(None));
        assert_eq!(super::grown((&both, &other), &other, &other, false), Some(Some(other)), "nobody else needs more");
        let viewed = role(&["get"], json!({"rbac.authorization.k8s.io/aggregate-to-view": "true"}));
        assert_eq!(grown(&viewed, &more), None, "viewers would lose their permissions");
        assert_eq!(super::grown((&viewed, &less), &more, &more, true), Some(Some(more)), "this version has no viewers");
    }

    #[test]
    fn versions_are_compared_without_what_differs_between_namespaces() {
        let csv = |version: &str, replaces: &str| {
            let mut csv = ClusterServiceVersion::new(Some("a"), "memo.v1");
            (csv.spec.version, csv.spec.replaces) = (version.to_owned(), replaces.to_owned());
            csv
        };
        assert!(is_same_version(&csv("1.0.0", "memo.v0"), &csv("1.0.0", "")));
        assert!(!is_same_version(&csv("1.0.0", ""), &csv("1.0.1", "")));
        // The API server adds the port of the CRD to the stored one.
        let (mut stored, mut planned) = (csv("1.0.0", ""), csv("1.0.0", ""));
        stored.spec.webhook_definitions = vec![WebhookDescription { container_port: 443, ..Default::default() }];
        planned.spec.webhook_definitions = vec![WebhookDescription::default()];
        assert!(stored.spec != planned.spec && is_same_version(&stored, &planned));
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
