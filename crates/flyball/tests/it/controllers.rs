//! Several controllers of one kind in one operator.

use crate::api::Api;
use crate::widgets::*;
use flyball::{Action, Condition, Controller};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::sleep;

/// Sets a condition of this type, with the size as reason.
fn sets(kind: &'static str) -> Widgets {
    Widgets::new(move |widget, cx| {
        Box::pin(async move {
            let condition = Condition::new(kind, true, &format!("Size{}", widget.spec.size));
            cx.set_status(&json!({"observed": widget.spec.size, "conditions": [condition]})).await?;
            Ok(Action::done())
        })
    })
}

fn managers(api: &Api) -> Vec<String> {
    let object = api.get("widgets", "ns", "a").unwrap();
    let entries = object["metadata"]["managedFields"].as_array().unwrap().iter();
    let mut managers: Vec<String> = entries.map(|entry| entry["manager"].as_str().unwrap().to_owned()).collect();
    managers.sort();
    managers
}

fn reasons(api: &Api) -> Value {
    let conditions = api.get("widgets", "ns", "a").unwrap()["status"]["conditions"].clone();
    conditions.as_array().unwrap().iter().map(|c| json!([c["type"], c["reason"]])).collect()
}

#[tokio::test(start_paused = true)]
async fn controllers_of_one_kind_keep_each_others_conditions() {
    let (api, first, second) = (Api::default(), sets("First"), sets("Second"));
    widget(&api, "a", 1);
    let both = operator()
        .controller(Controller::new(first.clone()).name("first"))
        .controller(Controller::new(second.clone()).name("second"));
    let _stage = Stage::operator(&api, &first, both);
    settle().await;
    assert_eq!(reasons(&api), json!([["First", "Size1"], ["Second", "Size1"]]));
    assert_eq!(managers(&api), ["widget-operator", "widget-operator/second"]);
    widget(&api, "a", 2);
    settle().await;
    assert_eq!(reasons(&api), json!([["First", "Size2"], ["Second", "Size2"]]));
    // Each observes the writes of the other one, and neither writes again.
    drop((api.seen(), first.calls(), second.calls()));
    sleep(Duration::from_secs(600)).await;
    assert_eq!((api.writes().len(), first.calls().len(), second.calls().len()), (0, 0, 0));
    assert_eq!((first.errors().len(), second.errors().len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn write_of_one_controller_triggers_the_other() {
    let (api, first) = (Api::default(), sets("First"));
    let second = Widgets::new(|_, _| Box::pin(async { Ok(Action::done()) }));
    widget(&api, "a", 1);
    let both = operator()
        .controller(Controller::new(first.clone()).name("first"))
        .controller(Controller::new(second.clone()).name("second"));
    let _stage = Stage::operator(&api, &first, both);
    settle().await;
    assert_eq!((first.calls(), second.calls()), (vec!["a".to_owned()], vec!["a".to_owned(); 2]));
}

#[tokio::test(start_paused = true)]
async fn single_controller_uses_the_name_of_the_operator() {
    let (api, widgets) = (Api::default(), sets("First"));
    widget(&api, "a", 1);
    let _stage = Stage::with(&api, &widgets, |controller| controller.name("anything")).await;
    assert_eq!(managers(&api), ["widget-operator"]);
}

#[tokio::test(start_paused = true)]
async fn controllers_that_set_one_field_do_not_fight() {
    let set = |value: &'static str| {
        Widgets::new(move |_, cx| {
            Box::pin(async move {
                cx.set_status(&json!({"phase": value})).await?;
                Ok(Action::done())
            })
        })
    };
    let (api, first, second) = (Api::default(), set("one"), set("two"));
    widget(&api, "a", 1);
    let both = operator()
        .controller(Controller::new(first.clone()).name("first"))
        .controller(Controller::new(second.clone()).name("second"));
    let _stage = Stage::operator(&api, &first, both);
    sleep(Duration::from_secs(60)).await;
    let errors = [first.errors(), second.errors()].concat();
    assert!(errors.iter().any(|error| error.contains(".status.phase is set by another controller")), "{errors:?}");
    assert!(api.writes().len() <= 5, "no fight");
}

#[tokio::test(start_paused = true)]
async fn panicking_error_hook_stops_nothing() {
    let widgets = Widgets::new(|_, _| Box::pin(async { Err("no".into()) }));
    let api = Api::default();
    widget(&api, "a", 1);
    let controller = Controller::new(widgets.clone());
    let failing = operator().on_error(|_, _, _| panic!("the hook")).controller(controller);
    let stage = Stage::operator(&api, &widgets, failing);
    sleep(Duration::from_secs(10)).await;
    assert!(!stage.running.is_finished() && widgets.calls().len() > 5);
}
