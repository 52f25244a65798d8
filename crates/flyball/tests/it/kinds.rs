//! Kinds that are not installed, or not any more.

use crate::api::{Api, Fault};
use crate::widgets::*;
use flyball::{Action, ObjectKey};
use kube::{CustomResource, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use tokio::time::sleep;

#[derive(CustomResource, Deserialize, Serialize, Clone, Debug, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Gadget", namespaced)]
pub struct GadgetSpec {}

pub fn gadget(api: &Api, name: &str) {
    api.edit("gadgets", "ns", name, |object| object["spec"] = serde_json::json!({"n": name}));
}

/// Notes as an error which gadgets each reconcile sees.
async fn stage(api: &Api) -> Stage {
    let widgets = Widgets::new(|_, cx| {
        Box::pin(async move {
            let gadgets = cx.list::<Gadget>(None).await?;
            let names: Vec<String> = gadgets.iter().map(|gadget| gadget.name_any()).collect();
            match names.is_empty() {
                true => Ok(Action::done()),
                false => Err(flyball::Error::from(names.join(" ")).wait()),
            }
        })
    });
    Stage::with(api, &widgets, |controller| {
        controller.watches::<Gadget>(|_, _| Ok(vec![ObjectKey::new(Some("ns"), "a")]))
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_not_installed_keeps_nobody_from_work() {
    let api = Api::default();
    widget(&api, "a", 1);
    api.serve("gadgets", false);
    let stage = stage(&api).await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!((stage.widgets.calls(), stage.widgets.errors().len()), (vec!["a".to_owned()], 0));
    // It is installed, and an object of it wakes whom it concerns.
    gadget(&api, "g");
    api.serve("gadgets", true);
    sleep(Duration::from_secs(6)).await;
    assert_eq!((stage.widgets.calls(), stage.widgets.errors()), (vec!["a".to_owned()], vec!["g".to_owned()]));
    gadget(&api, "h");
    settle().await;
    assert_eq!(stage.widgets.errors(), ["g h"]);
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_goes_takes_its_objects_along_and_may_come_back() {
    let api = Api::default();
    widget(&api, "a", 1);
    gadget(&api, "g");
    let stage = stage(&api).await;
    assert_eq!(stage.widgets.errors(), ["g"]);
    stage.widgets.calls();
    // No event tells of what went with the kind.
    api.hold("gadgets");
    api.serve("gadgets", false);
    api.delete("gadgets", "ns", "g");
    api.cut("gadgets");
    settle().await;
    sleep(Duration::from_secs(5)).await;
    assert_eq!((stage.widgets.calls(), stage.widgets.errors().len()), (vec!["a".to_owned()], 0));
    // Others go on meanwhile.
    widget(&api, "b", 1);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(stage.widgets.calls(), ["b"]);
    gadget(&api, "g");
    api.release("gadgets");
    api.serve("gadgets", true);
    sleep(Duration::from_secs(6)).await;
    assert_eq!((stage.widgets.calls(), stage.widgets.errors()), (vec!["a".to_owned()], vec!["g".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn a_definition_made_anew_under_a_running_controller_brings_new_objects() {
    let (api, widgets) = (Api::default(), Widgets::usual());
    widget(&api, "a", 1);
    let stage = Stage::start(&api, &widgets).await;
    assert_eq!(widgets.calls(), ["a"]);
    api.hold("widgets");
    api.serve("widgets", false);
    api.delete("widgets", "ns", "a");
    api.cut("widgets");
    sleep(Duration::from_secs(10)).await;
    // The garbage collector comes.
    api.delete("configmaps", "ns", "a");
    sleep(Duration::from_secs(60)).await;
    assert!(!stage.running.is_finished());
    assert_eq!((widgets.calls().len(), size_of(&api, "a")), (0, None));
    widget(&api, "a", 2);
    api.release("widgets");
    api.serve("widgets", true);
    sleep(Duration::from_secs(6)).await;
    assert_eq!((widgets.calls(), size_of(&api, "a").unwrap()), (vec!["a".to_owned()], "2".to_owned()));
    // The watch works as ever.
    widget(&api, "a", 3);
    settle().await;
    assert_eq!((widgets.calls(), size_of(&api, "a").unwrap()), (vec!["a".to_owned()], "3".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_single_server_that_has_not_heard_of_a_kind_empties_nothing() {
    let api = Api::default();
    widget(&api, "a", 1);
    gadget(&api, "g");
    let stage = stage(&api).await;
    assert_eq!(stage.widgets.errors(), ["g"]);
    stage.widgets.calls();
    api.fail("/gadgets", 2, Fault::Refuse(404));
    api.cut("gadgets");
    sleep(Duration::from_secs(20)).await;
    assert_eq!((stage.widgets.calls().len(), api.watches("gadgets")), (0, 1));
}
