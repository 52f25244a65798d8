//! Fields with the names of keywords, and of variables that a play presets.

use crate::project::{Project, api, condition, data, operator_of, shops};
use flyball_cluster::testing::Test;
use serde_json::json;

const PLAY: &str = "
- hosts: localhost
  gather_facts: false
  vars: {no_log: true, image: pinned, tags: none}
  roles: [a]
";

const TASKS: &str = "
- debug: {msg: shown}
  no_log: '{{ no_log }}'
- k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: chosen}
      data: {no_log: '{{ no_log | string }}', image: '{{ image }}', timeout: '{{ timeout | default(0) | string }}', tags: '{{ tags }}'}
";

/// As in the operator of AWX: its play presets `no_log`, which its role has a default for and its CRD declares.
#[tokio::test(start_paused = true)]
async fn declared_fields_replace_presets_of_a_play() {
    let definition =
        std::fs::read_to_string(crate::project::project("shop").join("config/crd/bases/shops.yaml")).unwrap();
    let declared = definition.replace(
        "spec: {type: object, ",
        "spec: {type: object, properties: {no_log: {type: boolean}, tags: {type: string}}, ",
    );
    let project = Project::new(
        "presets",
        &[
            (
                "watches.yaml",
                "- {group: shop.example.com, version: v1, kind: Shop, playbook: site.yml, snakeCaseParameters: false}\n",
            ),
            ("config/crd/bases/shops.yaml", &declared),
            ("site.yml", PLAY),
            ("roles/a/defaults/main.yml", "no_log: true\nimage: default\n"),
            ("roles/a/tasks/main.yml", TASKS),
        ],
    );
    let folder = project.folder().to_owned();
    let test = Test::of(move || operator_of(&folder)).nodes(1).start().await;
    test.apply(
        "{apiVersion: shop.example.com/v1, kind: Shop, metadata: {name: corner},
          spec: {no_log: false, image: chosen, timeout: 5, tags: chosen}}",
    )
    .await;
    test.assert_converges().await;
    // The image is pinned, since the CRD does not declare it; tags, since no role has a default for it.
    assert_eq!(
        data(&test, "chosen").await,
        json!({"no_log": "False", "image": "pinned", "timeout": "5", "tags": "none"})
    );
    let shop = api(&test, &shops()).get("corner").await.unwrap();
    let message = condition(&shop, "VariablesAccepted")["message"].to_string();
    assert!(message.contains("image") && message.contains("tags") && !message.contains("no_log"), "{message}");
}
