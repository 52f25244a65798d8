//! The lifecycle of namespaces.

use crate::{cluster, eventually, namespace};
use futures_util::TryStreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ServiceAccount};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use serde_json::json;
use std::pin::pin;

#[tokio::test(start_paused = true)]
async fn namespace_has_a_default_service_account_that_is_recreated() {
    let client = cluster().admin();
    namespace(&client, "a").await;
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "a");
    let there = || async { accounts.get_opt("default").await.unwrap().is_some() };
    eventually("the service account", there).await;
    accounts.delete("default", &DeleteParams::default()).await.unwrap();
    eventually("the second service account", there).await;
}

#[tokio::test(start_paused = true)]
async fn namespace_deletion_deletes_its_content() {
    let client = cluster().admin();
    namespace(&client, "a").await;
    let (maps, namespaces) = (Api::<ConfigMap>::namespaced(client.clone(), "a"), Api::<Namespace>::all(client.clone()));
    let blocked: ConfigMap =
        serde_json::from_value(json!({"metadata": {"name": "held", "finalizers": ["example.com/hold"]}})).unwrap();
    maps.create(&PostParams::default(), &blocked).await.unwrap();
    namespaces.delete("a", &DeleteParams::default()).await.unwrap();
    eventually("the reason for the wait", || async {
        let conditions = namespaces.get("a").await.unwrap().status.and_then(|status| status.conditions);
        let conditions = conditions.unwrap_or_default();
        let has_condition = |kind: &str, text: &str| {
            conditions.iter().any(|c| c.type_ == kind && c.status == "True" && c.message.as_deref() == Some(text))
        };
        has_condition("NamespaceContentRemaining", "Some resources are remaining: configmaps. has 1 resource instances")
            && has_condition(
                "NamespaceFinalizersRemaining",
                "Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances",
            )
    })
    .await;
    let free = json!({"metadata": {"finalizers": null}});
    maps.patch("held", &PatchParams::default(), &Patch::Merge(free)).await.unwrap();
    eventually("the end", || async { namespaces.get_opt("a").await.unwrap().is_none() }).await;
    assert!(maps.list(&ListParams::default()).await.unwrap().items.is_empty());
}

#[tokio::test(start_paused = true)]
async fn empty_namespace_reports_its_conditions_before_deletion() {
    let client = cluster().admin();
    namespace(&client, "a").await;
    let namespaces = Api::<Namespace>::all(client.clone());
    let version = namespaces.get("a").await.unwrap().metadata.resource_version.unwrap();
    let params = WatchParams::default().fields("metadata.name=a");
    let mut events = pin!(namespaces.watch(&params, &version).await.unwrap());
    namespaces.delete("a", &DeleteParams::default()).await.unwrap();
    let mut last = None;
    while let Some(event) = events.try_next().await.unwrap() {
        match event {
            WatchEvent::Modified(namespace) => last = Some(namespace),
            WatchEvent::Deleted(_) => break,
            other => panic!("{other:?}"),
        }
    }
    let conditions = last.unwrap().status.and_then(|status| status.conditions).unwrap_or_default();
    let statuses: Vec<(&str, &str)> = conditions.iter().map(|known| (&*known.type_, &*known.status)).collect();
    let expected = [
        "NamespaceDeletionDiscoveryFailure",
        "NamespaceDeletionGroupVersionParsingFailure",
        "NamespaceDeletionContentFailure",
        "NamespaceContentRemaining",
        "NamespaceFinalizersRemaining",
    ];
    assert_eq!(statuses, expected.map(|kind| (kind, "False")));
}
