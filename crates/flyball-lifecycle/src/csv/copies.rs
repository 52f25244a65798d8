//! Copies of a ClusterServiceVersion in its target namespaces, so that their users see the operator.

use super::index::{CopiesOf, name_of};
use super::observe::Cx;
use super::status;
use super::transition::is_copiable;
use super::write::Identity;
use crate::api::{ClusterServiceVersion, ClusterServiceVersionStatus, OlmConfig, OperatorGroup, labels};
use crate::install::{component_labels, managed, rights_in_target};
use crate::patch::{merge_patch, object};
use flyball::{Children, ObjectKey, Result};
use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Annotation of kubectl.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Reason in the status of a copy.
const COPIED: &str = "Copied";

/// Name of the OLMConfig that applies.
pub(super) const CONFIG: &str = "cluster";

/// Creates, updates and deletes the copies of a ClusterServiceVersion, and the permissions of its operator in the
/// target namespaces.
///
/// An operator that watches all namespaces is copied only if OLMConfig enables it: copies of hundreds of namespaces
/// would be the largest part of the cluster's objects.
pub(super) async fn copy(
    csv: &ClusterServiceVersion,
    group: &OperatorGroup,
    identity: &Identity,
    condition: &Value,
    cx: &Cx,
) -> Result<()> {
    let targets = targets(csv, group, cx).await?;
    delete_other(csv, &targets, cx).await?;
    if !is_copiable(&csv.status.reason) {
        return Ok(());
    }
    for namespace in &targets {
        let Some(copy) = copy_to(csv, namespace, condition, cx).await? else { continue };
        let wanted = copied_status(csv);
        if copy.status != wanted {
            merge_patch(cx, &copy, "status", &status::patch(&wanted)).await?;
        }
        let uid = copy.uid().unwrap_or_default();
        if !group.targets_all() {
            let rights = rights_in_target(csv, namespace, &uid).into_iter().map(|right| managed(right, csv));
            identity.apply(cx, condition, rights.collect()).await?;
        }
    }
    Ok(())
}

/// Returns the namespaces with a copy: the existing target namespaces but its own.
async fn targets(csv: &ClusterServiceVersion, group: &OperatorGroup, cx: &Cx) -> Result<BTreeSet<String>> {
    let all = group.targets_all();
    if all && !are_enabled(cx.get::<OlmConfig>(&ObjectKey::new(None, CONFIG)).await?.as_ref()) {
        return Ok(BTreeSet::new());
    }
    let own = csv.namespace().unwrap_or_default();
    let select = |namespace: Namespace| {
        let name = namespace.name_any();
        (name != own && namespace.metadata.deletion_timestamp.is_none()).then_some(name)
    };
    if all {
        return Ok(cx.filter_map::<Namespace, _>(None, select).await?.into_iter().collect());
    }
    let mut found = BTreeSet::new();
    for name in &group.status.namespaces {
        found.extend(cx.get::<Namespace>(&ObjectKey::new(None, name)).await?.and_then(select));
    }
    Ok(found)
}

/// Returns true if operators that watch all namespaces are copied to them.
pub(super) fn are_enabled(config: Option<&OlmConfig>) -> bool {
    let features = config.and_then(|config| config.spec.features.as_ref());
    features.and_then(|features| features.disable_copied_csvs) == Some(false)
}

/// Applies a copy, and returns it; `None` if an object of this name is not a copy of this one.
async fn copy_to(
    csv: &ClusterServiceVersion,
    namespace: &str,
    condition: &Value,
    cx: &Cx,
) -> Result<Option<ClusterServiceVersion>> {
    let key = ObjectKey::new(Some(namespace), &csv.name_any());
    let existing = cx.get::<ClusterServiceVersion>(&key).await?;
    let own = csv.namespace();
    if existing.as_ref().is_some_and(|existing| existing.copied_from() != own.as_deref()) {
        return Ok(None);
    }
    if existing.as_ref().is_some_and(|existing| existing.metadata.deletion_timestamp.is_some()) {
        return Ok(None);
    }
    let (condition, copy) = (object(condition.clone())?, object(prototype(csv, namespace))?);
    let children = Children::new().unowned(&condition).adopting().unowned(&copy).adopting();
    cx.apply_all(&children).await?;
    cx.get::<ClusterServiceVersion>(&key).await
}

fn prototype(csv: &ClusterServiceVersion, namespace: &str) -> Value {
    let mut annotations = csv.metadata.annotations.clone().unwrap_or_default();
    annotations.retain(|name, _| name != labels::TARGET_NAMESPACES && name != LAST_APPLIED);
    let components = component_labels(csv);
    let mut labels = csv.metadata.labels.clone().unwrap_or_default();
    labels.retain(|name, _| !components.contains_key(name));
    labels.insert(labels::COPIED_FROM.into(), csv.namespace().unwrap_or_default());
    labels.insert(labels::MANAGED.into(), "true".into());
    json!({
        "apiVersion": "operators.coreos.com/v1alpha1",
        "kind": "ClusterServiceVersion",
        "metadata": {"name": csv.name_any(), "namespace": namespace, "annotations": annotations, "labels": labels},
        "spec": csv.spec,
    })
}

fn copied_status(csv: &ClusterServiceVersion) -> ClusterServiceVersionStatus {
    let namespace = csv.namespace().unwrap_or_default();
    ClusterServiceVersionStatus {
        reason: COPIED.into(),
        message: format!("The operator is running in {namespace} but is managing this namespace"),
        cleanup: json!({}),
        ..csv.status.clone()
    }
}

/// Deletes the copies outside of the targets; returns the number of those that were not being deleted yet.
///
/// The others do not count: with a finalizer on a copy, a user of its namespace could keep the original forever.
async fn delete_other(csv: &ClusterServiceVersion, targets: &BTreeSet<String>, cx: &Cx) -> Result<usize> {
    let select = |copy: ClusterServiceVersion| {
        let is_surplus = !targets.contains(&copy.namespace().unwrap_or_default());
        (is_surplus && copy.metadata.deletion_timestamp.is_none()).then_some(copy)
    };
    let surplus = cx.filter_map_by::<CopiesOf, _>(&name_of(csv), select).await?;
    for copy in &surplus {
        cx.delete(copy).await?;
    }
    Ok(surplus.len())
}

/// Deletes all copies, and returns the number of those that were not being deleted yet.
pub(super) async fn delete_all(csv: &ClusterServiceVersion, cx: &Cx) -> Result<usize> {
    delete_other(csv, &BTreeSet::new(), cx).await
}

/// Deletes a copy whose original is gone.
pub(super) async fn check(copy: &ClusterServiceVersion, cx: &Cx) -> Result<()> {
    let original = ObjectKey::new(copy.copied_from(), &copy.name_any());
    if copy.metadata.deletion_timestamp.is_none() && cx.get::<ClusterServiceVersion>(&original).await?.is_none() {
        cx.delete(copy).await?;
    }
    Ok(())
}

/// Returns true for a copy without the label that marks copies. Only copies have this reason in their status.
pub(super) fn has_lost_label(csv: &ClusterServiceVersion) -> bool {
    csv.copied_from().is_none() && csv.status.reason == COPIED
}

/// Restores the label of a copy: without it, the copy would be installed as an original, with all its permissions.
pub(super) async fn restore_label(copy: &ClusterServiceVersion, cx: &Cx) -> Result<()> {
    if copy.metadata.deletion_timestamp.is_some() {
        return Ok(());
    }
    let origin = copy.annotation(labels::OPERATOR_NAMESPACE);
    if origin.is_empty() || Some(origin) == copy.metadata.namespace.as_deref() {
        return cx.delete(copy).await;
    }
    merge_patch(cx, copy, "", &json!({"metadata": {"labels": {labels::COPIED_FROM: origin}}})).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_of_operators_of_all_namespaces_have_to_be_enabled() {
        let config = |features: Value| serde_json::from_value(json!({"spec": {"features": features}})).unwrap();
        assert!(!are_enabled(None));
        assert!(!are_enabled(Some(&config(json!({})))));
        assert!(!are_enabled(Some(&config(json!({"disableCopiedCSVs": true})))));
        assert!(are_enabled(Some(&config(json!({"disableCopiedCSVs": false})))));
    }

    #[test]
    fn copy_has_neither_targets_nor_component_labels() {
        let csv: ClusterServiceVersion = serde_json::from_value(json!({
            "metadata": {
                "name": "memo", "namespace": "demo",
                "annotations": {"olm.targetNamespaces": "x", "note": "y", LAST_APPLIED: "{}"},
                "labels": {"operators.coreos.com/memo.demo": "", "own": "z"},
            },
            "spec": {"displayName": "Memo", "icon": [{"base64data": "", "mediatype": "x"}]},
            "status": {"phase": "Succeeded", "reason": "InstallSucceeded"},
        }))
        .unwrap();
        let copy = prototype(&csv, "x");
        assert_eq!(copy["metadata"]["annotations"], json!({"note": "y"}));
        assert_eq!(copy["metadata"]["labels"], json!({"own": "z", "olm.copiedFrom": "demo", "olm.managed": "true"}));
        assert_eq!(copy["spec"]["icon"][0]["mediatype"], "x");
        let status = copied_status(&csv);
        assert_eq!((status.reason.as_str(), status.phase), ("Copied", csv.status.phase));
        let mut found: ClusterServiceVersion = serde_json::from_value(copy).unwrap();
        found.status = status;
        assert!(!has_lost_label(&found) && !has_lost_label(&csv));
        found.metadata.labels = None;
        assert!(has_lost_label(&found));
    }
}
