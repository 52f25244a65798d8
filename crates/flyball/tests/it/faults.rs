//! Faults on the client's side, one at a time. [`storm`](crate::storm) combines them, from a seed.
//!
//! | What | Where |
//! |---|---|
//! | 410 in the middle of a list | `watch::expired_page_restarts_the_list`; of a stream: [`truncated_list_is_recovered`] |
//! | an interrupted watch, in each state | [`truncated_list_is_recovered`], [`truncated_watch_is_recovered`], [`watches_interrupted_at_any_moment_lose_nothing`] |
//! | only bookmarks | `watch::bookmarks_advance_the_resource_version`, [`bookmarks_trigger_no_reconcile`] |
//! | an object that cannot be decoded | `reconcile::undecodable_object_does_not_affect_others`, [`undecodable_object_is_reported`] |
//! | a CRD removed and recreated | `kinds::recreated_crd_is_watched_again`, `kinds::uninstalled_kind_loses_its_objects_and_may_be_reinstalled`; on a whole server: `dynamic_kinds`, `caches` |
//! | a clock that jumps | [`clock_jump_moves_no_timer`]; of the leader: `leader_election::wall_clock_does_not_affect_leadership` |
//! | 429 with Retry-After | `reconcile::retry_after_is_honored`, [`lists_and_watches_honor_retry_after`] |
//! | an outage of the server, or incomplete responses | [`outage`](crate::outage) |
//! | five minutes of outage | `reconcile::outage_ends_without_a_request_storm`, [`outage_without_response_ends_without_a_request_storm`] |
//! | a leader paused beyond its lease | `leader_election::leader_paused_beyond_its_lease_writes_nothing_on_resume` |
//! | two replicas started at once | `leader_election::one_of_concurrently_started_replicas_leads_and_a_crash_hands_over` |
//! | a webhook that times out | [`hanging_webhook_times_out_before_the_api_server`]; to the client: `webhooks::late_webhook_response_counts_as_failure` |
//! | a status that another writer changes too | [`conflicting_status_write_is_retried`], `apply::conflicting_writer_retries` |
//! | a child edited and deleted | `reconcile::drift_is_repaired_at_once`, [`child_edited_and_deleted_at_any_moment_is_restored`] |
//! | an owner deleted in the middle of a reconcile | `deletion::object_deleted_at_any_moment_leaks_nothing`, [`deleted_owner_gets_no_further_writes`] |
//! | a name reused, with another UID | `watch::object_recreated_between_lists_is_a_different_object`, `deletion::stale_cache_triggers_no_cleanup`, [`recreated_object_at_any_moment_is_a_different_object`] |
//!
//! `leader_election`, `webhooks`, `dynamic_kinds` and `caches` are in the tests of `flyball-cluster`.

use crate::api::{Api, Fault};
use crate::widgets::*;
use flyball::webhook::{AdmissionRequest, Validator, Verdict, Webhook};
use flyball::{Action, Caches, Clock, Condition, Controller, MetricsServer, Operator, Result};
use flyball_core::time::{SignedDuration, Timestamp};
use http::Request;
use http_body_util::Full;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The ways in which a stream may end, each after some bytes; `ghost` was deleted before any client observed it.
const BROKEN_STREAMS: [&str; 8] = [
    "",
    "\n",
    "{",
    "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"na",
    concat!(
        r#"{"type":"ADDED","object":{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"ghost","namespace":"ns","uid":"u","resourceVersion":"1","generation":1},"spec":{"size":1}}}"#,
        "\n"
    ),
    concat!(
        r#"{"type":"ADDED","object":{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"ghost","namespace":"ns","uid":"u","resourceVersion":"1","generation":1},"spec":{"size":1}}}"#,
        "\n",
        r#"{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}"#,
        "\n"
    ),
    concat!(r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"1"}}}"#, "\n"),
    concat!(r#"{"type":"ERROR","object":{"kind":"Status","code":500,"message":"etcd is tired"}}"#, "\n"),
];

/// Starts an operator on widgets `a` and `b` with faulty requests; checks that it finally has exactly these, and
/// observes changes.
async fn survives(what: &str, faults: &[(&str, usize, Fault)]) {
    let (api, widgets) = (Api::default(), Widgets::usual());
    widget(&api, "a", 1);
    widget(&api, "b", 1);
    for (part, times, fault) in faults {
        api.fail(part, *times, fault.clone());
    }
    let _stage = Stage::start(&api, &widgets).await;
    sleep(Duration::from_secs(700)).await;
    let calls = widgets.calls();
    for name in ["a", "b"] {
        assert!(calls.iter().any(|call| call == name), "{what}: {calls:?}");
    }
    assert_eq!(api.names("configmaps"), ["ns/a", "ns/b"], "{what}");
    widget(&api, "a", 2);
    api.delete("widgets", "ns", "b");
    sleep(Duration::from_secs(1)).await;
    assert_eq!(size_of(&api, "a").as_deref(), Some("2"), "{what}");
    api.writes();
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(api.writes(), [""; 0], "{what}: still writing");
}

#[tokio::test(start_paused = true)]
async fn truncated_list_is_recovered() {
    for text in
        ["", "{", "[]", "null", r#"{"items":[{"metadata":{"name":"ghost""#, r#"{"items":"#, "{\"kind\":\"Status\"}"]
    {
        survives(text, &[("ns/widgets?", 1, Fault::Answer(text)), ("/widgets?", 1, Fault::Answer(text))]).await;
    }
    // After two incomplete lists, the objects are requested as a stream.
    for text in BROKEN_STREAMS {
        survives(text, &[("sendInitialEvents", 1, Fault::Answer(text)), ("/widgets?", 2, Fault::Answer("{"))]).await;
    }
    for code in [400, 401, 403, 404, 410, 429, 500, 503, 504] {
        survives(&code.to_string(), &[("/widgets?", 3, Fault::Refuse(code))]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn truncated_watch_is_recovered() {
    for text in BROKEN_STREAMS.into_iter().filter(|text| !text.contains("ghost")) {
        for times in [1, 3] {
            survives(text, &[("/widgets?watch=true", times, Fault::Answer(text))]).await;
        }
    }
    for code in [400, 401, 403, 404, 410, 429, 500, 503, 504] {
        survives(&code.to_string(), &[("/widgets?watch=true", 2, Fault::Refuse(code))]).await;
    }
    survives("hangs", &[("/widgets?watch=true", 1, Fault::Hang)]).await;
    survives("no answer", &[("/widgets?watch=true", 2, Fault::LoseAnswer)]).await;
}

#[tokio::test(start_paused = true)]
async fn watches_interrupted_at_any_moment_lose_nothing() {
    for moment in 0..12 {
        let (api, widgets) = (Api::default(), Widgets::usual());
        widget(&api, "a", 1);
        let stage = Stage::operator(
            &api,
            &widgets,
            operator().controller(Controller::new(widgets.clone()).owns::<ConfigMap>()),
        );
        sleep(Duration::from_millis(moment)).await;
        for resource in ["widgets", "configmaps"] {
            api.hold(resource);
        }
        widget(&api, "a", 2);
        widget(&api, "b", 3);
        for resource in ["widgets", "configmaps"] {
            api.cut(resource);
            api.release(resource);
        }
        sleep(Duration::from_secs(5)).await;
        let sizes = (size_of(&api, "a"), size_of(&api, "b"));
        assert_eq!(sizes, (Some("2".into()), Some("3".into())), "cut at {moment} ms");
        stage.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn bookmarks_trigger_no_reconcile() {
    let (api, widgets) = (Api::default(), Widgets::usual());
    widget(&api, "a", 1);
    let _stage = Stage::start(&api, &widgets).await;
    widgets.calls();
    api.seen();
    for n in 0..200 {
        api.edit("secrets", "ns", "other", |object| object["n"] = n.into());
        for resource in ["widgets", "configmaps"] {
            api.bookmark(resource);
        }
        sleep(Duration::from_secs(60)).await;
    }
    let seen = api.seen();
    let probes = seen.iter().filter(|seen| seen.what == "GET /livez").count();
    assert_eq!((widgets.calls().len(), seen.len() - probes), (0, 0));
    assert!(probes <= 3 * 200, "{probes} probes in 200 minutes");
    // It resumed from the bookmarks, so compacting earlier revisions has no effect.
    api.compact();
    api.cut("widgets");
    sleep(Duration::from_secs(2)).await;
    assert!(api.seen().iter().all(|seen| seen.query.contains("watch=true")), "no list is needed");
}

#[tokio::test]
async fn undecodable_object_is_reported() {
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (api, widgets) = (Api::default(), Widgets::usual());
    widget(&api, "a", 1);
    api.edit("widgets", "ns", "bad", |object| {
        object["apiVersion"] = "example.com/v1".into();
        object["kind"] = "Widget".into();
        object["spec"] = json!({"size": "large"});
    });
    let controller = Controller::new(widgets.clone()).owns::<ConfigMap>();
    let stage = Stage::operator(&api, &widgets, metered(address).controller(controller));
    let find_event = || api.names("events").iter().find_map(|key| api.get("events", "ns", key.split_once('/')?.1));
    let began = Instant::now();
    // Other objects are reconciled.
    while find_event().is_none() || size_of(&api, "a").as_deref() != Some("1") {
        assert!(began.elapsed() < Duration::from_secs(30));
        sleep(Duration::from_millis(10)).await;
    }
    let event = find_event().unwrap();
    assert_eq!((&event["reason"], &event["regarding"]["name"]), (&json!("DecodeFailed"), &json!("bad")));
    assert!(event["note"].as_str().unwrap().contains("invalid type: string"), "{event}");
    let text = read_metrics(address).await;
    assert!(text.contains("flyball_undecodable_total{controller=\"widget\"} 1\n"), "{text}");
    stage.stop().await;
}

#[tokio::test]
async fn failed_mapping_is_counted() {
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (api, widgets) = (Api::default(), Widgets::usual());
    widget(&api, "a", 1);
    api.edit("secrets", "ns", "s", |_| {});
    let fails = |_: &Secret, _: &Caches| Err("cannot be mapped".into());
    let controller = Controller::new(widgets.clone()).owns::<ConfigMap>().watches::<Secret>(fails);
    let stage = Stage::operator(&api, &widgets, metered(address).controller(controller));
    let began = Instant::now();
    while size_of(&api, "a").is_none() {
        assert!(began.elapsed() < Duration::from_secs(30));
        sleep(Duration::from_millis(10)).await;
    }
    let text = read_metrics(address).await;
    assert!(text.contains("flyball_map_errors_total{controller=\"widget\"} 1\n"), "{text}");
    assert!(text.contains("flyball_watch_failing_seconds{kind=\"secrets\",namespace=\"\"} 0.0\n"), "{text}");
    stage.stop().await;
}

/// Requests `/metrics` without a client library.
fn metered(address: std::net::SocketAddr) -> Operator {
    operator().metrics_server(MetricsServer { address: Some(address), ..MetricsServer::default() })
}

async fn read_metrics(address: std::net::SocketAddr) -> String {
    use std::io::{Read, Write};
    let ask = move || {
        let mut stream = std::net::TcpStream::connect(address)?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: op\r\nconnection: close\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text).map(|_| text)
    };
    tokio::task::spawn_blocking(ask).await.unwrap().unwrap()
}

#[tokio::test(start_paused = true)]
async fn clock_jump_moves_no_timer() {
    let jumped = Arc::new(AtomicI64::new(0));
    let (began, hours) = (Instant::now(), jumped.clone());
    let clock = Clock::new(move || {
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        start + began.elapsed() + SignedDuration::from_hours(hours.load(Ordering::Relaxed))
    });
    let widgets = Widgets::new(|widget, cx| {
        Box::pin(async move {
            let ready = Condition::new("Ready", true, "Up").message(format!("size {}", widget.spec.size));
            cx.set_status(&json!({"observed": widget.spec.size, "conditions": [ready]})).await?;
            cx.event(flyball::Event::normal("Seen", "again"));
            Ok(Action::requeue_after(Duration::from_secs(60)))
        })
    });
    let api = Api::default();
    widget(&api, "a", 1);
    let controller = Controller::new(widgets.clone());
    let _stage = Stage::operator(&api, &widgets, operator().clock(clock).controller(controller));
    settle().await;
    let time = || api.get("widgets", "ns", "a").unwrap()["status"]["conditions"][0]["lastTransitionTime"].clone();
    let first = time();
    assert_eq!((widgets.calls().len(), api.writes().len()), (1, 2));
    for hours in [10 * 24, -20 * 24, 0, 24 * 365 * 50, -24 * 365 * 50, 1] {
        jumped.store(hours, Ordering::Relaxed);
        sleep(Duration::from_secs(600)).await;
        assert_eq!(widgets.calls().len(), 10, "after a jump to {hours} h");
        assert!(api.writes().iter().all(|write| write.contains("/events")), "after a jump to {hours} h");
    }
    // A change of the message is not a transition, independent of the clock.
    widget(&api, "a", 2);
    settle().await;
    assert_eq!((time(), api.get("widgets", "ns", "a").unwrap()["status"]["observed"].clone()), (first, json!(2)));
}

#[tokio::test(start_paused = true)]
async fn lists_and_watches_honor_retry_after() {
    let (api, widgets) = (Api::default(), Widgets::usual());
    widget(&api, "a", 1);
    api.fail("/widgets?watch=true", 3, Fault::RefuseFor(429, 20));
    api.fail("/widgets?", 3, Fault::RefuseFor(429, 20));
    let _stage = Stage::start(&api, &widgets).await;
    sleep(Duration::from_secs(55)).await;
    let requests = api.seen().iter().filter(|seen| seen.what.ends_with("/widgets")).count();
    assert!(requests <= 3 && widgets.calls().is_empty(), "asked {requests} times in 55 s");
    sleep(Duration::from_secs(200)).await;
    assert_eq!(size_of(&api, "a").as_deref(), Some("1"));
    assert_eq!(api.watches("widgets"), 1);
}

#[tokio::test(start_paused = true)]
async fn outage_without_response_ends_without_a_request_storm() {
    for fault in [Fault::LoseAnswer, Fault::Hang, Fault::RefuseFor(503, 1)] {
        let (api, widgets) = (Api::default(), Widgets::usual());
        for i in 0..1000 {
            widget(&api, &format!("w{i:04}"), 1);
        }
        let _stage = Stage::start(&api, &widgets).await;
        sleep(Duration::from_secs(10)).await;
        assert_eq!(api.writes().len(), 2000);
        for i in 0..1000 {
            widget(&api, &format!("w{i:04}"), 2);
        }
        api.fail("", usize::MAX, fault.clone());
        for resource in ["widgets", "configmaps"] {
            api.cut(resource);
        }
        sleep(Duration::from_secs(300)).await;
        api.heal();
        api.seen();
        sleep(Duration::from_secs(60)).await;
        let seen = api.seen();
        let mut writes: BTreeMap<&str, usize> = BTreeMap::new();
        seen.iter().filter(|seen| seen.is_write()).for_each(|seen| *writes.entry(&seen.what).or_default() += 1);
        assert!(writes.values().all(|times| *times == 1), "{fault:?}: one write of each child and each status");
        // After a lost response, it applies once more without reading. The other requests are watches.
        assert!(seen.len() <= 2010, "{fault:?}: {}", seen.len());
        sleep(Duration::from_secs(300)).await;
        let wrong =
            api.names("configmaps").iter().filter(|key| size_of(&api, &key[3..]).as_deref() != Some("2")).count();
        assert_eq!(wrong, 0, "{fault:?}");
    }
}

struct Hangs;

impl Validator<ConfigMap> for Hangs {
    async fn validate(&self, request: &AdmissionRequest<ConfigMap>) -> Result<Verdict> {
        if request.key().name() == "slow" {
            std::future::pending::<()>().await;
        }
        Ok(Verdict::allow())
    }
}

#[tokio::test(start_paused = true)]
async fn hanging_webhook_times_out_before_the_api_server() {
    let api = Api::default();
    let operator = Operator::new("op").webhook(Webhook::new().validates(Hangs));
    let webhooks = operator.webhooks();
    let client = api.client();
    tokio::spawn(async move { operator.run(client, std::future::pending()).await });
    settle().await;
    let ask = async |name: &str, query: &str| {
        let review = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": "u", "operation": "CREATE", "name": name, "namespace": "ns", "userInfo": {"username": "somebody"},
                "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
                "resource": {"group": "", "version": "v1", "resource": "configmaps"},
                "object": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "ns"}},
            },
        });
        let request =
            Request::post(format!("/validate--v1-configmap{query}")).header("content-type", "application/json");
        let body = Full::new(bytes::Bytes::from(review.to_string()));
        let began = Instant::now();
        let code = webhooks.handle(request.body(body).unwrap()).await.status().as_u16();
        (code, began.elapsed().as_secs())
    };
    let (slow, quick, patient) = tokio::join!(ask("slow", "?timeout=3s"), ask("quick", "?timeout=3s"), ask("slow", ""));
    assert_eq!((slow, quick, patient), ((504, 3), (200, 0), (504, 30)), "a hanging webhook does not delay others");
}

#[tokio::test(start_paused = true)]
async fn conflicting_status_write_is_retried() {
    let (api, widgets) = (Api::default(), Widgets::usual());
    widget(&api, "a", 1);
    api.fail("widgets/a/status", 2, Fault::Refuse(409));
    let _stage = Stage::start(&api, &widgets).await;
    assert_eq!(api.get("widgets", "ns", "a").unwrap()["status"], json!({"observed": 1}));
    assert_eq!(widgets.calls().len(), 3);
    // Another client writes the same status at the same time: our fields are overwritten, the others stay.
    api.edit("widgets", "ns", "a", |object| object["status"] = json!({"observed": 7, "theirs": true}));
    settle().await;
    assert_eq!(api.get("widgets", "ns", "a").unwrap()["status"], json!({"observed": 1, "theirs": true}));
}

#[tokio::test(start_paused = true)]
async fn child_edited_and_deleted_at_any_moment_is_restored() {
    for moment in 0..10 {
        let (api, widgets) = (Api::default(), Widgets::usual());
        widget(&api, "a", 1);
        let _stage = Stage::start(&api, &widgets).await;
        widget(&api, "a", 2);
        sleep(Duration::from_millis(moment)).await;
        api.edit("configmaps", "ns", "a", |object| object["data"]["size"] = "theirs".into());
        sleep(Duration::from_millis(moment / 2)).await;
        api.delete("configmaps", "ns", "a");
        settle().await;
        assert_eq!(size_of(&api, "a").as_deref(), Some("2"), "at {moment} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn deleted_owner_gets_no_further_writes() {
    for moment in 0..10 {
        let (api, widgets) = (Api::default(), Widgets::usual());
        let _stage = Stage::start(&api, &widgets).await;
        widget(&api, "a", 1);
        sleep(Duration::from_millis(moment)).await;
        let uid = api.get("widgets", "ns", "a").unwrap()["metadata"]["uid"].clone();
        api.delete("widgets", "ns", "a");
        settle().await;
        // Children created during the deletion belong to the old owner, and are garbage collected with it.
        if let Some(child) = api.get("configmaps", "ns", "a") {
            assert_eq!(child["metadata"]["ownerReferences"][0]["uid"], uid, "at {moment} ms");
        }
        api.seen();
        widgets.calls();
        sleep(Duration::from_secs(600)).await;
        assert_eq!((api.seen().iter().filter(|seen| seen.is_write()).count(), widgets.calls().len()), (0, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn recreated_object_at_any_moment_is_a_different_object() {
    for moment in 0..10 {
        let (api, widgets) = (Api::default(), Widgets::usual());
        let _stage = Stage::start(&api, &widgets).await;
        widget(&api, "a", 1);
        sleep(Duration::from_millis(moment)).await;
        api.delete("widgets", "ns", "a");
        widget(&api, "a", 2);
        let uid = api.get("widgets", "ns", "a").unwrap()["metadata"]["uid"].clone();
        settle().await;
        // The garbage collector deletes the children of the first object.
        if api.get("configmaps", "ns", "a").is_some_and(|child| child["metadata"]["ownerReferences"][0]["uid"] != uid) {
            api.delete("configmaps", "ns", "a");
        }
        sleep(Duration::from_secs(10)).await;
        let child = api.get("configmaps", "ns", "a").unwrap();
        assert_eq!(child["metadata"]["ownerReferences"][0]["uid"], uid, "at {moment} ms");
        assert_eq!(child["data"]["size"], "2", "at {moment} ms");
        assert_eq!(api.get("widgets", "ns", "a").unwrap()["status"], json!({"observed": 2}), "at {moment} ms");
    }
}
