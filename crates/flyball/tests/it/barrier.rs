//! Own writes are observed, independent of the delay of the watch.

use crate::api::{Api, Fault};
use crate::widgets::*;
use flyball::{Action, Context, Result};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;
use std::time::Duration;
use tokio::time::sleep;

/// Keeps as many ConfigMaps with generated names as the widget's size.
async fn keep_count(widget: &Widget, cx: &Context<Widget>) -> Result<Action> {
    let mut children = cx.children::<ConfigMap>().await?;
    for _ in children.len()..widget.spec.size as usize {
        let metadata = kube::core::ObjectMeta { generate_name: Some("part-".into()), ..Default::default() };
        cx.create(&ConfigMap { metadata, ..ConfigMap::default() }).await?;
    }
    while children.len() > widget.spec.size as usize {
        cx.delete(&children.pop().unwrap()).await?;
    }
    Ok(Action::done())
}

pub fn counting() -> Widgets {
    Widgets::new(|widget, cx| Box::pin(keep_count(widget, cx)))
}

/// Triggers widget `a` without changing its desired state.
fn wake(api: &Api, n: usize) {
    api.edit("widgets", "ns", "a", |object| object["metadata"]["labels"] = json!({"n": n.to_string()}));
}

/// Makes the watch of ConfigMaps start with a list, which does not contain earlier events.
async fn list_anew(api: &Api) {
    api.compact();
    api.send("configmaps", r#"{"type":"ERROR","object":{"code":410,"message":"too old"}}"#);
    settle().await;
}

#[tokio::test(start_paused = true)]
async fn children_with_generated_names_are_not_duplicated_by_a_late_watch() {
    let (api, widgets) = (Api::default(), counting());
    widget(&api, "a", 3);
    api.hold("configmaps");
    let _stage = Stage::start(&api, &widgets).await;
    for n in 0..100 {
        wake(&api, n);
        sleep(Duration::from_millis(50)).await;
    }
    assert_eq!((api.names("configmaps").len(), widgets.calls().len()), (3, 1));
    api.release("configmaps");
    settle().await;
    assert_eq!((api.names("configmaps").len(), widgets.calls().len()), (3, 1));
}

#[tokio::test(start_paused = true)]
async fn stale_cache_is_bypassed() {
    let (api, widgets) = (Api::default(), counting());
    widget(&api, "a", 3);
    api.hold("configmaps");
    let _stage = Stage::start(&api, &widgets).await;
    api.seen();
    for n in 0..10 {
        wake(&api, n);
        sleep(Duration::from_secs(6)).await;
    }
    assert_eq!(api.names("configmaps").len(), 3);
    let seen = api.seen();
    let lists = seen.iter().filter(|seen| seen.what == "GET /api/v1/namespaces/ns/configmaps" && seen.query.is_empty());
    assert!(lists.count() >= 4);
    assert!(seen.iter().all(|seen| !seen.is_write()), "{seen:?}");
    widget(&api, "a", 4);
    sleep(Duration::from_secs(11)).await;
    assert_eq!(api.names("configmaps").len(), 4);
}

#[tokio::test(start_paused = true)]
async fn deletions_are_matched_by_uid() {
    let (api, widgets) = (Api::default(), counting());
    widget(&api, "a", 3);
    let _stage = Stage::start(&api, &widgets).await;
    api.hold("configmaps");
    api.seen();
    widget(&api, "a", 1);
    settle().await;
    for n in 0..20 {
        wake(&api, n);
        sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(api.writes().len(), 2);
    assert_eq!(api.names("configmaps").len(), 1);
    api.release("configmaps");
    settle().await;
    assert_eq!((api.writes().len(), api.names("configmaps").len()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn lost_response_creates_no_second_child() {
    let (api, widgets) = (Api::default(), counting());
    widget(&api, "a", 2);
    api.fail("POST /api/v1/namespaces/ns/configmaps", 1, Fault::LoseAnswer);
    let _stage = Stage::start(&api, &widgets).await;
    assert_eq!(api.names("configmaps").len(), 2);
    let codes: Vec<u16> = api.seen().iter().filter(|seen| seen.is_write()).map(|seen| seen.code).collect();
    assert_eq!(codes, [201, 409, 201]);
    assert_eq!(widgets.calls(), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn reconcile_after_lost_responses_reads_before_writing() {
    let (api, widgets) = (Api::default(), counting());
    widget(&api, "a", 1);
    api.hold("configmaps");
    // The request is processed three times, and each response is lost.
    api.fail("POST /api/v1/namespaces/ns/configmaps", 3, Fault::LoseAnswer);
    let _stage = Stage::start(&api, &widgets).await;
    assert_eq!((api.names("configmaps").len(), widgets.calls().len()), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn failed_read_of_uncertain_state_is_retried() {
    let (api, widgets) = (Api::default(), counting());
    widget(&api, "a", 1);
    api.hold("configmaps");
    api.fail("POST /api/v1/namespaces/ns/configmaps", 3, Fault::LoseAnswer);
    // Reading the result fails twice.
    api.fail("GET /api/v1/namespaces/ns/configmaps?", 2, Fault::Refuse(500));
    let _stage = Stage::start(&api, &widgets).await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!((widgets.errors().len(), api.names("configmaps").len()), (3, 1));
    // After a successful read, nothing is read again.
    api.release("configmaps");
    settle().await;
    api.seen();
    wake(&api, 1);
    settle().await;
    assert!(api.seen().is_empty() && widgets.calls().len() == 5);
}

#[tokio::test(start_paused = true)]
async fn foreign_change_is_no_echo() {
    let (api, widgets) = (Api::default(), Widgets::usual());
    widget(&api, "a", 1);
    let _stage = Stage::start(&api, &widgets).await;
    widgets.calls();
    api.hold("configmaps");
    widget(&api, "a", 2);
    settle().await;
    assert_eq!(widgets.calls(), ["a"]);
    api.edit("configmaps", "ns", "a", |object| object["data"]["size"] = "9".into());
    api.release("configmaps");
    settle().await;
    assert_eq!((widgets.calls().len(), size_of(&api, "a").unwrap().as_str()), (1, "2"));
}

#[tokio::test(start_paused = true)]
async fn foreign_change_before_a_list_is_no_echo() {
    let (api, widgets) = (Api::default(), Widgets::usual());
    widget(&api, "a", 1);
    let _stage = Stage::start(&api, &widgets).await;
    widgets.calls();
    api.hold("configmaps");
    api.edit("configmaps", "ns", "a", |object| object["data"]["size"] = "9".into());
    widget(&api, "a", 2);
    settle().await;
    assert_eq!(widgets.calls(), ["a"]);
    // The list contains the ConfigMap as written by the operator, without earlier events.
    list_anew(&api).await;
    assert_eq!(widgets.calls(), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn reconcile_reads_its_own_writes() {
    let widgets = Widgets::new(|_, cx| {
        Box::pin(async {
            cx.apply(&config_map("x", 1)).await?;
            let key = cx.sibling("x");
            let read = cx.get::<ConfigMap>(&key).await?.ok_or("not there")?;
            let listed = cx.list::<ConfigMap>(Some("ns")).await?;
            let children = cx.children::<ConfigMap>().await?;
            assert_eq!((vec![read.clone()], listed), (children, vec![read]));
            // The change reverts to the state in the cache, which is stale.
            cx.apply(&config_map("x", 2)).await?;
            cx.apply(&config_map("x", 1)).await?;
            Ok(Action::done())
        })
    });
    let api = Api::default();
    widget(&api, "a", 1);
    let _stage = Stage::start(&api, &widgets).await;
    assert_eq!((widgets.calls().len(), api.writes().len(), size_of(&api, "x").unwrap().as_str()), (1, 3, "1"));
}

#[tokio::test(start_paused = true)]
async fn child_deleted_between_lists_is_recreated() {
    let (api, widgets) = (Api::default(), Widgets::usual());
    let _stage = Stage::start(&api, &widgets).await;
    api.hold("configmaps");
    widget(&api, "a", 1);
    settle().await;
    assert_eq!(widgets.calls(), ["a"]);
    // No cache ever observes this child: it is in neither of the two lists.
    api.delete("configmaps", "ns", "a");
    list_anew(&api).await;
    assert_eq!((widgets.calls().len(), size_of(&api, "a").unwrap().as_str()), (1, "1"));
}

#[tokio::test(start_paused = true)]
async fn child_observed_only_by_a_live_read_is_recreated() {
    let widgets = Widgets::new(|widget, cx| {
        Box::pin(async move {
            cx.get::<ConfigMap>(cx.key()).await?;
            usual(widget, cx).await
        })
    });
    let api = Api::default();
    let _stage = Stage::start(&api, &widgets).await;
    api.hold("configmaps");
    api.fail("PATCH /api/v1/namespaces/ns/configmaps", 1, Fault::LoseAnswer);
    widget(&api, "a", 1);
    settle().await;
    // The second call found the result of the first at the API server.
    assert_eq!((widgets.calls().len(), api.writes().len()), (2, 2));
    api.delete("configmaps", "ns", "a");
    list_anew(&api).await;
    assert_eq!((widgets.calls().len(), size_of(&api, "a").unwrap().as_str()), (1, "1"));
}

#[tokio::test(start_paused = true)]
async fn apply_with_lost_response_is_resent_without_a_read() {
    let (api, widgets) = (Api::default(), Widgets::usual());
    widget(&api, "b", 1);
    let _stage = Stage::start(&api, &widgets).await;
    // One request is processed, the other never reaches the server.
    for (name, fault, times) in [("a", Fault::LoseAnswer, 2), ("b", Fault::Hang, 1)] {
        api.seen();
        api.fail("PATCH /api/v1/namespaces/ns/configmaps", 1, fault);
        widget(&api, name, 2);
        sleep(Duration::from_secs(60)).await;
        // A quiet server is probed.
        let requests: Vec<String> =
            api.seen().into_iter().map(|seen| seen.what).filter(|what| what != "GET /livez").collect();
        let (child, status) = (
            format!("PATCH /api/v1/namespaces/ns/configmaps/{name}"),
            format!("PATCH /apis/example.com/v1/namespaces/ns/widgets/{name}/status"),
        );
        let expected: Vec<String> = std::iter::repeat_n(child, times).chain([status]).collect();
        assert_eq!((requests, size_of(&api, name).unwrap().as_str()), (expected, "2"));
    }
}

#[tokio::test(start_paused = true)]
async fn deletion_observed_during_the_reconcile_does_not_block() {
    let widgets = Widgets::new(|widget, cx| {
        Box::pin(async move {
            keep_count(widget, cx).await?;
            sleep(Duration::from_secs(1)).await;
            Ok(Action::done())
        })
    });
    let api = Api::default();
    widget(&api, "a", 2);
    let _stage = Stage::start(&api, &widgets).await;
    sleep(Duration::from_secs(2)).await;
    widget(&api, "a", 1);
    sleep(Duration::from_secs(3)).await;
    widgets.calls();
    api.seen();
    wake(&api, 1);
    settle().await;
    assert_eq!(widgets.calls(), ["a"]);
    assert!(api.seen().is_empty(), "the caches show everything");
}
