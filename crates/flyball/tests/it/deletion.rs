//! Finalizers, and objects that are being deleted.

use crate::api::{Api, Fault};
use crate::widgets::*;
use flyball::{Action, Context, Controller, Reconcile, Result};
use kube::ResourceExt;
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::sleep;

const FINALIZER: &str = "example.com/machine";

/// Keeps a machine for each widget, outside of the cluster.
#[derive(Clone, Default)]
struct Machines {
    running: Arc<Mutex<BTreeSet<String>>>,
    broken: Arc<Mutex<bool>>,
    log: Arc<Mutex<Vec<String>>>,
}

impl Reconcile for Machines {
    type Resource = Widget;
    const FINALIZER: Option<&'static str> = Some(FINALIZER);

    async fn reconcile(&self, widget: &Widget, _: &Context<Widget>) -> Result<Action> {
        assert!(widget.finalizers().contains(&FINALIZER.to_owned()), "no effect without a finalizer");
        assert!(widget.metadata.deletion_timestamp.is_none());
        sleep(Duration::from_millis(5)).await;
        self.running.lock().unwrap().insert(widget.name_any());
        self.log.lock().unwrap().push(format!("made {}", widget.name_any()));
        Ok(Action::done())
    }

    async fn finalize(&self, widget: &Widget, _: &Context<Widget>) -> Result<Action> {
        assert!(widget.metadata.deletion_timestamp.is_some());
        sleep(Duration::from_millis(5)).await;
        if *self.broken.lock().unwrap() {
            return Err("the machine does not answer".into());
        }
        self.running.lock().unwrap().remove(&widget.name_any());
        self.log.lock().unwrap().push(format!("removed {}", widget.name_any()));
        Ok(Action::done())
    }
}

impl Machines {
    fn log(&self) -> Vec<String> {
        std::mem::take(&mut *self.log.lock().unwrap())
    }

    fn start(&self, api: &Api) -> Stage {
        Stage::operator(api, &Widgets::usual(), operator().controller(Controller::new(self.clone())))
    }
}

#[tokio::test(start_paused = true)]
async fn finalizer_is_added_first_and_removed_last() {
    let (api, machines) = (Api::default(), Machines::default());
    widget(&api, "a", 1);
    let _stage = machines.start(&api);
    settle().await;
    assert_eq!(machines.log(), ["made a"]);
    let patch = "PATCH /apis/example.com/v1/namespaces/ns/widgets/a 200";
    assert_eq!(api.writes(), [patch]);

    api.delete("widgets", "ns", "a");
    settle().await;
    assert_eq!(machines.log(), ["removed a"]);
    assert_eq!(api.writes(), [patch]);
    assert_eq!(api.names("widgets"), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn foreign_finalizers_are_kept() {
    let (api, machines) = (Api::default(), Machines::default());
    widget(&api, "a", 1);
    api.edit("widgets", "ns", "a", |object| object["metadata"]["finalizers"] = json!(["x/first"]));
    let _stage = machines.start(&api);
    settle().await;
    let finalizers = || api.get("widgets", "ns", "a").unwrap()["metadata"]["finalizers"].clone();
    assert_eq!(finalizers(), json!(["x/first", FINALIZER]));
    api.edit("widgets", "ns", "a", |object| {
        object["metadata"]["finalizers"] = json!([FINALIZER, "x/second", "x/first"]);
    });
    api.delete("widgets", "ns", "a");
    settle().await;
    assert_eq!(finalizers(), json!(["x/second", "x/first"]));
    api.writes();
    // The children are the garbage collector's responsibility.
    api.edit("widgets", "ns", "a", |object| object["metadata"]["labels"] = json!({"a": "b"}));
    settle().await;
    assert_eq!(api.writes(), [""; 0]);
    machines.log();
    sleep(Duration::from_secs(60)).await;
    assert_eq!(machines.log(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn concurrently_added_finalizer_is_kept() {
    let (api, machines) = (Api::default(), Machines::default());
    widget(&api, "a", 1);
    api.hold("widgets");
    let _stage = machines.start(&api);
    sleep(Duration::from_millis(2)).await;
    api.edit("widgets", "ns", "a", |object| object["metadata"]["finalizers"] = json!(["x/theirs"]));
    settle().await;
    api.release("widgets");
    settle().await;
    let finalizers = api.get("widgets", "ns", "a").unwrap()["metadata"]["finalizers"].clone();
    assert_eq!(finalizers, json!(["x/theirs", FINALIZER]));
}

#[tokio::test(start_paused = true)]
async fn cleanup_is_repeated_until_it_succeeds() {
    let (api, machines) = (Api::default(), Machines::default());
    widget(&api, "a", 1);
    let _stage = machines.start(&api);
    settle().await;
    *machines.broken.lock().unwrap() = true;
    api.delete("widgets", "ns", "a");
    sleep(Duration::from_secs(100)).await;
    assert_eq!(api.names("widgets"), ["ns/a"]);
    *machines.broken.lock().unwrap() = false;
    sleep(Duration::from_secs(200)).await;
    assert_eq!((api.names("widgets").len(), machines.running.lock().unwrap().len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn failed_cleanup_is_reported_in_condition_and_event() {
    let (api, machines) = (Api::default(), Machines::default());
    widget(&api, "a", 1);
    api.edit("widgets", "ns", "a", |object| object["metadata"]["finalizers"] = json!(["x/theirs"]));
    let _stage = machines.start(&api);
    settle().await;
    *machines.broken.lock().unwrap() = true;
    api.writes();
    api.delete("widgets", "ns", "a");
    sleep(Duration::from_secs(100)).await;
    let condition = || api.get("widgets", "ns", "a").unwrap()["status"]["conditions"][0].clone();
    assert_eq!(condition()["type"], "CleanedUp");
    assert_eq!((&condition()["status"], &condition()["reason"]), (&json!("False"), &json!("CleanupFailed")));
    assert_eq!(condition()["message"], "the machine does not answer");
    let writes = api.writes().iter().filter(|write| write.contains("/widgets/a/status")).count();
    assert_eq!(writes, 1, "the same failure is reported once");
    let event = api.names("events").iter().find_map(|key| api.get("events", "ns", key.split_once('/')?.1)).unwrap();
    assert_eq!((&event["reason"], &event["note"]), (&json!("CleanupFailed"), &json!("the machine does not answer")));
    assert_eq!((&event["type"], &event["regarding"]["name"]), (&json!("Warning"), &json!("a")));

    *machines.broken.lock().unwrap() = false;
    sleep(Duration::from_secs(200)).await;
    assert_eq!(api.get("widgets", "ns", "a").unwrap()["metadata"]["finalizers"], json!(["x/theirs"]));
    assert_eq!((&condition()["status"], &condition()["message"]), (&json!("True"), &json!("")));
}

#[tokio::test(start_paused = true)]
async fn kind_without_conditions_is_cleaned_up() {
    let (api, machines) = (Api::default(), Machines::default());
    widget(&api, "a", 1);
    let _stage = machines.start(&api);
    settle().await;
    *machines.broken.lock().unwrap() = true;
    api.fail("widgets/a/status", usize::MAX, Fault::Refuse(422));
    api.delete("widgets", "ns", "a");
    sleep(Duration::from_secs(10)).await;
    *machines.broken.lock().unwrap() = false;
    sleep(Duration::from_secs(30)).await;
    assert_eq!(api.names("widgets"), [""; 0]);
}

/// An external provider that creates one machine per key, and an operator that uses it.
#[derive(Clone, Default)]
struct Provider {
    machines: Arc<Mutex<BTreeSet<String>>>,
    calls: Arc<Mutex<usize>>,
}

impl Reconcile for Provider {
    type Resource = Widget;
    const FINALIZER: Option<&'static str> = Some(FINALIZER);

    async fn reconcile(&self, _: &Widget, cx: &Context<Widget>) -> Result<Action> {
        let key = cx.idempotency_key("create").await?;
        assert_eq!(key, cx.idempotency_key("create").await?);
        // The machine exists long before the response.
        self.machines.lock().unwrap().insert(key);
        *self.calls.lock().unwrap() += 1;
        sleep(Duration::from_millis(10)).await;
        Ok(Action::done())
    }

    async fn finalize(&self, _: &Widget, cx: &Context<Widget>) -> Result<Action> {
        if let Some(key) = cx.known_idempotency_key("create").await? {
            self.machines.lock().unwrap().remove(&key);
        }
        Ok(Action::done())
    }
}

#[tokio::test(start_paused = true)]
async fn crash_between_call_and_response_creates_no_second_machine() {
    let mut repeated = 0;
    for moment in 0..30 {
        let (api, provider) = (Api::default(), Provider::default());
        widget(&api, "a", 1);
        let start = |seed| {
            let operator = operator().rng(flyball::Rng::from_seed(seed)).controller(Controller::new(provider.clone()));
            Stage::operator(&api, &Widgets::usual(), operator)
        };
        // The first response to the write of the key is lost in some runs.
        if moment % 3 == 0 {
            api.fail("PATCH", 2, Fault::LoseAnswer);
        }
        let stage = start(1);
        sleep(Duration::from_millis(moment)).await;
        stage.kill().await;
        let _stage = start(2);
        settle().await;
        assert_eq!(provider.machines.lock().unwrap().len(), 1, "killed at {moment} ms");
        repeated += usize::from(*provider.calls.lock().unwrap() > 1);
        api.delete("widgets", "ns", "a");
        settle().await;
        assert_eq!((provider.machines.lock().unwrap().len(), api.names("widgets").len()), (0, 0));
    }
    assert!(repeated > 5, "some were killed during the call of the provider: {repeated}");
}

#[tokio::test(start_paused = true)]
async fn idempotency_key_is_read_live_and_can_be_released() {
    let keys: Arc<Mutex<Vec<String>>> = Arc::default();
    #[derive(Clone)]
    struct Keys(Arc<Mutex<Vec<String>>>);
    impl Reconcile for Keys {
        type Resource = Widget;
        const FINALIZER: Option<&'static str> = Some(FINALIZER);
        async fn reconcile(&self, widget: &Widget, cx: &Context<Widget>) -> Result<Action> {
            if widget.spec.size == 3 {
                cx.forget_idempotency_key("create").await?;
            }
            let key = cx.idempotency_key("create").await?;
            self.0.lock().unwrap().push(key);
            assert!(cx.idempotency_key("no name").await.unwrap_err().to_string().contains("invalid name"));
            Ok(Action::done())
        }
    }
    let api = Api::default();
    let _stage = Stage::operator(&api, &Widgets::usual(), operator().controller(Controller::new(Keys(keys.clone()))));
    settle().await;
    widget(&api, "a", 1);
    // Another replica has stored a key that this cache has not observed.
    api.hold("widgets");
    api.send("widgets", &json!({"type": "ADDED", "object": api.get("widgets", "ns", "a").unwrap()}).to_string());
    api.edit("widgets", "ns", "a", |object| {
        object["metadata"]["annotations"] = json!({"key.flyball.dev/create": "theirs"})
    });
    settle().await;
    api.release("widgets");
    for size in 2..=3 {
        widget(&api, "a", size);
        settle().await;
    }
    let keys = std::mem::take(&mut *keys.lock().unwrap());
    assert!(keys.len() >= 3 && keys[0] == "theirs" && keys[1] == "theirs", "{keys:?}");
    assert_ne!(keys.last().unwrap(), "theirs");
}

#[tokio::test(start_paused = true)]
async fn newer_idempotency_key_is_not_forgotten() {
    struct Forgetful;
    impl Reconcile for Forgetful {
        type Resource = Widget;
        const FINALIZER: Option<&'static str> = Some(FINALIZER);
        async fn reconcile(&self, widget: &Widget, cx: &Context<Widget>) -> Result<Action> {
            if widget.spec.size == 2 {
                cx.forget_idempotency_key("create").await?;
            }
            Ok(Action::done())
        }
    }
    let api = Api::default();
    let _stage = Stage::operator(&api, &Widgets::usual(), operator().controller(Controller::new(Forgetful)));
    settle().await;
    widget(&api, "a", 1);
    let set_key = |key: &'static str| {
        api.edit("widgets", "ns", "a", |object| {
            object["metadata"]["annotations"] = json!({"key.flyball.dev/create": key});
        });
    };
    let key = || api.get("widgets", "ns", "a").unwrap()["metadata"]["annotations"]["key.flyball.dev/create"].clone();
    set_key("first");
    settle().await;
    // Another replica has replaced the key, which this cache has not observed.
    api.hold("widgets");
    widget(&api, "a", 2);
    api.send("widgets", &json!({"type": "MODIFIED", "object": api.get("widgets", "ns", "a").unwrap()}).to_string());
    set_key("second");
    settle().await;
    assert_eq!(key(), "second");
    api.release("widgets");
    settle().await;
    assert_eq!(key(), serde_json::Value::Null, "it is forgotten once it is observed");
}

#[tokio::test(start_paused = true)]
async fn idempotency_key_requires_a_finalizer() {
    let widgets = Widgets::new(|_, cx| Box::pin(async { cx.idempotency_key("create").await.map(|_| Action::done()) }));
    let api = Api::default();
    widget(&api, "a", 1);
    let _stage = Stage::start(&api, &widgets).await;
    assert!(widgets.errors()[0].contains("declare one"));
}

#[tokio::test(start_paused = true)]
async fn existence_is_confirmed_by_the_api_server() {
    let answers: Arc<Mutex<Vec<bool>>> = Arc::default();
    let widgets = Widgets::new({
        let answers = answers.clone();
        move |_, cx| {
            let answers = answers.clone();
            Box::pin(async move {
                let exists = cx.confirm_exists().await?;
                answers.lock().unwrap().push(exists);
                Ok(Action::requeue_after(Duration::from_secs(60)))
            })
        }
    });
    let api = Api::default();
    widget(&api, "a", 1);
    let _stage = Stage::start(&api, &widgets).await;
    let last = || answers.lock().unwrap().last().copied();
    assert_eq!(last(), Some(true));
    // The cache shows the first object until the end.
    api.hold("widgets");
    api.edit("widgets", "ns", "a", |object| object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into());
    sleep(Duration::from_secs(61)).await;
    assert_eq!(last(), Some(false), "it is being deleted");
    api.delete("widgets", "ns", "a");
    widget(&api, "a", 1);
    sleep(Duration::from_secs(61)).await;
    assert_eq!((last(), answers.lock().unwrap().len()), (Some(false), 3), "it is another object");
}

#[tokio::test(start_paused = true)]
async fn object_deleted_at_any_moment_leaks_nothing() {
    for moment in 0..30 {
        let (api, machines) = (Api::default(), Machines::default());
        widget(&api, "a", 1);
        let _stage = machines.start(&api);
        sleep(Duration::from_millis(moment)).await;
        api.delete("widgets", "ns", "a");
        sleep(Duration::from_secs(10)).await;
        assert_eq!((api.names("widgets").len(), machines.running.lock().unwrap().len()), (0, 0), "at {moment} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn operator_killed_at_any_moment_leaks_nothing() {
    for moment in 0..40 {
        let (api, machines) = (Api::default(), Machines::default());
        widget(&api, "a", 1);
        let stage = machines.start(&api);
        sleep(Duration::from_millis(moment)).await;
        if moment > 15 {
            api.delete("widgets", "ns", "a");
            sleep(Duration::from_millis(moment - 15)).await;
        }
        stage.kill().await;
        let _stage = machines.start(&api);
        settle().await;
        api.delete("widgets", "ns", "a");
        settle().await;
        assert_eq!((api.names("widgets").len(), machines.running.lock().unwrap().len()), (0, 0), "at {moment} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn stale_cache_triggers_no_cleanup() {
    let (api, machines) = (Api::default(), Machines::default());
    widget(&api, "a", 1);
    let _stage = machines.start(&api);
    settle().await;
    machines.log();
    // The cache observes the deletion late, when the name already belongs to another object.
    api.hold("widgets");
    api.delete("widgets", "ns", "a");
    let going = api.get("widgets", "ns", "a").unwrap();
    api.edit("widgets", "ns", "a", |object| object["metadata"]["finalizers"] = json!([]));
    widget(&api, "a", 2);
    api.send("widgets", &json!({"type": "MODIFIED", "object": going}).to_string());
    settle().await;
    assert_eq!(machines.log(), [""; 0]);
    api.release("widgets");
    settle().await;
    assert_eq!(machines.log(), ["made a"]);
}

#[tokio::test(start_paused = true)]
async fn terminating_object_is_not_reconciled() {
    let (api, widgets) = (Api::default(), Widgets::usual());
    widget(&api, "a", 1);
    api.edit("widgets", "ns", "a", |object| object["metadata"]["finalizers"] = json!(["foregroundDeletion"]));
    let _stage = Stage::start(&api, &widgets).await;
    widgets.calls();
    api.delete("widgets", "ns", "a");
    api.delete("configmaps", "ns", "a");
    settle().await;
    assert_eq!((widgets.calls().len(), api.names("configmaps").len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn conflict_does_not_repeat_the_cleanup() {
    let (api, machines) = (Api::default(), Machines::default());
    widget(&api, "a", 1);
    let _stage = machines.start(&api);
    settle().await;
    machines.log();
    api.delete("widgets", "ns", "a");
    api.fail("PATCH", 2, Fault::Refuse(409));
    settle().await;
    assert_eq!((machines.log(), api.names("widgets").len()), (vec!["removed a".to_owned()], 0));
}
