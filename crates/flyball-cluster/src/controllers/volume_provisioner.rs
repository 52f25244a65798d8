//! Provisions and deletes volumes for claims of simulated classes. The volumes have no storage.
//!
//! See <https://kubernetes.io/docs/concepts/storage/dynamic-provisioning/>. The binder passes a claim to this
//! provisioner by an annotation; the new volume refers to the claim, and the binder binds them.

use crate::workload::events::Events;
use crate::workload::{owners, pods};
use flyball::{Action, Context, Controller, Predicate, Reconcile, Result};
use k8s_openapi::api::core::v1::{
    CSIPersistentVolumeSource, Node, ObjectReference, PersistentVolume, PersistentVolumeClaim, PersistentVolumeSpec,
};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, Preconditions};
use kube::{Api, ResourceExt};
use std::collections::BTreeMap;

/// The provisioner name of simulated classes.
pub(super) const PROVISIONER: &str = "flyball.dev/simulated";
const DRIVER: &str = "simulated.flyball.dev";
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
const IS_DEFAULT: &str = "storageclass.kubernetes.io/is-default-class";
/// Label of simulated nodes.
const NODE: (&str, &str) = ("flyball.dev/node", "simulated");

/// Creates the controller that provisions volumes.
pub(super) fn claims() -> Controller<impl Reconcile> {
    Controller::new(Claims(Events::new(PROVISIONER)))
        .owns::<PersistentVolume>()
        .watches_by_key::<StorageClass>(|_, _| Ok(Vec::new()))
}

/// Creates the controller that deletes volumes whose claim is gone.
pub(super) fn volumes() -> Controller<impl Reconcile> {
    Controller::new(Volumes).concurrency(1)
}

/// Creates the controller that creates a default class as soon as the cluster has simulated nodes, so that their pods
/// get volumes.
pub(super) fn classes() -> Controller<impl Reconcile> {
    Controller::new(Nodes).filter::<Node>(Predicate::annotations()).owns::<StorageClass>().concurrency(1)
}

struct Claims(Events);

impl Reconcile for Claims {
    type Resource = PersistentVolumeClaim;

    async fn reconcile(&self, claim: &PersistentVolumeClaim, cx: &Context<PersistentVolumeClaim>) -> Result<Action> {
        let annotation = claim.annotations().get(super::volume_binder::PROVISIONER);
        let is_ours = annotation.is_some_and(|provisioner| provisioner == PROVISIONER);
        let Some(spec) = claim.spec.as_ref().filter(|spec| is_ours && spec.volume_name.is_none()) else {
            return Ok(Action::done());
        };
        let class = spec.storage_class_name.clone().unwrap_or_default();
        // Users may write the annotation as well: only the class decides.
        let class = cx.get::<StorageClass>(&flyball::ObjectKey::new(None, &class)).await?;
        let Some(class) = class.filter(|class| class.provisioner == PROVISIONER) else {
            return Ok(Action::done());
        };
        let (namespace, name) = (claim.namespace().unwrap_or_default(), claim.name_any());
        let uid = claim.metadata.uid.clone().unwrap_or_default();
        let volume = format!("pvc-{uid}");
        if cx.get::<PersistentVolume>(&flyball::ObjectKey::new(None, &volume)).await?.is_some() {
            return Ok(Action::done());
        }
        let text = format!("External provisioner is provisioning volume for claim \"{namespace}/{name}\"");
        self.0.normal(cx, claim, "Provisioning", text).await;
        let requests = spec.resources.as_ref().and_then(|resources| resources.requests.as_ref());
        let size = requests.and_then(|requests| requests.get("storage").cloned()).unwrap_or_default();
        let claim_ref = ObjectReference {
            api_version: Some("v1".into()),
            kind: Some("PersistentVolumeClaim".into()),
            namespace: Some(namespace),
            name: Some(name),
            uid: Some(uid),
            resource_version: claim.metadata.resource_version.clone(),
            field_path: None,
        };
        let object = PersistentVolume {
            metadata: ObjectMeta {
                name: Some(volume.clone()),
                annotations: Some([(PROVISIONED_BY.into(), PROVISIONER.into())].into()),
                ..ObjectMeta::default()
            },
            spec: Some(PersistentVolumeSpec {
                access_modes: spec.access_modes.clone(),
                capacity: Some(BTreeMap::from([("storage".into(), size)])),
                claim_ref: Some(claim_ref),
                csi: Some(CSIPersistentVolumeSource {
                    driver: DRIVER.into(),
                    volume_handle: volume.clone(),
                    ..CSIPersistentVolumeSource::default()
                }),
                mount_options: class.mount_options.clone(),
                persistent_volume_reclaim_policy: class.reclaim_policy.clone(),
                storage_class_name: class.metadata.name.clone(),
                volume_attributes_class_name: spec.volume_attributes_class_name.clone(),
                volume_mode: spec.volume_mode.clone(),
                ..PersistentVolumeSpec::default()
            }),
            status: None,
        };
        if let Err(error) = cx.create_unowned(&object).await {
            let text = format!(
                "failed to provision volume with StorageClass {:?}: {}",
                class.name_any(),
                pods::reason(&error)
            );
            self.0.warning(cx, claim, "ProvisioningFailed", text).await;
            return Err(error);
        }
        self.0.normal(cx, claim, "ProvisioningSucceeded", format!("Successfully provisioned volume {volume}")).await;
        Ok(Action::done())
    }
}

struct Volumes;

impl Reconcile for Volumes {
    type Resource = PersistentVolume;

    async fn reconcile(&self, volume: &PersistentVolume, cx: &Context<PersistentVolume>) -> Result<Action> {
        let is_ours = volume.annotations().get(PROVISIONED_BY).is_some_and(|provisioner| provisioner == PROVISIONER);
        let is_released = volume.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Released"));
        let policy = volume.spec.as_ref().and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref());
        if !(is_ours && is_released && policy == Some("Delete")) {
            return Ok(Action::done());
        }
        let preconditions = Preconditions {
            uid: volume.metadata.uid.clone(),
            resource_version: volume.metadata.resource_version.clone(),
        };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        let volumes = Api::<PersistentVolume>::all(cx.client().clone());
        owners::tolerate(volumes.delete(&volume.name_any(), &params).await.map_err(Into::into))?;
        Ok(Action::done())
    }
}

struct Nodes;

impl Reconcile for Nodes {
    type Resource = Node;

    async fn reconcile(&self, node: &Node, cx: &Context<Node>) -> Result<Action> {
        let is_simulated = node.annotations().get(NODE.0).is_some_and(|value| value == NODE.1);
        let is_default = |class: &StorageClass| class.annotations().get(IS_DEFAULT).is_some_and(|is| is == "true");
        if !is_simulated || cx.list::<StorageClass>(None).await?.iter().any(is_default) {
            return Ok(Action::done());
        }
        let class = StorageClass {
            metadata: ObjectMeta {
                name: Some("standard".into()),
                annotations: Some([(IS_DEFAULT.into(), "true".into())].into()),
                ..ObjectMeta::default()
            },
            provisioner: PROVISIONER.into(),
            reclaim_policy: Some("Delete".into()),
            volume_binding_mode: Some("WaitForFirstConsumer".into()),
            ..StorageClass::default()
        };
        match cx.create_unowned(&class).await {
            // A user created a class of this name that is not the default.
            Err(error) if error.status().is_some_and(kube::core::Status::is_already_exists) => {}
            result => drop(result?),
        }
        Ok(Action::done())
    }
}
