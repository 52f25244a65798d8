//! The reconciler: copies the name to the status, and manages the claim.

use crate::api::demovolume_v1::{DemoVolume, DemoVolumeStatus};
use flyball::{Action, Context, Controller, Reconcile, Result};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::ResourceExt;
use serde_json::json;

/// Reconciles each `DemoVolume`.
#[derive(Debug)]
pub struct DemoVolumeReconciler;

/// Returns the controller. The operator's RBAC rules are derived from this declaration.
pub fn controller() -> Controller<DemoVolumeReconciler> {
    Controller::new(DemoVolumeReconciler).owns::<PersistentVolumeClaim>()
}

impl Reconcile for DemoVolumeReconciler {
    type Resource = DemoVolume;

    async fn reconcile(&self, volume: &DemoVolume, cx: &Context<DemoVolume>) -> Result<Action> {
        tracing::info!("enter reconcile");
        let claim: PersistentVolumeClaim = serde_json::from_value(json!({
            "metadata": {"name": volume.name_any()},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": gibibytes(volume.spec.size)}},
            },
        }))?;
        let claim = cx.apply(&claim).await?;
        let phase = claim.status.and_then(|status| status.phase).unwrap_or_default();
        cx.set_status(&DemoVolumeStatus { name: volume.spec.name.clone(), claim: phase }).await?;
        Ok(Action::done())
    }
}

/// Formats a size as a [quantity](https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/).
fn gibibytes(size: u32) -> String {
    format!("{size}Gi")
}
