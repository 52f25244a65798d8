//! All payloads of a tenant, with `ansible-playbook`. A run handles many payloads, since each process takes a second.

use crate::payloads;
use crate::project::{Project, condition, data, shops};
use crate::suite::Suite;
use flyball_ansible::{Executor, Watches, operator};
use flyball_cluster::testing::Test;
use kube::api::{DynamicObject, ListParams, PostParams};
use serde_json::{Map, Value, json};
use std::fs;
use std::sync::Once;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Timeout for all runs.
const MAX_WAIT: Duration = Duration::from_secs(600);
/// Limits of a custom resource.
const MAX_CASES: usize = 100;
const MAX_CASE_BYTES: usize = 200_000;

/// The fields that the role uses; `turns` is only a load for the built-in executor.
const FIELDS: [&str; 7] = ["title", "note", "target", "source", "secret", "file", "items"];

/// A role that passes text of users through all features, without validation. Items of a loop share a process, and a
/// task of `k8s` writes many objects, of which some are rejected.
const TASKS: &str = r#"
- set_fact: {helper: '{{ title | default("none") }}'}
- set_fact: {helper: '{{ item.title | default("none") }}'}
  loop: '{{ cases }}'
- debug: {msg: '{{ item.title | default("") }} {{ item.note | default("") }} {{ item["items"] | default([]) | list | length }}'}
  loop: '{{ cases }}'
  ignore_errors: true
- assert: {that: ['helper is defined', 'result is not defined']}
- pause: {prompt: '{{ cases | map(attribute="title", default="") | join(" ") }}', seconds: 0}
- command: echo {{ cases | map(attribute="title", default="x") | map("string") | map("quote") | join(" ") }}
  ignore_errors: true
- name: raw text in YAML
  debug: {msg: '{{ lookup("template", "page.yaml.j2") | from_yaml_all | list }}'}
  loop: '{{ cases }}'
  register: pages
  ignore_errors: true
- kubernetes.core.k8s:
    definition: '{{ pages.results | rejectattr("failed") | map(attribute="msg") | flatten(levels=1) | select("mapping") | list }}'
    continue_on_error: true
  ignore_errors: true
- name: places that users choose
  debug:
    msg: {apiVersion: v1, kind: ConfigMap, metadata: {name: '{{ meta.name }}-placed', namespace: '{{ item.target }}'}, data: {a: a}}
  loop: '{{ cases }}'
  when: item.target is defined and item.target is string
  register: places
- kubernetes.core.k8s:
    definition: '{{ places.results | selectattr("msg", "defined") | map(attribute="msg") | list }}'
    continue_on_error: true
  ignore_errors: true
- name: Secrets that users choose
  debug: {msg: '{{ lookup("kubernetes.core.k8s", api_version="v1", kind="Secret", namespace=item.source, resource_name=item.secret | default("crown")) }}'}
  loop: '{{ cases }}'
  when: item.source is defined
  register: result
  ignore_errors: true
- kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: '{{ meta.name }}-found', namespace: '{{ meta.namespace }}'}
      data: {found: '{{ result.results | map(attribute="msg", default="") | list | to_json }}'}
- include_tasks: file.yml
  loop: '{{ cases }}'
  loop_control: {loop_var: case}
  when: case.file is defined
"#;

const FILE: &str = r#"
- block:
  - include_tasks: '{{ case.file }}.yml'
  rescue:
  - debug: {}
"#;

const PAGE: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ meta.name }}-page\n  namespace: {{ meta.namespace }}\ndata:\n  title: {{ item.title | default('x') }}\n";

/// Distributes payloads over specs: as fields if these have other names, and as `cases`.
fn specs(payloads: Vec<Value>) -> Vec<Value> {
    let mut specs: Vec<(Map<String, Value>, Vec<Value>, usize)> = Vec::new();
    for payload in payloads {
        let Value::Object(fields) = payload else { panic!("{payload} is not a map") };
        let bytes = Value::Object(fields.clone()).to_string().len();
        let is_case = fields.keys().any(|field| FIELDS.contains(&field.as_str()));
        let has_space = |(spec, cases, size): &(Map<String, Value>, Vec<Value>, usize)| match is_case {
            true => cases.len() < MAX_CASES && size + bytes <= MAX_CASE_BYTES,
            false => fields.iter().all(|(field, value)| spec.get(field).is_none_or(|known| known == value)),
        };
        let place = specs.iter().position(has_space).unwrap_or_else(|| {
            specs.push(Default::default());
            specs.len() - 1
        });
        let (spec, cases, size) = &mut specs[place];
        for (field, value) in &fields {
            spec.entry(field.clone()).or_insert_with(|| value.clone());
        }
        if is_case {
            cases.push(Value::Object(fields));
            *size += bytes;
        }
    }
    let with_cases = |(mut spec, cases, _): (Map<String, Value>, Vec<Value>, usize)| {
        spec.insert("cases".to_owned(), cases.into());
        Value::Object(spec)
    };
    specs.into_iter().map(with_cases).collect()
}

#[tokio::test]
async fn tenant_payloads_are_harmless_with_ansible_playbook() {
    tenant_payloads_are_harmless(Executor::AnsiblePlaybook).await;
}

#[tokio::test]
async fn tenant_payloads_are_harmless_with_a_worker() {
    tenant_payloads_are_harmless(Executor::Worker).await;
}

async fn tenant_payloads_are_harmless(executor: Executor) {
    if std::env::var_os("FLYBALL_TEST_ANSIBLE").is_none() {
        return;
    }
    let files = [
        ("roles/a/tasks/main.yml", TASKS),
        ("roles/a/tasks/file.yml", FILE),
        ("roles/a/tasks/more.yml", "- debug: {msg: more}\n"),
        ("roles/a/templates/page.yaml.j2", PAGE),
    ];
    let written = Project::new(&format!("payloads-{executor:?}"), &files);
    static REMOVAL: Once = Once::new();
    let canary = payloads::canary();
    // Of an earlier run; once, since both tests have the same one.
    REMOVAL.call_once(|| drop(fs::remove_file(&canary)));
    let folder = written.folder().to_owned();
    let operator = move || {
        let watches = Watches::read(folder.join("watches.yaml")).unwrap();
        operator(&watches, executor).unwrap()
    };
    let test = Test::of(operator).start().await;
    let kind = shops().api_resource();
    let suite = Suite::begin(&test, std::slice::from_ref(&kind), "other").await;
    let shops = suite.api(&kind);
    let payloads = payloads::all();
    let is_used = |payload: &Value| payload.get("turns").is_none();
    let specs = specs(payloads.into_iter().filter(is_used).collect());
    for (number, spec) in specs.iter().enumerate() {
        let shop = json!({"apiVersion": "shop.example.com/v1", "kind": "Shop", "metadata": {"name": format!("p{number}")}, "spec": spec});
        shops.create(&PostParams::default(), &serde_json::from_value(shop).unwrap()).await.unwrap();
    }
    let start = Instant::now();
    let has = |object: &DynamicObject, kind: &str, status: &str| condition(object, kind)["status"] == status;
    let all = loop {
        let all = shops.list(&ListParams::default()).await.unwrap().items;
        if all.iter().all(|object| has(object, "Successful", "True") || has(object, "Failure", "True")) {
            break all;
        }
        assert!(start.elapsed() < MAX_WAIT, "not all runs have ended");
        sleep(Duration::from_millis(100)).await;
    };
    for object in &all {
        // The task before the includes writes it. A file that does not exist fails the run.
        let name = object.metadata.name.as_deref().unwrap();
        let found = data(&test, &format!("{name}-found")).await;
        assert!(!found.is_null(), "{name}: {}", condition(object, "Failure"));
    }
    assert!(all.iter().any(|object| has(object, "VariablesAccepted", "False")));
    assert!(!canary.exists(), "a command ran");
    // Payloads contain objects of kinds that the role does not name.
    test.expect_denials();
    suite.assert_harmless(|_| false).await;
}
