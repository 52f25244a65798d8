//! DemoVolume: a claim of the specified size, which is recreated after its deletion.

use super::cluster::DemoCluster;
use super::show::{MANAGER, print_title, wait_until};
use crate::error::{Result, ResultExt};
use ::demovolume::api::demovolume_v1::DemoVolume;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

const NAME: &str = "films";

/// Commands to try.
pub(super) const COMMANDS: [&str; 3] =
    ["get demovolumes,persistentvolumeclaims", "delete persistentvolumeclaim films", "delete demovolume films"];

pub(super) fn sample() -> Value {
    json!({
        "apiVersion": "demo.flyball.dev/v1",
        "kind": "DemoVolume",
        "metadata": {"name": NAME},
        "spec": {"name": "holiday-films", "size": 2},
    })
}

/// Runs the show.
pub(super) async fn run(cluster: &DemoCluster) -> Result<()> {
    if cluster.is_own() {
        // On any other cluster, the class is the one that its administrators chose.
        let class = json!({
            "metadata": {"name": "at-once", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
            "provisioner": "flyball.dev/simulated",
        });
        let class: StorageClass = serde_json::from_value(class).context("cannot parse the demo's storage class")?;
        let classes = Api::all(cluster.admin.clone());
        classes.create(&PostParams::default(), &class).await.context("cannot create a storage class")?;
    }
    let volumes: Api<DemoVolume> = Api::namespaced(cluster.admin.clone(), cluster.namespace);
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(cluster.admin.clone(), cluster.namespace);
    let bound = |volume: &DemoVolume| {
        let status = volume.status.clone().unwrap_or_default();
        std::future::ready(status.name == volume.spec.name && status.claim == "Bound")
    };

    print_title("Apply films: a volume of 2 GiB");
    let applied = Patch::Apply(sample());
    volumes.patch(NAME, &PatchParams::apply(MANAGER), &applied).await.context("cannot apply films")?;
    wait_until(cluster, &volumes, NAME, "the status names the volume, the claim is bound", bound).await?;

    print_title("Delete the claim behind the operator's back");
    let claim = claims.get(NAME).await.context("cannot read the claim")?;
    claims.delete(NAME, &DeleteParams::default()).await.context("cannot delete the claim")?;
    wait_until(cluster, &volumes, NAME, "a new claim is bound", |volume| {
        let bound = bound(volume);
        let (claims, before) = (claims.clone(), claim.uid());
        async move { bound.await && claims.get(NAME).await.is_ok_and(|claim| claim.uid() != before) }
    })
    .await
}
