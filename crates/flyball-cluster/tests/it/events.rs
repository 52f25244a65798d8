//! The lifetime of events.

use crate::cluster;
use crate::workloads::{api, create};
use flyball_cluster::{Cluster, Controllers, Options, simulated_clock};
use flyball_core::Clock;
use flyball_core::time::SignedDuration;
use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use k8s_openapi::api::core::v1::Event;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use std::time::Duration;
use tokio::time::sleep;

async fn note(client: &Client, name: &str) {
    let object = json!({"kind": "ConfigMap", "namespace": "default", "name": "a"});
    let event = json!({"metadata": {"name": name}, "involvedObject": object, "reason": "Tested", "type": "Normal"});
    create::<Event>(client, event).await;
}

async fn names(client: &Client) -> Vec<String> {
    let events = api::<Event>(client).list(&ListParams::default().fields("reason=Tested")).await.unwrap();
    events.iter().map(ResourceExt::name_any).collect()
}

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn events_are_deleted_an_hour_after_their_last_write() {
    let cluster = cluster();
    let client = cluster.admin();
    note(&client, "old").await;
    note(&client, "repeated").await;
    sleep(30 * MINUTE).await;
    note(&client, "new").await;
    let again = Patch::Merge(json!({"count": 2}));
    api::<Event>(&client).patch("repeated", &PatchParams::default(), &again).await.unwrap();
    sleep(29 * MINUTE).await;
    assert_eq!(names(&client).await, ["new", "old", "repeated"]);
    sleep(2 * MINUTE).await;
    assert_eq!(names(&client).await, ["new", "repeated"]);
    sleep(30 * MINUTE).await;
    assert_eq!(names(&client).await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn events_expire_beside_one_whose_deletion_is_denied() {
    let cluster = cluster();
    let client = cluster.admin();
    let events = json!({
        "apiGroups": [""], "apiVersions": ["v1"], "resources": ["events"], "operations": ["DELETE"],
    });
    let policy = json!({"metadata": {"name": "kept"}, "spec": {
        "matchConstraints": {"resourceRules": [events]},
        "validations": [{"expression": "request.name != 'a'"}],
    }});
    let binding = json!({"metadata": {"name": "kept"}, "spec": {"policyName": "kept", "validationActions": ["Deny"]}});
    let policy = serde_json::from_value::<ValidatingAdmissionPolicy>(policy).unwrap();
    Api::all(client.clone()).create(&PostParams::default(), &policy).await.unwrap();
    let binding = serde_json::from_value::<ValidatingAdmissionPolicyBinding>(binding).unwrap();
    Api::all(client.clone()).create(&PostParams::default(), &binding).await.unwrap();
    for name in ["a", "b", "c"] {
        note(&client, name).await;
    }
    sleep(65 * MINUTE).await;
    assert_eq!(names(&client).await, ["a"]);
}

#[tokio::test(start_paused = true)]
async fn event_with_a_write_in_the_future_expires() {
    let cluster = cluster();
    let client = cluster.admin();
    note(&client, "a").await;
    let entry = json!({
        "manager": "m", "operation": "Update", "apiVersion": "v1", "time": "2999-01-01T00:00:00Z",
        "fieldsType": "FieldsV1", "fieldsV1": {"f:reason": {}},
    });
    let patch = Patch::Merge(json!({"metadata": {"managedFields": [entry]}}));
    let event = api::<Event>(&client).patch("a", &PatchParams::default(), &patch).await.unwrap();
    assert!(serde_json::to_string(&event).unwrap().contains("2999"), "{event:?}");
    sleep(65 * MINUTE).await;
    assert_eq!(names(&client).await, [""; 0]);
}

/// Options of a cluster whose clock differs from that of others.
fn options(offset: SignedDuration, seed: u64) -> Options {
    let clock = simulated_clock();
    Options::simulated(Clock::new(move || clock.now() + offset), seed)
}

#[tokio::test(start_paused = true)]
async fn events_of_a_fork_expire_by_its_own_time() {
    let original = cluster();
    note(&original.admin(), "old").await;
    let ahead = original.fork(options(SignedDuration::from_hours(2), 2));
    let behind = original.fork(options(SignedDuration::from_hours(-2), 3));
    for fork in [ahead.clone(), behind.clone()] {
        tokio::spawn(async move { fork.run(&Controllers::none()).await });
    }
    let counts = async || {
        let [original, ahead, behind] = [&original, &ahead, &behind].map(Cluster::admin);
        [names(&original).await.len(), names(&ahead).await.len(), names(&behind).await.len()]
    };
    sleep(2 * MINUTE).await;
    assert_eq!(counts().await, [1, 0, 1]);
    sleep(118 * MINUTE).await;
    assert_eq!(counts().await, [0, 0, 1]);
    sleep(63 * MINUTE).await;
    assert_eq!(counts().await, [0, 0, 0]);
}
