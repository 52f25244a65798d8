//! Controllers of workloads, with pods whose status the test sets as a kubelet does.

use crate::{cluster, eventually};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, ResourceQuota, Secret};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::fmt::Debug;
use std::time::Duration;
use tokio::time::sleep;

pub(crate) fn api<T>(client: &Client) -> Api<T>
where
    T: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
{
    Api::namespaced(client.clone(), "default")
}

pub(crate) async fn create<T>(client: &Client, object: Value)
where
    T: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
        + Clone
        + Debug
        + DeserializeOwned
        + serde::Serialize,
{
    let object: T = serde_json::from_value(object).unwrap();
    api::<T>(client).create(&PostParams::default(), &object).await.unwrap();
}

pub(crate) async fn pods(client: &Client) -> Vec<Pod> {
    let pods = api::<Pod>(client).list(&ListParams::default()).await.unwrap().items;
    pods.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).collect()
}

pub(crate) async fn set_status(client: &Client, pod: &Pod, status: Value) {
    let name = pod.metadata.name.as_deref().unwrap();
    let patch = Patch::Merge(json!({"status": status}));
    api::<Pod>(client).patch_status(name, &PatchParams::default(), &patch).await.unwrap();
}

/// Sets all pods to ready.
pub(crate) async fn run(client: &Client) {
    let ready = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
    for pod in pods(client).await {
        set_status(client, &pod, ready.clone()).await;
    }
}

pub(crate) fn template(image: &str) -> Value {
    json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": image}]}})
}

fn image(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.containers[0].image.as_deref()
}

#[tokio::test(start_paused = true)]
async fn rolling_update_stays_within_its_bounds() {
    let client = cluster().admin();
    let spec = json!({"replicas": 10, "selector": {"matchLabels": {"app": "web"}}, "template": template("i:1")});
    create::<Deployment>(&client, json!({"metadata": {"name": "web"}, "spec": spec})).await;
    eventually("ten pods", || async { pods(&client).await.len() == 10 }).await;
    run(&client).await;
    sleep(Duration::from_secs(1)).await;
    let patch = Patch::Merge(json!({"spec": {"template": template("i:2")}}));
    api::<Deployment>(&client).patch("web", &PatchParams::default(), &patch).await.unwrap();
    for _ in 0..20 {
        sleep(Duration::from_secs(1)).await;
        let there = pods(&client).await;
        let ready = there.iter().filter(|pod| pod.status.as_ref().is_some_and(|status| status.conditions.is_some()));
        assert!(there.len() <= 13 && ready.count() >= 8, "{} pods", there.len());
        run(&client).await;
    }
    let there = pods(&client).await;
    assert!(there.len() == 10 && there.iter().all(|pod| image(pod) == Some("i:2")));
    let status = api::<Deployment>(&client).get("web").await.unwrap().status.unwrap();
    assert_eq!((status.available_replicas, status.unavailable_replicas), (Some(10), None));
    let sets = api::<ReplicaSet>(&client).list(&ListParams::default()).await.unwrap().items;
    assert_eq!(sets.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn job_retries_with_backoff() {
    let client = cluster().admin();
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    create::<Job>(&client, json!({"metadata": {"name": "j"}, "spec": {"backoffLimit": 2, "template": template}})).await;
    for wait in [0, 10, 20] {
        sleep(Duration::from_secs(1)).await;
        let pending = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Pending");
        if wait > 0 {
            assert!(!pods(&client).await.iter().any(pending), "no pod before {wait} s");
            sleep(Duration::from_secs(wait)).await;
        }
        let there = pods(&client).await;
        let pod = there.iter().find(|pod| pending(pod)).expect("a pod");
        set_status(&client, pod, json!({"phase": "Failed"})).await;
    }
    eventually("the end", || async {
        let status = api::<Job>(&client).get("j").await.unwrap().status.unwrap();
        let failed = status.conditions.iter().flatten().any(|condition| condition.type_ == "Failed");
        failed && status.failed == Some(3) && status.active.is_none()
    })
    .await;
    api::<Job>(&client).delete("j", &DeleteParams::background()).await.unwrap();
    eventually("no pods", || async { pods(&client).await.is_empty() }).await;
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_running_job_are_deleted_with_it() {
    let client = cluster().admin();
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    create::<Job>(&client, json!({"metadata": {"name": "j"}, "spec": {"parallelism": 3, "template": template}})).await;
    eventually("a pod", || async { !pods(&client).await.is_empty() }).await;
    api::<Job>(&client).delete("j", &DeleteParams::background()).await.unwrap();
    let all = || async { api::<Pod>(&client).list(&ListParams::default()).await.unwrap().items };
    eventually("no pods", || async { all().await.is_empty() }).await;
}

#[tokio::test(start_paused = true)]
async fn quota_is_filled_and_not_exceeded() {
    let client = cluster().admin();
    create::<ResourceQuota>(&client, json!({"metadata": {"name": "q"}, "spec": {"hard": {"pods": "3"}}})).await;
    let used = || async {
        let status = api::<ResourceQuota>(&client).get("q").await.unwrap().status.unwrap_or_default();
        status.used.and_then(|used| used.get("pods").map(|amount| amount.0.clone()))
    };
    eventually("a count", || async { used().await.is_some() }).await;
    let spec = json!({"replicas": 8, "selector": {"matchLabels": {"app": "web"}}, "template": template("i")});
    create::<ReplicaSet>(&client, json!({"metadata": {"name": "web"}, "spec": spec})).await;
    eventually("a full quota", || async { used().await.as_deref() == Some("3") }).await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(pods(&client).await.len(), 3);
    let status = api::<ReplicaSet>(&client).get("web").await.unwrap().status.unwrap();
    let failure = status.conditions.iter().flatten().next().and_then(|condition| condition.message.clone());
    assert!(failure.is_some_and(|text| text.contains("exceeded quota: q, requested: pods=1, used: pods=3")));
}

#[tokio::test(start_paused = true)]
async fn quota_counts_existing_objects_and_not_attempts() {
    let client = cluster().admin();
    let counted = "count/leases.coordination.k8s.io";
    let hard = json!({"configmaps": "3", "secrets": "3", counted: "2"});
    let other = "quota";
    crate::namespace(&client, other).await;
    let quotas: Api<ResourceQuota> = Api::namespaced(client.clone(), other);
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": hard}});
    quotas.create(&PostParams::default(), &serde_json::from_value(quota).unwrap()).await.unwrap();
    let used = async |name: &str| {
        let status = quotas.get("q").await.unwrap().status.unwrap_or_default();
        status.used.and_then(|used| used.get(name).map(|amount| amount.0.clone())).unwrap_or_default()
    };
    eventually("the config map with the certificate counts", || async { used("configmaps").await == "1" }).await;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), other);
    let map: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "m"}})).unwrap();
    maps.create(&PostParams::default(), &map).await.unwrap();
    // Admission charges each attempt, and one object of quota remains after all of them.
    for _ in 0..5 {
        assert!(
            maps.create(&PostParams::default(), &map).await.is_err_and(|error| error.to_string().contains("exist"))
        );
        eventually("the attempt is released", || async { used("configmaps").await == "2" }).await;
    }
    // Deletion by removing a finalizer, by the garbage collector, and of a kind that is not watched.
    let add_finalizer = Patch::Merge(json!({"metadata": {"finalizers": ["example.com/held"]}}));
    maps.patch("m", &PatchParams::default(), &add_finalizer).await.unwrap();
    maps.delete("m", &DeleteParams::default()).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(used("configmaps").await, "2");
    let released = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    maps.patch("m", &PatchParams::default(), &released).await.unwrap();
    eventually("the usage of a deleted object is released", || async { used("configmaps").await == "1" }).await;
    let leases: Api<Lease> = Api::namespaced(client.clone(), other);
    let owner = leases
        .create(&PostParams::default(), &serde_json::from_value(json!({"metadata": {"name": "owner"}})).unwrap())
        .await
        .unwrap();
    let owners = json!([{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "name": "owner",
        "uid": owner.metadata.uid}]);
    let owned: Secret =
        serde_json::from_value(json!({"metadata": {"name": "owned", "ownerReferences": owners}})).unwrap();
    let secrets: Api<Secret> = Api::namespaced(client.clone(), other);
    secrets.create(&PostParams::default(), &owned).await.unwrap();
    eventually("both count", || async { (used(counted).await, used("secrets").await) == ("1".into(), "1".into()) })
        .await;
    leases.delete("owner", &DeleteParams::background()).await.unwrap();
    eventually("the usage of both is released", || async {
        (used(counted).await, used("secrets").await) == ("0".into(), "0".into())
    })
    .await;
    // The quota is deleted with its namespace.
    maps.create(&PostParams::default(), &map).await.unwrap();
    Api::<Namespace>::all(client.clone()).delete(other, &DeleteParams::default()).await.unwrap();
    eventually("the namespace was deleted", || async { quotas.get_opt("q").await.unwrap().is_none() }).await;
}
