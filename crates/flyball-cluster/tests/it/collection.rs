//! Garbage collection.

use crate::{cluster, config_map, eventually};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::core::DynamicObject;
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::json;
use std::time::Duration;
use tokio::time::{Instant, sleep};

fn maps(client: &Client) -> Api<ConfigMap> {
    Api::namespaced(client.clone(), "default")
}

async fn gone(client: &Client, name: &str) {
    eventually(&format!("the end of {name}"), || async { maps(client).get_opt(name).await.unwrap().is_none() }).await;
}

async fn stays(client: &Client, name: &str) -> ConfigMap {
    sleep(Duration::from_secs(30)).await;
    maps(client).get(name).await.unwrap()
}

fn definition(name: &str, plural: &str, kind: &str) -> CustomResourceDefinition {
    let schema = json!({"openAPIV3Schema": {"type": "object"}});
    serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": plural, "kind": kind},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
        },
    }))
    .unwrap()
}

#[tokio::test(start_paused = true)]
async fn dependents_are_deleted_with_their_owner() {
    let client = cluster().admin();
    let owner = config_map(&client, "owner", &[]).await;
    let child = config_map(&client, "child", &[("owner", &owner, false)]).await;
    config_map(&client, "grandchild", &[("child", &child, true)]).await;
    stays(&client, "grandchild").await;
    maps(&client).delete("owner", &DeleteParams::background()).await.unwrap();
    gone(&client, "grandchild").await;
    assert!(maps(&client).get_opt("child").await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn dependent_of_a_missing_owner_is_deleted() {
    let client = cluster().admin();
    config_map(&client, "child", &[("owner", "0e6e2d1b-0000-4000-8000-000000000000", false)]).await;
    gone(&client, "child").await;
}

#[tokio::test(start_paused = true)]
async fn owner_with_another_uid_does_not_count() {
    let client = cluster().admin();
    config_map(&client, "owner", &[]).await;
    config_map(&client, "child", &[("owner", "0e6e2d1b-0000-4000-8000-000000000000", false)]).await;
    gone(&client, "child").await;
    stays(&client, "owner").await;
}

#[tokio::test(start_paused = true)]
async fn one_remaining_owner_keeps_the_dependent() {
    let client = cluster().admin();
    let (one, other) = (config_map(&client, "one", &[]).await, config_map(&client, "other", &[]).await);
    config_map(&client, "child", &[("one", &one, true), ("other", &other, true)]).await;
    maps(&client).delete("one", &DeleteParams::background()).await.unwrap();
    let child = stays(&client, "child").await;
    assert_eq!(child.owner_references().iter().map(|owner| &*owner.name).collect::<Vec<_>>(), ["other"]);
}

#[tokio::test(start_paused = true)]
async fn foreground_deletion_removes_the_owner_last() {
    let client = cluster().admin();
    let owner = config_map(&client, "owner", &[]).await;
    config_map(&client, "child", &[("owner", &owner, true)]).await;
    let hold = json!({"metadata": {"finalizers": ["example.com/hold"]}});
    maps(&client).patch("child", &PatchParams::default(), &Patch::Merge(hold)).await.unwrap();
    maps(&client).delete("owner", &DeleteParams::foreground()).await.unwrap();
    eventually("the deletion of the child", || async {
        maps(&client).get("child").await.unwrap().metadata.deletion_timestamp.is_some()
    })
    .await;
    assert_eq!(stays(&client, "owner").await.finalizers(), ["foregroundDeletion"]);
    let free = json!({"metadata": {"finalizers": null}});
    maps(&client).patch("child", &PatchParams::default(), &Patch::Merge(free)).await.unwrap();
    gone(&client, "owner").await;
}

#[tokio::test(start_paused = true)]
async fn cycle_of_foreground_deletions_is_broken() {
    let client = cluster().admin();
    let one = config_map(&client, "one", &[]).await;
    let other = config_map(&client, "other", &[("one", &one, true)]).await;
    let close = json!({"metadata": {"ownerReferences": [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": other, "blockOwnerDeletion": true},
    ]}});
    maps(&client).patch("one", &PatchParams::default(), &Patch::Merge(close)).await.unwrap();
    maps(&client).delete("one", &DeleteParams::foreground()).await.unwrap();
    gone(&client, "one").await;
    gone(&client, "other").await;
}

#[tokio::test(start_paused = true)]
async fn orphans_lose_their_owner_reference() {
    let client = cluster().admin();
    let owner = config_map(&client, "owner", &[]).await;
    config_map(&client, "child", &[("owner", &owner, true)]).await;
    maps(&client).delete("owner", &DeleteParams::orphan()).await.unwrap();
    gone(&client, "owner").await;
    assert!(stays(&client, "child").await.owner_references().is_empty());
}

#[tokio::test(start_paused = true)]
async fn dependent_of_an_unknown_kind_is_kept_until_the_kind_is_served() {
    let client = cluster().admin();
    let child = json!({"metadata": {"name": "child", "ownerReferences": [
        {"apiVersion": "example.com/v1", "kind": "Widget", "name": "w", "uid": "0e6e2d1b-0000-4000-8000-000000000000"},
    ]}});
    let child: ConfigMap = serde_json::from_value(child).unwrap();
    maps(&client).create(&Default::default(), &child).await.unwrap();
    stays(&client, "child").await;
    let definition = definition("widgets.example.com", "widgets", "Widget");
    Api::all(client.clone()).create(&PostParams::default(), &definition).await.unwrap();
    gone(&client, "child").await;
}

#[tokio::test(start_paused = true)]
async fn deletion_of_short_lived_kinds_is_not_delayed() {
    let client = cluster().admin();
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let definition = definition("brief.example.com", "brief", "Brief");
    stays(&client, "kube-root-ca.crt").await;
    for wait in 0..40 {
        definitions.create(&PostParams::default(), &definition).await.unwrap();
        // The collector is in the middle of something else each time.
        for _ in 0..wait {
            tokio::task::yield_now().await;
        }
        definitions.delete("brief.example.com", &DeleteParams::default()).await.unwrap();
        config_map(&client, "child", &[("owner", "0e6e2d1b-0000-4000-8000-000000000000", false)]).await;
        let start = Instant::now();
        gone(&client, "child").await;
        assert!(start.elapsed() < Duration::from_secs(1), "after {wait} turns it took {:?}", start.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn dependents_are_deleted_with_the_kind_of_their_owner() {
    let client = cluster().admin();
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    stays(&client, "kube-root-ca.crt").await;
    for wait in 0..40 {
        let definition = definition("passing.example.com", "passing", "Passing");
        definitions.create(&PostParams::default(), &definition).await.unwrap();
        let kind = kube::core::GroupVersionKind::gvk("example.com", "v1", "Passing");
        let resource = kube::core::ApiResource::from_gvk_with_plural(&kind, "passing");
        let owners: Api<DynamicObject> = Api::namespaced_with(client.clone(), "default", &resource);
        let owner = owners.create(&PostParams::default(), &DynamicObject::new("owner", &resource)).await.unwrap();
        let child = json!({"metadata": {"name": "child", "ownerReferences": [owner.owner_ref(&resource)]}});
        let child: ConfigMap = serde_json::from_value(child).unwrap();
        maps(&client).create(&Default::default(), &child).await.unwrap();
        stays(&client, "child").await;
        if wait % 2 == 0 {
            owners.delete("owner", &DeleteParams::background()).await.unwrap();
        }
        // The collector is in the middle of something else each time.
        for _ in 0..wait {
            tokio::task::yield_now().await;
        }
        definitions.delete("passing.example.com", &DeleteParams::default()).await.unwrap();
        gone(&client, "child").await;
        // An operator may create it with a stale cache.
        maps(&client).create(&Default::default(), &child).await.unwrap();
        gone(&client, "child").await;
    }
}

/// Returns the reads of single config maps.
async fn reads(client: &Client) -> Vec<String> {
    let page = client.request_text(http::Request::get("/metrics").body(Vec::new()).unwrap()).await.unwrap();
    let reads = |line: &&str| line.contains("resource=\"configmaps\"") && line.contains("verb=\"GET\"");
    page.lines().filter(reads).map(str::to_owned).collect()
}

#[tokio::test(start_paused = true)]
async fn dependents_of_cached_owners_cause_no_requests() {
    let client = cluster().admin();
    let owner = config_map(&client, "owner", &[]).await;
    stays(&client, "owner").await;
    let before = reads(&client).await;
    for i in 0..10 {
        config_map(&client, &format!("child-{i}"), &[("owner", &owner, true)]).await;
    }
    sleep(Duration::from_secs(30)).await;
    assert_eq!(reads(&client).await, before);
    assert!(!before.is_empty(), "reads are counted");
}

#[tokio::test(start_paused = true)]
async fn owner_names_do_not_change_requests() {
    let client = cluster().admin();
    config_map(&client, "child", &[("?watch=true&x=", "0e6e2d1b-0000-4000-8000-000000000000", false)]).await;
    gone(&client, "child").await;
}
