//! Protects volumes and claims that are in use from deletion.
//!
//! The API server adds the finalizers; these controllers remove them when the object is no longer in use. See
//! <https://kubernetes.io/docs/concepts/storage/persistent-volumes/#storage-object-in-use-protection>.

use crate::workload::pods::{UsingClaim, is_over};
use flyball::{Action, Context, Controller, Index, Reconcile, Result};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};

/// Creates the controller of claims, which pods use.
pub(super) fn claims() -> Controller<impl Reconcile> {
    Controller::new(Claims).watches(|pod, _| Ok(UsingClaim::values(pod))).index::<UsingClaim>()
}

/// Creates the controller of volumes, which claims use.
pub(super) fn volumes() -> Controller<impl Reconcile> {
    Controller::new(Volumes)
}

struct Claims;

impl Reconcile for Claims {
    type Resource = PersistentVolumeClaim;
    const FINALIZER: Option<&'static str> = Some("kubernetes.io/pvc-protection");

    async fn reconcile(&self, _: &PersistentVolumeClaim, _: &Context<PersistentVolumeClaim>) -> Result<Action> {
        Ok(Action::done())
    }

    async fn finalize(&self, _: &PersistentVolumeClaim, cx: &Context<PersistentVolumeClaim>) -> Result<Action> {
        let users = cx.filter_map_by::<UsingClaim, _>(cx.key(), |pod| (!is_over(&pod)).then_some(()));
        let used = !users.await?.is_empty();
        // The deletion of the pod triggers the claim; the requeue covers changes that are not in the cache yet.
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
