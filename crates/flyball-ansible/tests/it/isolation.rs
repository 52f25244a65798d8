//! Users change no objects of others in their namespace, and hold no workers that others need.

use crate::project::{Project, api, condition, data, operator_of, shops};
use flyball_cluster::testing::Test;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::Api;
use kube::api::{DynamicObject, ListParams, PostParams};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::sleep;

/// A role whose users choose the objects that it deletes and patches.
const TASKS: &str = r#"
- name: its own object
  k8s: {definition: {apiVersion: v1, kind: ConfigMap, metadata: {name: '{{ ansible_operator_meta.name }}-own'}, data: {a: a}}}
- name: an object of a previous version
  k8s: {api_version: v1, kind: ConfigMap, name: legacy, state: absent}
- name: an object that users choose
  k8s: {api_version: v1, kind: ConfigMap, name: '{{ obsolete }}', state: absent}
  when: obsolete is defined
- name: objects that users choose
  k8s: {api_version: v1, kind: ConfigMap, label_selectors: ['app={{ app }}'], state: absent}
  when: app is defined
- name: another object that users choose
  k8s: {state: patched, definition: {apiVersion: v1, kind: ConfigMap, metadata: {name: '{{ extra }}'}, data: {a: changed}}}
  when: extra is defined
"#;

async fn start(name: &str, watches: &str) -> Test {
    let written = Project::new(name, &[("watches.yaml", watches), ("roles/a/tasks/main.yml", TASKS)]);
    let folder = written.folder().to_owned();
    let test = Test::of(move || operator_of(&folder)).allows_changes_of::<ConfigMap>().start().await;
    for name in ["theirs", "legacy"] {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"app": "theirs"}}, "data": {"a": "a"}});
        test.apply(&map.to_string()).await;
    }
    test
}

fn shop(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "shop.example.com/v1", "kind": "Shop", "metadata": {"name": name}, "spec": spec})
}

fn is_successful(object: &DynamicObject) -> bool {
    condition(object, "Successful")["status"] == "True"
}

#[tokio::test(start_paused = true)]
async fn users_do_not_choose_objects_of_others() {
    let test = start("others", "- {group: shop.example.com, version: v1, kind: Shop, role: a}\n").await;
    test.apply(&shop("first", json!({})).to_string()).await;
    test.assert_converges().await;
    let attacks = [
        (json!({"obsolete": "theirs"}), "was not created for it"),
        (json!({"extra": "theirs"}), "was not created for it"),
        (json!({"app": "theirs"}), "was not created for it"),
        (json!({"obsolete": "first-own"}), "belongs to Shop first"),
        (json!({"extra": "first-own"}), "belongs to Shop first"),
    ];
    for (number, (spec, _)) in attacks.iter().enumerate() {
        test.apply(&shop(&format!("s{number}"), spec.clone()).to_string()).await;
    }
    sleep(Duration::from_secs(20)).await;
    let objects = api(&test, &shops());
    for (number, (spec, problem)) in attacks.iter().enumerate() {
        let failure = condition(&objects.get(&format!("s{number}")).await.unwrap(), "Failure");
        let message = failure["message"].as_str().unwrap_or_default();
        assert!(message.contains(problem) && message.contains("allowKinds"), "{spec}: {failure}");
    }
    for name in ["theirs", "first-own"] {
        assert_eq!(data(&test, name).await, json!({"a": "a"}));
    }
    // The role names this one literally.
    assert_eq!(data(&test, "legacy").await, Value::Null);
}

#[tokio::test(start_paused = true)]
async fn watches_may_let_users_choose_objects() {
    let watches =
        "- {group: shop.example.com, version: v1, kind: Shop, role: a, allowKinds: [{version: v1, kind: ConfigMap}]}\n";
    let test = start("chosen", watches).await;
    test.apply(&shop("first", json!({"extra": "theirs"})).to_string()).await;
    test.assert_converges().await;
    assert_eq!(data(&test, "theirs").await, json!({"a": "changed"}));
    test.apply(&shop("second", json!({"obsolete": "theirs"})).to_string()).await;
    sleep(Duration::from_secs(10)).await;
    assert_eq!(data(&test, "theirs").await, Value::Null);
}

#[tokio::test(start_paused = true)]
async fn waiting_runs_of_one_namespace_leave_workers_to_others() {
    let tasks = r#"
- {pause: {seconds: '{{ pause | default(0) }}'}}
- k8s: {definition: {apiVersion: v1, kind: ConfigMap, metadata: {name: '{{ ansible_operator_meta.name }}'}}}
"#;
    let written = Project::role("waiting", tasks);
    let folder = written.folder().to_owned();
    let test = Test::of(move || operator_of(&folder)).allows_changes_of::<Namespace>().start().await;
    test.apply("{apiVersion: v1, kind: Namespace, metadata: {name: busy}}").await;
    let busy: Api<DynamicObject> = Api::namespaced_with(test.client(), "busy", &shops().api_resource());
    for number in 0..20 {
        let object = shop(&format!("slow{number}"), json!({"pause": 600}));
        busy.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    }
    sleep(Duration::from_secs(10)).await;
    test.apply(&shop("quick", json!({})).to_string()).await;
    test.apply(&shop("patient", json!({"pause": 5})).to_string()).await;
    sleep(Duration::from_secs(20)).await;
    let objects = api(&test, &shops());
    for name in ["quick", "patient"] {
        let object = objects.get(name).await.unwrap();
        assert!(is_successful(&object), "{name}: {}", object.data);
    }
    // Deferred runs take their turn.
    sleep(Duration::from_secs(6000)).await;
    let all = busy.list(&ListParams::default()).await.unwrap().items;
    assert_eq!(all.iter().filter(|object| is_successful(object)).count(), 20);
}

#[tokio::test(start_paused = true)]
async fn run_with_changes_keeps_its_handlers_until_it_may_wait() {
    let tasks = r#"
- k8s: {definition: {apiVersion: v1, kind: ConfigMap, metadata: {name: '{{ ansible_operator_meta.name }}'}}}
  notify: report
- {pause: {seconds: 200}}
"#;
    let handlers = r#"
- name: report
  k8s:
    definition: {apiVersion: v1, kind: ConfigMap, metadata: {name: '{{ ansible_operator_meta.name }}-told'}, data: {a: a}}
"#;
    let watches = "- {group: shop.example.com, version: v1, kind: Shop, role: a}\n";
    let files = [("watches.yaml", watches), ("roles/a/tasks/main.yml", tasks), ("roles/a/handlers/main.yml", handlers)];
    let written = Project::new("handlers", &files);
    let folder = written.folder().to_owned();
    let test = Test::of(move || operator_of(&folder)).start().await;
    // More than the shares of a namespace, and fewer than the workers.
    for number in 0..12 {
        test.apply(&shop(&format!("s{number}"), json!({})).to_string()).await;
    }
    sleep(Duration::from_secs(1000)).await;
    for number in 0..12 {
        assert_eq!(data(&test, &format!("s{number}-told")).await, json!({"a": "a"}), "s{number}");
    }
}

#[tokio::test(start_paused = true)]
async fn facts_of_a_run_have_a_memory_limit() {
    let facts: String =
        (0..18).map(|n| format!("- {{set_fact: {{fact{n}: '{{{{ items }}}}'}}, ignore_errors: true}}\n")).collect();
    let written = Project::role("facts", &facts);
    let folder = written.folder().to_owned();
    let test = Test::of(move || operator_of(&folder)).start().await;
    test.apply(&shop("large", json!({"items": vec![json!({"a": 1}); 10_000]})).to_string()).await;
    test.apply(&shop("small", json!({"items": [1]})).to_string()).await;
    sleep(Duration::from_secs(10)).await;
    let objects = api(&test, &shops());
    let failure = condition(&objects.get("large").await.unwrap(), "Failure");
    assert!(failure["message"].as_str().unwrap_or_default().contains("exceed 67108864 bytes of memory"), "{failure}");
    assert!(is_successful(&objects.get("small").await.unwrap()));
}
