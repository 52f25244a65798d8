//! Upgrades: replacement of a ClusterServiceVersion by the next one.

use crate::fixture::*;
use flyball_lifecycle::api::{ClusterServiceVersion, OperatorCondition};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::ResourceExt;
use serde_json::{Value, json};

fn replaces(name: &'static str) -> impl FnOnce(&mut Value) {
    move |csv| csv["spec"]["replaces"] = name.into()
}

#[tokio::test(start_paused = true)]
async fn new_version_takes_over_and_the_old_one_goes() {
    let mut test = setup().start().await;
    own_group(&test).await;
    install(&test, "memo.v1.0.0").await;
    test.assert_converges().await;
    install_changed(&test, "memo.v1.1.0", replaces("memo.v1.0.0")).await;
    test.eventually("the old one is being replaced", async || {
        let state = state(&test, "memo.v1.0.0").await;
        state == "Replacing BeingReplaced: being replaced by csv: memo.v1.1.0" || state == "absent"
    })
    .await;
    test.assert_converges().await;
    assert_eq!(state(&test, "memo.v1.0.0").await, "absent");
    assert_eq!(state(&test, "memo.v1.1.0").await, SUCCEEDED);
    let deployment = test.api::<Deployment>().get("memo-controller").await.unwrap();
    let owners: Vec<_> = deployment.owner_references().iter().map(|owner| owner.name.as_str()).collect();
    assert_eq!(owners, ["memo.v1.1.0"]);
    let account = test.api::<ServiceAccount>().get("memo-controller").await.unwrap();
    let owners: Vec<_> = account.owner_references().iter().map(|owner| owner.name.as_str()).collect();
    assert_eq!(owners, ["memo.v1.1.0"]);
    assert_eq!(names(&test.api::<OperatorCondition>(), "").await, ["memo.v1.1.0"]);
    let (roles, _) = roles(&test);
    assert_eq!(names(&roles, "memo.v1.0.0").await, [""; 0]);
    test.assert_idempotent().await;
}

#[tokio::test(start_paused = true)]
async fn operator_can_hold_its_upgrade_back() {
    let test = setup().start().await;
    own_group(&test).await;
    install(&test, "memo.v1.0.0").await;
    test.assert_converges().await;
    let conditions = test.api::<OperatorCondition>();
    let upgradeable = |status: &str| {
        json!({"spec": {"conditions": [{
            "type": "Upgradeable", "status": status, "reason": "Busy", "message": "a migration runs",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]}})
    };
    patch(&conditions, "memo.v1.0.0", upgradeable("False")).await;
    test.assert_converges().await;
    assert_eq!(conditions.get("memo.v1.0.0").await.unwrap().status.conditions[0].message, "a migration runs");
    install_changed(&test, "memo.v1.1.0", replaces("memo.v1.0.0")).await;
    test.assert_converges().await;
    assert_eq!(
        state(&test, "memo.v1.1.0").await,
        "Pending OperatorConditionNotUpgradeable: operator is not upgradeable: the operator is not upgradeable: \
         a migration runs"
    );
    patch(&conditions, "memo.v1.0.0", upgradeable("True")).await;
    test.assert_converges().await;
    assert_eq!(
        (state(&test, "memo.v1.0.0").await, state(&test, "memo.v1.1.0").await),
        ("absent".into(), SUCCEEDED.into())
    );
}

#[tokio::test(start_paused = true)]
async fn upgrade_is_taken_back_if_the_new_version_is_deleted() {
    let test = setup().start().await;
    own_group(&test).await;
    install(&test, "memo.v1.0.0").await;
    test.assert_converges().await;
    install_changed(&test, "memo.v1.1.0", |csv| {
        csv["spec"]["replaces"] = "memo.v1.0.0".into();
        csv["spec"]["minKubeVersion"] = "99.0.0".into();
    })
    .await;
    test.assert_converges().await;
    assert!(state(&test, "memo.v1.0.0").await.starts_with("Replacing"));
    assert!(state(&test, "memo.v1.1.0").await.starts_with("Pending RequirementsNotMet"));
    delete(&test.api::<ClusterServiceVersion>(), "memo.v1.1.0").await;
    test.assert_converges().await;
    assert_eq!(state(&test, "memo.v1.0.0").await, SUCCEEDED);
    assert_eq!(state(&test, "memo.v1.1.0").await, "absent");
    test.api::<ServiceAccount>().get("memo-controller").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn chain_of_versions_is_deleted_from_its_oldest_end() {
    let test = setup().start().await;
    own_group(&test).await;
    install(&test, "memo.v1.0.0").await;
    test.assert_converges().await;
    install_changed(&test, "memo.v1.1.0", replaces("memo.v1.0.0")).await;
    install_changed(&test, "memo.v2.0.0", replaces("memo.v1.1.0")).await;
    test.assert_converges().await;
    assert_eq!(names(&test.api::<ClusterServiceVersion>(), "").await, ["memo.v2.0.0"]);
    assert_eq!(state(&test, "memo.v2.0.0").await, SUCCEEDED);
}
