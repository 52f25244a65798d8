//! The ledger of an operator on the embedded control plane: causes, writes, User-Agents, events, flaps.

use crate::eventually;
use flyball::{Action, Context, Controller, Event, MetricsServer, Operator, Reconcile, Result};
use flyball_cluster::testing::Test;
use flyball_cluster::{Cluster, Controllers, Options};
use http::Request;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::api::events::v1;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, Config};
use serde_json::{Value, json};
use std::future::pending;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::time::sleep;

/// Copies a ConfigMap into a Secret, and reports it.
struct Copies;

impl Reconcile for Copies {
    type Resource = ConfigMap;

    async fn reconcile(&self, map: &ConfigMap, cx: &Context<ConfigMap>) -> Result<Action> {
        let text = map.data.as_ref().and_then(|data| data.get("text")).cloned().unwrap_or_default();
        if map.metadata.labels.is_some() {
            let mut secret: Secret = serde_json::from_value(json!({"metadata": {"name": map.metadata.name}}))?;
            secret.data = Some([("text".to_owned(), ByteString(text.into_bytes()))].into());
            cx.apply(&secret).await?;
            cx.event(Event::normal("Copied", "copied"));
        }
        Ok(Action::requeue_after(Duration::from_secs(300)))
    }
}

fn map(text: &str) -> Value {
    let metadata = json!({"name": "a", "labels": {"copy": "1"}});
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"text": text}})
}

async fn apply(client: &Client, text: &str) {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    maps.patch("a", &PatchParams::apply("test").force(), &Patch::Apply(map(text))).await.unwrap();
}

async fn page(address: SocketAddr, path: &str) -> Option<Value> {
    let mut config = Config::new(format!("http://{address}").parse().unwrap());
    config.default_retry = false;
    let client = Client::try_from(config).unwrap();
    client.request(Request::get(path).body(Vec::new()).unwrap()).await.ok()
}

#[tokio::test]
async fn reconcile_is_joined_with_its_cause_its_write_and_its_event() {
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let cluster = Cluster::new(Options::system().unwrap());
    let (admin, server) = (cluster.admin(), cluster.clone());
    tokio::spawn(async move { server.run(&Controllers::all()).await });
    eventually("namespace default", || async {
        Api::<ConfigMap>::namespaced(admin.clone(), "default").list(&ListParams::default()).await.is_ok()
    })
    .await;
    let metrics = MetricsServer { address: Some(address), ..MetricsServer::default() };
    let operator = Operator::new("copier").version("1.2.0").metrics_server(metrics);
    let operator = operator.controller(Controller::new(Copies).owns::<Secret>());
    let client = cluster.admin();
    tokio::spawn(async move { operator.run(client, pending()).await.unwrap() });
    apply(&admin, "confidential-1").await;
    let secrets: Api<Secret> = Api::namespaced(admin.clone(), "default");
    eventually("the secret", || async { secrets.get_opt("a").await.unwrap().is_some() }).await;
    apply(&admin, "confidential-2").await;

    let query = "/debug/flyball/reconciles?kind=ConfigMap&namespace=default&name=a";
    let is_second = |reconcile: &Value| reconcile["writes"][0]["fields"][0].is_string();
    let second = || async {
        let page = page(address, query).await?;
        page["reconciles"].as_array()?.iter().find(|reconcile| is_second(reconcile)).cloned()
    };
    eventually("a reconcile that changes the secret", || async { second().await.is_some() }).await;
    let reconcile = second().await.unwrap();
    let map: ConfigMap = Api::namespaced(admin.clone(), "default").get("a").await.unwrap();
    let (cause, write) = (&reconcile["causes"][0], &reconcile["writes"][0]);
    assert_eq!((&cause["type"], cause["after"].as_str()), (&json!("change"), map.metadata.resource_version.as_deref()));
    let secret = secrets.get("a").await.unwrap();
    assert_eq!((&write["verb"], &write["fields"]), (&json!("apply"), &json!(["data.text"])));
    assert_eq!(write["after"].as_str(), secret.metadata.resource_version.as_deref());
    assert_eq!((&reconcile["outcome"], &reconcile["next"]["type"]), (&json!("requeue_after"), &json!("requeueAfter")));

    // Events name the last reconcile that published them.
    let events: Api<v1::Event> = Api::namespaced(admin.clone(), "default");
    let annotated = || async {
        let list = events.list(&ListParams::default()).await.unwrap();
        let copied = list.items.into_iter().find(|event| event.reason.as_deref() == Some("Copied"));
        copied.and_then(|event| event.metadata.annotations?.remove("flyball.dev/reconcile"))
    };
    eventually("the event", || async { annotated().await.is_some() }).await;
    let id = annotated().await.unwrap();
    let found = page(address, &format!("/debug/flyball/reconciles?id={id}")).await.unwrap();
    assert_eq!(found["reconciles"].as_array().unwrap().len(), 1, "{id}");

    // No page has a value of an object.
    for path in
        ["/debug/flyball", "/debug/flyball/reconciles", "/debug/flyball/object?kind=Secret&namespace=default&name=a"]
    {
        let text = page(address, path).await.unwrap().to_string();
        assert!(!text.contains("confidential"), "{path}: {text}");
    }
    let overview = page(address, "/debug/flyball").await.unwrap();
    let key = &overview["controllers"][0]["queue"]["keys"][0];
    assert_eq!((&overview["version"], &key["state"], &key["name"]), (&json!("1.2.0"), &json!("delayed"), &json!("a")));
}

/// Sets a field of its child, which another writer sets as well.
struct Contested;

impl Reconcile for Contested {
    type Resource = ConfigMap;

    async fn reconcile(&self, map: &ConfigMap, cx: &Context<ConfigMap>) -> Result<Action> {
        if map.metadata.labels.is_some() {
            let child = json!({"metadata": {"name": "child"}, "data": {"size": "1"}});
            cx.apply(&serde_json::from_value::<ConfigMap>(child)?).await?;
        }
        Ok(Action::done())
    }
}

fn contested() -> Operator {
    Operator::new("contested").controller(Controller::new(Contested).owns::<ConfigMap>())
}

/// Starts the operator and a writer that sets the field to another value, several times or without end.
async fn contest(times: usize) -> Test {
    let test = Test::of(contested).start().await;
    test.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: a, labels: {role: owner}}}").await;
    let children = test.api::<ConfigMap>();
    test.eventually("the child", async || children.get_opt("child").await.unwrap().is_some()).await;
    tokio::spawn(async move {
        for _ in 0..times {
            let patch = Patch::Merge(json!({"data": {"size": "3"}}));
            let params = PatchParams { field_manager: Some("kubectl-edit".into()), ..PatchParams::default() };
            let _ = children.patch("child", &params, &patch).await;
            sleep(Duration::from_secs(20)).await;
        }
    });
    test
}

#[tokio::test(start_paused = true)]
async fn contested_field_is_reported_with_its_managers() {
    let test = contest(3).await;
    let events: Api<v1::Event> = Api::all(test.client());
    let notes = async || {
        let list = events.list(&ListParams::default()).await.unwrap();
        list.items
            .into_iter()
            .filter(|e| e.reason.as_deref() == Some("Flapping"))
            .filter_map(|e| e.note)
            .collect::<Vec<_>>()
    };
    test.eventually("an event", async || !notes().await.is_empty()).await;
    let note = notes().await.remove(0);
    let expected = "data.size of configmaps";
    assert!(note.starts_with(expected) && note.contains("contested and kubectl-edit set different values"), "{note}");
    test.assert_converges().await;
}

#[tokio::test(start_paused = true)]
async fn single_correction_of_a_field_is_not_reported() {
    let test = contest(1).await;
    sleep(Duration::from_secs(60)).await;
    test.assert_converges().await;
    let events: Api<v1::Event> = Api::all(test.client());
    let list = events.list(&ListParams::default()).await.unwrap();
    assert!(list.items.iter().all(|event| event.reason.as_deref() != Some("Flapping")), "{:?}", list.items);
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "fields that alternate:\n  data.size of configmaps")]
async fn operator_that_does_not_converge_is_reported_with_the_field() {
    let test = contest(usize::MAX).await;
    test.assert_converges().await;
}
