//! A tenant who may only write custom resources in one namespace sends payloads that could harm the operator or its
//! neighbors.
#![expect(clippy::unwrap_used, reason = "an unwrap in a test is an assertion")]

mod payloads;
#[path = "../../../flyball-cluster/tests/tenant/suite.rs"]
mod suite;

use flyball::Kind;
use flyball_ansible::{Executor, Watches, operator};
use flyball_cluster::testing::Test;
use kube::api::{DynamicObject, ListParams, PostParams};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use suite::{Latencies, Suite};

/// A role that passes text of users through all features of the executor, without validation.
const TASKS: &str = r#"
- set_fact: {helper: '{{ title | default("none") }}'}
- debug: {msg: '{{ helper }} {{ note | default("") }}'}
- assert: {that: ['helper is defined', 'result is not defined']}
- name: raw text in YAML
  k8s: {definition: "{{ lookup('template', 'page.yaml.j2') | from_yaml_all | list }}"}
  ignore_errors: true
- name: a place that users choose
  k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: '{{ ansible_operator_meta.name }}-placed', namespace: '{{ target | default(meta.namespace) }}'}
      data: {helper: '{{ helper | string }}'}
  ignore_errors: true
- name: a Secret that users choose
  k8s_info: {api_version: v1, kind: Secret, namespace: '{{ source | default(meta.namespace) }}', name: '{{ secret | default("crown") }}'}
  register: result
  ignore_errors: true
- name: what was found
  k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: '{{ ansible_operator_meta.name }}-found'}
      data: {found: '{{ result | to_json }}'}
- debug: {msg: '{{ item }} {{ items | difference([item]) | length }}'}
  loop: '{{ items | default([]) }}'
  ignore_errors: true
- include_tasks: '{{ file | default("more") }}.yml'
  ignore_errors: true
- include_tasks: nest.yml
  loop: '{{ turns | default([]) }}'
"#;

fn project() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("flyball-ansible").join("tenant");
    let _ = fs::remove_dir_all(&folder);
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/projects/shop/config/crd/bases/shops.yaml");
    let page = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ ansible_operator_meta.name }}-page\ndata:\n  title: {{ title | default('x') }}\n";
    let definition = fs::read_to_string(own).unwrap();
    let files = [
        ("watches.yaml", "- {group: shop.example.com, version: v1, kind: Shop, role: roles/shop}\n"),
        ("config/crd/bases/shops.yaml", &definition),
        ("roles/shop/tasks/main.yml", TASKS),
        ("roles/shop/tasks/more.yml", "- debug: {msg: more}\n"),
        ("roles/shop/tasks/nest.yml", "- set_fact: {nested: ['{{ nested | default(1) }}']}\n"),
        ("roles/shop/templates/page.yaml.j2", page),
    ];
    for (path, text) in files {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    folder
}

fn shop(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "shop.example.com/v1", "kind": "Shop", "metadata": {"name": name}, "spec": spec})
}

fn condition(object: &DynamicObject, kind: &str) -> Value {
    let conditions = object.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.into_iter().find(|condition| condition["type"] == kind).unwrap_or_default()
}

fn is_successful(object: &DynamicObject) -> bool {
    condition(object, "Successful")["status"] == "True"
}

#[tokio::test(start_paused = true)]
async fn tenant_is_isolated_from_operator_and_neighbors() {
    let payloads = payloads::all();
    let distinct: BTreeSet<String> = payloads.iter().map(Value::to_string).collect();
    assert!(distinct.len() >= 1000, "{} payloads", distinct.len());
    let folder = project();
    let canary = payloads::canary();
    let _ = fs::remove_file(&canary);
    let test = Test::of(move || {
        operator(&Watches::read(folder.join("watches.yaml")).unwrap().deterministic(), Executor::BuiltIn).unwrap()
    })
    .start()
    .await;
    let kind = Kind::new("shop.example.com", "v1", "Shop").api_resource();
    let suite = Suite::begin(&test, std::slice::from_ref(&kind), "other").await;
    let neighbors =
        |name: &'static str| (0..20).map(move |at| shop(&format!("{name}{at}"), &json!({"title": "good day"})));
    let calm = suite.latencies(&kind, neighbors("calm"), async |object| is_successful(object)).await;

    let shops = suite.api(&kind);
    for (number, spec) in payloads.iter().enumerate() {
        let shop: DynamicObject = serde_json::from_value(shop(&format!("p{number}"), spec)).unwrap();
        shops.create(&PostParams::default(), &shop).await.unwrap();
    }
    // Other objects are reconciled while all of these fail or succeed.
    let attacked = suite.latencies(&kind, neighbors("attacked"), async |object| is_successful(object)).await;
    Latencies::print(&calm, &attacked, payloads.len(), "Ansible");
    tokio::time::sleep(Duration::from_secs(60)).await;

    let all = shops.list(&ListParams::default()).await.unwrap().items;
    for object in &all {
        let name = object.metadata.name.as_deref().unwrap();
        let is_finished = is_successful(object) || condition(object, "Failure")["status"] == "True";
        assert!(is_finished, "{name} did not end: {}", object.data);
    }
    let refused = all.iter().filter(|object| condition(object, "VariablesAccepted")["status"] == "False").count();
    assert!(refused >= payloads::count_of_names(), "{refused} objects report rejected names");
    assert!(!canary.exists(), "a command ran");
    suite.assert_harmless(|_| false).await;
}
