//! Objects that users choose.

use super::{named, test_of};
use crate::project::{Project, api, condition, data, shops};
use flyball_ansible::Executor;
use serde_json::{Value, json};

with_both_executors! {
    users_do_not_choose_objects_of_others
}

/// A role whose users choose the objects that it deletes and patches.
const CHOICES: &str = r#"
- kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata:
        name: '{{ ansible_operator_meta.name }}-own'
        namespace: '{{ ansible_operator_meta.namespace }}'
      data:
        a: a
- kubernetes.core.k8s:
    api_version: v1
    kind: ConfigMap
    name: legacy
    namespace: '{{ ansible_operator_meta.namespace }}'
    state: absent
- kubernetes.core.k8s:
    api_version: v1
    kind: ConfigMap
    name: '{{ obsolete }}'
    namespace: '{{ ansible_operator_meta.namespace }}'
    state: absent
  when: obsolete is defined
- kubernetes.core.k8s:
    state: patched
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata:
        name: '{{ extra }}'
        namespace: '{{ ansible_operator_meta.namespace }}'
      data:
        a: changed
  when: extra is defined
- kubernetes.core.k8s:
    api_version: v1
    kind: ConfigMap
    namespace: '{{ ansible_operator_meta.namespace }}'
    state: absent
    delete_all: true
  when: all is defined
- kubernetes.core.k8s_info:
    api_version: v1
    kind: Pod
    name: '{{ pod }}'
    namespace: '{{ ansible_operator_meta.namespace }}'
  when: pod is defined
- kubernetes.core.k8s_exec:
    pod: '{{ pod }}'
    namespace: '{{ ansible_operator_meta.namespace }}'
    command: id
  when: pod is defined
"#;

async fn users_do_not_choose_objects_of_others(executor: Executor) {
    let written = Project::role(&named("choices", executor), CHOICES);
    let Some(test) = test_of(written.folder().to_owned(), executor).await else { return };
    for name in ["theirs", "legacy"] {
        test.apply(&format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}}}, data: {{a: a}}}}")).await;
    }
    test.apply("{apiVersion: v1, kind: Pod, metadata: {name: theirs}, spec: {containers: [{name: a, image: a}]}}")
        .await;
    let objects = api(&test, &shops());
    let attacks = [
        ("first", json!({}), None),
        ("itself", json!({"extra": "itself-own"}), None),
        ("unowned", json!({"obsolete": "theirs"}), Some("was not created for it")),
        ("patched", json!({"extra": "theirs"}), Some("was not created for it")),
        ("owned", json!({"obsolete": "first-own"}), Some("belongs to Shop first")),
        ("all", json!({"all": true}), Some("belongs to Shop first")),
        ("connected", json!({"pod": "theirs"}), Some("was not created for it")),
    ];
    for (name, spec, problem) in attacks {
        let shop =
            json!({"apiVersion": "shop.example.com/v1", "kind": "Shop", "metadata": {"name": name}, "spec": spec});
        test.apply(&shop.to_string()).await;
        let found = async |kind: &str| condition(&objects.get(name).await.unwrap(), kind);
        let has = async |kind: &str| found(kind).await["status"] == "True";
        test.eventually("it has ended", async || has("Successful").await || has("Failure").await).await;
        let failure = found("Failure").await["message"].as_str().unwrap_or_default().to_owned();
        assert_eq!(has("Failure").await, problem.is_some(), "{spec}: {failure}");
        assert!(problem.is_none_or(|problem| failure.contains(problem)), "{spec}: {failure}");
    }
    assert_eq!(data(&test, "theirs").await, json!({"a": "a"}));
    assert_eq!(data(&test, "first-own").await, json!({"a": "a"}));
    assert_eq!(data(&test, "legacy").await, Value::Null);
}
