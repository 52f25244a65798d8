//! Kinds that are not installed, or were removed.

use crate::api::{Api, Fault};
use crate::widgets::*;
use flyball::{Action, Kind, ObjectKey};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::DynamicObject;
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

/// Reports as an error which gadgets each reconcile reads.
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
async fn kind_not_installed_does_not_block_others() {
    let api = Api::default();
    widget(&api, "a", 1);
    api.serve("gadgets", false);
    let stage = stage(&api).await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!((stage.widgets.calls(), stage.widgets.errors().len()), (vec!["a".to_owned()], 0));
    // The CRD is installed, and an object of the kind triggers its dependents.
    gadget(&api, "g");
    api.serve("gadgets", true);
    sleep(Duration::from_secs(6)).await;
    assert_eq!((stage.widgets.calls(), stage.widgets.errors()), (vec!["a".to_owned()], vec!["g".to_owned()]));
    gadget(&api, "h");
    settle().await;
    assert_eq!(stage.widgets.errors(), ["g h"]);
}

#[tokio::test(start_paused = true)]
async fn uninstalled_kind_loses_its_objects_and_may_be_reinstalled() {
    let api = Api::default();
    widget(&api, "a", 1);
    gadget(&api, "g");
    let stage = stage(&api).await;
    assert_eq!(stage.widgets.errors(), ["g"]);
    stage.widgets.calls();
    // There are no events for objects deleted with the kind.
    api.hold("gadgets");
    api.serve("gadgets", false);
    api.delete("gadgets", "ns", "g");
    api.cut("gadgets");
    sleep(Duration::from_secs(30)).await;
    assert_eq!(stage.widgets.calls(), [""; 0], "the kind may be back in a moment");
    sleep(Duration::from_secs(10)).await;
    assert_eq!((stage.widgets.calls(), stage.widgets.errors().len()), (vec!["a".to_owned()], 0));
    // Others continue in the meantime.
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
async fn recreated_crd_is_watched_again() {
    let (api, widgets) = (Api::default(), Widgets::usual());
    widget(&api, "a", 1);
    let stage = Stage::start(&api, &widgets).await;
    assert_eq!(widgets.calls(), ["a"]);
    api.hold("widgets");
    api.serve("widgets", false);
    api.delete("widgets", "ns", "a");
    api.cut("widgets");
    sleep(Duration::from_secs(40)).await;
    // The garbage collector runs.
    api.delete("configmaps", "ns", "a");
    sleep(Duration::from_secs(60)).await;
    assert!(!stage.running.is_finished());
    assert_eq!((widgets.calls().len(), size_of(&api, "a")), (0, None));
    widget(&api, "a", 2);
    api.release("widgets");
    api.serve("widgets", true);
    sleep(Duration::from_secs(6)).await;
    assert_eq!((widgets.calls(), size_of(&api, "a").unwrap()), (vec!["a".to_owned()], "2".to_owned()));
    // The watch works as before.
    widget(&api, "a", 3);
    settle().await;
    assert_eq!((widgets.calls(), size_of(&api, "a").unwrap()), (vec!["a".to_owned()], "3".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn typed_and_dynamic_access_share_a_cache() {
    let maps = || Kind::new("", "v1", "ConfigMap");
    let widgets = Widgets::new(move |widget, cx| {
        Box::pin(async move {
            let child = DynamicObject::new(&widget.name_any(), &maps().api_resource());
            let applied = cx.apply(&child.data(serde_json::json!({"data": {"size": "1"}}))).await?;
            let typed = cx.get::<ConfigMap>(cx.key()).await?.ok_or("no config map")?;
            let dynamic = cx.dynamic(&maps()).get(cx.key()).await?.ok_or("no object")?;
            assert_eq!((typed.data.unwrap()["size"].as_str(), &dynamic.data["data"]["size"]), ("1", &"1".into()));
            assert_eq!((applied.types, cx.dynamic(&maps()).children().await?.len()), (dynamic.types, 1));
            // Undeclared kinds are rejected by name.
            let nameless: DynamicObject = serde_json::from_value(serde_json::json!({"metadata": {"name": "a"}}))?;
            let mut refused =
                vec![cx.dynamic(&Kind::new("", "v1", "Secret")).get(cx.key()).await.unwrap_err().to_string()];
            for object in [DynamicObject::new("a", &Kind::new("apps", "v1", "Deployment").api_resource()), nameless] {
                refused.push(cx.apply(&object).await.unwrap_err().to_string());
            }
            Err(flyball::Error::from(refused.join("; ")).wait())
        })
    });
    let api = Api::default();
    widget(&api, "a", 1);
    let stage = Stage::with(&api, &widgets, |controller| {
        let kind = Kind::new("example.com", "v1", "Widget");
        controller
            .dynamic(&maps())
            .owns()
            .watches::<ConfigMap>(|_, _| Ok(vec![]))
            .dynamic(&kind)
            .watches(|_, _| Ok(vec![]))
    })
    .await;
    let expected = "Secret of v1 has no cache: declare it with Controller::owns, watches or reads; \
                    Deployment of apps/v1 is not owned: declare it with Controller::owns; \
                    an object without apiVersion and kind is not owned: declare it with Controller::owns";
    assert_eq!((stage.widgets.errors(), stage.widgets.calls().len()), (vec![expected.to_owned()], 1));
    assert_eq!((api.watches("configmaps"), api.watches("widgets")), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn brief_404_keeps_cached_objects() {
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

#[tokio::test(start_paused = true)]
async fn not_found_kind_that_discovery_lists_keeps_its_objects() {
    for (seconds, part) in [(10, "gadgets"), (120, "gadgets"), (10, "example.com")] {
        let api = Api::default();
        widget(&api, "a", 1);
        gadget(&api, "g");
        let stage = stage(&api).await;
        assert_eq!(stage.widgets.errors(), ["g"]);
        stage.widgets.calls();
        // With the whole group, discovery fails as well: as for an aggregated server that is temporarily unavailable.
        api.fail(part, usize::MAX, Fault::Refuse(404));
        api.cut("gadgets");
        sleep(Duration::from_secs(seconds)).await;
        api.heal();
        sleep(Duration::from_secs(10)).await;
        assert_eq!((stage.widgets.calls().len(), api.watches("gadgets")), (0, 1), "{seconds} s of 404 for {part}");
    }
}
