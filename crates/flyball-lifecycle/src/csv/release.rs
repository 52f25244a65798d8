//! ClusterServiceVersions that belong to the Subscription that requested them, while their InstallPlan is executed.
//!
//! The plan ends this after its last step. If a user deletes the plan before, it ends as soon as the operator runs, so
//! that the deletion of a Subscription never removes an operator that has run.

use super::observe::Cx;
use crate::api::{ClusterServiceVersion, ClusterServiceVersionPhase as Phase};
use crate::patch::merge_patch;
use flyball::Result;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use serde_json::json;

/// Takes an operator that runs from its requesters. Returns true if it belonged to them.
pub(super) async fn release(csv: &ClusterServiceVersion, cx: &Cx) -> Result<bool> {
    let is_requester = |owner: &&OwnerReference| {
        let group = owner.api_version.split('/').next().unwrap_or_default();
        [("Subscription", crate::api::GROUP), ("ClusterExtension", "olm.operatorframework.io")]
            .contains(&(owner.kind.as_str(), group))
    };
    if csv.status.phase != Phase::Succeeded || !csv.owner_references().iter().any(|owner| is_requester(&owner)) {
        return Ok(false);
    }
    let others: Vec<&OwnerReference> = csv.owner_references().iter().filter(|owner| !is_requester(owner)).collect();
    merge_patch(cx, csv, "", &json!({"metadata": {"ownerReferences": others}})).await?;
    Ok(true)
}
