//! Upgrades of the CRDs in a chart's directory `crds`.

use crate::project::{api, apply_site, condition, history, operator_of, patch, project, sites};
use flyball_cluster::testing::Test;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::Api;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::{Instant, sleep};

const PAGE: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}-page\ndata:\n  title: {{ .Values.title }}\n";

fn definition(properties: &str) -> String {
    format!(
        "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {{name: parts.example.com}}\nspec:\n  \
         group: example.com\n  names: {{kind: Part, plural: parts}}\n  scope: Namespaced\n  versions:\n  - name: v1\n    served: true\n    \
         storage: true\n    schema: {{openAPIV3Schema: {{type: object, properties: {{{properties}}}}}}}\n"
    )
}

fn site(name: &str, entry: &str) -> PathBuf {
    let watches = format!("- {{group: web.example.com, version: v1, kind: Site, chart: charts/site{entry}}}\n");
    let files = [
        ("watches.yaml", &*watches),
        ("charts/site/values.yaml", "title: Hello\n"),
        ("charts/site/templates/page.yaml", PAGE),
        ("charts/site/crds/parts.yaml", &*definition("size: {type: integer}")),
    ];
    project(name, &files)
}

fn write(folder: &Path, properties: &str) {
    std::fs::write(folder.join("charts/site/crds/parts.yaml"), definition(properties)).expect("it can be written");
}

async fn properties(test: &Test) -> Vec<String> {
    let crds: Api<CustomResourceDefinition> = Api::all(test.client());
    let crd = crds.get("parts.example.com").await.expect("it is there");
    let schema = crd.spec.versions[0].schema.as_ref().and_then(|schema| schema.open_api_v3_schema.clone());
    schema.and_then(|schema| schema.properties).unwrap_or_default().into_keys().collect()
}

#[tokio::test(start_paused = true)]
async fn compatible_changes_of_crds_are_applied_by_upgrades() -> kube::Result<()> {
    let folder = site("crds-upgraded", ", upgradeCRDs: true");
    let mut test = Test::of(operator_of(folder.clone())).allows_changes_of::<CustomResourceDefinition>().start().await;
    apply_site(&test, "blue", "{}").await;
    test.assert_converges().await;
    assert_eq!(properties(&test).await, ["size"]);

    test.crash().await;
    write(&folder, "size: {type: integer}, color: {type: string}");
    test.restart().await;
    test.assert_converges().await;
    assert_eq!(properties(&test).await, ["color", "size"], "also if no other object changes");
    assert_eq!(history(&test, "blue").await, ["1 deployed"]);
    test.assert_idempotent().await;

    test.crash().await;
    write(&folder, "size: {type: string}");
    patch(&sites(&test), "blue", json!({"spec": {"title": "Blue"}})).await;
    test.restart().await;
    let failure = async || condition(&sites(&test), "blue", "ReleaseFailed").await;
    test.eventually("the failure", async || !failure().await.is_empty()).await;
    let failed = failure().await;
    let expected = "True UpgradeError: failed to upgrade the chart's CRDs: site/crds/parts.yaml: the change of CustomResourceDefinition \
                    parts.example.com could invalidate stored objects: schema of \"v1\": .color is removed: ";
    assert!(failed.starts_with(expected), "{failed}");
    assert_eq!(properties(&test).await, ["color", "size"]);
    let page = test.api::<ConfigMap>().get("blue-page").await?;
    assert_eq!((page.data.unwrap_or_default()["title"].as_str(), history(&test, "blue").await.len()), ("Hello", 1));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn release_is_installed_as_soon_as_its_crds_are_established() {
    let folder = site("crds-awaited", "");
    let part = "apiVersion: example.com/v1\nkind: Part\nmetadata:\n  name: {{ .Release.Name }}-part\nsize: 1\n";
    std::fs::write(folder.join("charts/site/templates/part.yaml"), part).expect("it can be written");
    let test = Test::of(operator_of(folder)).allows_changes_of::<CustomResourceDefinition>().start().await;
    sleep(Duration::from_secs(60)).await;
    apply_site(&test, "blue", "{}").await;
    let crds: Api<CustomResourceDefinition> = Api::all(test.client());
    let is_established = async || {
        let crd = crds.get_opt("parts.example.com").await.expect("the server answers");
        let conditions = crd.and_then(|crd| crd.status?.conditions).unwrap_or_default();
        conditions.iter().any(|condition| condition.type_ == "Established" && condition.status == "True")
    };
    let parts = api(&test, "example.com", "v1", "Part");
    while !is_established().await {
        sleep(Duration::from_millis(50)).await;
    }
    let begin = Instant::now();
    let is_installed = async || {
        let deployed = condition(&sites(&test), "blue", "Deployed").await;
        deployed.starts_with("True") && parts.get_opt("blue-part").await.is_ok_and(|part| part.is_some())
    };
    while !is_installed().await {
        sleep(Duration::from_millis(50)).await;
        assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", sites(&test).get("blue").await);
    }
    assert!(begin.elapsed() <= Duration::from_secs(1), "{:?}", begin.elapsed());
}

#[test]
fn crds_are_created_without_permission_to_change_or_delete_them() {
    let verbs = |entry: &str| {
        let name = format!("crds-rights{}", entry.len());
        let rules = operator_of(site(&name, entry))().rules().into_iter();
        let of_crds = rules.filter(|rule| {
            rule.resources.iter().flatten().any(|resource| resource.starts_with("customresourcedefinitions"))
        });
        let mut verbs: Vec<String> = of_crds.flat_map(|rule| rule.verbs).collect();
        verbs.sort();
        verbs.dedup();
        verbs.join(",")
    };
    assert_eq!(verbs(""), "create,get,list,watch");
    assert_eq!(verbs(", upgradeCRDs: true"), "create,get,list,update,watch");
}

#[tokio::test(start_paused = true)]
async fn crds_stay_without_the_setting() {
    let folder = site("crds-kept", "");
    let mut test = Test::of(operator_of(folder.clone())).allows_changes_of::<CustomResourceDefinition>().start().await;
    apply_site(&test, "blue", "{}").await;
    test.assert_converges().await;
    test.crash().await;
    write(&folder, "size: {type: integer}, color: {type: string}");
    patch(&sites(&test), "blue", json!({"spec": {"title": "Blue"}})).await;
    test.restart().await;
    test.assert_converges().await;
    assert_eq!(history(&test, "blue").await, ["1 superseded", "2 deployed"]);
    assert_eq!(properties(&test).await, ["size"]);
}

#[tokio::test(start_paused = true)]
async fn setting_that_is_added_after_a_failure_repeats_the_upgrade() {
    // The account of the operator has the permissions of its first start.
    let folder = site("crds-after-failure", ", upgradeCRDs: true");
    let write_entry = |more: &str| {
        let watches = format!("- {{group: web.example.com, version: v1, kind: Site, chart: charts/site{more}}}\n");
        std::fs::write(folder.join("watches.yaml"), watches).expect("it can be written");
    };
    let part = "apiVersion: example.com/v1\nkind: Part\nmetadata:\n  name: {{ .Release.Name }}-part\n\
                size: {{ .Values.size }}\n";
    std::fs::write(folder.join("charts/site/templates/part.yaml"), part).expect("it can be written");
    std::fs::write(folder.join("charts/site/values.yaml"), "title: Hello\nsize: 1\n").expect("it can be written");
    write(&folder, "size: {type: integer, maximum: 5}");
    let mut test = Test::of(operator_of(folder.clone())).allows_changes_of::<CustomResourceDefinition>().start().await;
    apply_site(&test, "blue", "{}").await;
    test.assert_converges().await;

    test.crash().await;
    write_entry("");
    write(&folder, "size: {type: integer, maximum: 10}");
    patch(&sites(&test), "blue", json!({"spec": {"size": 7}})).await;
    test.restart().await;
    // By now, the next attempt is minutes away.
    sleep(Duration::from_secs(900)).await;
    let failed = condition(&sites(&test), "blue", "ReleaseFailed").await;
    assert!(failed.starts_with("True UpgradeError"), "{failed}");

    test.crash().await;
    write_entry(", upgradeCRDs: true");
    test.restart().await;
    let begin = Instant::now();
    let parts = api(&test, "example.com", "v1", "Part");
    while parts.get("blue-part").await.expect("it is there").data["size"] != 7 {
        sleep(Duration::from_millis(100)).await;
        assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", sites(&test).get("blue").await);
    }
}
