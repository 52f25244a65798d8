//! Crashes of the manager before and after its requests, during an installation, an upgrade and a removal.
//!
//! By default every seventh request is tried. `FLYBALL_LIFECYCLE_CRASHES=all` explores all of them.

use crate::fixture::*;
use flyball::Operator;
use flyball_cluster::testing::{Setup, Test, explore_crashes};
use flyball_lifecycle::api::{self, ClusterServiceVersion};
use flyball_lifecycle::csv;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;

/// Distance of the requests at which a crash is tried; it is coprime to the number of requests per step.
const STRIDE: usize = 7;

/// Returns the manager with CRDs that accept everything: the schemas take most of the time of a run.
fn operator() -> Operator {
    let open = || JSONSchemaProps {
        type_: Some("object".into()),
        x_kubernetes_preserve_unknown_fields: Some(true),
        ..JSONSchemaProps::default()
    };
    let mut operator = csv::add_to(Operator::new("lifecycle-manager"));
    for mut crd in api::crds() {
        for version in &mut crd.spec.versions {
            version.schema.as_mut().unwrap().open_api_v3_schema = Some(open());
        }
        operator = operator.crd(crd);
    }
    operator
}

fn light() -> Setup {
    setup_of(operator)
}

/// Plays a scenario with a crash at some requests, and compares the outcome with that of an undisturbed run.
async fn explore<T: PartialEq + std::fmt::Debug>(scenario: impl AsyncFn(&Test) -> T) -> usize {
    if std::env::var("FLYBALL_LIFECYCLE_CRASHES").is_ok_and(|value| value == "all") {
        return explore_crashes(light, scenario).await;
    }
    let play = async |setup: Setup| {
        let test = setup.start().await;
        let returned = scenario(&test).await;
        test.assert_converges().await;
        (test.state().await, returned, test.crashed())
    };
    let (state, returned, _) = play(light()).await;
    let mut crashes = 0;
    for request in (1..).step_by(STRIDE) {
        let setup = if request % 2 == 0 { light().crash_before(request) } else { light().crash_after(request) };
        let (found, answer, crashed) = play(setup).await;
        assert_eq!(answer, returned, "a crash at request {request} changed the outcome");
        for (name, value) in &state {
            assert_eq!(found.get(name), Some(value), "a crash at request {request} changed {name}");
        }
        assert_eq!(found.len(), state.len(), "a crash at request {request} left other objects");
        if !crashed {
            break;
        }
        crashes += 1;
    }
    crashes
}

#[tokio::test(start_paused = true)]
async fn chaos_crash_during_an_installation_is_harmless() {
    let crashes = explore(async |test| {
        own_group(test).await;
        install(test, "memo.v1.0.0").await;
        test.assert_converges().await;
        state(test, "memo.v1.0.0").await
    })
    .await;
    assert!(crashes > 10, "{crashes}");
}

#[tokio::test(start_paused = true)]
async fn chaos_crash_during_an_upgrade_or_a_removal_is_harmless() {
    let crashes = explore(async |test| {
        own_group(test).await;
        install(test, "memo.v1.0.0").await;
        test.assert_converges().await;
        install_changed(test, "memo.v1.1.0", |csv| csv["spec"]["replaces"] = "memo.v1.0.0".into()).await;
        test.assert_converges().await;
        let upgraded = (state(test, "memo.v1.0.0").await, state(test, "memo.v1.1.0").await);
        delete(&test.api::<ClusterServiceVersion>(), "memo.v1.1.0").await;
        test.assert_converges().await;
        (upgraded, state(test, "memo.v1.1.0").await)
    })
    .await;
    assert!(crashes > 15, "{crashes}");
}
