//! End-to-end tests of malicious custom resources against operators of charts and roles: `flyball cluster up` and
//! `flyball operate`, each in a separate process.
//!
//! The attacker is a service account that may write one kind in one namespace. While its resources are processed,
//! resources of the same kind are created one after the other in another namespace. The test prints the latencies of
//! these before and during the attack, the time until the conditions of the attacks report failure, and the operator's
//! memory. It asserts limits that any machine meets: the conditions, the memory, and wide limits of time.
//! `FLYBALL_TENANT_AIMS` asserts the target times for a release build on an idle machine; `FLYBALL_TENANT_PROGRAM`
//! replaces the program of the build.
#![expect(clippy::print_stdout, reason = "a test prints its measurements")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod processes;

use kube::Api;
use kube::api::{ApiResource, DynamicObject, GetParams, GroupVersionKind, PostParams, Request};
use processes::Cluster;
use serde::Deserialize;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Maximum time until the condition of an attack: the target, and the limit on any machine.
const AIM: Duration = Duration::from_secs(2);
const MAX_ATTACK: Duration = Duration::from_secs(180);
/// Maximum memory growth of the operator in MiB: for attacks of one kind, and for several concurrent ones. Rendering
/// threads release memory with a delay, so that consecutive renderings add up.
const MAX_GROWTH_MIB: u64 = 128;
const MAX_GROWTH_OF_SEVERAL_MIB: u64 = 256;
/// Number of neighbors that are measured before an attack, and their minimum number during it.
const OTHERS: usize = 100;
/// Target for the growth factor of the neighbors' latency: repeated measurements without an attack differ by as much.
const AIM_FACTOR: f64 = 2.0;
/// Maximum latency of a neighbor on any machine.
const MAX_WAIT: Duration = Duration::from_secs(60);
/// Polling interval of a resource.
const INTERVAL: Duration = Duration::from_millis(5);

const GROUP: &str = "attack.example.com";

fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("notes.{GROUP}")},
        "spec": {
            "group": GROUP, "scope": "Namespaced", "names": {"plural": "notes", "kind": "Note"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}}, "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            }}}],
        },
    })
}

fn note(name: &str, spec: &Value) -> DynamicObject {
    let note = json!({"apiVersion": format!("{GROUP}/v1"), "kind": "Note", "metadata": {"name": name}, "spec": spec});
    serde_json::from_value(note).unwrap()
}

fn write(folder: &Path, files: &[(&str, &str)]) {
    for (path, text) in files {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

/// An operator, and the final conditions of its resources.
struct Attacked {
    name: &'static str,
    files: &'static [(&'static str, &'static str)],
    /// The spec of the neighbors.
    good: Value,
    is_good: fn(&Value) -> bool,
    is_failed: fn(&Value) -> bool,
}

/// Returns true if a resource has a condition with this status, and one of these reasons if there are any.
fn has(note: &Value, kind: &str, status: &str, reasons: &[&str]) -> bool {
    let conditions = note["status"]["conditions"].as_array().into_iter().flatten();
    let is_reason = |found: &Value| reasons.is_empty() || reasons.iter().any(|reason| found["reason"] == *reason);
    conditions.into_iter().any(|found| found["type"] == kind && found["status"] == status && is_reason(found))
}

impl Attacked {
    /// Starts the operator, and creates the attacker's resources, one attack after the other.
    async fn withstands(&self, attacks: &[(&str, Vec<Value>)]) {
        let cluster = Cluster::start(self.name).await;
        let folder = cluster.folder("project");
        write(&folder, self.files);
        write(&folder, &[("config/crd/bases/notes.yaml", &definition().to_string())]);
        cluster.apply(&definition()).await;
        let operator = cluster.operate(&folder.join("watches.yaml"));
        let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(GROUP, "v1", "Note"), "notes");
        let others: Api<DynamicObject> = Api::namespaced_with(cluster.admin(), "others", &resource);
        let tenant = cluster.account("tenant", GROUP, "notes").await;
        let tenant: Api<DynamicObject> = Api::namespaced_with(tenant, "tenant", &resource);
        // The first one waits for the start of the operator.
        self.one(&others, "first").await;
        let mut calm = Vec::new();
        for at in 0..OTHERS {
            calm.push(self.one(&others, &format!("calm-{at}")).await);
        }
        let calm = p99(&mut calm);

        for (attack, specs) in attacks {
            let (before, _) = operator.memory_mib();
            operator.reset_peak();
            let names: Vec<String> = (0..specs.len()).map(|at| format!("{attack}-{at}")).collect();
            let start = Instant::now();
            for (name, spec) in names.iter().zip(specs) {
                tenant.create(&PostParams::default(), &note(name, spec)).await.unwrap();
            }
            let mut waits = Vec::new();
            let (durations, ()) = tokio::join!(self.ends(&tenant, &names, start), async {
                for at in 0..OTHERS {
                    waits.push(self.one(&others, &format!("{attack}-{at}")).await);
                }
            });
            let (_, peak) = operator.memory_mib();
            let (growth, under_attack) = (peak.saturating_sub(before), p99(&mut waits));
            println!(
                "{} {attack}: conditions of {} resources after {durations:.1?}; memory {before} MiB before, {peak} MiB at most; p99 of {OTHERS} \
                 others {calm:.1?} calm, {under_attack:.1?} under attack",
                self.name,
                names.len()
            );
            assert!(operator.is_running(), "the operator has ended");
            let max_growth = if *attack == "both" { MAX_GROWTH_OF_SEVERAL_MIB } else { MAX_GROWTH_MIB };
            assert!(growth < max_growth, "memory grows by {growth} MiB");
            assert!(durations.last().is_some_and(|last| *last < MAX_ATTACK), "{durations:?}");
            if std::env::var_os("FLYBALL_TENANT_AIMS").is_some() {
                assert!(durations.first().is_some_and(|first| *first < AIM), "{durations:?}");
                let factor = under_attack.as_secs_f64() / calm.as_secs_f64();
                assert!(factor < AIM_FACTOR, "others wait {factor:.1} times as long");
            }
        }
        assert!(!operator.log().contains("panicked"), "the operator panicked");
    }

    /// Sends one of the other requests, and returns its latency.
    async fn one(&self, others: &Api<DynamicObject>, name: &str) -> Duration {
        let start = Instant::now();
        others.create(&PostParams::default(), &note(name, &self.good)).await.unwrap();
        loop {
            let found = serde_json::to_value(others.get(name).await.unwrap()).unwrap();
            if (self.is_good)(&found) {
                return start.elapsed();
            }
            assert!(start.elapsed() < MAX_WAIT, "{name} is not served: {}", found["status"]);
            sleep(INTERVAL).await;
        }
    }

    /// Waits until all of these have failed, and returns their durations, sorted.
    async fn ends(&self, api: &Api<DynamicObject>, names: &[String], start: Instant) -> Vec<Duration> {
        let mut durations = Vec::new();
        let mut waiting: Vec<&String> = names.iter().collect();
        while !waiting.is_empty() {
            let mut remaining = Vec::new();
            for name in waiting {
                let found = json!({"status": status(api, name).await});
                if (self.is_failed)(&found) {
                    durations.push(start.elapsed());
                } else {
                    assert!(start.elapsed() < MAX_ATTACK, "{name} does not end: {:.2000}", found["status"].to_string());
                    remaining.push(name);
                }
            }
            waiting = remaining;
            sleep(INTERVAL * 4).await;
        }
        durations
    }
}

/// Reads the status of a resource without its spec: decoding a large one would delay the neighbors, which are measured
/// on the same thread.
async fn status(api: &Api<DynamicObject>, name: &str) -> Value {
    #[derive(Deserialize)]
    struct Note {
        #[serde(default)]
        status: Value,
    }
    let request = Request::new(api.resource_url()).get(name, &GetParams::default()).unwrap();
    api.clone().into_client().request::<Note>(request).await.unwrap().status
}

fn p99(all: &mut [Duration]) -> Duration {
    all.sort();
    all[(all.len() * 99 / 100).min(all.len() - 1)]
}

fn play(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test);
}

#[test]
fn chart_operator_withstands_bombs() {
    const WATCHES: &str =
        "- {group: attack.example.com, version: v1, kind: Note, chart: charts/note, evaluateTemplates: true}\n";
    const PAGE: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: '{{ .Release.Name }}'}\ndata:\n  note: {{ tpl .Values.note . | quote }}\n";
    let attacked = Attacked {
        name: "helm",
        files: &[
            ("watches.yaml", WATCHES),
            ("charts/note/Chart.yaml", "apiVersion: v2\nname: note\nversion: 0.1.0\n"),
            ("charts/note/values.yaml", "note: nothing\n"),
            ("charts/note/templates/page.yaml", PAGE),
        ],
        good: json!({"note": "{{ .Release.Name }} is well"}),
        is_good: |note| has(note, "Deployed", "True", &[]),
        is_failed: |note| has(note, "ReleaseFailed", "True", &[]),
    };
    let burn = json!({"note": r#"{{ range until 1000000 }}{{ $x := bcrypt "x" }}{{ end }}"#});
    let swell = json!({"note": r#"{{ $l := list }}{{ range until 400 }}{{ $l = append $l (repeat 1000000 "abcdefghij") }}{{ end }}"#});
    play(attacked.withstands(&[
        ("bcrypt", vec![burn.clone()]),
        ("memory", vec![swell.clone()]),
        ("three-bcrypt", vec![burn.clone(), burn.clone(), burn.clone()]),
        ("both", vec![burn.clone(), swell.clone(), burn, swell]),
    ]));
}

#[test]
fn role_operator_withstands_long_loops() {
    const TASKS: &str = "- k8s:\n    definition:\n      apiVersion: v1\n      kind: ConfigMap\n      metadata: {name: '{{ ansible_operator_meta.name }}'}\n      \
                         data: {count: '{{ items | default([]) | length | string }}'}\n\
                         - debug: {msg: '{{ item }} {{ items | difference([item]) | length }}'}\n  loop: '{{ items | default([]) }}'\n  ignore_errors: true\n";
    let attacked = Attacked {
        name: "ansible",
        files: &[
            ("watches.yaml", "- {group: attack.example.com, version: v1, kind: Note, role: roles/note}\n"),
            ("roles/note/tasks/main.yml", TASKS),
        ],
        good: json!({"items": ["a", "b"]}),
        is_good: |note| has(note, "Successful", "True", &[]),
        is_failed: |note| has(note, "Failure", "True", &[]),
    };
    let items = |count: usize| json!({"items": (0..count).collect::<Vec<_>>()});
    play(attacked.withstands(&[
        ("loop", vec![items(120_000)]),
        ("shorter-loop", vec![items(9_000)]),
        ("three-loops", vec![items(60_000), items(60_000), items(60_000)]),
    ]));
}
