//! Tests of `DemoVolume` on a control plane in the test process, see `flyball_cluster::testing`.

use demovolume::api::demovolume_v1::DemoVolume;
use demovolume::operator;
use flyball_cluster::testing::Test;
use flyball_explore::{Budget, Explorer};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::DeleteParams;

const SAMPLE: &str = include_str!("../config/samples/demo_v1_demovolume.yaml");

#[tokio::test(start_paused = true)]
async fn volume_has_a_claim_of_its_size() -> kube::Result<()> {
    let mut test = Test::of(operator).start().await;
    test.apply(SAMPLE).await;
    test.assert_idempotent().await;
    let claim = test.api::<PersistentVolumeClaim>().get("films").await?;
    let requests = claim.spec.and_then(|spec| spec.resources?.requests).unwrap_or_default();
    assert_eq!(requests["storage"].0, "2Gi");
    let volume = test.api::<DemoVolume>().get("films").await?;
    assert_eq!(volume.status.unwrap_or_default().name, "holiday-films");

    test.api::<PersistentVolumeClaim>().delete("films", &DeleteParams::default()).await?;
    test.assert_converges().await;
    assert!(test.api::<PersistentVolumeClaim>().get_opt("films").await?.is_some());
    Ok(())
}

#[test]
fn explore_faults_change_nothing() {
    Explorer::of(operator).sample(SAMPLE).budget(Budget::schedules(150)).run().assert_clean();
}
