//! Times of a reconcile that changes nothing, with two `k8s` tasks, for each executor on an embedded control plane.
//!
//!     cargo run --release -p flyball-ansible --example executors [RUNS]
//!
//! `ansible-playbook` has to be on the `PATH`, with the collection `kubernetes.core` and Python's `kubernetes`.
#![expect(clippy::print_stdout, reason = "it is what the program is for")]
#![expect(clippy::unwrap_used, reason = "without the figure there is nothing to go on with")]

use flyball::Kind;
use flyball_ansible::{Executor, Watches, operator};
use flyball_cluster::testing::Test;
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams};
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::{Instant, sleep};

const TASKS: &str = "
- kubernetes.core.k8s:
    definition:
      apiVersion: apps/v1
      kind: Deployment
      metadata: {name: '{{ ansible_operator_meta.name }}', namespace: '{{ ansible_operator_meta.namespace }}'}
      spec:
        replicas: 1
        selector: {matchLabels: {app: a}}
        template:
          metadata: {labels: {app: a}}
          spec: {containers: [{name: a, image: 'example.com/a:1'}]}
- kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: '{{ ansible_operator_meta.name }}', namespace: '{{ ansible_operator_meta.namespace }}'}
      data: {a: a}
";

fn project() -> PathBuf {
    let shop = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/projects/shop/config/crd/bases/shops.yaml");
    let folder = std::env::temp_dir().join(format!("flyball-executors-{}", std::process::id()));
    let files = [
        ("watches.yaml", "- {group: shop.example.com, version: v1, kind: Shop, role: a}\n"),
        ("roles/a/tasks/main.yml", TASKS),
        ("config/crd/bases/shops.yaml", &*fs::read_to_string(shop).unwrap()),
    ];
    for (path, text) in files {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    folder
}

/// Changes the generation, and returns the time until the status reports it.
async fn reconcile(shops: &Api<DynamicObject>, round: usize) -> Duration {
    let start = Instant::now();
    let patch = Patch::Merge(json!({"spec": {"round": round}}));
    let generation = shops.patch("a", &PatchParams::default(), &patch).await.unwrap().metadata.generation.unwrap();
    loop {
        let shop = shops.get("a").await.unwrap();
        let conditions = shop.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let has = |kind: &str, field: &str, value: serde_json::Value| {
            conditions.iter().any(|condition| condition["type"] == kind && condition[field] == value)
        };
        assert!(!has("Failure", "status", json!("True")), "{conditions:?}");
        if has("Running", "reason", json!("Successful")) && has("Running", "observedGeneration", json!(generation)) {
            return start.elapsed();
        }
        sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let runs = std::env::args().nth(1).map_or(7, |runs| runs.parse().unwrap());
    let folder = project();
    for executor in [Executor::BuiltIn, Executor::Worker, Executor::AnsiblePlaybook] {
        let watches = Watches::read(folder.join("watches.yaml")).unwrap();
        let test = Test::of(move || operator(&watches, executor).unwrap()).start().await;
        let kind = Kind::new("shop.example.com", "v1", "Shop");
        let shops = Api::namespaced_with(test.client(), test.namespace(), &kind.api_resource());
        test.apply("{apiVersion: shop.example.com/v1, kind: Shop, metadata: {name: a}}").await;
        // The first run creates the objects, and is followed by another one.
        let first = reconcile(&shops, 0).await;
        sleep(Duration::from_secs(8)).await;
        let mut times = Vec::new();
        for round in 1..=runs {
            times.push(reconcile(&shops, round).await);
        }
        times.sort();
        let median = times[times.len() / 2];
        println!(
            "{executor:?}: first {first:.2?}, median {median:.3?}, {:.3?} to {:.3?}",
            times[0],
            times[times.len() - 1]
        );
    }
    fs::remove_dir_all(folder).unwrap();
}
