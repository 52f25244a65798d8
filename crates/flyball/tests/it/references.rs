//! Objects found by their contents, and objects that refer to others.

use crate::api::Api;
use crate::widgets::*;
use flyball::{Action, Cache, Controller, DynamicIndex, Error, Index, Kind, ObjectKey, Result};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::ResourceExt;
use kube::core::PartialObjectMeta;
use serde_json::json;
use std::time::Duration;
use tokio::time::sleep;

/// Creates a widget that names secrets in an annotation.
fn referring(api: &Api, name: &str, secrets: &str) {
    widget(api, name, 1);
    api.edit("widgets", "ns", name, |object| object["metadata"]["annotations"] = json!({"secrets": secrets}));
}

fn secrets_of(widget: &Widget) -> Vec<ObjectKey> {
    let names = widget.annotations().get("secrets").into_iter().flat_map(|names| names.split(' '));
    names
        .map(|name| match name.split_once('/') {
            Some((namespace, name)) => ObjectKey::new(Some(namespace), name),
            None => ObjectKey::new(None, name),
        })
        .collect()
}

async fn stage(api: &Api) -> Stage {
    stage_with(api, |controller| controller.refers_to::<Secret>(secrets_of)).await
}

async fn stage_with(api: &Api, refers: impl FnOnce(Controller<Widgets>) -> Controller<Widgets>) -> Stage {
    let widgets = Widgets::new(|_, _| Box::pin(async { Ok(Action::done()) }));
    let stage = Stage::with(api, &widgets, refers).await;
    widgets.calls();
    stage
}

async fn woken(stage: &Stage) -> Vec<String> {
    settle().await;
    stage.widgets.calls()
}

#[tokio::test(start_paused = true)]
async fn change_triggers_only_referring_objects() {
    let api = Api::default();
    referring(&api, "a", "x");
    referring(&api, "b", "x y other/z");
    referring(&api, "c", "");
    let stage = stage(&api).await;
    let touch = |namespace: &str, name: &str| {
        api.edit("secrets", namespace, name, |secret| secret["n"] = (secret["n"].as_i64().unwrap_or(0) + 1).into());
    };
    touch("ns", "x");
    assert_eq!(woken(&stage).await, ["a", "b"]);
    touch("ns", "y");
    assert_eq!(woken(&stage).await, ["b"]);
    touch("other", "z");
    assert_eq!(woken(&stage).await, ["b"]);
    touch("other", "x");
    touch("ns", "z");
    assert_eq!(woken(&stage).await, [""; 0]);
    api.delete("secrets", "ns", "x");
    assert_eq!(woken(&stage).await, ["a", "b"]);
    // References that change.
    referring(&api, "b", "y");
    referring(&api, "c", "x");
    assert_eq!(woken(&stage).await, ["b", "c"]);
    touch("ns", "x");
    assert_eq!(woken(&stage).await, ["a", "c"]);
    // A deleted object refers to nothing.
    api.delete("widgets", "ns", "a");
    settle().await;
    touch("ns", "x");
    assert_eq!(woken(&stage).await, ["c"]);
}

#[tokio::test(start_paused = true)]
async fn change_of_a_dynamic_kind_triggers_referring_objects() {
    let api = Api::default();
    referring(&api, "a", "x");
    referring(&api, "b", "y");
    let kind = Kind::new("", "v1", "Secret");
    let stage = stage_with(&api, |controller| controller.dynamic(&kind).refers_to(secrets_of)).await;
    api.edit("secrets", "ns", "x", |_| {});
    assert_eq!(woken(&stage).await, ["a"]);
    api.edit("secrets", "other", "y", |_| {});
    assert_eq!(woken(&stage).await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn references_survive_a_relist() {
    let api = Api::default();
    referring(&api, "a", "x");
    referring(&api, "b", "y");
    let stage = stage(&api).await;
    api.hold("widgets");
    referring(&api, "a", "y");
    api.delete("widgets", "ns", "b");
    api.compact();
    api.cut("widgets");
    api.release("widgets");
    sleep(Duration::from_secs(10)).await;
    stage.widgets.calls();
    api.edit("secrets", "ns", "x", |_| {});
    assert_eq!(woken(&stage).await, [""; 0]);
    api.edit("secrets", "ns", "y", |_| {});
    assert_eq!(woken(&stage).await, ["a"]);
}

#[tokio::test(start_paused = true)]
async fn referenced_kind_may_be_missing() {
    let api = Api::default();
    referring(&api, "a", "x");
    api.serve("secrets", false);
    let stage = stage(&api).await;
    api.edit("secrets", "ns", "x", |_| {});
    api.serve("secrets", true);
    sleep(Duration::from_secs(6)).await;
    assert_eq!(stage.widgets.calls(), ["a"]);
}

/// ConfigMaps by the value of `size`.
struct BySize;

impl Index for BySize {
    type Resource = ConfigMap;
    type Value = String;

    fn values(map: &ConfigMap) -> Vec<String> {
        map.data.iter().filter_map(|data| data.get("size").cloned()).collect()
    }
}

/// The same for a metadata-only object.
struct ByOwner;

impl Index for ByOwner {
    type Resource = PartialObjectMeta<Secret>;
    type Value = String;

    fn values(secret: &PartialObjectMeta<Secret>) -> Vec<String> {
        secret.owner_references().iter().map(|owner| owner.name.clone()).collect()
    }
}

fn names<T: ResourceExt>(found: Vec<T>) -> String {
    found
        .iter()
        .map(|object| format!("{}/{}", object.namespace().unwrap(), object.name_any()))
        .collect::<Vec<_>>()
        .join(" ")
}

#[tokio::test(start_paused = true)]
async fn objects_are_listed_by_index() {
    let api = Api::default();
    for (namespace, name, size) in [("ns", "y", "1"), ("ns", "x", "1"), ("b", "z", "1"), ("ns", "w", "2")] {
        api.edit("configmaps", namespace, name, |map| map["data"] = json!({"size": size}));
    }
    widget(&api, "a", 1);
    // A reconcile reports its reads as an error, before and after it adds to them.
    let widgets = Widgets::new(|widget, cx| {
        Box::pin(async move {
            let size = widget.spec.size.to_string();
            let before = names(cx.list_by::<BySize>(&size).await?);
            cx.apply(&config_map("own", widget.spec.size)).await?;
            let after = names(cx.list_by::<BySize>(&size).await?);
            let selected = cx.filter_map_by::<BySize, _>(&size, |map| Some(map).filter(|map| map.name_any() != "z"));
            assert_eq!(names(selected.await?), after.replace("b/z ", ""));
            let cached = names(cx.caches().list_by::<BySize>(&size)?);
            let other = cx.list_by::<ByOwner>(&size).await.map(names);
            Err(Error::from(format!("{before}; {after}; {cached}; {}", other.unwrap_or_else(|e| e.to_string()))).wait())
        })
    });
    let declare = |controller: Controller<Widgets>| controller.owns::<ConfigMap>().index::<BySize>();
    let stage = Stage::with(&api, &widgets, declare).await;
    let report = widgets.errors().remove(0);
    assert!(report.starts_with("b/z ns/x ns/y; b/z ns/own ns/x ns/y; b/z ns/x ns/y; "), "{report}");
    assert!(report.ends_with("Secret> has no cache: declare it with Controller::owns, watches or reads"), "{report}");
    // They are found by their new values.
    api.edit("configmaps", "ns", "x", |map| map["data"]["size"] = "2".into());
    api.delete("configmaps", "ns", "w");
    settle().await;
    widget(&api, "a", 2);
    settle().await;
    let report = widgets.errors().remove(0);
    assert!(report.starts_with("ns/x; ns/own ns/x; ns/x;"), "{report}");
    stage.stop().await;
}

#[tokio::test(start_paused = true)]
async fn dynamic_objects_are_listed_by_index() {
    let api = Api::default();
    for (namespace, name, size) in [("ns", "y", "1"), ("ns", "x", "1"), ("b", "z", "1"), ("ns", "w", "2")] {
        api.edit("configmaps", namespace, name, |map| map["data"] = json!({"size": size}));
    }
    widget(&api, "a", 1);
    let kind = Kind::new("", "v1", "ConfigMap");
    let by_size = DynamicIndex::new(|map| map.data["data"]["size"].as_str().map(str::to_owned).into_iter().collect());
    let unknown = DynamicIndex::new(|_| vec![1]);
    let (index, maps) = (by_size.clone(), kind.clone());
    let widgets = Widgets::new(move |widget, cx| {
        let (by_size, unknown, kind) = (index.clone(), unknown.clone(), maps.clone());
        Box::pin(async move {
            let size = widget.spec.size.to_string();
            let before = names(cx.dynamic(&kind).list_by(&by_size, &size).await?);
            cx.apply(&config_map("own", widget.spec.size)).await?;
            let after = names(cx.dynamic(&kind).list_by(&by_size, &size).await?);
            let cached = names(cx.caches().dynamic(&kind).list_by(&by_size, &size)?);
            let other = cx.dynamic(&kind).list_by(&unknown, &1).await.map(names);
            Err(Error::from(format!("{before}; {after}; {cached}; {}", other.unwrap_or_else(|e| e.to_string()))).wait())
        })
    });
    let declare = |controller: Controller<Widgets>| controller.owns::<ConfigMap>().dynamic(&kind).index(&by_size);
    let stage = Stage::with(&api, &widgets, declare).await;
    let expected = "no index of configmaps: declare it with Controller::dynamic(&kind).index";
    assert_eq!(widgets.errors(), [format!("b/z ns/x ns/y; b/z ns/own ns/x ns/y; b/z ns/x ns/y; {expected}")]);
    api.edit("configmaps", "ns", "x", |map| map["data"]["size"] = "2".into());
    settle().await;
    widget(&api, "a", 2);
    settle().await;
    let report = widgets.errors().remove(0);
    assert!(report.starts_with("ns/w ns/x; ns/own ns/w ns/x; ns/w ns/x;"), "{report}");
    stage.stop().await;
}

#[tokio::test(start_paused = true)]
async fn undeclared_index_is_an_error() {
    let api = Api::default();
    widget(&api, "a", 1);
    let widgets = Widgets::new(|_, cx| {
        Box::pin(async move {
            let found: Result<_> = cx.list_by::<BySize>(&"1".to_owned()).await;
            found.map(|_| Action::done()).map_err(Error::wait)
        })
    });
    let operator =
        operator().cache(Cache::<ConfigMap>::new()).controller(Controller::new(widgets.clone()).owns::<ConfigMap>());
    let _stage = Stage::operator(&api, &widgets, operator);
    settle().await;
    assert_eq!(widgets.errors(), ["no index it::references::BySize: declare it with Controller::index"]);
}
