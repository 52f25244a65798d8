//! Operators with webhooks: certificates, configurations, conversion.

use crate::fixture::*;
use flyball_cluster::testing::Test;
use flyball_lifecycle::api::ClusterServiceVersion;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Secret, Service};
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use serde_json::json;
use std::time::Duration;

fn with_webhooks() -> flyball_cluster::testing::Setup {
    setup()
        .allows_changes_in("kube-system")
        .allows_changes_of::<MutatingWebhookConfiguration>()
        .allows_changes_of::<ValidatingWebhookConfiguration>()
}

async fn validating(test: &Test) -> Vec<ValidatingWebhookConfiguration> {
    let all: Api<ValidatingWebhookConfiguration> = Api::all(test.client());
    let found = all.list(&kube::api::ListParams::default().labels("olm.managed=true")).await.unwrap();
    found.items
}

async fn bundles_agree(test: &Test) {
    let secret = test.api::<Secret>().get("hooked-controller-service-cert").await.unwrap();
    let authority = secret.data.unwrap()["olmCAKey"].clone();
    let [configuration] = &validating(test).await[..] else { panic!("one configuration") };
    let hook = &configuration.webhooks.as_ref().unwrap()[0];
    assert_eq!(hook.client_config.ca_bundle.as_ref(), Some(&authority));
    let crd = Api::<CustomResourceDefinition>::all(test.client()).get("hooks.demo.flyball.dev").await.unwrap();
    let conversion = crd.spec.conversion.unwrap();
    assert_eq!(conversion.strategy, "Webhook");
    assert_eq!(conversion.webhook.unwrap().client_config.unwrap().ca_bundle, Some(authority));
}

#[tokio::test(start_paused = true)]
async fn webhooks_get_a_certificate_that_is_replaced_before_its_end() {
    let mut test = with_webhooks().start().await;
    group(&test, "global", json!({})).await;
    install(&test, "hooked.v1.0.0").await;
    test.assert_converges().await;
    assert_eq!(state(&test, "hooked.v1.0.0").await, SUCCEEDED);
    assert_eq!(history(&test, "hooked.v1.0.0").await, usual_history(), "no reinstallation, unlike OLM");
    bundles_agree(&test).await;
    test.api::<Service>().get("hooked-controller-service").await.unwrap();
    let bindings: Api<ClusterRoleBinding> = Api::all(test.client());
    bindings.get("hooked-controller-service-system:auth-delegator").await.unwrap();
    let readers: Api<RoleBinding> = Api::namespaced(test.client(), "kube-system");
    readers.get("hooked-controller-service-auth-reader").await.unwrap();
    test.assert_idempotent().await;

    let hash = async || {
        let deployment = test.api::<Deployment>().get("hooked-controller").await.unwrap();
        deployment.spec.unwrap().template.metadata.unwrap().annotations.unwrap()["olmcahash"].clone()
    };
    let before = hash().await;
    let csv = test.api::<ClusterServiceVersion>().get("hooked.v1.0.0").await.unwrap();
    let rotate_at = csv.status.certs_rotate_at.unwrap().0;
    let wait = rotate_at.duration_since(csv.status.certs_last_updated.unwrap().0);
    assert_eq!(wait.as_hours(), (2 * 365 - 1) * 24);
    // The Secret as of an earlier certificate.
    delete(&test.api::<Secret>(), "hooked-controller-service-cert").await;
    test.assert_converges().await;
    assert_eq!(state(&test, "hooked.v1.0.0").await, SUCCEEDED);
    assert!(history(&test, "hooked.v1.0.0").await.contains(&"Pending NeedsCertRotation".to_owned()));
    assert_ne!(hash().await, before, "the pods are restarted with the new certificate");
    bundles_agree(&test).await;
}

#[tokio::test(start_paused = true)]
async fn webhook_configurations_are_put_back_and_removed() {
    let test = with_webhooks().start().await;
    group(&test, "global", json!({})).await;
    install(&test, "hooked.v1.0.0").await;
    test.assert_converges().await;
    let name = validating(&test).await[0].metadata.name.clone().unwrap();
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(test.client());
    delete(&configurations, &name).await;
    test.assert_converges().await;
    bundles_agree(&test).await;
    assert_eq!(state(&test, "hooked.v1.0.0").await, SUCCEEDED);

    delete(&test.api::<ClusterServiceVersion>(), "hooked.v1.0.0").await;
    test.assert_converges().await;
    assert!(validating(&test).await.is_empty());
    assert_eq!(names(&test.api::<Secret>(), "hooked").await, [""; 0]);
    let readers: Api<RoleBinding> = Api::namespaced(test.client(), "kube-system");
    assert_eq!(names(&readers, "hooked").await, [""; 0]);
}

/// The recorded scenario 10b.
#[tokio::test(start_paused = true)]
async fn conversion_webhook_needs_all_namespaces() {
    let test = with_webhooks().start().await;
    own_group(&test).await;
    install(&test, "hooked.v1.0.0").await;
    test.assert_converges().await;
    assert_eq!(
        state(&test, "hooked.v1.0.0").await,
        "Failed UnsupportedOperatorGroup: OwnNamespace InstallModeType not supported, cannot configure to watch own \
         namespace"
    );
    assert!(validating(&test).await.is_empty());
    tokio::time::sleep(Duration::from_secs(3600)).await;
    test.assert_converges().await;
}

#[tokio::test(start_paused = true)]
async fn webhook_that_reviews_the_manager_is_refused() {
    let test = with_webhooks().start().await;
    group(&test, "global", json!({})).await;
    install_changed(&test, "hooked.v1.0.0", |csv| {
        csv["spec"]["webhookdefinitions"][0]["rules"] = json!([{
            "apiGroups": ["operators.coreos.com"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"],
        }]);
    })
    .await;
    test.assert_converges().await;
    assert_eq!(
        state(&test, "hooked.v1.0.0").await,
        "Failed InvalidWebhookDescription: webhook rules cannot include the OLM group"
    );
    assert!(validating(&test).await.is_empty());
}
