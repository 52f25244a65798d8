//! A tenant who may write only custom resources of one namespace, and sends what could harm the operator or its neighbors.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod payloads;

use flyball::Kind;
use flyball_ansible::{Watches, operator};
use flyball_cluster::testing::Test;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::Api;
use kube::api::{DynamicObject, ListParams, PostParams};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What the Secret of another namespace holds.
const CROWN: &str = "CANARY-4711";

/// A role that passes what users write through everything that the executor has, without care.
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
        ("roles/shop/templates/page.yaml.j2", page),
    ];
    for (path, text) in files {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    folder
}

/// Names and versions of all that is outside the namespace of the test.
async fn elsewhere(test: &Test) -> BTreeMap<String, Option<String>> {
    let own = Some(test.namespace().to_owned());
    let all = ListParams::default();
    let maps = Api::<ConfigMap>::all(test.client()).list(&all).await.unwrap().items.into_iter().map(|map| map.metadata);
    let secrets = Api::<Secret>::all(test.client()).list(&all).await.unwrap().items.into_iter().map(|one| one.metadata);
    let spaces =
        Api::<Namespace>::all(test.client()).list(&all).await.unwrap().items.into_iter().map(|one| one.metadata);
    let outside = maps.chain(secrets).filter(|object| object.namespace != own).chain(spaces);
    outside.map(|object| (format!("{:?}/{:?}", object.namespace, object.name), object.resource_version)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_tenant_harms_neither_the_operator_nor_its_neighbors() {
    let payloads = payloads::all();
    let distinct: BTreeSet<String> = payloads.iter().map(Value::to_string).collect();
    assert!(distinct.len() >= 1000, "{} payloads", distinct.len());
    let folder = project();
    let canary = payloads::canary();
    let _ = fs::remove_file(&canary);
    let test = Test::of(move || operator(&Watches::read(folder.join("watches.yaml")).unwrap().repeatable()).unwrap())
        .start()
        .await;
    let client = test.client();
    let other: Namespace = serde_json::from_value(json!({"metadata": {"name": "other"}})).unwrap();
    Api::all(client.clone()).create(&PostParams::default(), &other).await.unwrap();
    let crown: Secret =
        serde_json::from_value(json!({"metadata": {"name": "crown"}, "stringData": {"jewels": CROWN}})).unwrap();
    Api::namespaced(client.clone(), "other").create(&PostParams::default(), &crown).await.unwrap();
    // The cluster puts something into each namespace itself.
    tokio::time::sleep(Duration::from_secs(10)).await;
    let before = elsewhere(&test).await;

    let kind = Kind::new("shop.example.com", "v1", "Shop");
    let shops: Api<DynamicObject> = Api::namespaced_with(client.clone(), test.namespace(), &kind.api_resource());
    let shop = |name: &str, spec: &Value| -> DynamicObject {
        serde_json::from_value(
            json!({"apiVersion": "shop.example.com/v1", "kind": "Shop", "metadata": {"name": name}, "spec": spec}),
        )
        .unwrap()
    };
    for (number, spec) in payloads.iter().enumerate() {
        shops.create(&PostParams::default(), &shop(&format!("p{number}"), spec)).await.unwrap();
    }
    // Others are served while all of these fail or succeed.
    shops.create(&PostParams::default(), &shop("neighbor", &json!({"title": "good day"}))).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;

    let told = |object: &DynamicObject, kind: &str| {
        let conditions = object.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.into_iter().find(|condition| condition["type"] == kind).unwrap_or_default()
    };
    let all = shops.list(&ListParams::default()).await.unwrap().items;
    for object in &all {
        let name = object.metadata.name.as_deref().unwrap();
        let ended = ["Successful", "Failure"].iter().any(|kind| told(object, kind)["status"] == "True");
        assert!(ended, "{name} came to no end: {}", object.data);
    }
    let refused = all.iter().filter(|object| told(object, "VariablesAccepted")["status"] == "False").count();
    assert!(refused >= payloads::count_of_names(), "{refused} objects say that names were refused");
    let neighbor = shops.get("neighbor").await.unwrap();
    assert_eq!(told(&neighbor, "Successful")["status"], "True", "{}", neighbor.data);
    assert!(!canary.exists(), "a command ran");
    assert_eq!(elsewhere(&test).await, before, "something changed outside of the namespace");
    let encoded = "Q0FOQVJZLTQ3MTE";
    let maps = test.api::<ConfigMap>().list(&ListParams::default()).await.unwrap().items;
    for map in maps {
        let text = serde_json::to_string(&map.data).unwrap();
        let name = map.metadata.name.unwrap_or_default();
        assert!(!text.contains(CROWN) && !text.contains(encoded), "{name} holds the Secret of another namespace");
    }
}
