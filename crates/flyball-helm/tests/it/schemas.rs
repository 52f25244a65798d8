//! Status of custom resources whose CRD declares other fields than the operator sets.

use crate::project::{apply_site, condition, operator_of, patch, project, sites};
use flyball_cluster::testing::Test;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use std::path::PathBuf;

const PAGE: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}-page\ndata:\n  title: {{ .Values.title }}\n";

/// The properties of a condition as an old operator declared them, without time and generation.
const SHORT_CONDITIONS: &str = "{type: array, items: {type: object, required: [type, status], properties: {type: {type: string}, \
                                status: {type: string}, reason: {type: string}, message: {type: string}}}}";

/// `metav1.Condition`.
const FULL_CONDITIONS: &str = "{type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [type], items: {type: object, \
                               required: [lastTransitionTime, message, reason, status, type], properties: {\
                               type: {type: string}, status: {type: string, enum: ['True', 'False', Unknown]}, \
                               reason: {type: string, minLength: 1}, message: {type: string}, \
                               observedGeneration: {type: integer, format: int64}, lastTransitionTime: {type: string, format: date-time}}}}";

fn definition(status: &str) -> String {
    format!(
        "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {{name: sites.web.example.com}}\nspec:\n  \
         group: web.example.com\n  names: {{kind: Site, plural: sites}}\n  scope: Namespaced\n  versions:\n  - name: v1\n    \
         served: true\n    storage: true\n    subresources: {{status: {{}}}}\n    schema:\n      openAPIV3Schema:\n        type: object\n        \
         properties:\n          spec: {{type: object, x-kubernetes-preserve-unknown-fields: true}}\n          {status}\n"
    )
}

fn site(name: &str, status: &str) -> PathBuf {
    let files = [
        ("config/crd/bases/sites.yaml", &*definition(status)),
        ("charts/site/values.yaml", "title: Hello\n"),
        ("charts/site/templates/page.yaml", PAGE),
    ];
    project(name, &files)
}

/// Installs and upgrades a release, and returns its status.
async fn status(name: &str, schema: &str) -> Value {
    let mut test = Test::of(operator_of(site(name, schema))).start().await;
    apply_site(&test, "blue", "{title: Blue}").await;
    test.assert_converges().await;
    patch(&sites(&test), "blue", json!({"spec": {"title": "Bluer"}})).await;
    test.assert_converges().await;
    let before = test.requests();
    patch(&sites(&test), "blue", json!({"metadata": {"labels": {"a": "b"}}})).await;
    test.assert_converges().await;
    assert_eq!(test.requests().since(&before).writes, 0, "nothing had changed");
    test.assert_idempotent().await;
    sites(&test).get("blue").await.unwrap().data["status"].clone()
}

#[tokio::test(start_paused = true)]
async fn undeclared_fields_of_the_status_are_omitted() {
    let found =
        status("schema-short", &format!("status: {{type: object, properties: {{conditions: {SHORT_CONDITIONS}}}}}"))
            .await;
    let expected = json!({"conditions": [
        {"type": "Initialized", "status": "True"},
        {"type": "Deployed", "status": "True", "reason": "UpgradeSuccessful", "message": ""},
    ]});
    assert_eq!(found, expected);
    let release = "deployedRelease: {type: object, properties: {name: {type: string}}}";
    let found = status("schema-release", &format!("status: {{type: object, properties: {{{release}}}}}")).await;
    assert_eq!(found, json!({"deployedRelease": {"name": "blue"}}));
    assert_eq!(status("schema-empty", "status: {type: object}").await, Value::Null);
    assert_eq!(status("schema-none", "").await, Value::Null);
}

#[tokio::test(start_paused = true)]
async fn required_fields_of_conditions_are_set() {
    let found =
        status("schema-full", &format!("status: {{type: object, properties: {{conditions: {FULL_CONDITIONS}}}}}"))
            .await;
    let words = |field: &str| {
        let conditions = found["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().map(|condition| condition[field].as_str().unwrap_or("-").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(
        (words("type").join(" "), words("reason").join(" ")),
        ("Initialized Deployed".into(), "Initialized UpgradeSuccessful".into())
    );
    assert!(!words("lastTransitionTime").contains(&"-".to_owned()), "{found}");
}

#[tokio::test(start_paused = true)]
async fn changed_schema_is_read_again() -> kube::Result<()> {
    let open = "status: {type: object, x-kubernetes-preserve-unknown-fields: true}";
    let test = Test::of(operator_of(site("schema-changed", open)))
        .allows_changes_of::<CustomResourceDefinition>()
        .start()
        .await;
    apply_site(&test, "blue", "{title: Blue}").await;
    test.assert_converges().await;
    let name = sites(&test).get("blue").await?.data["status"]["deployedRelease"]["name"].clone();
    assert_eq!(name, "blue");
    test.apply(&definition(&format!("status: {{type: object, properties: {{conditions: {SHORT_CONDITIONS}}}}}"))).await;
    patch(&sites(&test), "blue", json!({"spec": {"title": "Bluer"}})).await;
    test.assert_converges().await;
    let status = sites(&test).get("blue").await?.data["status"].clone();
    assert_eq!(status["deployedRelease"], Value::Null);
    assert_eq!(condition(&sites(&test), "blue", "Deployed").await, "True UpgradeSuccessful: ");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn conditions_of_others_stay_in_an_atomic_list() -> kube::Result<()> {
    let open = "status: {type: object, x-kubernetes-preserve-unknown-fields: true}";
    let mut test = Test::of(operator_of(site("schema-atomic", open))).start().await;
    apply_site(&test, "blue", "{title: Blue}").await;
    test.assert_converges().await;
    let api: Api<_> = sites(&test);
    let mut conditions = api.get("blue").await?.data["status"]["conditions"].clone();
    conditions.as_array_mut().unwrap().push(json!({"type": "Audited", "status": "True"}));
    let change = Patch::Merge(json!({"status": {"conditions": conditions}}));
    api.patch_status("blue", &PatchParams::apply("auditor"), &change).await?;
    patch(&api, "blue", json!({"spec": {"title": "Bluer"}})).await;
    test.assert_converges().await;
    assert_eq!(condition(&api, "blue", "Audited").await, "True : ");
    assert_eq!(condition(&api, "blue", "Deployed").await, "True UpgradeSuccessful: ");
    test.assert_idempotent().await;
    Ok(())
}
