//! What goes wrong on the client's side, one thing at a time. [`storm`](crate::storm) has it go wrong all at once,
//! from a seed.
//!
//! | What | Where |
//! |---|---|
//! | 410 in the middle of a list | `watch::a_page_that_expired_begins_the_list_again`; of a stream: [`a_list_may_break_off_anywhere`] |
//! | a watch that is cut, in each state | [`a_list_may_break_off_anywhere`], [`a_watch_may_break_off_anywhere`], [`watches_cut_at_any_moment_lose_nothing`] |
//! | nothing but bookmarks | `watch::bookmarks_move_the_place`, [`a_watch_of_nothing_but_bookmarks_is_no_work`] |
//! | an object that does not decode | `reconcile::an_object_that_does_not_decode_harms_itself_only`, [`an_object_that_does_not_decode_is_told_of`] |
//! | a definition removed and made anew | `kinds::a_definition_made_anew_under_a_running_controller_brings_new_objects`, `kinds::a_kind_that_goes_takes_its_objects_along_and_may_come_back`; on a whole server: `dynamic_kinds`, `caches` |
//! | a clock that jumps | [`a_clock_that_jumps_moves_no_timer`]; of the leader: `leader_election::the_time_of_day_plays_no_part` |
//! | 429 with Retry-After | `reconcile::a_busy_server_is_waited_for`, [`a_busy_server_is_waited_for_by_lists_and_watches`] |
//! | a server that goes and comes back, or answers less than there is | [`outage`](crate::outage) |
//! | five minutes of outage | `reconcile::an_outage_ends_without_a_storm`, [`an_outage_without_any_answer_ends_without_a_storm`] |
//! | a leader paused beyond its lease | `leader_election::a_leader_that_was_paused_beyond_its_lease_writes_nothing_when_it_wakes` |
//! | two replicas started at once | `leader_election::of_replicas_started_at_once_one_acts_and_another_follows_when_it_is_killed` |
//! | a webhook that times out | [`a_webhook_that_hangs_is_answered_for_in_time`]; to the client: `webhooks::a_webhook_that_answers_too_late_is_as_none` |
//! | a status that another writer changes too | [`a_status_that_conflicts_is_written_again`], `apply::the_second_of_two_writers_conflicts_and_tries_again` |
//! | a child edited and deleted | `reconcile::drift_is_repaired_at_once`, [`a_child_edited_and_deleted_at_any_moment_is_as_wanted`] |
//! | an owner deleted in the middle of a reconcile | `deletion::an_object_deleted_at_any_moment_leaks_nothing`, [`an_owner_deleted_in_the_middle_is_let_go`] |
//! | a name used again, with another UID | `watch::an_object_made_anew_in_a_gap_is_another_one`, `deletion::nothing_is_finalized_on_the_word_of_a_stale_cache`, [`a_name_used_again_at_any_moment_is_another_object`] |
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

/// The ways in which a stream may end, each after some bytes; `ghost` was deleted before anybody could see it.
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

/// Starts an operator on widgets `a` and `b` whose requests meet faults; checks that it knows them and no others in
/// the end, and hears of changes.
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
    assert_eq!(api.writes(), [""; 0], "{what}: no peace");
}

#[tokio::test(start_paused = true)]
async fn a_list_may_break_off_anywhere() {
    for text in
        ["", "{", "[]", "null", r#"{"items":[{"metadata":{"name":"ghost""#, r#"{"items":"#, "{\"kind\":\"Status\"}"]
    {
        survives(text, &[("ns/widgets?", 1, Fault::Answer(text)), ("/widgets?", 1, Fault::Answer(text))]).await;
    }
    // After two lists that broke off, the objects come as a stream.
    for text in BROKEN_STREAMS {
        survives(text, &[("sendInitialEvents", 1, Fault::Answer(text)), ("/widgets?", 2, Fault::Answer("{"))]).await;
    }
    for code in [400, 401, 403, 404, 410, 429, 500, 503, 504] {
        survives(&code.to_string(), &[("/widgets?", 3, Fault::Refuse(code))]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_may_break_off_anywhere() {
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
async fn watches_cut_at_any_moment_lose_nothing() {
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
async fn a_watch_of_nothing_but_bookmarks_is_no_work() {
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
    // It went on with the bookmarks: what is forgotten before them is not missed.
    api.compact();
    api.cut("widgets");
    sleep(Duration::from_secs(2)).await;
    assert!(api.seen().iter().all(|seen| seen.query.contains("watch=true")), "no list is needed");
}

#[tokio::test]
async fn an_object_that_does_not_decode_is_told_of() {
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
    let told = || api.names("events").iter().find_map(|key| api.get("events", "ns", key.split_once('/')?.1));
    let began = Instant::now();
    while told().is_none() {
        assert!(began.elapsed() < Duration::from_secs(30));
        sleep(Duration::from_millis(10)).await;
    }
    let event = told().unwrap();
    assert_eq!((&event["reason"], &event["regarding"]["name"]), (&json!("DecodeFailed"), &json!("bad")));
    assert!(event["note"].as_str().unwrap().contains("invalid type: string"), "{event}");
    assert_eq!(size_of(&api, "a").as_deref(), Some("1"), "others go on");
    let text = read_metrics(address).await;
    assert!(text.contains("flyball_undecodable_total{controller=\"widget\"} 1\n"), "{text}");
    stage.stop().await;
}

#[tokio::test]
async fn a_change_that_cannot_be_mapped_is_counted() {
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

/// Requests `/metrics`, without a client.
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
async fn a_clock_that_jumps_moves_no_timer() {
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
    // A change of the message is no transition, whatever the clock says.
    widget(&api, "a", 2);
    settle().await;
    assert_eq!((time(), api.get("widgets", "ns", "a").unwrap()["status"]["observed"].clone()), (first, json!(2)));
}

#[tokio::test(start_paused = true)]
async fn a_busy_server_is_waited_for_by_lists_and_watches() {
    let (api, widgets) = (Api::default(), Widgets::usual());
    widget(&api, "a", 1);
    api.fail("/widgets?watch=true", 3, Fault::RefuseFor(429, 20));
    api.fail("/widgets?", 3, Fault::RefuseFor(429, 20));
    let _stage = Stage::start(&api, &widgets).await;
    sleep(Duration::from_secs(55)).await;
    let asked = api.seen().iter().filter(|seen| seen.what.ends_with("/widgets")).count();
    assert!(asked <= 3 && widgets.calls().is_empty(), "asked {asked} times in 55 s");
    sleep(Duration::from_secs(200)).await;
    assert_eq!(size_of(&api, "a").as_deref(), Some("1"));
    assert_eq!(api.watches("widgets"), 1);
}

#[tokio::test(start_paused = true)]
async fn an_outage_without_any_answer_ends_without_a_storm() {
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
        // Whoever got no answer applies once more, without a look at what became of its write. The rest is watches.
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
async fn a_webhook_that_hangs_is_answered_for_in_time() {
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
    assert_eq!((slow, quick, patient), ((504, 3), (200, 0), (504, 30)), "one that hangs holds up nobody else");
}

#[tokio::test(start_paused = true)]
async fn a_status_that_conflicts_is_written_again() {
    let (api, widgets) = (Api::default(), Widgets::usual());
    widget(&api, "a", 1);
    api.fail("widgets/a/status", 2, Fault::Refuse(409));
    let _stage = Stage::start(&api, &widgets).await;
    assert_eq!(api.get("widgets", "ns", "a").unwrap()["status"], json!({"observed": 1}));
    assert_eq!(widgets.calls().len(), 3);
    // Another one writes the same status at the same time: the fields that are ours become what we say, the others
    // stay.
    api.edit("widgets", "ns", "a", |object| object["status"] = json!({"observed": 7, "theirs": true}));
    settle().await;
    assert_eq!(api.get("widgets", "ns", "a").unwrap()["status"], json!({"observed": 1, "theirs": true}));
}

#[tokio::test(start_paused = true)]
async fn a_child_edited_and_deleted_at_any_moment_is_as_wanted() {
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
async fn an_owner_deleted_in_the_middle_is_let_go() {
    for moment in 0..10 {
        let (api, widgets) = (Api::default(), Widgets::usual());
        let _stage = Stage::start(&api, &widgets).await;
        widget(&api, "a", 1);
        sleep(Duration::from_millis(moment)).await;
        let uid = api.get("widgets", "ns", "a").unwrap()["metadata"]["uid"].clone();
        api.delete("widgets", "ns", "a");
        settle().await;
        // What was on its way when the owner went belongs to it, and so goes with it by the garbage collector.
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
async fn a_name_used_again_at_any_moment_is_another_object() {
    for moment in 0..10 {
        let (api, widgets) = (Api::default(), Widgets::usual());
        let _stage = Stage::start(&api, &widgets).await;
        widget(&api, "a", 1);
        sleep(Duration::from_millis(moment)).await;
        api.delete("widgets", "ns", "a");
        widget(&api, "a", 2);
        let uid = api.get("widgets", "ns", "a").unwrap()["metadata"]["uid"].clone();
        settle().await;
        // The garbage collector takes what belonged to the first one.
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
