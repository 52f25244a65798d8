//! A typical role from books about operators: included files, templates in strings, defaults.

use crate::project::{api, change, condition, operator_of, project};
use flyball::{Kind, Operator};
use flyball_cluster::testing::Test;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Secret, Service};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::sleep;

fn operator() -> Operator {
    operator_of(&project("visitors"))
}

const SITE: &str = "{apiVersion: example.com/v1, kind: VisitorsApp, metadata: {name: ex}, spec: {namespace: test, size: 2, title: Hello}}";

#[tokio::test(start_paused = true)]
async fn objects_in_another_namespace_are_annotated_with_their_owner() {
    let mut test = Test::of(operator).allows_changes_in("default").start().await;
    test.apply("{apiVersion: example.com/v1, kind: VisitorsApp, metadata: {name: ex}}").await;
    test.assert_converges().await;
    let elsewhere: Api<Deployment> = Api::namespaced(test.client(), "default");
    let backend = elsewhere.get("backend").await.unwrap();
    assert_eq!(backend.metadata.owner_references, None);
    let annotations = backend.metadata.annotations.unwrap();
    assert_eq!(annotations["operator-sdk/primary-resource"], "test/ex");
    assert_eq!(annotations["operator-sdk/primary-resource-type"], "VisitorsApp.example.com");
    let sites = api(&test, &Kind::new("example.com", "v1", "VisitorsApp"));
    change(&sites, "ex", json!({"spec": {"size": 4}})).await;
    test.assert_converges().await;
    let replicas = async || elsewhere.get("backend").await.unwrap().spec.unwrap().replicas;
    assert_eq!(replicas().await, Some(4));
    let drift = Patch::Merge(json!({"spec": {"replicas": 7}}));
    elsewhere.patch("backend", &PatchParams::default(), &drift).await.unwrap();
    elsewhere.delete("frontend", &DeleteParams::default()).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(replicas().await, Some(4));
    assert!(elsewhere.get_opt("frontend").await.unwrap().is_some());
    test.assert_idempotent().await;
}

#[tokio::test(start_paused = true)]
async fn visitors_site_is_created_changed_and_deleted() {
    let mut test = Test::of(operator).nodes(1).start().await;
    test.apply(SITE).await;
    test.assert_converges().await;
    let sites = api(&test, &Kind::new("example.com", "v1", "VisitorsApp"));
    let deployment = async |name: &str| -> Value {
        serde_json::to_value(test.api::<Deployment>().get(name).await.unwrap()).unwrap()
    };
    assert_eq!(deployment("backend").await["status"]["readyReplicas"], 2);
    assert_eq!(deployment("frontend").await["spec"]["template"]["spec"]["containers"][0]["env"][0]["value"], "Hello");
    assert_eq!(condition(&sites.get("ex").await.unwrap(), "Running")["ansibleResult"]["ok"], 9);
    change(&sites, "ex", json!({"spec": {"size": 3}})).await;
    test.assert_converges().await;
    assert_eq!(deployment("backend").await["status"]["readyReplicas"], 3);
    test.assert_idempotent().await;
    sites.delete("ex", &DeleteParams::default()).await.unwrap();
    let are_deleted = async || {
        let all = ListParams::default();
        let services = test.api::<Service>().list(&all).await.unwrap();
        test.api::<Deployment>().list(&all).await.unwrap().items.is_empty()
            && test.api::<Secret>().list(&all).await.unwrap().items.is_empty()
            && services.items.iter().all(|service| service.metadata.name.as_deref() == Some("kubernetes"))
    };
    test.eventually("all is gone", are_deleted).await;
}
