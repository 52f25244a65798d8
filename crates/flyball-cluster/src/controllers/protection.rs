//! Keeps volumes and claims that are in use from going.
//!
//! The API server puts the finalizers on; here they are taken off once nothing uses the object. See
//! <https://kubernetes.io/docs/concepts/storage/persistent-volumes/#storage-object-in-use-protection>.

use flyball::{Action, Context, Controller, ObjectKey, Reconcile, Result};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::ResourceExt;

/// Makes the controller of claims, which pods use.
pub(super) fn claims() -> Controller<impl Reconcile> {
    Controller::new(Claims).watches(|pod: &Pod, _| {
        let namespace = pod.metadata.namespace.as_deref();
        Ok(claims_of(pod).map(|claim| ObjectKey::new(namespace, &claim)).collect())
    })
}

/// Makes the controller of volumes, which claims use.
pub(super) fn volumes() -> Controller<impl Reconcile> {
    Controller::new(Volumes)
}

/// Names the claims that a pod uses, those included that are made for its ephemeral volumes.
fn claims_of(pod: &Pod) -> impl Iterator<Item = String> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter_map(|volume| match (&volume.persistent_volume_claim, &volume.ephemeral) {
        (Some(source), _) => Some(source.claim_name.clone()),
        (None, Some(_)) => Some(format!("{}-{}", pod.name_any(), volume.name)),
        (None, None) => None,
    })
}

fn is_over(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

struct Claims;

impl Reconcile for Claims {
    type Resource = PersistentVolumeClaim;
    const FINALIZER: Option<&'static str> = Some("kubernetes.io/pvc-protection");

    async fn reconcile(&self, _: &PersistentVolumeClaim, _: &Context<PersistentVolumeClaim>) -> Result<Action> {
        Ok(Action::done())
    }

    async fn finalize(&self, claim: &PersistentVolumeClaim, cx: &Context<PersistentVolumeClaim>) -> Result<Action> {
        let name = claim.name_any();
        let pods = cx.list::<Pod>(claim.metadata.namespace.as_deref()).await?;
        let used = pods.iter().any(|pod| !is_over(pod) && claims_of(pod).any(|used| used == name));
        // The pod wakes the claim when it goes; the wait is for what the cache does not show yet.
        Ok(if used { Action::requeue() } else { Action::done() })
    }
}

struct Volumes;

impl Reconcile for Volumes {
    type Resource = PersistentVolume;
    const FINALIZER: Option<&'static str> = Some("kubernetes.io/pv-protection");

    async fn reconcile(&self, _: &PersistentVolume, _: &Context<PersistentVolume>) -> Result<Action> {
        Ok(Action::done())
    }

    async fn finalize(&self, volume: &PersistentVolume, _: &Context<PersistentVolume>) -> Result<Action> {
        let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
        Ok(if phase == Some("Bound") { Action::requeue() } else { Action::done() })
    }
}
