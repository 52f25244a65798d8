//! Children, status and events as received by the API server.

use crate::api::{Api, Fault};
use crate::widgets::*;
use flyball::{Action, Condition, Controller, Event, Rng, retry_on_conflict};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::core::ObjectMeta;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::sleep;

#[tokio::test(start_paused = true)]
async fn child_has_an_owner_reference() {
    let (api, widgets) = (Api::default(), Widgets::usual());
    widget(&api, "a", 1);
    let _stage = Stage::start(&api, &widgets).await;
    let uid = api.get("widgets", "ns", "a").unwrap()["metadata"]["uid"].clone();
    let child = api.get("configmaps", "ns", "a").unwrap();
    let owner = json!({
        "apiVersion": "example.com/v1", "kind": "Widget", "name": "a", "uid": uid,
        "controller": true, "blockOwnerDeletion": true,
    });
    assert_eq!(child["metadata"]["ownerReferences"], json!([owner]));
    assert_eq!(child["metadata"]["managedFields"][0]["manager"], "widget-operator");
}

#[tokio::test(start_paused = true)]
async fn configured_field_manager_is_used() {
    let (api, widgets) = (Api::default(), Widgets::usual());
    widget(&api, "a", 1);
    let operator =
        operator().field_manager("somebody").controller(Controller::new(widgets.clone()).owns::<ConfigMap>());
    let _stage = Stage::operator(&api, &widgets, operator);
    settle().await;
    let child = api.get("configmaps", "ns", "a").unwrap();
    assert_eq!(child["metadata"]["managedFields"][0]["manager"], "somebody");
    drop((widgets.calls(), api.writes()));
    api.edit("configmaps", "ns", "a", |child| child["metadata"]["labels"] = json!({"theirs": "yes"}));
    settle().await;
    assert_eq!(widgets.calls(), ["a"]);
    assert_eq!(api.writes(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn invalid_children_are_rejected_without_a_request() {
    let widgets = Widgets::new(|widget, cx| {
        Box::pin(async {
            let named = |namespace: Option<&str>, name: &str| ObjectMeta {
                namespace: namespace.map(str::to_owned),
                name: Some(name.to_owned()).filter(|name| !name.is_empty()),
                ..ObjectMeta::default()
            };
            match widget.spec.size {
                1 => drop(cx.apply(&ConfigMap { metadata: named(Some("other"), "x"), ..ConfigMap::default() }).await?),
                2 => drop(cx.apply(&Namespace { metadata: named(None, "x"), ..Namespace::default() }).await?),
                3 => drop(cx.apply(&Secret { metadata: named(None, "x"), ..Secret::default() }).await?),
                4 => drop(cx.apply(&ConfigMap::default()).await?),
                5 => drop(cx.get::<Secret>(&cx.sibling("x")).await?),
                _ => cx.delete(&ConfigMap { metadata: named(Some("ns"), "x"), ..ConfigMap::default() }).await?,
            }
            Ok(Action::done())
        })
    });
    let api = Api::default();
    for size in 1..=6 {
        widget(&api, &format!("w{size}"), size);
    }
    let _stage = Stage::with(&api, &widgets, |controller| controller.owns::<ConfigMap>().owns::<Namespace>()).await;
    assert_eq!(
        widgets.errors(),
        [
            "configmaps in namespace other cannot be owned by widgets.example.com ns/w1",
            "namespaces is cluster-scoped and cannot be owned by widgets.example.com ns/w2",
            "k8s_openapi::v1_36::api::core::v1::secret::Secret is not owned: declare it with Controller::owns",
            "configmaps has no metadata.name: use create for generated names",
            "k8s_openapi::v1_36::api::core::v1::secret::Secret has no cache: declare it with Controller::owns, watches or reads",
            "configmaps ns/x has no UID: delete an object that was read",
        ]
    );
    assert_eq!(api.writes(), [""; 0]);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(widgets.calls().len(), 6);
}

#[tokio::test(start_paused = true)]
async fn foreign_objects_are_not_adopted() {
    let (api, widgets) = (Api::default(), Widgets::usual());
    widget(&api, "a", 1);
    widget(&api, "b", 1);
    api.edit("configmaps", "ns", "a", |object| object["data"] = json!({"theirs": "1"}));
    let other = json!({"apiVersion": "v1", "kind": "Other", "name": "o", "uid": "u", "controller": true});
    api.edit("configmaps", "ns", "b", |object| object["metadata"]["ownerReferences"] = json!([other]));
    let _stage = Stage::start(&api, &widgets).await;
    assert_eq!(
        widgets.errors()[..2],
        [
            "configmaps ns/a already exists and was not created by widget-operator: delete it, or choose another name",
            "configmaps ns/b is controlled by Other o (uid u)",
        ]
    );
    assert_eq!(api.writes(), [""; 0]);
    api.delete("configmaps", "ns", "a");
    sleep(Duration::from_secs(60)).await;
    assert_eq!(size_of(&api, "a").unwrap(), "1");
}

#[tokio::test(start_paused = true)]
async fn fields_no_longer_applied_are_removed() {
    let widgets = Widgets::new(|widget, cx| {
        Box::pin(async {
            let mut child = config_map("x", 1);
            if widget.spec.size > 1 {
                child.data.get_or_insert_default().insert("more".into(), "1".into());
            }
            cx.apply(&child).await?;
            Ok(Action::done())
        })
    });
    let api = Api::default();
    widget(&api, "a", 2);
    let stage = Stage::start(&api, &widgets).await;
    let data = || api.get("configmaps", "ns", "x").unwrap()["data"].clone();
    assert_eq!(data(), json!({"size": "1", "more": "1"}));
    stage.kill().await;
    api.writes();
    // A new operator recognizes the fields applied before from the object.
    widget(&api, "a", 1);
    let _stage = Stage::start(&api, &widgets).await;
    assert_eq!((data(), api.writes().len()), (json!({"size": "1"}), 1));
}

#[tokio::test(start_paused = true)]
async fn normalized_values_are_applied_once() {
    let widgets = Widgets::new(|_, cx| {
        Box::pin(async {
            let mut child = config_map("x", 1);
            child.data.get_or_insert_default().insert("cpu".into(), "1000m".into());
            cx.apply(&child).await?;
            Ok(Action::requeue_after(Duration::from_secs(10)))
        })
    });
    let api = Api::default();
    widget(&api, "a", 1);
    let stage = Stage::start(&api, &widgets).await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!((widgets.calls().len(), api.writes().len()), (7, 1));
    api.edit("configmaps", "ns", "x", |object| object["status"] = json!({"theirs": 1}));
    settle().await;
    assert_eq!((widgets.calls().len(), api.writes().len()), (1, 0));
    api.edit("configmaps", "ns", "x", |object| object["data"]["cpu"] = "2".into());
    settle().await;
    assert_eq!(api.writes().len(), 1);
    assert_eq!(api.get("configmaps", "ns", "x").unwrap()["data"]["cpu"], "1");
    stage.kill().await;
    let _stage = Stage::start(&api, &widgets).await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(api.writes().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn empty_values_without_owner_are_applied_once() {
    let widgets = Widgets::new(|_, cx| {
        Box::pin(async {
            cx.set_status(&json!({"observed": 1, "conditions": []})).await?;
            Ok(Action::requeue_after(Duration::from_secs(10)))
        })
    });
    let api = Api::default();
    widget(&api, "a", 1);
    let _stage = Stage::start(&api, &widgets).await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!((widgets.calls().len(), api.writes().len()), (7, 1));
}

#[tokio::test(start_paused = true)]
async fn terminating_child_is_recreated_after_its_deletion() {
    let (api, widgets) = (Api::default(), Widgets::usual());
    widget(&api, "a", 1);
    let _stage = Stage::start(&api, &widgets).await;
    api.edit("configmaps", "ns", "a", |object| object["metadata"]["finalizers"] = json!(["x/y"]));
    settle().await;
    api.writes();
    widgets.calls();
    api.delete("configmaps", "ns", "a");
    sleep(Duration::from_secs(60)).await;
    assert_eq!((api.writes().len(), widgets.calls().len()), (0, 1));
    api.edit("configmaps", "ns", "a", |object| object["metadata"]["finalizers"] = json!([]));
    settle().await;
    assert_eq!((api.writes().len(), size_of(&api, "a").unwrap().as_str()), (1, "1"));
}

#[tokio::test(start_paused = true)]
async fn terminating_namespace_stops_retries() {
    let (api, widgets) = (Api::default(), Widgets::usual());
    widget(&api, "a", 1);
    api.fail("PATCH", usize::MAX, Fault::Terminating);
    let _stage = Stage::start(&api, &widgets).await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(api.writes().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn conditions_keep_their_transition_time() {
    let widgets = Widgets::new(|widget, cx| {
        Box::pin(async {
            let size = widget.spec.size;
            let ready = Condition::new("Ready", size < 10, "Counted").message(format!("size is {size}"));
            cx.set_status(&json!({"conditions": [ready]})).await?;
            Ok(Action::requeue_after(Duration::from_secs(10)))
        })
    });
    let api = Api::default();
    widget(&api, "a", 1);
    let _stage = Stage::start(&api, &widgets).await;
    let condition = || {
        let condition = api.get("widgets", "ns", "a").unwrap()["status"]["conditions"][0].clone();
        ["status", "message", "observedGeneration", "lastTransitionTime"].map(|field| condition[field].to_string())
    };
    assert_eq!(condition(), [r#""True""#, r#""size is 1""#, "1", r#""2026-01-01T00:00:00Z""#]);
    sleep(Duration::from_secs(60)).await;
    assert_eq!((widgets.calls().len(), api.writes().len()), (7, 1));
    widget(&api, "a", 2);
    settle().await;
    assert_eq!(condition(), [r#""True""#, r#""size is 2""#, "2", r#""2026-01-01T00:00:00Z""#]);
    widget(&api, "a", 10);
    settle().await;
    assert_eq!(condition(), [r#""False""#, r#""size is 10""#, "3", r#""2026-01-01T00:01:01Z""#]);
}

#[tokio::test(start_paused = true)]
async fn status_is_not_written_to_a_recreated_object() {
    let widgets = Widgets::new(|widget, cx| {
        Box::pin(async move {
            sleep(Duration::from_secs(1)).await;
            cx.set_status(&WidgetStatus { observed: widget.spec.size }).await?;
            Ok(Action::done())
        })
    });
    let api = Api::default();
    widget(&api, "a", 1);
    let _stage = Stage::start(&api, &widgets).await;
    api.hold("widgets");
    api.delete("widgets", "ns", "a");
    widget(&api, "a", 2);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(api.get("widgets", "ns", "a").unwrap()["status"], Value::Null);
    api.release("widgets");
    sleep(Duration::from_secs(3)).await;
    assert_eq!(api.get("widgets", "ns", "a").unwrap()["status"], json!({"observed": 2}));
}

/// Publishes as many events as the widget's size: equal ones, or all different.
fn telling(different: bool) -> Widgets {
    Widgets::new(move |widget, cx| {
        Box::pin(async move {
            for n in 0..widget.spec.size {
                let note = if different { format!("event {n}") } else { "as always".into() };
                cx.event(Event::normal("Counted", note).action("Count"));
            }
            Ok(Action::done())
        })
    })
}

fn events(api: &Api) -> Vec<Value> {
    let name = |name: &String| name.split_once('/').unwrap().1.to_owned();
    api.names("events").iter().map(|key| api.get("events", "ns", &name(key)).unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn equal_events_are_aggregated() {
    let (api, widgets) = (Api::default(), telling(false));
    widget(&api, "a", 1000);
    let _stage = Stage::start(&api, &widgets).await;
    sleep(Duration::from_secs(10)).await;
    let events = events(&api);
    assert_eq!(events.len(), 1);
    let event = &events[0];
    assert_eq!(event["series"]["count"], 1000);
    assert_eq!(event["eventTime"], "2026-01-01T00:00:00.001000Z");
    let uid = &api.get("widgets", "ns", "a").unwrap()["metadata"]["uid"];
    let regarding =
        json!({"apiVersion": "example.com/v1", "kind": "Widget", "namespace": "ns", "name": "a", "uid": uid});
    assert_eq!(event["regarding"], regarding);
    let texts = ["type", "reason", "action", "note", "reportingController"].map(|field| event[field].as_str().unwrap());
    assert_eq!(texts, ["Normal", "Counted", "Count", "as always", "widget-operator"]);
    assert!(api.writes().len() <= 2);
}

#[tokio::test(start_paused = true)]
async fn different_events_are_rate_limited() {
    let (api, widgets) = (Api::default(), telling(true));
    widget(&api, "a", 5000);
    let _stage = Stage::start(&api, &widgets).await;
    sleep(Duration::from_secs(1)).await;
    let at_first = events(&api).len();
    assert!((50..70).contains(&at_first), "{at_first}");
    sleep(Duration::from_secs(600)).await;
    assert_eq!(events(&api).len(), 1000);
}

#[tokio::test(start_paused = true)]
async fn expired_event_is_recreated() {
    let (api, widgets) = (Api::default(), telling(false));
    widget(&api, "a", 1);
    let _stage = Stage::start(&api, &widgets).await;
    assert_eq!(events(&api).len(), 1);
    let name = api.names("events")[0].clone();
    api.delete("events", "ns", name.split_once('/').unwrap().1);
    widget(&api, "a", 2);
    sleep(Duration::from_secs(20)).await;
    assert_eq!(events(&api)[0]["series"]["count"], 3);
}

#[tokio::test(start_paused = true)]
async fn shutdown_flushes_events() {
    let (api, widgets) = (Api::default(), telling(false));
    widget(&api, "a", 2);
    let stage = Stage::start(&api, &widgets).await;
    widget(&api, "a", 3);
    settle().await;
    stage.stop().await;
    assert_eq!(events(&api)[0]["series"]["count"], 5);
}

/// Increments a counter in ConfigMap `n`, like a client that may have read it before.
async fn count_up(api: &kube::Api<ConfigMap>) -> kube::Result<ConfigMap> {
    let mut object = api.get("n").await?;
    // The other client reads before this one writes.
    sleep(Duration::from_millis(5)).await;
    let count = object.data.get_or_insert_default().entry("count".into()).or_default();
    *count = (count.parse().unwrap_or(0) + 1).to_string();
    api.patch("n", &Default::default(), &kube::api::Patch::Merge(&object)).await
}

#[tokio::test(start_paused = true)]
async fn conflicting_writer_retries() {
    let server = Api::default();
    server.edit("configmaps", "ns", "n", |_| {});
    let api = kube::Api::<ConfigMap>::namespaced(server.client(), "ns");
    let (first, second) = tokio::join!(count_up(&api), count_up(&api));
    let refused = [first, second].into_iter().filter_map(Result::err).collect::<Vec<_>>();
    assert!(matches!(&refused[..], [kube::Error::Api(status)] if status.code == 409), "{refused:?}");

    let rngs = [1, 2, 3].map(Rng::from_seed);
    let writers = rngs.iter().map(|rng| retry_on_conflict(rng, || count_up(&api)));
    for result in futures_util::future::join_all(writers).await {
        result.unwrap();
    }
    assert_eq!(server.get("configmaps", "ns", "n").unwrap()["data"]["count"], "4");
    // Permanent conflicts end with an error.
    server.fail("PATCH", 100, Fault::Refuse(409));
    assert!(retry_on_conflict(&rngs[0], || count_up(&api)).await.is_err());
}
