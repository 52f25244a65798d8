//! Outages of the API server, and incomplete responses: how soon watches are restored, and that no existing object
//! counts as deleted.

use crate::api::{Api, Fault, Seen};
use crate::widgets::*;
use flyball::{Kind, Rng, watch};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

const GONE: &str = r#"{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}"#;

/// Returns how many of these requests list a resource.
fn lists(seen: &[Seen], resource: &str) -> usize {
    seen.iter().filter(|seen| seen.what.ends_with(resource) && !seen.query.contains("watch=true")).count()
}

/// Makes the server unavailable for this time; meanwhile one widget changes, and the history is compacted.
async fn outage(api: &Api, away: Duration, fault: Fault) {
    api.fail("", usize::MAX, fault);
    for resource in ["widgets", "configmaps"] {
        api.cut(resource);
    }
    sleep(away).await;
    widget(api, "w7", 2);
    api.compact();
}

/// Checks how soon watches are restored after an outage of this kind.
async fn check_return(fault: Fault) {
    for away in [1, 7, 45, 600].map(Duration::from_secs) {
        let (api, widgets) = (Api::default(), Widgets::usual());
        (0..50).for_each(|i| widget(&api, &format!("w{i}"), 1));
        let _stage = Stage::start(&api, &widgets).await;
        sleep(Duration::from_secs(60)).await;
        api.seen();
        outage(&api, away, fault.clone()).await;
        let probes = api.seen().len() as u64;
        assert!(probes <= 10 + away.as_secs() / 3, "{probes} requests in {away:?}: one watch looks for the server");
        api.heal();
        let back = Instant::now();
        while api.watches("widgets") + api.watches("configmaps") < 2 {
            sleep(Duration::from_millis(10)).await;
            assert!(back.elapsed() < Duration::from_secs(5), "not live again after {away:?} of {fault:?}");
        }
        settle().await;
        let seen = api.seen();
        assert_eq!((lists(&seen, "/widgets"), lists(&seen, "/configmaps")), (1, 1), "after {away:?} of {fault:?}");
        assert_eq!(seen.iter().filter(|seen| seen.is_write()).count(), 2, "a child and a status");
        assert_eq!(size_of(&api, "w7").as_deref(), Some("2"));
    }
}

#[tokio::test(start_paused = true)]
async fn watches_recover_within_seconds_after_an_outage() {
    check_return(Fault::LoseAnswer).await;
}

#[tokio::test(start_paused = true)]
async fn watches_recover_within_seconds_after_a_hang() {
    check_return(Fault::Hang).await;
}

#[tokio::test(start_paused = true)]
async fn watches_recover_within_seconds_behind_a_load_balancer() {
    check_return(Fault::Refuse(502)).await;
    check_return(Fault::Refuse(503)).await;
}

#[tokio::test(start_paused = true)]
async fn watches_recover_within_seconds_after_startup_errors() {
    for (code, away) in [403, 429, 500].into_iter().flat_map(|code| [1, 45, 600].map(|away| (code, away))) {
        let away = Duration::from_secs(away);
        let (api, widgets) = (Api::default(), Widgets::usual());
        (0..50).for_each(|i| widget(&api, &format!("w{i}"), 1));
        let _stage = Stage::start(&api, &widgets).await;
        sleep(Duration::from_secs(60)).await;
        outage(&api, away, Fault::LoseAnswer).await;
        api.heal();
        api.fail("", usize::MAX, Fault::Refuse(code));
        api.seen();
        sleep(Duration::from_secs(20)).await;
        let attempts = api.seen().iter().filter(|seen| seen.query.contains("watch=true")).count();
        assert!((4..=30).contains(&attempts), "{attempts} attempts of two watches after {away:?} of {code}");
        api.heal();
        let back = Instant::now();
        while api.watches("widgets") + api.watches("configmaps") < 2 {
            sleep(Duration::from_millis(10)).await;
            assert!(back.elapsed() < Duration::from_secs(5), "not live again after {away:?} and 20 s of {code}");
        }
        settle().await;
        assert_eq!(size_of(&api, "w7").as_deref(), Some("2"));
    }
}

#[tokio::test(start_paused = true)]
async fn trickling_list_is_aborted() {
    let (api, widgets) = (Api::default(), Widgets::usual());
    widget(&api, "a", 1);
    api.fail("/widgets?", 1, Fault::Trickle);
    let _stage = Stage::start(&api, &widgets).await;
    sleep(Duration::from_secs(32)).await;
    assert_eq!(widgets.calls(), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn empty_lines_do_not_keep_a_watch_alive() {
    let (api, widgets) = (Api::default(), Widgets::usual());
    widget(&api, "w7", 1);
    let _stage = Stage::start(&api, &widgets).await;
    for _ in 0..3 {
        sleep(Duration::from_secs(60)).await;
        ["widgets", "configmaps"].iter().for_each(|resource| api.bookmark(resource));
    }
    ["widgets", "configmaps"].iter().for_each(|resource| api.cut(resource));
    sleep(Duration::from_secs(5)).await;
    api.seen();
    for _ in 0..4 {
        sleep(Duration::from_secs(29)).await;
        api.send("widgets", "");
        api.bookmark("configmaps");
    }
    let seen = api.seen();
    let requests = |end: &str| seen.iter().filter(|seen| seen.what.ends_with(end)).count();
    assert_eq!((requests("/widgets"), requests("/configmaps")), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn silent_connection_is_probed_and_recovers_with_the_server() {
    // A proxy keeps the connections of watches open during an outage; it responds to other requests with an error, or
    // not at all.
    for (away, fault) in [(40, Fault::Refuse(502)), (40, Fault::Hang), (600, Fault::Hang)] {
        let away = Duration::from_secs(away);
        let (api, widgets) = (Api::default(), Widgets::usual());
        widget(&api, "w7", 1);
        let _stage = Stage::start(&api, &widgets).await;
        sleep(Duration::from_secs(60)).await;
        for resource in ["widgets", "configmaps"] {
            api.bookmark(resource);
            api.silence(resource);
        }
        api.fail("", usize::MAX, fault.clone());
        widget(&api, "w7", 2);
        api.seen();
        sleep(Duration::from_secs(32)).await;
        if matches!(fault, Fault::Refuse(_)) {
            assert!((1..=3).contains(&api.seen().len()), "the server is probed");
        }
        sleep(away - Duration::from_secs(32)).await;
        api.heal();
        sleep(Duration::from_secs(6)).await;
        assert_eq!((api.watches("widgets"), api.watches("configmaps")), (1, 1), "{away:?} of {fault:?}");
        settle().await;
        assert_eq!(size_of(&api, "w7").as_deref(), Some("2"));
    }
}

#[tokio::test(start_paused = true)]
async fn watch_with_overdue_bookmark_is_resumed() {
    let (api, widgets) = (Api::default(), Widgets::usual());
    widget(&api, "w7", 1);
    let _stage = Stage::start(&api, &widgets).await;
    for _ in 0..3 {
        sleep(Duration::from_secs(60)).await;
        ["widgets", "configmaps"].iter().for_each(|resource| api.bookmark(resource));
    }
    // The watch after the first bookmark shows that the server sends bookmarks.
    ["widgets", "configmaps"].iter().for_each(|resource| api.cut(resource));
    sleep(Duration::from_secs(5)).await;
    api.silence("widgets");
    widget(&api, "w7", 2);
    for _ in 0..2 {
        sleep(Duration::from_secs(46)).await;
        api.bookmark("configmaps");
    }
    assert_eq!(size_of(&api, "w7").as_deref(), Some("2"));
}

#[tokio::test(start_paused = true)]
async fn quiet_watches_of_a_live_server_are_kept() {
    let (api, widgets) = (Api::default(), Widgets::usual());
    widget(&api, "a", 1);
    let _stage = Stage::start(&api, &widgets).await;
    sleep(Duration::from_secs(30)).await;
    api.seen();
    for _ in 0..4 {
        sleep(Duration::from_secs(60)).await;
        ["widgets", "configmaps"].iter().for_each(|resource| api.bookmark(resource));
    }
    let seen = api.seen();
    let probes = seen.iter().filter(|seen| seen.what.ends_with("/livez")).count();
    assert!(probes == seen.len() && (8..=13).contains(&probes), "{probes} probes of {} requests", seen.len());
}

#[tokio::test(start_paused = true)]
async fn kind_of_an_unavailable_server_backs_off_without_affecting_others() {
    let (api, widgets) = (Api::default(), Widgets::usual());
    widget(&api, "a", 1);
    let _stage = Stage::start(&api, &widgets).await;
    sleep(Duration::from_secs(60)).await;
    api.seen();
    api.fail("/configmaps?watch", usize::MAX, Fault::Refuse(503));
    api.cut("configmaps");
    sleep(Duration::from_secs(600)).await;
    let seen = api.seen();
    let count = |end: &str| seen.iter().filter(|seen| seen.what.ends_with(end)).count();
    assert!((20..=50).contains(&count("/configmaps")), "{} attempts", count("/configmaps"));
    // The other watches are quiet, so the server is probed as well.
    assert!(count("/livez") <= count("/configmaps") + 600 / 20, "{} probes", count("/livez"));
    assert_eq!((api.watches("widgets"), api.watches("configmaps")), (1, 0));
    api.heal();
    sleep(Duration::from_secs(31)).await;
    assert_eq!(api.watches("configmaps"), 1);
}

#[tokio::test(start_paused = true)]
async fn list_without_response_falls_back_if_the_server_is_live() {
    let (api, widgets) = (Api::default(), Widgets::usual());
    widget(&api, "a", 1);
    api.fail("/widgets?", 1, Fault::Hang);
    let _stage = Stage::start(&api, &widgets).await;
    sleep(Duration::from_secs(29)).await;
    let of_widgets = |seen: &[Seen]| -> Vec<String> {
        let seen = seen.iter().filter(|seen| seen.what.ends_with("/widgets"));
        seen.map(|seen| seen.query.clone()).collect()
    };
    let seen = api.seen();
    assert_eq!((of_widgets(&seen), widgets.calls().len()), (Vec::new(), 0), "a list may take long");
    let probes = seen.iter().filter(|seen| seen.what.ends_with("/livez")).count();
    assert!((1..=2).contains(&probes), "{probes} probes: for the list, and for a quiet server");
    sleep(Duration::from_secs(3)).await;
    let requests = of_widgets(&api.seen());
    assert!(requests.len() == 1 && requests[0].contains("sendInitialEvents=true"), "by other means: {requests:?}");
    assert_eq!(widgets.calls(), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn constant_compaction_relists_at_most_ten_times_a_minute() {
    let (api, widgets) = (Api::default(), Widgets::usual());
    widget(&api, "a", 1);
    let _stage = Stage::start(&api, &widgets).await;
    sleep(Duration::from_secs(60)).await;
    api.seen();
    for minute in 0..3 {
        for n in 0..600 {
            widget(&api, "a", 2 + n);
            api.compact();
            api.send("widgets", GONE);
            sleep(Duration::from_millis(100)).await;
        }
        let lists = lists(&api.seen(), "/widgets");
        assert!((1..=10).contains(&lists), "{lists} lists in minute {minute}");
    }
    sleep(Duration::from_secs(60)).await;
    assert_eq!((api.watches("widgets"), size_of(&api, "a").as_deref()), (1, Some("601")));
}

/// Watches widgets; returns the names of those reported as deleted.
fn deleted(api: &Api) -> (Arc<Mutex<Vec<String>>>, JoinHandle<()>) {
    let deleted: Arc<Mutex<Vec<String>>> = Arc::default();
    let (log, client) = (deleted.clone(), api.client());
    let kind = Kind::new("example.com", "v1", "Widget");
    let record = move |seen| {
        if let flyball::WatchEvent::Deleted { key, .. } = seen {
            log.lock().unwrap().push(key.name().to_owned());
        }
    };
    (deleted, tokio::spawn(async move { watch(client, &kind, &Rng::from_seed(1), record).await }))
}

#[tokio::test(start_paused = true)]
async fn short_list_deletes_nothing_until_confirmed() {
    let api = Api::default();
    (0..100).for_each(|i| widget(&api, &format!("w{i}"), 1));
    let (deleted, following) = deleted(&api);
    sleep(Duration::from_secs(60)).await;
    api.seen();
    for short in [
        r#"{"metadata":{"resourceVersion":"100"},"items":[]}"#,
        r#"{"metadata":{"resourceVersion":"100"},"items":null}"#,
    ] {
        api.fail("/widgets?", 1, Fault::Answer(short));
        api.send("widgets", GONE);
        sleep(Duration::from_secs(40)).await;
        assert_eq!(*deleted.lock().unwrap(), [""; 0]);
        assert_eq!((lists(&api.seen(), "/widgets"), api.watches("widgets")), (2, 1));
    }
    // Most of them are deleted during an interruption.
    api.hold("widgets");
    (0..80).for_each(|i| api.delete("widgets", "ns", &format!("w{i}")));
    api.compact();
    api.send("widgets", GONE);
    sleep(Duration::from_secs(40)).await;
    assert_eq!((deleted.lock().unwrap().len(), lists(&api.seen(), "/widgets")), (80, 2));
    following.abort();
}
