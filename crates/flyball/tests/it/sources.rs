//! Triggers of a controller besides changes.

use crate::api::Api;
use crate::widgets::*;
use flyball::{Action, Caches, Channel, ObjectChange, ObjectKey, Source};
use k8s_openapi::api::core::v1::Secret;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::{Instant, sleep};

fn key(name: &str) -> ObjectKey {
    ObjectKey::new(Some("ns"), name)
}

/// Starts an operator on widgets `a` and `b` that a source triggers.
async fn stage(api: &Api, source: impl Into<Source<Widget>>) -> Stage {
    widget(api, "a", 1);
    widget(api, "b", 1);
    let stage = Stage::with(api, &Widgets::usual(), |controller| {
        controller.owns::<k8s_openapi::api::core::v1::ConfigMap>().source(source)
    })
    .await;
    assert_eq!(stage.widgets.calls(), ["a", "b"]);
    stage
}

#[tokio::test(start_paused = true)]
async fn channel_triggers_existing_objects() {
    let (api, channel) = (Api::default(), Channel::new());
    // Triggers before the start are covered by the first reconciles.
    channel.wake(&key("a"));
    let stage = stage(&api, &channel).await;
    for name in ["b", "b", "nobody"] {
        channel.wake(&key(name));
    }
    settle().await;
    assert_eq!(stage.widgets.calls(), ["b"]);
    let widgets = stage.widgets.clone();
    stage.stop().await;
    channel.wake(&key("a"));
    settle().await;
    assert_eq!(widgets.calls().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn timer_triggers_selected_objects_with_jitter() {
    let (api, times) = (Api::default(), Arc::new(Mutex::new(Vec::new())));
    let (began, noted) = (Instant::now(), times.clone());
    let timer = Source::timer(Duration::from_secs(100), move |caches| {
        noted.lock().unwrap().push(began.elapsed());
        let keys = caches.keys::<Widget>(Some("ns"))?;
        Ok(keys.into_iter().filter(|key| key.name() == "b").collect())
    });
    let stage = stage(&api, timer).await;
    sleep(Duration::from_secs(1000)).await;
    let calls = stage.widgets.calls();
    assert!((9..=11).contains(&calls.len()) && calls.iter().all(|name| name == "b"), "{calls:?}");
    let times = times.lock().unwrap();
    let periods: Vec<Duration> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(periods.iter().all(|period| (90..=110).contains(&period.as_secs())), "{periods:?}");
    assert!(periods.windows(2).any(|pair| pair[0] != pair[1]), "{periods:?}");
    assert!(
        api.writes().iter().filter(|write| write.contains("PATCH")).count() <= 4,
        "reconciles without changes write nothing"
    );
}

#[tokio::test(start_paused = true)]
async fn changed_poll_result_triggers_its_object() {
    let (api, world, polled) =
        (Api::default(), Arc::new(Mutex::new(BTreeMap::new())), Arc::new(Mutex::new(Vec::new())));
    let (theirs, noted) = (world.clone(), polled.clone());
    let poll = Source::poll(Duration::from_secs(10), move |keys: Vec<ObjectKey>| {
        noted.lock().unwrap().push(keys.iter().map(|key| key.name().to_owned()).collect::<Vec<_>>().join(" "));
        let answers: BTreeMap<ObjectKey, i32> = theirs.lock().unwrap().clone();
        async move {
            match answers.values().copied().max() {
                Some(500) => Err("out of order".into()),
                Some(501) => panic!("out of order"),
                Some(502) => std::future::pending().await,
                _ => Ok(answers),
            }
        }
    });
    let stage = stage(&api, poll).await;
    let say = |name: &str, answer: i32| {
        world.lock().unwrap().insert(key(name), answer);
    };
    let woken = async || {
        sleep(Duration::from_secs(12)).await;
        stage.widgets.calls()
    };
    say("b", 1);
    say("nobody", 1);
    assert_eq!(woken().await, ["b"]);
    assert_eq!(woken().await, [""; 0]);
    say("b", 2);
    say("a", 1);
    let mut both = woken().await;
    both.sort();
    assert_eq!(both, ["a", "b"]);
    world.lock().unwrap().remove(&key("a"));
    assert_eq!(woken().await, ["a"]);
    // Failures trigger nothing, and are retried.
    for wrong in [500, 501, 502] {
        say("b", wrong);
        assert_eq!(woken().await, [""; 0], "{wrong}");
    }
    say("b", 3);
    sleep(Duration::from_secs(320)).await;
    assert_eq!(stage.widgets.calls(), ["b"]);
    assert!(polled.lock().unwrap().iter().all(|keys| keys == "a b"));
    stage.stop().await;
    polled.lock().unwrap().clear();
    sleep(Duration::from_secs(100)).await;
    assert!(polled.lock().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn channel_triggers_several_controllers() {
    let (api, channel, second) =
        (Api::default(), Channel::new(), Widgets::new(|_, _| Box::pin(async { Ok(Action::done()) })));
    widget(&api, "a", 1);
    let widgets = second.clone();
    let controller = |name: &str| flyball::Controller::new(widgets.clone()).name(name).source(&channel);
    let _stage = Stage::operator(&api, &second, operator().controller(controller("x")).controller(controller("y")));
    settle().await;
    second.calls();
    channel.wake(&key("a"));
    settle().await;
    assert_eq!(second.calls(), ["a", "a"]);
}

#[tokio::test(start_paused = true)]
async fn mapping_may_depend_on_the_type_of_change() {
    let api = Api::default();
    ["created", "updated", "deleted"].iter().for_each(|name| widget(&api, name, 1));
    let widgets = Widgets::new(|_, _| Box::pin(async { Ok(Action::done()) }));
    let size = |secret: &Secret| secret.type_.clone().unwrap_or_default();
    let map = move |change: ObjectChange<'_, Secret>, _: &Caches| {
        let target = match change {
            ObjectChange::Created(_) => "created".to_owned(),
            // Without a relevant change, there is no object with that name to trigger.
            ObjectChange::Updated { old, new } => if size(old) == size(new) { "same" } else { "updated" }.to_owned(),
            ObjectChange::Deleted(last) => if size(last) == "2" { "deleted" } else { "unknown" }.to_owned(),
        };
        Ok(vec![ObjectKey::new(Some("ns"), &target)])
    };
    let stage = Stage::with(&api, &widgets, |controller| controller.watches_changes::<Secret>(map)).await;
    widgets.calls();
    let edit = |field: &str, value: &str| api.edit("secrets", "ns", "x", |secret| secret[field] = value.into());
    let woken = async || {
        settle().await;
        stage.widgets.calls()
    };
    edit("type", "1");
    assert_eq!(woken().await, ["created"]);
    edit("type", "2");
    assert_eq!(woken().await, ["updated"]);
    edit("else", "1");
    assert_eq!(woken().await, [""; 0]);
    api.delete("secrets", "ns", "x");
    assert_eq!(woken().await, ["deleted"]);
}

#[tokio::test(start_paused = true)]
async fn mapping_by_key_needs_no_decoding() {
    let api = Api::default();
    widget(&api, "x", 1);
    let widgets = Widgets::new(|_, _| Box::pin(async { Ok(Action::done()) }));
    let same_name = |secret: &ObjectKey, _: &Caches| Ok(vec![secret.clone()]);
    let stage = Stage::with(&api, &widgets, |controller| controller.watches_by_key::<Secret>(same_name)).await;
    widgets.calls();
    let woken = async || {
        settle().await;
        stage.widgets.calls()
    };
    // The object does not decode.
    api.edit("secrets", "ns", "x", |secret| secret["type"] = 7.into());
    assert_eq!(woken().await, ["x"]);
    api.edit("secrets", "ns", "y", |secret| secret["type"] = "1".into());
    assert_eq!(woken().await, [""; 0]);
    api.delete("secrets", "ns", "x");
    assert_eq!(woken().await, ["x"]);
}

#[tokio::test(start_paused = true)]
async fn failed_mapping_triggers_all_objects_at_most_once_per_minute() {
    let api = Api::default();
    ["a", "b"].iter().for_each(|name| widget(&api, name, 1));
    let widgets = Widgets::new(|_, _| Box::pin(async { Ok(Action::done()) }));
    let fails = |secret: &Secret, _: &Caches| match secret.type_.as_deref() {
        Some("panic") => panic!("no such type"),
        _ => Err("who is it about?".into()),
    };
    let stage = Stage::with(&api, &widgets, |controller| controller.watches::<Secret>(fails)).await;
    widgets.calls();
    let edit = |field: &str, value: &str| api.edit("secrets", "ns", "x", |secret| secret[field] = value.into());
    let woken = async |seconds| {
        sleep(Duration::from_secs(seconds)).await;
        stage.widgets.calls()
    };
    edit("type", "1");
    assert_eq!(woken(1).await, ["a", "b"]);
    for n in 0..100 {
        edit("else", &n.to_string());
    }
    assert_eq!(woken(50).await, [""; 0], "once per minute for all of them");
    assert_eq!(woken(20).await, ["a", "b"]);
    assert_eq!(woken(600).await, [""; 0]);
    edit("type", "panic");
    assert_eq!(woken(1).await, ["a", "b"]);
    // An object that does not decode cannot be mapped either.
    sleep(Duration::from_secs(200)).await;
    stage.widgets.calls();
    api.edit("secrets", "ns", "y", |secret| secret["type"] = 7.into());
    assert_eq!(woken(1).await, ["a", "b"]);
}
