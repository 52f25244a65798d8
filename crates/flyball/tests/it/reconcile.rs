//! Costs and fault tolerance of a reconcile.

use crate::api::{Api, Fault};
use crate::widgets::*;
use flyball::{Action, Backoff, Controller, Error, Predicate};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::sleep;

const CHILD: &str = "PATCH /api/v1/namespaces/ns/configmaps/a";
const STATUS: &str = "PATCH /apis/example.com/v1/namespaces/ns/widgets/a/status";

#[tokio::test(start_paused = true)]
async fn new_object_costs_two_writes_and_one_reconcile() {
    let (api, widgets) = (Api::default(), Widgets::usual());
    widget(&api, "a", 3);
    let _stage = Stage::start(&api, &widgets).await;
    assert_eq!(api.writes(), [format!("{CHILD} 201"), format!("{STATUS} 200")]);
    assert_eq!(widgets.calls(), ["a"]);
    assert_eq!(size_of(&api, "a").unwrap(), "3");
    assert_eq!(api.get("widgets", "ns", "a").unwrap()["status"], json!({"observed": 3}));

    widget(&api, "a", 4);
    settle().await;
    assert_eq!(api.writes(), [format!("{CHILD} 200"), format!("{STATUS} 200")]);
    assert_eq!(widgets.calls(), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn unchanged_object_costs_no_write() {
    let (api, widgets) = (
        Api::default(),
        Widgets::new(|widget, cx| {
            Box::pin(async move {
                usual(widget, cx).await?;
                Ok(Action::requeue_after(Duration::from_secs(60)))
            })
        }),
    );
    widget(&api, "a", 3);
    let stage = Stage::start(&api, &widgets).await;
    assert_eq!((api.writes().len(), widgets.calls().len()), (2, 1));
    sleep(Duration::from_secs(600)).await;
    assert_eq!((api.writes().len(), widgets.calls().len()), (0, 10));

    stage.kill().await;
    let _stage = Stage::start(&api, &widgets).await;
    assert_eq!((api.writes().len(), widgets.calls().len()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn drift_is_repaired_at_once() {
    let (api, widgets) = (Api::default(), Widgets::usual());
    widget(&api, "a", 3);
    let _stage = Stage::start(&api, &widgets).await;
    api.writes();
    api.delete("configmaps", "ns", "a");
    settle().await;
    assert_eq!((size_of(&api, "a").unwrap().as_str(), api.writes().len()), ("3", 1));

    api.edit("configmaps", "ns", "a", |object| object["data"]["size"] = "9".into());
    settle().await;
    assert_eq!((size_of(&api, "a").unwrap().as_str(), api.writes().len()), ("3", 1));

    api.edit("configmaps", "ns", "a", |object| object["data"]["other"] = "theirs".into());
    settle().await;
    assert_eq!(api.get("configmaps", "ns", "a").unwrap()["data"]["other"], "theirs");
    assert_eq!(api.writes(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn burst_of_edits_is_coalesced() {
    let slow = Widgets::new(|widget, cx| {
        Box::pin(async move {
            sleep(Duration::from_millis(10)).await;
            usual(widget, cx).await
        })
    });
    let api = Api::default();
    widget(&api, "a", 0);
    let _stage = Stage::start(&api, &slow).await;
    slow.calls();
    for size in 1..=50 {
        widget(&api, "a", size);
        sleep(Duration::from_millis(1)).await;
    }
    settle().await;
    assert_eq!(size_of(&api, "a").unwrap(), "50");
    let calls = slow.calls().len();
    assert!((2..10).contains(&calls), "{calls}");
}

#[tokio::test(start_paused = true)]
async fn failures_are_retried_with_backoff() {
    let (api, widgets) = (Api::default(), Widgets::new(|_, _| Box::pin(async { Err("no".into()) })));
    widget(&api, "a", 1);
    let backoff = Backoff { base_delay: Duration::from_secs(1), max_delay: Duration::from_secs(8) };
    let _stage = Stage::with(&api, &widgets, |controller| controller.backoff(backoff)).await;
    let mut calls = Vec::new();
    for _ in 0..40 {
        calls.push(widgets.calls().len());
        sleep(Duration::from_secs(1)).await;
    }
    let seconds: Vec<usize> = calls.iter().enumerate().filter(|(_, calls)| **calls > 0).map(|(at, _)| at).collect();
    assert_eq!(seconds, [0, 1, 3, 7, 15, 23, 31, 39]);
}

#[tokio::test(start_paused = true)]
async fn changes_do_not_increase_the_backoff() {
    let (api, widgets) = (Api::default(), Widgets::new(|_, _| Box::pin(async { Err("no".into()) })));
    widget(&api, "a", 1);
    let backoff = Backoff { base_delay: Duration::from_secs(10), max_delay: Duration::from_secs(1000) };
    let _stage = Stage::with(&api, &widgets, |controller| controller.backoff(backoff)).await;
    for size in 2..=20 {
        widget(&api, "a", size);
        sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(widgets.calls().len(), 20);
    sleep(Duration::from_secs(11)).await;
    assert_eq!(widgets.calls().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn waiting_and_terminal_errors_are_not_retried() {
    let widgets = Widgets::new(|widget, _| {
        Box::pin(async {
            match widget.spec.size {
                1 => Err(Error::from("not yet").wait()),
                2 => Err(Error::from("never").terminal()),
                _ => Ok(Action::done()),
            }
        })
    });
    let api = Api::default();
    widget(&api, "a", 1);
    widget(&api, "b", 2);
    let _stage = Stage::start(&api, &widgets).await;
    assert_eq!(widgets.calls(), ["a", "b"]);
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(widgets.calls(), [""; 0]);
    widget(&api, "b", 3);
    settle().await;
    assert_eq!(widgets.calls(), ["b"]);
}

#[tokio::test(start_paused = true)]
async fn panic_and_hang_affect_one_object() {
    let widgets = Widgets::new(|widget, cx| {
        Box::pin(async move {
            match widget.metadata.name.as_deref() {
                Some("bad") => panic!("bad"),
                Some("slow") => std::future::pending().await,
                _ => usual(widget, cx).await,
            }
        })
    });
    let api = Api::default();
    for name in ["bad", "slow", "a", "b"] {
        widget(&api, name, 1);
    }
    let _stage = Stage::with(&api, &widgets, |controller| {
        controller.owns::<ConfigMap>().concurrency(2).deadline(Duration::from_secs(5))
    })
    .await;
    assert_eq!((size_of(&api, "a").unwrap(), size_of(&api, "b").unwrap()), ("1".into(), "1".into()));
    let calls = |name: &str, calls: &[String]| calls.iter().filter(|call| *call == name).count();
    sleep(Duration::from_secs(60)).await;
    let all = widgets.calls();
    assert!(calls("bad", &all) > 10, "{all:?}");
    assert!((10..13).contains(&calls("slow", &all)), "{all:?}");
    assert_eq!((calls("a", &all), calls("b", &all)), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn undecodable_object_does_not_affect_others() {
    let (api, widgets) = (Api::default(), Widgets::usual());
    widget(&api, "a", 1);
    api.edit("widgets", "ns", "bad", |object| object["spec"] = json!({"size": "large"}));
    let _stage = Stage::start(&api, &widgets).await;
    assert_eq!(widgets.calls(), ["a"]);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(widgets.calls(), [""; 0]);
    widget(&api, "bad", 2);
    settle().await;
    assert_eq!((widgets.calls(), size_of(&api, "bad").unwrap()), (vec!["bad".to_owned()], "2".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn reconciles_of_one_object_never_overlap_and_workers_are_limited() {
    let (now, most, same) =
        (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (counter, maximum, a) = (now.clone(), most.clone(), same.clone());
    let widgets = Widgets::new(move |widget, _| {
        let (counter, maximum, a) = (counter.clone(), maximum.clone(), a.clone());
        Box::pin(async move {
            maximum.fetch_max(counter.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            let is_a = widget.metadata.name.as_deref() == Some("w0");
            assert!(!is_a || a.fetch_add(1, Ordering::SeqCst) == 0, "two calls for one object");
            sleep(Duration::from_millis(20)).await;
            if is_a {
                a.fetch_sub(1, Ordering::SeqCst);
            }
            counter.fetch_sub(1, Ordering::SeqCst);
            Ok(Action::done())
        })
    });
    let api = Api::default();
    for i in 0..20 {
        widget(&api, &format!("w{i}"), 0);
    }
    let _stage = Stage::with(&api, &widgets, |controller| controller.concurrency(3)).await;
    for size in 1..50 {
        widget(&api, "w0", size);
        sleep(Duration::from_millis(5)).await;
    }
    settle().await;
    assert_eq!(most.load(Ordering::SeqCst), 3);
    assert!(widgets.calls().len() > 25);
}

#[tokio::test(start_paused = true)]
async fn filter_drops_updates_but_no_deletion() {
    let (api, widgets) = (Api::default(), Widgets::usual());
    widget(&api, "a", 1);
    let _stage = Stage::with(&api, &widgets, |controller| {
        controller.owns::<ConfigMap>().filter::<ConfigMap>(Predicate::labels())
    })
    .await;
    widgets.calls();
    api.edit("configmaps", "ns", "a", |object| object["data"]["size"] = "9".into());
    settle().await;
    assert_eq!(widgets.calls(), [""; 0]);
    api.edit("configmaps", "ns", "a", |object| object["metadata"]["labels"] = json!({"a": "b"}));
    settle().await;
    assert_eq!((widgets.calls().len(), size_of(&api, "a").unwrap().as_str()), (1, "1"));
    api.delete("configmaps", "ns", "a");
    settle().await;
    assert_eq!((widgets.calls().len(), size_of(&api, "a").unwrap().as_str()), (1, "1"));
}

#[tokio::test(start_paused = true)]
async fn watched_objects_trigger_the_objects_they_map_to() {
    let (api, widgets) = (Api::default(), Widgets::new(|_, _| Box::pin(async { Ok(Action::done()) })));
    for name in ["a", "b", "c"] {
        widget(&api, name, 1);
    }
    let _stage = Stage::with(&api, &widgets, |controller| {
        controller.watches::<ConfigMap>(|config, caches| {
            let widgets = caches.list::<Widget>(config.metadata.namespace.as_deref())?;
            let targets = config.data.as_ref().and_then(|data| data.get("for")).map_or("", String::as_str);
            let names = widgets.iter().filter_map(|widget| widget.metadata.name.as_deref());
            let names = names.filter(|name| targets.contains(name)).chain(["gone"]);
            Ok(names.map(|name| flyball::ObjectKey::new(Some("ns"), name)).collect())
        })
    })
    .await;
    widgets.calls();
    let set = |names: &str| api.edit("configmaps", "ns", "config", |object| object["data"] = json!({"for": names}));
    set("a b");
    settle().await;
    assert_eq!(widgets.calls(), ["a", "b"]);
    set("c");
    settle().await;
    assert_eq!(widgets.calls(), ["a", "b", "c"]);
    api.delete("configmaps", "ns", "config");
    settle().await;
    assert_eq!(widgets.calls(), ["c"]);
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_honored() {
    let (api, widgets) = (Api::default(), Widgets::usual());
    widget(&api, "a", 1);
    api.fail("PATCH /api/v1", 2, Fault::RefuseFor(429, 7));
    let _stage = Stage::start(&api, &widgets).await;
    sleep(Duration::from_secs(20)).await;
    let codes: Vec<u16> = api.seen().iter().filter(|seen| seen.is_write()).map(|seen| seen.code).collect();
    assert_eq!(codes, [429, 429, 201, 200]);
    assert_eq!(widgets.calls(), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn outage_ends_without_a_request_storm() {
    let (api, widgets) = (Api::default(), Widgets::usual());
    for i in 0..1000 {
        widget(&api, &format!("w{i:04}"), 1);
    }
    let _stage = Stage::start(&api, &widgets).await;
    sleep(Duration::from_secs(10)).await;
    assert_eq!(api.writes().len(), 2000);
    api.fail("", usize::MAX, Fault::Refuse(500));
    api.cut("widgets");
    for i in 0..1000 {
        widget(&api, &format!("w{i:04}"), 2);
    }
    sleep(Duration::from_secs(300)).await;
    api.heal();
    api.seen();
    sleep(Duration::from_secs(60)).await;
    let (requests, writes) = (api.seen(), api.names("configmaps"));
    assert!(requests.len() <= 2010, "{}", requests.len());
    assert!(writes.iter().all(|name| size_of(&api, name.split_once('/').unwrap().1).unwrap() == "2"));
}

#[tokio::test(start_paused = true)]
async fn action_determines_the_next_reconcile() {
    let widgets = Widgets::new(|widget, _| {
        Box::pin(async {
            match widget.spec.size {
                1 => Ok(Action::done()),
                2 => Ok(Action::requeue()),
                3 => Ok(Action::requeue_after(Duration::from_secs(7))),
                4 => Err("no".into()),
                _ => Err(Error::from("never").terminal()),
            }
        })
    });
    let check = async |size: i64, expected: &[u64]| {
        let api = Api::default();
        widget(&api, "a", size);
        let backoff = Backoff { base_delay: Duration::from_secs(1), max_delay: Duration::from_secs(60) };
        let stage = Stage::with(&api, &widgets, |controller| controller.backoff(backoff)).await;
        let mut times = Vec::new();
        for second in 0..20 {
            times.extend(widgets.calls().iter().map(|_| second));
            sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(times, expected, "{size}");
        stage.stop().await;
    };
    check(1, &[0]).await;
    check(2, &[0, 1, 3, 7, 15]).await;
    check(3, &[0, 7, 14]).await;
    check(4, &[0, 1, 3, 7, 15]).await;
    check(5, &[0]).await;
}

#[tokio::test(start_paused = true)]
async fn paused_object_is_not_reconciled_until_resumed() {
    let (api, widgets) = (Api::default(), Widgets::usual());
    let pause = |paused: &str| {
        api.edit("widgets", "ns", "a", |object| {
            object["metadata"]["annotations"] = json!({"flyball.dev/paused": paused});
        });
    };
    widget(&api, "a", 1);
    pause("true");
    let set_up =
        |controller: Controller<Widgets>| controller.owns::<ConfigMap>().filter(Predicate::<Widget>::generation());
    let _stage = Stage::with(&api, &widgets, set_up).await;
    widget(&api, "a", 2);
    settle().await;
    assert_eq!((widgets.calls(), api.writes()), (Vec::new(), Vec::new()));
    // Its generation is unchanged, but it may have missed changes.
    pause("false");
    settle().await;
    assert_eq!(size_of(&api, "a").as_deref(), Some("2"));
}
