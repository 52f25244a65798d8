//! Children declared at once: in stages, and deleted when they are no longer declared.

use crate::api::Api;
use crate::widgets::*;
use flyball::{Action, Children, Controller};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::core::ObjectMeta;
use serde_json::json;
use std::sync::{Arc, Mutex};

fn named(name: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() }
}

fn pod(name: &str) -> Pod {
    Pod { metadata: named(name), ..Pod::default() }
}

fn owns(controller: Controller<Widgets>) -> Controller<Widgets> {
    controller.owns::<ConfigMap>().owns::<Pod>().owns::<Secret>()
}

/// Creates a reconciler with the declarations for each size, and records what it waits for.
fn declares(children: fn(i64) -> Children) -> (Widgets, Arc<Mutex<Vec<String>>>) {
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let noted = seen.clone();
    let widgets = Widgets::new(move |widget, cx| {
        let noted = noted.clone();
        Box::pin(async move {
            let rollout = cx.apply_all(&children(widget.spec.size)).await?;
            let condition = rollout.condition("Ready");
            assert_eq!(rollout.is_ready(), condition.status == "True");
            *noted.lock().unwrap() = rollout.waiting().to_vec();
            Ok(Action::done())
        })
    });
    (widgets, seen)
}

/// A site with three stages. From size 2 on, it has another frontend.
fn site(size: i64) -> Children {
    let page = if size == 1 { "page" } else { "new-page" };
    Children::new()
        .stage("database")
        .child(&Secret { metadata: named("password"), ..Secret::default() })
        .child(&pod("database"))
        .stage("backend")
        .child(&pod("backend"))
        .stage("frontend")
        .child(&config_map(page, size))
        .prune_last()
}

fn becomes_ready(api: &Api, pod: &str, ready: bool) {
    let status = if ready { "True" } else { "False" };
    api.edit("pods", "ns", pod, |pod| pod["status"] = json!({"conditions": [{"type": "Ready", "status": status}]}));
}

#[tokio::test(start_paused = true)]
async fn stage_waits_for_earlier_stages() {
    let (api, (widgets, waiting)) = (Api::default(), declares(site));
    let waiting = || waiting.lock().unwrap().clone();
    widget(&api, "a", 1);
    let _stage = Stage::with(&api, &widgets, owns).await;
    assert_eq!(api.names("pods"), ["ns/database"]);
    assert_eq!(waiting(), ["Pod database: not Ready", "backend waits for database", "frontend waits for backend"]);
    becomes_ready(&api, "database", true);
    settle().await;
    assert_eq!(api.names("pods"), ["ns/backend", "ns/database"]);
    assert_eq!(api.names("configmaps"), [""; 0]);
    becomes_ready(&api, "backend", true);
    settle().await;
    assert_eq!((size_of(&api, "page").as_deref(), waiting()), (Some("1"), Vec::new()));

    // While the database is down, later stages do not change.
    becomes_ready(&api, "database", false);
    widget(&api, "a", 2);
    settle().await;
    assert_eq!(api.names("configmaps"), ["ns/page"]);
    becomes_ready(&api, "database", true);
    settle().await;
    assert_eq!(api.names("configmaps"), ["ns/new-page"]);
    assert_eq!(waiting(), [""; 0]);
    drop(api.writes());
    settle().await;
    assert_eq!(api.writes(), [""; 0], "unchanged children are not written");
}

#[tokio::test(start_paused = true)]
async fn only_undeclared_children_are_deleted() {
    let (api, (widgets, _)) = (
        Api::default(),
        declares(|size| match size {
            1 => Children::new().child(&config_map("one", 1)).child(&config_map("two", 1)),
            _ => Children::new().child(&config_map("two", 1)),
        }),
    );
    widget(&api, "a", 1);
    let _stage = Stage::with(&api, &widgets, owns).await;
    let owner = api.get("configmaps", "ns", "one").unwrap()["metadata"]["ownerReferences"].clone();
    // One that another client created for the same owner, and one without owner.
    api.edit("configmaps", "ns", "theirs", |object| object["metadata"]["ownerReferences"] = owner);
    api.edit("configmaps", "ns", "alone", |object| object["data"] = json!({}));
    widget(&api, "a", 2);
    settle().await;
    assert_eq!(api.names("configmaps"), ["ns/alone", "ns/theirs", "ns/two"]);
}

#[tokio::test(start_paused = true)]
async fn undeclared_children_are_deleted_while_others_are_not_ready() {
    let (api, (widgets, waiting)) = (
        Api::default(),
        declares(|size| {
            let pods = (0..size).map(|n| pod(&format!("pod-{n}")));
            let children = pods.fold(Children::new().stage("pods"), |children, pod| children.child(&pod));
            let children = if size == 3 { children.child(&config_map("backup", 1)) } else { children };
            children.stage("late").child(&config_map("late", 1))
        }),
    );
    widget(&api, "a", 3);
    let _stage = Stage::with(&api, &widgets, owns).await;
    assert_eq!((api.names("pods").len(), api.names("configmaps")), (3, vec!["ns/backup".to_owned()]));
    // No pod is ready; it is scaled down nevertheless.
    widget(&api, "a", 1);
    settle().await;
    assert_eq!((api.names("pods"), api.names("configmaps").len()), (vec!["ns/pod-0".to_owned()], 0));
    assert_eq!(*waiting.lock().unwrap(), ["Pod pod-0: not Ready", "late waits for pods"]);
    // Children of a waiting stage stay.
    becomes_ready(&api, "pod-0", true);
    settle().await;
    becomes_ready(&api, "pod-0", false);
    settle().await;
    assert_eq!(api.names("configmaps"), ["ns/late"]);
}

#[tokio::test(start_paused = true)]
async fn stages_declare_their_dependencies() {
    let (api, (widgets, _)) = (
        Api::default(),
        declares(|_| {
            let base = Children::new().stage("a").child(&pod("a")).stage("b").after([""; 0]).child(&pod("b"));
            base.stage("c").after(["a", "b"]).child(&pod("c")).stage("d").after(["b"]).child(&pod("d"))
        }),
    );
    widget(&api, "a", 1);
    let _stage = Stage::with(&api, &widgets, owns).await;
    assert_eq!(api.names("pods"), ["ns/a", "ns/b"]);
    becomes_ready(&api, "b", true);
    settle().await;
    assert_eq!(api.names("pods"), ["ns/a", "ns/b", "ns/d"]);
    becomes_ready(&api, "a", true);
    settle().await;
    assert_eq!(api.names("pods"), ["ns/a", "ns/b", "ns/c", "ns/d"]);
}

#[tokio::test(start_paused = true)]
async fn invalid_declaration_is_rejected_before_any_write() {
    let (api, (widgets, _)) = (
        Api::default(),
        declares(|size| match size {
            1 => Children::new().child(&pod("a")).stage("late").after(["later"]).child(&pod("b")).stage("later"),
            2 => Children::new().child(&pod("a")).child(&config_map("a", 1)).child(&pod("a")),
            3 => Children::new().stage("s").child(&pod("a")).stage("s"),
            _ => Children::new().child(&pod("a")).child(&Pod::default()),
        }),
    );
    for size in 1..=4 {
        widget(&api, &format!("w{size}"), size);
    }
    let _stage = Stage::with(&api, &widgets, owns).await;
    assert_eq!(
        widgets.errors(),
        [
            "stage \"late\" waits for \"later\", which is not an earlier stage",
            "pods ns/a is declared twice",
            "duplicate stage \"s\"",
            "pods has no metadata.name: use create for generated names",
        ]
    );
    assert_eq!(api.writes(), [""; 0]);
}
