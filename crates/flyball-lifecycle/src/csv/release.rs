//! ClusterServiceVersions that belong to the Subscription that requested them, while their InstallPlan is executed.
//!
//! The plan ends this after its last step. If a user deletes the plan before, it ends as soon as the operator runs, so
//! that the deletion of a Subscription never removes an operator that has run.

use super::observe::Cx;
use crate::api::{ClusterServiceVersion, ClusterServiceVersionPhase as Phase, is_requester};
use crate::patch::merge_patch;
use flyball::Result;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use serde_json::json;

/// Takes an operator that runs from its requesters. Returns true if it belonged to them.
pub(super) async fn release(csv: &ClusterServiceVersion, cx: &Cx) -> Result<bool> {
    if csv.status.phase != Phase::Succeeded || !csv.owner_references().iter().any(is_requester) {
        return Ok(false);
    }
    let others: Vec<&OwnerReference> = csv.owner_references().iter().filter(|owner| !is_requester(owner)).collect();
    merge_patch(cx, csv, "", &json!({"metadata": {"ownerReferences": others}})).await?;
    Ok(true)
}
