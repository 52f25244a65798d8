//! Times of a reconcile that changes nothing, with two `k8s` tasks, for each executor on an embedded control plane; and
//! the time until the built-in or another executor has reconciled many new objects after a cold start.
//!
//!     cargo run --release -p flyball-ansible --example executors [RUNS [OBJECTS [EXECUTOR]]]
//!
//! CPU times are averages of a reconcile, include those of the control plane, and need Linux. `ansible-playbook` has to
//! be on the `PATH`, with the collection `kubernetes.core` and Python's `kubernetes`, except for `RUNS` = 0.
#![expect(clippy::print_stdout, reason = "it is what the program is for")]
#![expect(clippy::unwrap_used, reason = "without the figure there is nothing to go on with")]

use clap::ValueEnum;
use flyball::Kind;
use flyball_ansible::{Executor, Watches, operator};
use flyball_cluster::testing::Test;
use kube::Api;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams};
use serde_json::json;
use std::collections::BTreeMap;
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

/// Returns the CPU times of this process and of its descendants, including those that ended and were waited for.
fn cpu_times() -> [Duration; 2] {
    let mut processes = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        // The fields after the name, see proc(5): state, parent …, and the four times as the 12th to 15th.
        let fields: Vec<u64> =
            stat.rsplit(") ").next().unwrap().split(' ').map(|field| field.parse().unwrap_or(0)).collect();
        processes.insert(pid, (fields[1] as u32, fields[11] + fields[12], fields[13] + fields[14]));
    }
    let own = std::process::id();
    let is_descendant = |mut pid: u32| loop {
        match processes.get(&pid) {
            Some((parent, ..)) if *parent == own => return true,
            Some((parent, ..)) => pid = *parent,
            None => return false,
        }
    };
    let (mut of_own, mut of_others) = (0, 0);
    for (pid, (_, used, used_by_ended_children)) in &processes {
        if *pid == own {
            of_own += used;
            of_others += used_by_ended_children;
        } else if is_descendant(*pid) {
            of_others += used + used_by_ended_children;
        }
    }
    // Ticks of 10 ms.
    [of_own, of_others].map(|ticks| Duration::from_millis(10 * ticks))
}

/// Returns the time from the start of an operator until it has reconciled these new objects.
async fn cold_start(folder: &Path, objects: usize, executor: Executor) -> Duration {
    let watches = Watches::read(folder.join("watches.yaml")).unwrap();
    let mut test = Test::of(move || operator(&watches, executor).unwrap()).start().await;
    test.crash().await;
    let shops: Vec<_> = (0..objects)
        .map(|number| format!("{{apiVersion: shop.example.com/v1, kind: Shop, metadata: {{name: shop-{number}}}}}"))
        .collect();
    test.apply(&shops.join("\n---\n")).await;
    let shops = shops_of(&test);
    let start = Instant::now();
    test.restart().await;
    loop {
        let all = shops.list(&ListParams::default()).await.unwrap();
        let is_reconciled = |shop: &DynamicObject| {
            let conditions = shop.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
            conditions.iter().any(|condition| condition["type"] == "Successful" && condition["status"] == "True")
        };
        if all.items.len() == objects && all.iter().all(is_reconciled) {
            return start.elapsed();
        }
        sleep(Duration::from_secs(1)).await;
    }
}

fn shops_of(test: &Test) -> Api<DynamicObject> {
    let kind = Kind::new("shop.example.com", "v1", "Shop");
    Api::namespaced_with(test.client(), test.namespace(), &kind.api_resource())
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let argument = |at: usize, default: usize| std::env::args().nth(at).map_or(default, |text| text.parse().unwrap());
    let (runs, objects) = (argument(1, 7), argument(2, 1000));
    let folder = project();
    for executor in [Executor::BuiltIn, Executor::Worker, Executor::AnsiblePlaybook].into_iter().filter(|_| runs > 0) {
        let watches = Watches::read(folder.join("watches.yaml")).unwrap();
        let test = Test::of(move || operator(&watches, executor).unwrap()).start().await;
        let shops = shops_of(&test);
        test.apply("{apiVersion: shop.example.com/v1, kind: Shop, metadata: {name: a}}").await;
        // The first run creates the objects, and is followed by another one.
        let first = reconcile(&shops, 0).await;
        sleep(Duration::from_secs(8)).await;
        let (mut times, before) = (Vec::new(), cpu_times());
        for round in 1..=runs {
            times.push(reconcile(&shops, round).await);
        }
        let after = cpu_times();
        let [own, others] = [0, 1].map(|at| (after[at] - before[at]) / u32::try_from(runs).unwrap());
        times.sort();
        let median = times[times.len() / 2];
        println!(
            "{executor:?}: first {first:.2?}, median {median:.3?}, {:.3?} to {:.3?}, \
             CPU {own:.1?} here and {others:.1?} in other processes",
            times[0],
            times[times.len() - 1]
        );
    }
    if objects > 0 {
        let executor =
            std::env::args().nth(3).map_or(Executor::BuiltIn, |name| Executor::from_str(&name, true).unwrap());
        let before = cpu_times()[0];
        let took = cold_start(&folder, objects, executor).await;
        println!(
            "{executor:?}: {objects} new objects in {took:.2?}, CPU {:.2?} with their creation",
            cpu_times()[0] - before
        );
    }
    fs::remove_dir_all(folder).unwrap();
}
