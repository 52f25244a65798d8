//! Status of objects whose CRD declares other fields than the operator sets.

use crate::project::{Project, api, change, operator_of, shops};
use flyball_cluster::testing::Test;
use serde_json::{Value, json};

const SHOP: &str = "{apiVersion: shop.example.com/v1, kind: Shop, metadata: {name: corner}, spec: {}}";

/// Sets a status, and writes another value in each run.
const TASKS: &str = "
- k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: \"{{ ansible_operator_meta.name }}-stock\"}
      data: {value: \"{{ lookup('password', '/dev/null length=20') }}\"}
- k8s_status:
    api_version: shop.example.com/v1
    kind: Shop
    name: \"{{ ansible_operator_meta.name }}\"
    namespace: \"{{ ansible_operator_meta.namespace }}\"
    status: {phase: Open, undeclared: 1}
";

fn definition(status: &str) -> String {
    format!(
        "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {{name: shops.shop.example.com}}\nspec:\n  \
         group: shop.example.com\n  names: {{kind: Shop, plural: shops}}\n  scope: Namespaced\n  versions:\n  - name: v1\n    \
         served: true\n    storage: true\n    subresources: {{status: {{}}}}\n    schema:\n      openAPIV3Schema:\n        type: object\n        \
         properties:\n          spec: {{type: object, x-kubernetes-preserve-unknown-fields: true}}\n          status:\n            \
         type: object\n            properties:\n              phase: {{type: string}}\n              {status}\n"
    )
}

/// Runs the role for two generations, and returns the status.
async fn status(name: &str, schema: &str) -> Value {
    let files = [("roles/a/tasks/main.yml", TASKS), ("config/crd/bases/shops.yaml", &*definition(schema))];
    let project = Project::new(name, &files);
    let folder = project.folder().to_owned();
    let test = Test::of(move || operator_of(&folder)).start().await;
    test.apply(SHOP).await;
    test.assert_converges().await;
    change(&api(&test, &shops()), "corner", json!({"spec": {"size": 2}})).await;
    test.assert_converges().await;
    let before = test.requests();
    change(
        &api(&test, &shops()),
        "corner",
        json!({"metadata": {"annotations": {"ansible.sdk.operatorframework.io/reconcile-period": "5h"}}}),
    )
    .await;
    test.assert_converges().await;
    assert_eq!(test.requests().since(&before).writes, 1, "the status has not changed");
    api(&test, &shops()).get("corner").await.unwrap().data["status"].clone()
}

#[tokio::test(start_paused = true)]
async fn undeclared_fields_of_the_status_are_omitted() {
    let short =
        "conditions: {type: array, items: {type: object, properties: {type: {type: string}, status: {type: string}}}}";
    let expected = json!({"phase": "Open", "conditions": [
        {"type": "Running", "status": "True"},
        {"type": "Successful", "status": "True"},
        {"type": "Failure", "status": "False"},
    ]});
    assert_eq!(status("schema-short", short).await, expected);
    assert_eq!(status("schema-without-conditions", "").await, json!({"phase": "Open"}));
}
