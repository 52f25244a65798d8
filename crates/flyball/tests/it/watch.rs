//! Faults of a watch, none of which loses an event.

use crate::api::{Api, Fault};
use crate::widgets::*;
use std::time::Duration;
use tokio::time::sleep;

const GONE: &str = r#"{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}"#;

/// Within this time an interrupted watch is restored.
const RECONNECTED: Duration = Duration::from_millis(1100);

/// Returns the queries of the requests for all widgets since the last call, without their common parts.
fn requests(api: &Api) -> Vec<String> {
    let seen = api.seen().into_iter().filter(|seen| seen.what.ends_with("/widgets"));
    seen.map(|seen| {
        let parameters =
            seen.query.split('&').filter(|pair| !pair.starts_with("timeoutSeconds") && !pair.starts_with("allow"));
        format!("{} {}", parameters.collect::<Vec<_>>().join("&"), seen.code)
    })
    .collect()
}

/// Starts an operator on widgets `a` and `b`, and discards its requests.
async fn started() -> (Api, Stage) {
    let (api, widgets) = (Api::default(), Widgets::usual());
    widget(&api, "a", 1);
    widget(&api, "b", 1);
    let stage = Stage::start(&api, &widgets).await;
    assert_eq!(widgets.calls(), ["a", "b"]);
    api.seen();
    (api, stage)
}

#[tokio::test(start_paused = true)]
async fn kind_is_listed_once_and_then_watched() {
    let (api, widgets) = (Api::default(), Widgets::usual());
    widget(&api, "a", 1);
    let _stage = Stage::start(&api, &widgets).await;
    assert_eq!(requests(&api), [" 200", "watch=true&resourceVersion=1 200"]);
}

#[tokio::test(start_paused = true)]
async fn closed_watch_resumes_at_its_resource_version() {
    let (api, stage) = started().await;
    sleep(Duration::from_secs(10)).await;
    api.cut("widgets");
    sleep(RECONNECTED).await;
    widget(&api, "a", 2);
    settle().await;
    assert_eq!(requests(&api), ["watch=true&resourceVersion=6 200"]);
    assert_eq!((stage.widgets.calls(), size_of(&api, "a").unwrap()), (vec!["a".to_owned()], "2".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn bookmarks_advance_the_resource_version() {
    let (api, stage) = started().await;
    for n in 0..2 {
        api.edit("secrets", "ns", "other", |object| object["n"] = n.into());
    }
    api.bookmark("widgets");
    sleep(Duration::from_secs(10)).await;
    api.cut("widgets");
    sleep(RECONNECTED).await;
    assert_eq!(requests(&api), ["watch=true&resourceVersion=8 200"]);
    assert_eq!(stage.widgets.calls(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn expired_watch_is_followed_by_a_list() {
    let (api, stage) = started().await;
    api.hold("widgets");
    api.delete("widgets", "ns", "b");
    widget(&api, "c", 1);
    widget(&api, "a", 2);
    api.compact();
    api.send("widgets", GONE);
    settle().await;
    assert_eq!(requests(&api), [" 200", "watch=true&resourceVersion=9 200"]);
    assert_eq!(stage.widgets.calls(), ["a", "c"]);
    api.release("widgets");
    widget(&api, "a", 3);
    settle().await;
    assert_eq!(stage.widgets.calls(), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn object_recreated_between_lists_is_a_different_object() {
    let (api, stage) = started().await;
    api.hold("widgets");
    api.delete("widgets", "ns", "a");
    widget(&api, "a", 7);
    api.compact();
    api.send("widgets", GONE);
    settle().await;
    // The child of the previous object is deleted first.
    assert!(stage.widgets.errors()[0].starts_with("configmaps ns/a is controlled by Widget a (uid uid-1)"));
    api.delete("configmaps", "ns", "a");
    settle().await;
    assert_eq!(size_of(&api, "a").unwrap(), "7");
    let uid = api.get("widgets", "ns", "a").unwrap()["metadata"]["uid"].clone();
    assert_eq!(api.get("configmaps", "ns", "a").unwrap()["metadata"]["ownerReferences"][0]["uid"], uid);
}

#[tokio::test(start_paused = true)]
async fn silent_watch_is_replaced() {
    let (api, stage) = started().await;
    api.bookmark("widgets");
    settle().await;
    api.hold("widgets");
    widget(&api, "a", 2);
    sleep(Duration::from_secs(140)).await;
    assert_eq!(requests(&api), [""; 0]);
    // The next connection works.
    api.release("widgets");
    api.cut("widgets");
    sleep(Duration::from_secs(20)).await;
    assert_eq!(stage.widgets.calls(), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn half_open_watch_is_replaced() {
    let (api, widgets) = (Api::default(), Widgets::usual());
    widget(&api, "a", 1);
    api.fail("/widgets?watch=true", 1, Fault::Hang);
    let _stage = Stage::start(&api, &widgets).await;
    sleep(Duration::from_secs(40)).await;
    assert_eq!(requests(&api).last().unwrap(), "watch=true&resourceVersion=1 200");
    widget(&api, "a", 2);
    settle().await;
    assert_eq!(size_of(&api, "a").unwrap(), "2");
}

#[tokio::test(start_paused = true)]
async fn unreadable_event_is_followed_by_a_list() {
    let (api, stage) = started().await;
    api.hold("widgets");
    widget(&api, "a", 2);
    api.send("widgets", r#"{"type":"MODIFIED","object":{"metadata":{"na"#);
    api.send("widgets", "no JSON at all");
    settle().await;
    assert_eq!((requests(&api).len(), stage.widgets.calls().len()), (0, 0));
    widget(&api, "b", 2);
    // The next connection starts with a list, since an event is missing.
    sleep(Duration::from_secs(10)).await;
    api.cut("widgets");
    sleep(RECONNECTED).await;
    assert_eq!(requests(&api), [" 200", "watch=true&resourceVersion=8 200"]);
    assert_eq!(stage.widgets.calls(), ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn missing_kind_is_polled_until_installed() {
    let (api, widgets) = (Api::default(), Widgets::usual());
    widget(&api, "a", 1);
    api.serve("widgets", false);
    let _stage = Stage::start(&api, &widgets).await;
    sleep(Duration::from_secs(600)).await;
    assert_eq!((api.watches("configmaps"), widgets.calls().len()), (1, 0));
    let attempts = requests(&api).len();
    assert!((100..250).contains(&attempts), "{attempts}");
    api.serve("widgets", true);
    sleep(Duration::from_secs(6)).await;
    assert_eq!(widgets.calls(), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn forbidden_kind_does_not_stop_others() {
    let (api, widgets) = (Api::default(), Widgets::usual());
    widget(&api, "a", 1);
    let stage = Stage::start(&api, &widgets).await;
    api.fail("/configmaps?watch", usize::MAX, Fault::Refuse(403));
    api.cut("configmaps");
    widget(&api, "a", 2);
    sleep(Duration::from_secs(100)).await;
    assert_eq!(size_of(&api, "a").unwrap(), "2");
    api.heal();
    api.edit("configmaps", "ns", "a", |object| object["data"]["size"] = "9".into());
    sleep(Duration::from_secs(40)).await;
    assert_eq!(size_of(&api, "a").unwrap(), "2");
    assert_eq!(stage.api.watches("configmaps"), 1);
}

#[tokio::test(start_paused = true)]
async fn truncated_list_falls_back_to_stream_and_pages() {
    let (api, widgets) = (Api::default(), Widgets::usual());
    for i in 0..1200 {
        widget(&api, &format!("w{i}"), 1);
    }
    api.fail("/widgets?", 2, Fault::Answer(r#"{"items":[{"metadata":{"name":"half""#));
    api.fail("/widgets?watch=true", 2, Fault::Answer(r#"{"type":"ADDED","obj"#));
    let _stage = Stage::start(&api, &widgets).await;
    sleep(Duration::from_secs(20)).await;
    let (whole, stream) = (" 200", "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan 200");
    let pages = ["limit=500 200", "limit=500&continue=500.1200 200", "limit=500&continue=1000.1200 200"];
    let expected: Vec<&str> = [whole, whole, stream, stream].into_iter().chain(pages).collect();
    assert_eq!(requests(&api)[..7], expected);
    assert_eq!(widgets.calls().len(), 1200);
}

#[tokio::test(start_paused = true)]
async fn expired_page_restarts_the_list() {
    let (api, widgets) = (Api::default(), Widgets::usual());
    for i in 0..600 {
        widget(&api, &format!("w{i}"), 1);
    }
    api.fail("/widgets?", 2, Fault::Answer("{"));
    api.fail("/widgets?watch=true", 1, Fault::Refuse(400));
    api.fail("continue=", 1, Fault::Refuse(410));
    let _stage = Stage::start(&api, &widgets).await;
    sleep(Duration::from_secs(20)).await;
    let stream = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan 400";
    let expected = [" 200", " 200", stream, "limit=500 200", "limit=500&continue=500.600 410", " 200"];
    assert_eq!(requests(&api)[..6], expected);
    assert_eq!(widgets.calls().len(), 600);
}

#[tokio::test(start_paused = true)]
async fn streams_fill_caches_as_well() {
    let (api, widgets) = (Api::default(), Widgets::usual());
    widget(&api, "a", 1);
    api.fail("/widgets?", 2, Fault::Answer("{"));
    let _stage = Stage::start(&api, &widgets).await;
    sleep(Duration::from_secs(2)).await;
    assert_eq!(widgets.calls(), ["a"]);
    widget(&api, "a", 2);
    settle().await;
    assert_eq!(widgets.calls(), ["a"]);
    assert_eq!(requests(&api).len(), 3);
}
