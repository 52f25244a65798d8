//! Controllers of the control plane serve others while one namespace, or one kind, misbehaves.

use crate::{cluster, cluster_of, config_map, eventually, namespace};
use flyball::{Action, Context, Controller, Operator, Reconcile};
use flyball_cluster::{Cluster, Controllers, Options, simulated_clock};
use flyball_server::{Caller, WebhookCall, WebhookFuture};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, ResourceQuota, ServiceAccount};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::fmt::Debug;
use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::{Instant, sleep};

const NO_RESPONSE: &str = "widgets.example.com does not respond to reads (timeout 10 s)";
/// Time in which what others misuse must not delay a controller.
const PROMPT: Duration = Duration::from_secs(5);

/// Time between two batches of pods.
const BATCH_INTERVAL: Duration = Duration::from_secs(1);

/// Webhooks that never respond.
struct Hanging;

impl Caller for Hanging {
    fn call(&self, _: WebhookCall) -> WebhookFuture {
        Box::pin(pending())
    }
}

async fn create<K>(api: &Api<K>, object: Value) -> K
where
    K: Clone + Debug + Serialize + DeserializeOwned,
{
    api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap()
}

/// Waits for a condition that must hold promptly.
async fn promptly<F: Future<Output = bool>>(what: &str, holds: impl FnMut() -> F) {
    let start = Instant::now();
    eventually(what, holds).await;
    assert!(start.elapsed() < PROMPT, "{what} took {:?}", start.elapsed());
}

/// Creates a cluster with a kind whose conversion never responds.
async fn cluster_with_hanging_kind() -> Client {
    let client =
        cluster_of(Options { webhooks: Arc::new(Hanging), ..Options::simulated(simulated_clock(), 1) }).admin();
    let version = |name: &str, is_stored: bool| {
        json!({
            "name": name, "served": true, "storage": is_stored,
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            "subresources": {"scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}},
        })
    };
    let webhook =
        json!({"conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://hanging.example.com/convert"}});
    let definition = json!({"metadata": {"name": "widgets.example.com"}, "spec": {
        "group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
        "versions": [version("v2", false), version("v1", true)],
        "conversion": {"strategy": "Webhook", "webhook": webhook},
    }});
    create(&Api::<CustomResourceDefinition>::all(client.clone()), definition).await;
    eventually("the kind", || async { widgets(&client, "default").list(&ListParams::default()).await.is_ok() }).await;
    client
}

/// The widgets in their stored version, which needs no conversion.
fn widgets(client: &Client, namespace: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Widget"));
    Api::namespaced_with(client.clone(), namespace, &resource)
}

/// Creates a namespace with a widget.
async fn namespace_with_widget(client: &Client, name: &str) {
    namespace(client, name).await;
    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}});
    create(&widgets(client, name), widget).await;
}

async fn delete_namespace(client: &Client, name: &str) {
    Api::<Namespace>::all(client.clone()).delete(name, &DeleteParams::default()).await.unwrap();
}

async fn condition(client: &Client, name: &str, kind: &str) -> Option<String> {
    let namespace = Api::<Namespace>::all(client.clone()).get_opt(name).await.unwrap()?;
    let conditions = namespace.status.and_then(|status| status.conditions).unwrap_or_default();
    conditions.into_iter().find(|known| known.type_ == kind && known.status == "True")?.message
}

#[tokio::test(start_paused = true)]
async fn hanging_kind_delays_neither_other_content_of_a_namespace_nor_other_namespaces() {
    let client = cluster_with_hanging_kind().await;
    let maps = Api::<ConfigMap>::namespaced(client.clone(), "a0");
    for n in 0..20 {
        namespace_with_widget(&client, &format!("a{n}")).await;
    }
    for name in ["b", "c"] {
        namespace(&client, name).await;
    }
    create(&maps, json!({"metadata": {"name": "m"}})).await;
    for n in 0..20 {
        delete_namespace(&client, &format!("a{n}")).await;
    }
    promptly("the end of the content", || async { maps.get_opt("m").await.unwrap().is_none() }).await;
    eventually("the reason", || async {
        let why = condition(&client, "a0", "NamespaceDeletionContentFailure").await;
        why.is_some_and(|why| why.contains(NO_RESPONSE))
    })
    .await;
    let namespaces = Api::<Namespace>::all(client.clone());
    for name in ["b", "c"] {
        delete_namespace(&client, name).await;
        promptly("the end of another namespace", || async { namespaces.get_opt(name).await.unwrap().is_none() }).await;
        // By then, the resource is known not to respond.
        sleep(Duration::from_mins(1)).await;
    }
    // The namespace ends with its last object.
    widgets(&client, "a0").delete("w", &DeleteParams::default()).await.unwrap();
    let start = Instant::now();
    while namespaces.get_opt("a0").await.unwrap().is_some() {
        assert!(start.elapsed() < Duration::from_mins(10), "the namespace is never deleted");
        sleep(Duration::from_secs(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn namespace_with_many_objects_is_emptied_page_by_page() {
    let client = cluster().admin();
    namespace(&client, "a").await;
    let (maps, namespaces) = (Api::<ConfigMap>::namespaced(client.clone(), "a"), Api::<Namespace>::all(client.clone()));
    for n in 0..250 {
        let finalizers = if n % 50 == 0 { json!(["example.com/hold"]) } else { json!([]) };
        create(&maps, json!({"metadata": {"name": format!("m{n}"), "finalizers": finalizers}})).await;
    }
    delete_namespace(&client, "a").await;
    let remaining = "Some resources are remaining: configmaps. has 5 resource instances";
    eventually("the remaining objects", || async {
        condition(&client, "a", "NamespaceContentRemaining").await.as_deref() == Some(remaining)
    })
    .await;
    assert_eq!(
        condition(&client, "a", "NamespaceFinalizersRemaining").await.unwrap(),
        "Some content in the namespace has finalizers remaining: example.com/hold in 5 resource instances"
    );
    for map in maps.list(&ListParams::default()).await.unwrap() {
        let free = json!({"metadata": {"finalizers": null}});
        let name = map.metadata.name.unwrap();
        maps.patch(&name, &PatchParams::default(), &Patch::Merge(free)).await.unwrap();
    }
    eventually("the end", || async { namespaces.get_opt("a").await.unwrap().is_none() }).await;
}

#[tokio::test(start_paused = true)]
async fn garbage_collection_goes_on_beside_a_kind_that_does_not_respond() {
    let client = cluster_with_hanging_kind().await;
    let uid = "0e6e2d1b-0000-4000-8000-000000000000";
    let owner = json!({"apiVersion": "example.com/v1", "kind": "Widget", "name": "w", "uid": uid});
    for n in 0..3 {
        let name = format!("a{n}");
        namespace_with_widget(&client, &name).await;
        let maps = Api::<ConfigMap>::namespaced(client.clone(), &name);
        for n in 0..20 {
            create(&maps, json!({"metadata": {"name": format!("m{n}"), "ownerReferences": [owner]}})).await;
        }
    }
    let maps = Api::<ConfigMap>::namespaced(client.clone(), "default");
    let definitions = Api::<CustomResourceDefinition>::all(client.clone());
    for n in 0..20 {
        // The kind is discovered anew each time.
        let change = json!({"metadata": {"annotations": {"example.com/n": n.to_string()}}});
        definitions.patch("widgets.example.com", &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
        config_map(&client, "child", &[("owner", uid, false)]).await;
        promptly("the end of the child", || async { maps.get_opt("child").await.unwrap().is_none() }).await;
        sleep(Duration::from_secs(3)).await;
    }
    // Foreground deletion, which needs all kinds, is delayed for a limited time.
    let owner = config_map(&client, "owner", &[]).await;
    config_map(&client, "child", &[("owner", &owner, true)]).await;
    maps.delete("owner", &DeleteParams::foreground()).await.unwrap();
    eventually("the end of the owner", || async { maps.get_opt("owner").await.unwrap().is_none() }).await;
}

#[tokio::test(start_paused = true)]
async fn quotas_are_counted_page_by_page_beside_a_kind_that_does_not_respond() {
    let client = cluster_with_hanging_kind().await;
    let quotas = |namespace: &str| Api::<ResourceQuota>::namespaced(client.clone(), namespace);
    let hard = json!({"count/configmaps": "1k", "count/widgets.example.com": "10"});
    namespace_with_widget(&client, "a").await;
    namespace(&client, "b").await;
    let maps = Api::<ConfigMap>::namespaced(client.clone(), "a");
    for n in 0..250 {
        create(&maps, json!({"metadata": {"name": format!("m{n}")}})).await;
    }
    for n in 0..20 {
        create(&quotas("a"), json!({"metadata": {"name": format!("q{n}")}, "spec": {"hard": hard}})).await;
    }
    let used = async |namespace: &str, name: &str| {
        let quota = quotas(namespace).get("q0").await.unwrap();
        quota.status.and_then(|status| status.used).and_then(|used| used.get(name).map(|used| used.0.clone()))
    };
    create(&quotas("b"), json!({"metadata": {"name": "q0"}, "spec": {"hard": hard}})).await;
    promptly("the usage of another namespace", || async {
        used("b", "count/widgets.example.com").await.as_deref() == Some("0")
    })
    .await;
    // With the published certificate.
    eventually("the usage", || async { used("a", "count/configmaps").await.as_deref() == Some("251") }).await;
    assert_eq!(used("a", "count/widgets.example.com").await, None);
}

#[tokio::test(start_paused = true)]
async fn autoscaler_whose_target_does_not_respond_delays_no_other() {
    let client = cluster_with_hanging_kind().await;
    let autoscalers = |namespace: &str| Api::<HorizontalPodAutoscaler>::namespaced(client.clone(), namespace);
    let autoscaler = |name: &str, api_version: &str, kind: &str| {
        let target = json!({"apiVersion": api_version, "kind": kind, "name": "w"});
        json!({"metadata": {"name": name}, "spec": {"scaleTargetRef": target, "maxReplicas": 3}})
    };
    namespace_with_widget(&client, "a").await;
    namespace(&client, "b").await;
    for n in 0..40 {
        create(&autoscalers("a"), autoscaler(&format!("h{n}"), "example.com/v1", "Widget")).await;
    }
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let spec = json!({"selector": {"matchLabels": {"a": "b"}}, "template": template});
    create(&Api::<Deployment>::namespaced(client.clone(), "b"), json!({"metadata": {"name": "w"}, "spec": spec})).await;
    create(&autoscalers("b"), autoscaler("h0", "apps/v1", "Deployment")).await;
    let able = async |namespace: &str| {
        let status = autoscalers(namespace).get("h0").await.unwrap().status;
        let conditions = status.and_then(|status| status.conditions).unwrap_or_default();
        conditions.into_iter().find(|known| known.type_ == "AbleToScale")
    };
    promptly("the other autoscaler", || async { able("b").await.is_some_and(|able| able.status == "True") }).await;
    eventually("the reason", || async {
        let message = able("a").await.and_then(|able| able.message);
        message.is_some_and(|message| message.contains(NO_RESPONSE))
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn replica_set_of_several_batches_is_completed_and_delays_no_other() {
    let cluster = Cluster::new(Options::simulated(simulated_clock(), 1));
    let (client, running) = (cluster.admin(), cluster.clone());
    let controllers: Controllers = "replicaset-controller,serviceaccount-controller".parse().unwrap();
    tokio::spawn(async move { running.run(&controllers).await });
    let pods = async |namespace: &str| {
        let pods = Api::<Pod>::namespaced(client.clone(), namespace);
        pods.list_metadata(&ListParams::default()).await.unwrap().items.len()
    };
    for (name, replicas) in [("a", 1200), ("b", 3)] {
        namespace(&client, name).await;
        let accounts = Api::<ServiceAccount>::namespaced(client.clone(), name);
        eventually("an account", || async { accounts.get_opt("default").await.unwrap().is_some() }).await;
        let template =
            json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        let spec = json!({"selector": {"matchLabels": {"a": "b"}}, "template": template, "replicas": replicas});
        let sets = Api::<ReplicaSet>::namespaced(client.clone(), name);
        create(&sets, json!({"metadata": {"name": "r"}, "spec": spec})).await;
    }
    promptly("the pods of the small set", || async { pods("b").await == 3 }).await;
    // No pod changes, so that the controller continues by itself.
    sleep(3 * BATCH_INTERVAL).await;
    assert_eq!(pods("a").await, 1200);
}

/// Takes a minute for objects of one namespace.
#[derive(Clone, Default)]
struct Slow(Arc<Mutex<Vec<String>>>);

impl Reconcile for Slow {
    type Resource = ConfigMap;

    async fn reconcile(&self, map: &ConfigMap, _: &Context<ConfigMap>) -> flyball::Result<Action> {
        if map.metadata.namespace.as_deref() == Some("slow") {
            sleep(Duration::from_mins(1)).await;
        }
        self.0.lock().unwrap().extend(map.metadata.name.clone());
        Ok(Action::done())
    }
}

#[tokio::test(start_paused = true)]
async fn slow_objects_of_one_namespace_do_not_hold_all_workers() {
    let client = cluster().admin();
    let slow = Slow::default();
    let controller = Controller::new(slow.clone()).concurrency(4);
    tokio::spawn(Operator::new("slow").controller(controller).run(client.clone(), pending()));
    for name in ["slow", "quick"] {
        namespace(&client, name).await;
    }
    let maps = |namespace: &str| Api::<ConfigMap>::namespaced(client.clone(), namespace);
    for n in 0..100 {
        create(&maps("slow"), json!({"metadata": {"name": format!("slow-{n}")}})).await;
    }
    sleep(Duration::from_secs(30)).await;
    let has_seen = |name: String| slow.0.lock().unwrap().contains(&name);
    for n in 0..10 {
        create(&maps("quick"), json!({"metadata": {"name": format!("quick-{n}")}})).await;
        promptly("the quick object", || async { has_seen(format!("quick-{n}")) }).await;
        sleep(Duration::from_secs(20)).await;
    }
    // The slow ones go on, two at a time.
    let done = slow.0.lock().unwrap().iter().filter(|name| name.starts_with("slow-")).count();
    assert!((4..=9).contains(&done), "{done} slow objects in four minutes");
}
