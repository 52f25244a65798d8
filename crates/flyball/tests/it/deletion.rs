//! Finalizers, and what happens to objects that are on their way out.

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

/// Keeps a machine for each widget, in a world outside of the cluster.
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
async fn the_finalizer_comes_before_any_effect_and_goes_last() {
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
async fn finalizers_of_others_stay() {
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
    // What the others still have to do is none of our business.
    api.edit("widgets", "ns", "a", |object| object["metadata"]["labels"] = json!({"a": "b"}));
    settle().await;
    assert_eq!(api.writes(), [""; 0]);
    machines.log();
    sleep(Duration::from_secs(60)).await;
    assert_eq!(machines.log(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_added_in_between_is_not_lost() {
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
async fn an_object_deleted_at_any_moment_leaks_nothing() {
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
async fn an_operator_killed_at_any_moment_leaks_nothing() {
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
async fn nothing_is_finalized_on_the_word_of_a_stale_cache() {
    let (api, machines) = (Api::default(), Machines::default());
    widget(&api, "a", 1);
    let _stage = machines.start(&api);
    settle().await;
    machines.log();
    // The cache comes to know of the deletion late, when the name belongs to another object already.
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
async fn an_object_on_its_way_out_is_not_reconciled() {
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
async fn a_conflict_does_not_repeat_the_cleanup() {
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
