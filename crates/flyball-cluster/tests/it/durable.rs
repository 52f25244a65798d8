//! Objects outlive the process, custom resources like all others.

use crate::{cluster_of, eventually, namespace};
use flyball_cluster::{Cluster, Controllers, DataDir, Nodes, Options, simulated_clock};
use futures_util::{StreamExt, TryStreamExt};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, ServiceAccount};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams,
};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

/// A temporary directory, removed at the end of the test.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("flyball-cluster-{}-{test}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn open(path: &Path) -> Cluster {
    Cluster::open(Options::system().unwrap(), DataDir::open(path).unwrap()).unwrap()
}

fn resource(api_version: &str, kind: &str, plural: &str) -> ApiResource {
    let (group, version) = api_version.split_once('/').unwrap();
    ApiResource {
        group: group.into(),
        version: version.into(),
        api_version: api_version.into(),
        kind: kind.into(),
        plural: plural.into(),
    }
}

fn widgets() -> CustomResourceDefinition {
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {"replicas": {"type": "integer", "default": 1}, "color": {"type": "string"}}},
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
    }});
    serde_json::from_value(json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
                 "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
                               "subresources": {"status": {}}, "selectableFields": [{"jsonPath": ".spec.color"}]}]},
    }))
    .unwrap()
}

fn api(cluster: &Cluster, resource: &ApiResource) -> Api<DynamicObject> {
    Api::namespaced_with(cluster.admin(), "default", resource)
}

fn number(object: &DynamicObject) -> u64 {
    object.resource_version().unwrap().parse().unwrap()
}

fn code(error: &kube::Error) -> u16 {
    match error {
        kube::Error::Api(status) => status.code,
        error => panic!("{error}"),
    }
}

/// Checks for every kind: identity, versions, generations and conflicts survive a restart.
async fn survives(folder: &Path, resource: &ApiResource, manifest: Value) {
    let params = PostParams::default();
    let (first, known) = {
        let cluster = open(folder);
        if resource.group == "example.com" {
            let definitions: Api<CustomResourceDefinition> = Api::all(cluster.admin());
            definitions.create(&params, &widgets()).await.unwrap();
        }
        let api = api(&cluster, resource);
        let first = api.create(&params, &serde_json::from_value(manifest).unwrap()).await.unwrap();
        let mut changed = first.clone();
        changed.data["spec"]["replicas"] = 3.into();
        let changed = api.replace("x", &params, &changed).await.unwrap();
        assert_eq!(changed.metadata.generation, Some(2));
        let status = Patch::Merge(json!({"status": {"observedGeneration": 2}}));
        let known = api.patch_status("x", &PatchParams::default(), &status).await.unwrap();
        assert_eq!((known.metadata.generation, number(&known) > number(&changed)), (Some(2), true));
        cluster.close();
        (first, known)
    };

    let cluster = open(folder);
    let api = api(&cluster, resource);
    let found = api.get("x").await.unwrap();
    assert_eq!(found, known, "uid, resourceVersion, generation, owners of fields: all is as it was");
    let selected = ListParams::default().labels("app=x").fields("metadata.name=x");
    assert_eq!(api.list(&selected).await.unwrap().items.len(), 1);
    if resource.group == "example.com" {
        assert_eq!(api.list(&ListParams::default().fields("spec.color=blue")).await.unwrap().items.len(), 1);
        assert_eq!(api.list(&ListParams::default().fields("spec.color=red")).await.unwrap().items.len(), 0);
    }

    // An update with an outdated resource version is rejected.
    let stale = api.replace("x", &params, &first).await.unwrap_err();
    assert_eq!(code(&stale), 409);
    assert!(stale.to_string().contains("the object has been modified"), "{stale}");
    // The history from before the restart is not available.
    let watch = api.watch(&WatchParams::default(), &first.resource_version().unwrap()).await.unwrap();
    match Box::pin(watch).next().await {
        Some(Ok(WatchEvent::Error(status))) => assert_eq!((status.code, &*status.reason), (410, "Expired")),
        other => panic!("{other:?}"),
    }
    let exact = ListParams::default().at(&first.resource_version().unwrap()).matching(kube::api::VersionMatch::Exact);
    assert_eq!(code(&api.list(&exact).await.unwrap_err()), 410);

    // Watches from the current version continue, and resource versions continue to increase.
    let now = api.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    let mut changed = known.clone();
    changed.data["spec"]["replicas"] = 4.into();
    let changed = api.replace("x", &params, &changed).await.unwrap();
    assert_eq!(changed.metadata.generation, Some(3));
    assert!(number(&changed) > now.parse().unwrap() && changed.uid() == known.uid());
    match Box::pin(api.watch(&WatchParams::default(), &now).await.unwrap()).try_next().await.unwrap() {
        Some(WatchEvent::Modified(object)) => assert_eq!(object, changed),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn custom_resource_survives_like_a_deployment() {
    let metadata = json!({"name": "x", "labels": {"app": "x"}});
    let widget =
        json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": metadata, "spec": {"color": "blue"}});
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {
            "metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}},
    });
    for (resource, object) in [
        (resource("apps/v1", "Deployment", "deployments"), deployment),
        (resource("example.com/v1", "Widget", "widgets"), widget),
    ] {
        let folder = Folder::new(&resource.plural);
        survives(&folder.0, &resource, object).await;
    }
}

#[tokio::test(start_paused = true)]
async fn forks_are_isolated() {
    let cluster = cluster_of(Options::simulated(simulated_clock(), 1));
    let admin = cluster.admin();
    namespace(&admin, "ns").await;
    let definitions: Api<CustomResourceDefinition> = Api::all(admin.clone());
    definitions.create(&PostParams::default(), &widgets()).await.unwrap();
    let deployment: Deployment = serde_json::from_value(json!({
        "metadata": {"name": "web"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": {
            "metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}},
    }))
    .unwrap();
    Api::<Deployment>::namespaced(admin.clone(), "ns").create(&PostParams::default(), &deployment).await.unwrap();
    let pods = |cluster: &Cluster| Api::<Pod>::namespaced(cluster.admin(), "ns");
    let count = async |cluster: &Cluster| pods(cluster).list(&ListParams::default()).await.unwrap().items.len();
    eventually("two pods", async || count(&cluster).await == 2).await;

    let forks: Vec<Cluster> = (2..4).map(|seed| cluster.fork(Options::simulated(simulated_clock(), seed))).collect();
    let version = async |cluster: &Cluster| {
        let list = Api::<ConfigMap>::all(cluster.admin()).list(&ListParams::default()).await.unwrap();
        list.metadata.resource_version.unwrap()
    };
    // The history is included: a watch from an earlier version continues in the fork.
    let before = version(&cluster).await;
    assert_eq!(before, version(&forks[0]).await);
    let watch = pods(&forks[0]).watch(&WatchParams::default(), "101").await.unwrap();
    assert!(matches!(Box::pin(watch).try_next().await.unwrap(), Some(WatchEvent::Added(_))));

    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}});
    let resource = resource("example.com/v1", "Widget", "widgets");
    api(&forks[0], &resource).create(&PostParams::default(), &serde_json::from_value(widget).unwrap()).await.unwrap();
    pods(&forks[1]).delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap();
    assert_eq!((count(&cluster).await, count(&forks[0]).await, count(&forks[1]).await), (2, 2, 0));
    let widgets =
        async |cluster: &Cluster| api(cluster, &resource).list(&ListParams::default()).await.unwrap().items.len();
    assert_eq!((widgets(&cluster).await, widgets(&forks[0]).await, widgets(&forks[1]).await), (0, 1, 0));
    assert_eq!(version(&cluster).await, before, "nothing was written here");
}

/// A pod whose environment variables expand to 10 GB.
fn pod_with_large_environment() -> Pod {
    let variable = |n: u32| match n {
        0 => json!({"name": "V0", "value": "0123456789"}),
        n => json!({"name": format!("V{n}"), "value": format!("$(V{})", n - 1).repeat(10)}),
    };
    let env: Vec<Value> = (0..10).map(variable).collect();
    let container = json!({"name": "c", "image": "i", "env": env});
    serde_json::from_value(json!({"metadata": {"name": "large"}, "spec": {"containers": [container]}})).unwrap()
}

#[tokio::test]
async fn stored_pod_with_large_environment_does_not_prevent_a_restart() {
    let folder = Folder::new("environment");
    for restarts in 0..2 {
        let cluster = open(&folder.0);
        let running = cluster.clone();
        let controllers = tokio::spawn(async move { running.run(&Controllers::all()).await });
        let client = cluster.admin();
        let pods: Api<Pod> = Api::default_namespaced(client.clone());
        if restarts == 0 {
            Nodes::new("n", 1).add_to(&client).await.unwrap();
            let accounts: Api<ServiceAccount> = Api::default_namespaced(client.clone());
            eventually("an account", || async { accounts.get_opt("default").await.unwrap().is_some() }).await;
            pods.create(&PostParams::default(), &pod_with_large_environment()).await.unwrap();
        }
        let name = format!("small-{restarts}");
        let container = json!({"name": "c", "image": "i"});
        let small = json!({"metadata": {"name": name}, "spec": {"containers": [container]}});
        pods.create(&PostParams::default(), &serde_json::from_value(small).unwrap()).await.unwrap();
        let runs = async |name: &str| {
            let status = pods.get(name).await.unwrap().status.unwrap_or_default();
            status.phase.as_deref() == Some("Running")
        };
        eventually("a running pod", || runs(&name)).await;
        let waits = async || {
            let status = pods.get("large").await.unwrap().status.unwrap_or_default();
            let state = status.container_statuses.and_then(|mut all| all.pop()?.state?.waiting?.reason);
            state.as_deref() == Some("CreateContainerError")
        };
        eventually("an error", waits).await;
        controllers.abort();
        let _ = controllers.await;
        cluster.close();
    }
}
