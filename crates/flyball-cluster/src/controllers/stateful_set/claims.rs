//! The claims of a set's pods: they outlive the pods, unless the retention policy deletes them with the set or on
//! scale-down.
//!
//! See <https://kubernetes.io/docs/concepts/workloads/controllers/statefulset/#persistentvolumeclaim-retention>. The
//! garbage collector deletes them: they get an owner reference to the deleted object.

use super::{Step, identity};
use crate::workload::owners::reference_to;
use crate::workload::pods;
use flyball::{Caches, Context, Index, ObjectKey, Resource, Result};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;

/// Finds the sets that a claim may belong to: a terminating claim blocks the pod that needs its successor.
pub(super) fn sets_of(claim: &PersistentVolumeClaim, caches: &Caches) -> Result<Vec<ObjectKey>> {
    let name = claim.name_any();
    let Some((prefix, ordinal)) = name.rsplit_once('-') else { return Ok(Vec::new()) };
    if ordinal.parse::<i32>().is_err() {
        return Ok(Vec::new());
    }
    let prefix = ObjectKey::new(claim.metadata.namespace.as_deref(), prefix);
    Ok(caches.range_by::<ByClaims>(&prefix..=&prefix)?.into_iter().map(|(_, set)| set).collect())
}

/// Sets by the names of their claims, without the ordinal.
pub(super) struct ByClaims;

impl Index for ByClaims {
    type Resource = StatefulSet;
    type Value = ObjectKey;

    fn values(set: &StatefulSet) -> Vec<ObjectKey> {
        let templates = set.spec.iter().flat_map(|spec| spec.volume_claim_templates.iter().flatten());
        let prefix = |template: &PersistentVolumeClaim| format!("{}-{}", template.name_any(), set.name_any());
        templates.map(|template| ObjectKey::new(set.metadata.namespace.as_deref(), &prefix(template))).collect()
    }
}

/// Returns true if a reference names this object, or one that had its name.
fn names<K: Resource>(reference: &OwnerReference, object: &K) -> bool {
    reference.kind == K::kind(&())
        && reference.api_version == K::api_version(&())
        && reference.name == object.name_any()
}

fn is_stale<K: Resource>(claim: &PersistentVolumeClaim, object: &K) -> bool {
    let mut references = claim.owner_references().iter();
    references.any(|reference| names(reference, object) && Some(&reference.uid) != object.meta().uid.as_ref())
}

impl Step<'_> {
    /// Returns the retention policy as two flags: claims are deleted with the set, and on scale-down.
    fn goes(&self) -> (bool, bool) {
        let policy = self.spec.persistent_volume_claim_retention_policy.as_ref();
        let goes = |policy: Option<&String>| policy.is_some_and(|policy| policy == "Delete");
        let deleted = policy.and_then(|policy| policy.when_deleted.as_ref());
        (goes(deleted), goes(policy.and_then(|policy| policy.when_scaled.as_ref())))
    }

    async fn claim(&self, name: &str) -> Result<Option<PersistentVolumeClaim>> {
        self.cx.get::<PersistentVolumeClaim>(&self.cx.sibling(name)).await
    }

    /// Creates the claims of an ordinal that are missing.
    pub(super) async fn create_claims(&self, ordinal: i32) -> Result<()> {
        let (pod, set) = (identity::name(self.set, ordinal), self.set.name_any());
        for (_, claim) in identity::claims(self.set, self.spec, ordinal) {
            let name = claim.name_any();
            match self.claim(&name).await? {
                Some(there) if pods::is_deleting(&there) => return Err(format!("pvc {name} is being deleted").into()),
                Some(_) => continue,
                None => {}
            }
            match self.cx.create_unowned(&claim).await {
                Ok(_) => {
                    let text = format!("Create Claim {name} Pod {pod} in StatefulSet {set} success");
                    self.events.normal(self.cx, self.set, "SuccessfulCreate", text).await;
                }
                Err(error) => {
                    let why = pods::reason(&error);
                    let text = format!("Create Claim {name} for Pod {pod} in StatefulSet {set} failed error: {why}");
                    self.events.warning(self.cx, self.set, "FailedCreate", text).await;
                    return Err(error.context(format!("failed to create PVC {name}")));
                }
            }
        }
        Ok(())
    }

    /// Returns true if a claim of an ordinal will be deleted with an earlier pod.
    pub(super) async fn has_stale_claim(&self, ordinal: i32) -> Result<bool> {
        if !self.goes().1 {
            return Ok(false);
        }
        let mut coming = Pod::default();
        coming.metadata.name = Some(identity::name(self.set, ordinal));
        for (_, claim) in identity::claims(self.set, self.spec, ordinal) {
            if self.claim(&claim.name_any()).await?.is_some_and(|claim| is_stale(&claim, &coming)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Sets the owners of the claims of an ordinal by the retention policy: the set, or a surplus pod.
    pub(super) async fn keep_claims(&self, ordinal: i32) -> Result<()> {
        let Some(pod) = self.pods.get(&ordinal) else { return Ok(()) };
        let (with_set, when_scaled) = self.goes();
        let is_excess = !self.desired_ordinals().contains(&ordinal);
        let owner = match (with_set, when_scaled && is_excess) {
            (_, true) => Some(reference_to(pod)),
            (true, false) => Some(reference_to(self.set)),
            (false, false) => None,
        };
        for (_, claim) in identity::claims(self.set, self.spec, ordinal) {
            let Some(claim) = self.claim(&claim.name_any()).await? else { continue };
            if is_stale(&claim, self.set) || is_stale(&claim, pod) {
                continue;
            }
            let is_ours = |reference: &OwnerReference| names(reference, self.set) || names(reference, pod);
            let mut references = claim.owner_references().to_vec();
            references.retain(|reference| !is_ours(reference));
            let is_kept_by_other = references.iter().any(|reference| reference.controller == Some(true));
            if is_kept_by_other && (with_set || when_scaled) {
                let name = claim.name_any();
                let text = format!(
                    "PersistentVolumeClaim {name} has a conflicting OwnerReference that acts as a manging controller, the \
                     retention policy is ignored for this claim"
                );
                self.events.warning(self.cx, self.set, "ConflictingController", text).await;
            } else {
                references.extend(owner.clone());
            }
            if references != claim.owner_references() {
                let mut changed = claim.clone();
                changed.metadata.owner_references = Some(references);
                replace(&changed, self.cx).await?;
            }
        }
        Ok(())
    }
}

async fn replace(claim: &PersistentVolumeClaim, cx: &Context<StatefulSet>) -> Result<()> {
    crate::workload::owners::tolerate(cx.replace(claim).await).map(drop)
}
