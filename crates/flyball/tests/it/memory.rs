//! Reconciles within a memory budget.

use crate::api::Api;
use crate::widgets::*;
use flyball::{Action, MemoryBudget};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::sleep;

#[tokio::test(start_paused = true)]
async fn too_large_object_is_reported_and_not_decoded() {
    let (api, widgets) = (Api::default(), Widgets::usual());
    widget(&api, "a", 1);
    api.edit("widgets", "ns", "a", |object| object["metadata"]["finalizers"] = vec!["a/b"; 1_000].into());
    let budget = MemoryBudget::new(1 << 20);
    let _stage = Stage::with(&api, &widgets, |controller| {
        controller.owns::<k8s_openapi::api::core::v1::ConfigMap>().memory_budget(&budget, 16 << 10)
    })
    .await;
    sleep(Duration::from_secs(10)).await;
    assert_eq!(widgets.calls(), [""; 0]);
    let notes: Vec<_> = api
        .names("events")
        .iter()
        .map(|key| api.get("events", "ns", key.rsplit('/').next().unwrap()).unwrap()["note"].to_string())
        .collect();
    assert!(notes.len() == 1 && notes[0].contains("the limit is 16384"), "{notes:?}");
    api.edit("widgets", "ns", "a", |object| object["metadata"]["finalizers"] = json!(["a/b"]));
    settle().await;
    assert_eq!(widgets.calls(), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn reconciles_wait_for_memory_in_order_and_without_a_worker() {
    let (running, peak) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let slow = {
        let (running, peak) = (running.clone(), peak.clone());
        Widgets::new(move |_, _| {
            peak.fetch_max(running.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            let running = running.clone();
            Box::pin(async move {
                sleep(Duration::from_secs(60)).await;
                running.fetch_sub(1, Ordering::Relaxed);
                Ok(Action::done())
            })
        })
    };
    let api = Api::default();
    let names: Vec<String> = (0..10).map(|number| format!("w{number}")).collect();
    names.iter().for_each(|name| widget(&api, name, 1));
    let budget = MemoryBudget::new(16 << 10);
    let workers = 6;
    let _stage =
        Stage::with(&api, &slow, |controller| controller.memory_budget(&budget, 1 << 20).concurrency(workers)).await;
    let mut calls = slow.calls();
    assert!((2..workers).contains(&calls.len()) && calls == names[..calls.len()], "{calls:?}");

    // All workers would be occupied if the others waited in them.
    api.edit("widgets", "other", "z", |object| {
        object["apiVersion"] = "example.com/v1".into();
        object["kind"] = "Widget".into();
        object["spec"] = json!({"size": 1});
    });
    settle().await;
    assert_eq!(slow.calls(), ["z"]);

    // A deleted object gives its turn to the next one.
    api.delete("widgets", "ns", "w9");
    sleep(Duration::from_secs(1_000)).await;
    calls.extend(slow.calls());
    assert_eq!(calls, names[..9]);
    let estimate = flyball_core::memory::of_text(api.get("widgets", "ns", "w0").unwrap().to_string().as_bytes());
    assert!(peak.load(Ordering::Relaxed) * estimate <= budget.bytes());
    assert!(budget.try_charge(Some("ns"), budget.bytes()).is_some(), "nothing is charged any more");
}
