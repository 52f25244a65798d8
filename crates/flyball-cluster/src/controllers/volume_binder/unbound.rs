//! Claims without a matching volume: they wait for a pod, for a provisioner, or for a new volume.

use super::{Claims, PROVISIONER, SELECTED_NODE, class_of_claim, set_claim_status};
use crate::workload::pods::{self, UsingClaim};
use flyball::{Context, Result};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::ResourceExt;

const OLD_PROVISIONER: &str = "volume.beta.kubernetes.io/storage-provisioner";
const IS_DEFAULT: [&str; 2] =
    ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];

/// Reason why an unbound claim waits with `WaitForFirstConsumer`.
pub(super) enum WaitReason {
    /// The first consumer.
    Consumer,
    /// The scheduling of the pod that uses it.
    Scheduling(String),
}

fn is_default(class: &StorageClass) -> bool {
    IS_DEFAULT.iter().any(|annotation| class.annotations().get(*annotation).is_some_and(|value| value == "true"))
}

impl Claims {
    /// Returns the reason why the class of a claim delays binding, if it does.
    pub(super) async fn waits(
        &self,
        claim: &PersistentVolumeClaim,
        class: Option<&StorageClass>,
        cx: &Context<PersistentVolumeClaim>,
    ) -> Result<Option<WaitReason>> {
        let delays = class.is_some_and(|class| class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer"));
        if !delays || claim.annotations().contains_key(SELECTED_NODE) {
            return Ok(None);
        }
        let user = |pod: Pod| (!pods::is_over(&pod)).then(|| (pod.name_any(), pods::node(&pod).is_some()));
        let users = cx.filter_map_by::<UsingClaim, _>(cx.key(), user).await?;
        Ok(match users.iter().any(|(_, is_placed)| *is_placed) {
            true => None,
            false => {
                Some(users.into_iter().next().map_or(WaitReason::Consumer, |(pod, _)| WaitReason::Scheduling(pod)))
            }
        })
    }

    /// Passes a claim to the provisioner of its class, or reports why it remains unbound.
    pub(super) async fn provision(
        &self,
        claim: &PersistentVolumeClaim,
        class: Option<StorageClass>,
        waits: Option<WaitReason>,
        cx: &Context<PersistentVolumeClaim>,
    ) -> Result<()> {
        match waits {
            Some(WaitReason::Consumer) => {
                let text = "waiting for first consumer to be created before binding";
                self.0.normal(cx, claim, "WaitForFirstConsumer", text).await;
                return set_claim_status(claim, None, "Pending", cx).await;
            }
            Some(WaitReason::Scheduling(pod)) => {
                self.0.normal(cx, claim, "WaitForPodScheduled", format!("waiting for pod {pod} to be scheduled")).await;
                return set_claim_status(claim, None, "Pending", cx).await;
            }
            None => {}
        }
        let name = class_of_claim(claim);
        let Some(class) = class else {
            if !name.is_empty() {
                let text = format!("storageclass.storage.k8s.io {name:?} not found");
                self.0.warning(cx, claim, "ProvisioningFailed", text).await;
            } else if !self.set_default_class(claim, cx).await? {
                let text = "no persistent volumes available for this claim and no storage class is set";
                self.0.normal(cx, claim, "FailedBinding", text).await;
            }
            return set_claim_status(claim, None, "Pending", cx).await;
        };
        let provisioner = class.provisioner;
        if provisioner.starts_with("kubernetes.io/") {
            let text = format!("no volume plugin matched name: {provisioner}");
            self.0.warning(cx, claim, "ProvisioningFailed", text).await;
            return set_claim_status(claim, None, "Pending", cx).await;
        }
        let mut handed = claim.clone();
        for annotation in [OLD_PROVISIONER, PROVISIONER] {
            handed.annotations_mut().insert(annotation.into(), provisioner.clone());
        }
        if handed != *claim {
            cx.replace(&handed).await?;
        }
        let text = format!(
            "Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by the system \
             administrator. If volume creation is delayed, please verify that the provisioner is running and correctly \
             registered."
        );
        self.0.normal(cx, claim, "ExternalProvisioning", text).await;
        Ok(())
    }

    /// Sets the default class on a claim without a class.
    async fn set_default_class(
        &self,
        claim: &PersistentVolumeClaim,
        cx: &Context<PersistentVolumeClaim>,
    ) -> Result<bool> {
        if claim.spec.as_ref().is_none_or(|spec| spec.storage_class_name.is_some()) {
            return Ok(false);
        }
        let classes = cx.list::<StorageClass>(None).await?;
        // The newest of several default classes applies.
        let newest = classes.iter().filter(|class| is_default(class)).max_by_key(|class| class.creation_timestamp());
        let Some(class) = newest else { return Ok(false) };
        let mut changed = claim.clone();
        changed.spec.get_or_insert_default().storage_class_name = class.metadata.name.clone();
        cx.replace(&changed).await?;
        Ok(true)
    }
}
