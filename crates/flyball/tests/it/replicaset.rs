//! The example of a ReplicaSet, with the tests of the one in Kubernetes.

#[allow(dead_code, reason = "the example is a program")]
#[path = "../../examples/replicaset.rs"]
mod example;

use crate::api::{Api, Fault};
use crate::widgets::{Stage, Widgets, operator, settle};
use example::Herds;
use flyball::Controller;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::sleep;

fn herd(api: &Api, replicas: usize) {
    api.edit("herds", "ns", "sheep", |object| {
        object["apiVersion"] = "example.com/v1".into();
        object["kind"] = "Herd".into();
        object["spec"] = json!({"replicas": replicas, "image": "wool"});
    });
}

async fn start(api: &Api) -> Stage {
    let stage = Stage::operator(api, &Widgets::usual(), operator().controller(Controller::new(Herds).owns::<Pod>()));
    settle().await;
    stage
}

fn pods(api: &Api) -> Vec<String> {
    api.names("pods").iter().map(|key| key["ns/".len()..].to_owned()).collect()
}

fn status(api: &Api) -> Value {
    api.get("herds", "ns", "sheep").unwrap()["status"].clone()
}

#[tokio::test(start_paused = true)]
async fn missing_pods_are_created_with_an_owner() {
    let api = Api::default();
    herd(&api, 3);
    let _stage = start(&api).await;
    assert_eq!((pods(&api).len(), status(&api)["replicas"].clone()), (3, json!(3)));
    let uid = api.get("herds", "ns", "sheep").unwrap()["metadata"]["uid"].clone();
    for name in pods(&api) {
        let owners = api.get("pods", "ns", &name).unwrap()["metadata"]["ownerReferences"].clone();
        assert_eq!(
            (&owners[0]["uid"], &owners[0]["controller"], owners.as_array().unwrap().len()),
            (&uid, &json!(true), 1)
        );
    }
    // A finished pod does not count, and a deleted one is replaced.
    let all = pods(&api);
    api.edit("pods", "ns", &all[0], |pod| pod["status"] = json!({"phase": "Failed"}));
    api.delete("pods", "ns", &all[1]);
    settle().await;
    assert_eq!((pods(&api).len(), status(&api)["replicas"].clone()), (4, json!(3)));
    // Pods of others are ignored.
    api.edit("pods", "ns", "stray", |pod| pod["metadata"]["labels"] = json!({"herd": "sheep"}));
    settle().await;
    assert_eq!(pods(&api).len(), 5);
}

#[tokio::test(start_paused = true)]
async fn least_useful_pods_are_deleted_first() {
    let api = Api::default();
    herd(&api, 6);
    let _stage = start(&api).await;
    let all = pods(&api);
    let set = |pod: usize, node: &str, phase: &str, ready: Option<&str>, cost: i32, restarts: i32| {
        api.edit("pods", "ns", &all[pod], |pod| {
            pod["metadata"]["annotations"] = json!({"controller.kubernetes.io/pod-deletion-cost": cost.to_string()});
            pod["spec"]["nodeName"] = node.into();
            let conditions =
                ready.map(|since| json!([{"type": "Ready", "status": "True", "lastTransitionTime": since}]));
            let container = json!({
                "name": "main", "image": "wool", "imageID": "", "ready": ready.is_some(), "restartCount": restarts,
            });
            pod["status"] = json!({"phase": phase, "conditions": conditions, "containerStatuses": [container]});
        });
    };
    let (early, late) = (Some("2026-01-01T00:00:00Z"), Some("2026-01-02T00:00:00Z"));
    // From the most useful to the least useful pod.
    set(4, "b", "Running", early, 0, 0);
    set(2, "a", "Running", early, 0, 0);
    set(0, "a", "Running", early, 0, 3);
    set(5, "a", "Running", late, 0, 0);
    set(1, "b", "Running", early, -1, 0);
    set(3, "a", "Running", None, 9, 0);
    let mut expected = vec![3, 1, 5, 0, 2, 4];
    for replicas in (0..6).rev() {
        herd(&api, replicas);
        settle().await;
        expected.remove(0);
        let mut remaining: Vec<String> = expected.iter().map(|pod| all[*pod].clone()).collect();
        remaining.sort();
        assert_eq!(pods(&api), remaining, "with {replicas} left");
    }
    assert_eq!(status(&api), json!({"replicas": 0, "ready": 0, "conditions": []}));
}

#[tokio::test(start_paused = true)]
async fn late_watch_causes_no_duplicate_pods() {
    let api = Api::default();
    api.hold("pods");
    herd(&api, 5);
    let _stage = start(&api).await;
    for n in 0..20 {
        api.edit("herds", "ns", "sheep", |herd| herd["metadata"]["labels"] = json!({"n": n.to_string()}));
        sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(pods(&api).len(), 5);
    api.release("pods");
    settle().await;
    assert_eq!((pods(&api).len(), status(&api)["replicas"].clone()), (5, json!(5)));
}

#[tokio::test(start_paused = true)]
async fn forbidden_creation_is_tried_once_per_reconcile() {
    let api = Api::default();
    api.fail("POST", usize::MAX, Fault::Refuse(403));
    herd(&api, 50);
    let stage = start(&api).await;
    stage.stop().await;
    let condition = status(&api)["conditions"][0].clone();
    assert_eq!((&condition["type"], &condition["status"]), (&json!("ReplicaFailure"), &json!("True")));
    let requests = api.seen().iter().filter(|seen| seen.what.ends_with("/pods") && seen.is_write()).count();
    assert!((1..12).contains(&requests), "one request in each try, not fifty: {requests}");
    api.heal();
    let _stage = start(&api).await;
    assert_eq!((pods(&api).len(), status(&api)["conditions"].clone()), (50, json!([])));
}
