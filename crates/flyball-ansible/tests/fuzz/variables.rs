//! Specs of custom resources, as variables of a role that uses all features of the executor.
//!
//! Invariant: a run ends, successfully or with a failure in the status, and the operator continues.

use crate::engine;
use crate::targets::project;
use flyball::Kind;
use flyball_ansible::{Executor, Watches, operator};
use flyball_cluster::testing::Test;
use kube::Api;
use kube::api::{DeleteParams, DynamicObject, PostParams};
use serde_json::{Value, json};
use std::time::Duration;

const TASKS: &str = r#"
- set_fact: {helper: '{{ title | default("none") }}'}
- debug: {msg: '{{ helper }} {{ note | default("") }} {{ items | default([]) | to_json | length }}'}
- assert: {that: ['helper is defined', 'result is not defined']}
- k8s: {definition: "{{ lookup('template', 'page.yaml.j2') | from_yaml_all | list }}"}
  ignore_errors: true
- k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: '{{ ansible_operator_meta.name }}-placed', namespace: '{{ target | default(meta.namespace) }}'}
      data: {helper: '{{ helper | string }}', pattern: '{{ "aaaaaaaaaaaaaaaaaaaaaaaab" is match(pattern | default("a")) }}'}
  ignore_errors: true
- k8s_info: {api_version: v1, kind: ConfigMap, namespace: '{{ source | default(meta.namespace) }}', name: '{{ name | default("x") }}'}
  register: result
  ignore_errors: true
- debug: {msg: '{{ item }} {{ items | difference([item]) | length }} {{ count | default(1) | int }}'}
  loop: '{{ items | default([]) }}'
  ignore_errors: true
- debug: {msg: '{{ yaml | default("a: b") | from_yaml | combine({"x": helper}, recursive=true) | to_nice_json }}'}
  ignore_errors: true
- include_tasks: '{{ file | default("more") }}.yml'
  ignore_errors: true
"#;

/// Maximum number of iterations of the role's loop.
const MAX_ITEMS: usize = 100;

pub(crate) struct Variables;

pub(crate) struct World {
    test: Test,
    shops: Api<DynamicObject>,
    number: u64,
}

/// The outcome of a run from its conditions, if it has ended.
fn ended(object: &DynamicObject) -> Option<String> {
    let conditions = object.data["status"]["conditions"].as_array()?;
    let is_end =
        |found: &&Value| found["status"] == "True" && ["Successful", "Failure"].iter().any(|end| found["type"] == *end);
    let end = conditions.iter().find(is_end)?;
    let message = end["message"].as_str().unwrap_or_default();
    let words = message.split(|c: char| !c.is_ascii_alphabetic()).filter(|word| word.len() > 1);
    Some(words.take(12).collect::<Vec<_>>().join(" "))
}

impl engine::Target for Variables {
    type World = World;

    fn seeds(&self) -> Vec<Vec<u8>> {
        let specs = [
            json!({"title": "a", "note": "{{ lookup('env', 'HOME') }}", "items": ["a", "b", {"c": 1}]}),
            json!({"title": {"a": "{{ b }}"}, "yaml": "a: &a [x]\nb: [*a, *a]", "count": "9e99", "pattern": "(a+)+$"}),
            json!({"target": "kube-system", "source": "other", "file": "../../../main", "name": ["x"]}),
            json!({"ansible_connection": "ssh", "hostvars": {}, "vars": 1, "item": 2, "result": 3, "meta": {}}),
            json!({"camelCase": 1, "camel_case": 2, "CAMELCase": 3, "9x": 4, "": 5, "a b": 6}),
            json!({"title": "x\nkind: ClusterRole\n---\n", "items": "{% for i in range(99999999) %}{% endfor %}"}),
        ];
        specs.iter().map(|spec| spec.to_string().into_bytes()).collect()
    }

    async fn open(&self) -> World {
        let folder = project("variables", TASKS);
        let test = Test::of(move || {
            operator(&Watches::read(folder.join("watches.yaml")).unwrap().deterministic(), Executor::BuiltIn).unwrap()
        });
        let test = test.start().await;
        // A spec may make the role include itself.
        test.expect_errors("nested deeper than");
        let kind = Kind::new("shop.example.com", "v1", "Shop");
        let shops = Api::namespaced_with(test.client(), test.namespace(), &kind.api_resource());
        World { test, shops, number: 0 }
    }

    async fn play(&self, world: &mut World, input: &[u8]) -> String {
        let Ok(mut spec) = serde_json::from_slice::<Value>(input) else { return "no JSON".into() };
        // A long loop is only ended by the time limit, and simulated time does not advance.
        spec.get_mut("items").and_then(Value::as_array_mut).into_iter().for_each(|items| items.truncate(MAX_ITEMS));
        world.number += 1;
        let name = format!("p{}", world.number);
        let object =
            json!({"apiVersion": "shop.example.com/v1", "kind": "Shop", "metadata": {"name": name}, "spec": spec});
        let Ok(shop) = serde_json::from_value(object) else { return "no object".into() };
        if let Err(error) = world.shops.create(&PostParams::default(), &shop).await {
            return error.to_string().chars().filter(|c| c.is_ascii_alphabetic()).take(40).collect();
        }
        let mut waited = 0;
        let how = loop {
            let found = world.shops.get(&name).await.unwrap();
            match ended(&found) {
                Some(how) => break how,
                None => assert!(waited < 600, "the run did not end: {}", found.data["status"]),
            }
            waited += 1;
            tokio::time::sleep(Duration::from_secs(1)).await;
        };
        assert!(!how.contains("panicked") && !world.test.crashed(), "{how}");
        world.shops.delete(&name, &DeleteParams::default()).await.unwrap();
        let object = world.shops.get_opt(&name).await.unwrap();
        format!("{how} {}", object.is_some())
    }
}
