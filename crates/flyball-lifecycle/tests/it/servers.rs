//! Operators that serve aggregated APIs, and operators whose servers have the same names.

use crate::fixture::*;
use flyball_lifecycle::api::ClusterServiceVersion;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::Api;
use serde_json::{Value, json};

fn setup_of_servers() -> flyball_cluster::testing::Setup {
    setup()
        .allows_changes_in("kube-system")
        .allows_changes_of::<APIService>()
        .allows_changes_of::<ValidatingWebhookConfiguration>()
}

fn serves_an_api(csv: &mut Value) {
    csv["spec"]["apiservicedefinitions"] = json!({"owned": [{
        "group": "served.flyball.dev", "version": "v1", "kind": "Served", "name": "serveds",
        "deploymentName": "memo-controller", "containerPort": 5443,
    }]});
}

#[tokio::test(start_paused = true)]
async fn aggregated_api_gets_a_service_and_is_awaited() {
    let test = setup_of_servers().start().await;
    own_group(&test).await;
    install_changed(&test, "memo.v1.0.0", serves_an_api).await;
    let waiting = "Installing InstallWaiting: apiServices not installed";
    until(&test, "memo.v1.0.0", waiting).await;
    let services: Api<APIService> = Api::all(test.client());
    let service = services.get("v1.served.flyball.dev").await.unwrap().spec.unwrap();
    let reference = service.service.unwrap();
    assert_eq!((reference.name.as_deref(), reference.port), (Some("memo-controller-service"), Some(5443)));
    let secret = test.api::<Secret>().get("memo-controller-service-cert").await.unwrap();
    assert_eq!(service.ca_bundle.as_ref(), secret.data.unwrap().get("olmCAKey"));

    delete(&test.api::<ClusterServiceVersion>(), "memo.v1.0.0").await;
    test.eventually("the APIService is gone", async || {
        services.get_opt("v1.served.flyball.dev").await.unwrap().is_none()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn api_service_of_others_is_not_taken_over() {
    let test = setup_of_servers().start().await;
    own_group(&test).await;
    let foreign = json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": "v1.served.flyball.dev"},
        "spec": {
            "group": "served.flyball.dev", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1,
            "insecureSkipTLSVerify": true, "service": {"name": "other", "namespace": "other"},
        },
    });
    test.apply(&foreign.to_string()).await;
    install_changed(&test, "memo.v1.0.0", serves_an_api).await;
    test.assert_converges().await;
    assert_eq!(state(&test, "memo.v1.0.0").await, "Failed OwnerConflict: unable to adopt APIService");
    let service = Api::<APIService>::all(test.client()).get("v1.served.flyball.dev").await.unwrap();
    assert_eq!(service.spec.unwrap().service.unwrap().name.as_deref(), Some("other"));
}

#[tokio::test(start_paused = true)]
async fn servers_of_the_same_name_in_two_namespaces_do_not_share_rights() {
    let test = setup_of_servers().allows_changes_in("gate-b").start().await;
    namespace(&test, "gate-b", json!({})).await;
    own_group(&test).await;
    let other = json!({
        "apiVersion": "operators.coreos.com/v1", "kind": "OperatorGroup",
        "metadata": {"name": "group", "namespace": "gate-b"}, "spec": {"targetNamespaces": ["gate-b"]},
    });
    test.apply(&other.to_string()).await;
    install(&test, "gate.v1.0.0").await;
    let mut second = bundle("gate.v1.0.0").pop().unwrap();
    second["metadata"]["namespace"] = "gate-b".into();
    test.apply(&second.to_string()).await;
    test.assert_converges().await;
    assert_eq!(state(&test, "gate.v1.0.0").await, SUCCEEDED);
    assert_eq!(state_in(&Api::namespaced(test.client(), "gate-b"), "gate.v1.0.0").await, SUCCEEDED);
    let bindings: Api<ClusterRoleBinding> = Api::all(test.client());
    let mut namespaces = Vec::new();
    for name in names(&bindings, "gate-controller-service").await {
        let subjects = bindings.get(&name).await.unwrap().subjects.unwrap();
        namespaces.extend(subjects.into_iter().filter_map(|subject| subject.namespace));
    }
    namespaces.sort();
    let mut expected = ["gate-b".to_owned(), test.namespace().to_owned()];
    expected.sort();
    assert_eq!(namespaces, expected);
}

#[tokio::test(start_paused = true)]
async fn deployment_of_another_operator_is_not_taken_over() {
    let test = setup().start().await;
    own_group(&test).await;
    install(&test, "memo.v1.0.0").await;
    test.assert_converges().await;
    install_changed(&test, "worn.v1.0.0", |csv| {
        csv["spec"]["install"]["spec"]["deployments"][0]["name"] = "memo-controller".into();
    })
    .await;
    test.assert_converges().await;
    assert_eq!(
        state(&test, "worn.v1.0.0").await,
        "Failed OwnerConflict: deployment memo-controller belongs to ClusterServiceVersion memo.v1.0.0"
    );
    assert_eq!(state(&test, "memo.v1.0.0").await, SUCCEEDED);
}

#[tokio::test(start_paused = true)]
async fn service_account_of_another_operator_gets_no_more_rights() {
    let test = setup().start().await;
    own_group(&test).await;
    install(&test, "memo.v1.0.0").await;
    test.assert_converges().await;
    install_changed(&test, "worn.v1.0.0", |csv| {
        let strategy = &mut csv["spec"]["install"]["spec"];
        strategy["permissions"] = json!([{
            "serviceAccountName": "memo-controller",
            "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}],
        }]);
    })
    .await;
    test.assert_converges().await;
    assert_eq!(
        state(&test, "worn.v1.0.0").await,
        "Pending RequirementsNotMet: one or more requirements couldn't be found"
    );
    let csv = test.api::<ClusterServiceVersion>().get("worn.v1.0.0").await.unwrap();
    let account = csv.status.requirement_status.iter().find(|found| found.kind == "ServiceAccount").unwrap();
    assert_eq!(account.message, "Service account is owned by another ClusterServiceVersion");
    assert_eq!(names(&roles(&test).0, "worn.v1.0.0-").await, [""; 0]);
    assert_eq!(state(&test, "memo.v1.0.0").await, SUCCEEDED);
}
