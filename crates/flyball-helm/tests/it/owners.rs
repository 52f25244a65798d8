//! Objects that a custom resource cannot own, kept objects, unknown kinds, and groups.

use crate::project::{api, apply_site, condition, history, operator_of, patch, project, sites};
use flyball::Operator;
use flyball_cluster::testing::{Setup, Test, explore_crashes};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind};
use serde_json::json;
use std::path::PathBuf;
use std::time::Duration;
use tokio::time::sleep;

const ROLE: &str = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata:\n  name: {{ .Release.Namespace }}-{{ .Release.Name }}\n\
                    rules:\n- {apiGroups: [\"\"], resources: [pods], verbs: [get, list]}\n---\n\
                    apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata:\n  name: {{ .Release.Namespace }}-{{ .Release.Name }}\n\
                    roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: \"{{ .Release.Namespace }}-{{ .Release.Name }}\"}\n\
                    subjects: [{kind: ServiceAccount, name: default, namespace: \"{{ .Release.Namespace }}\"}]\n";
const ELSEWHERE: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}-elsewhere\n  namespace: kube-public\ndata: {a: b}\n";
const KEPT: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}-kept\n  annotations: {helm.sh/resource-policy: keep}\n";

fn site(name: &str) -> PathBuf {
    project(
        name,
        &[
            ("charts/site/templates/role.yaml", ROLE),
            ("charts/site/templates/elsewhere.yaml", ELSEWHERE),
            ("charts/site/templates/kept.yaml", KEPT),
        ],
    )
}

/// A test whose chart has objects in `kube-public`, and cluster-scoped ones.
fn test_of(operator: impl Fn() -> Operator + Send + Sync + 'static) -> Setup {
    Test::of(operator)
        .allows_changes_in("kube-public")
        .allows_changes_of::<ClusterRole>()
        .allows_changes_of::<ClusterRoleBinding>()
        .allows_changes_of::<CustomResourceDefinition>()
}

#[tokio::test(start_paused = true)]
async fn objects_without_owner_references_are_maintained_and_deleted() -> kube::Result<()> {
    let mut test = test_of(operator_of(site("unowned"))).start().await;
    apply_site(&test, "blue", "{}").await;
    test.assert_converges().await;
    assert_eq!(condition(&sites(&test), "blue", "Deployed").await, "True InstallSuccessful: ");
    let name = format!("{}-blue", test.namespace());
    let roles: Api<ClusterRole> = Api::all(test.client());
    let elsewhere: Api<ConfigMap> = Api::namespaced(test.client(), "kube-public");
    let role = roles.get(&name).await?;
    let annotations = role.metadata.annotations.unwrap_or_default();
    assert_eq!(annotations["operator-sdk/primary-resource"], format!("{}/blue", test.namespace()));
    assert_eq!(annotations["operator-sdk/primary-resource-type"], "Site.web.example.com");
    assert_eq!(role.metadata.owner_references, None);

    roles.delete(&name, &DeleteParams::default()).await?;
    elsewhere.delete("blue-elsewhere", &DeleteParams::default()).await?;
    sleep(Duration::from_secs(1)).await;
    assert!(roles.get_opt(&name).await?.is_some() && elsewhere.get_opt("blue-elsewhere").await?.is_some());
    test.assert_idempotent().await;

    sites(&test).delete("blue", &DeleteParams::default()).await?;
    test.assert_converges().await;
    assert!(roles.get_opt(&name).await?.is_none() && elsewhere.get_opt("blue-elsewhere").await?.is_none());
    assert!(Api::<ClusterRoleBinding>::all(test.client()).get_opt(&name).await?.is_none());
    assert!(test.api::<ConfigMap>().get_opt("blue-kept").await?.is_some(), "its annotation keeps it");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn objects_of_another_release_are_not_adopted() {
    let folder =
        project("taken", &[("charts/site/templates/elsewhere.yaml", &ELSEWHERE.replace("{{ .Release.Name }}", "the"))]);
    let test = test_of(operator_of(folder)).start().await;
    apply_site(&test, "blue", "{}").await;
    test.assert_converges().await;
    apply_site(&test, "green", "{}").await;
    sleep(Duration::from_secs(10)).await;
    let failed = condition(&sites(&test), "green", "ReleaseFailed").await;
    let expected = format!(
        "ConfigMap \"the-elsewhere\" in namespace \"kube-public\" exists and cannot be imported into the current release: \
         invalid ownership metadata; annotation validation error: key \"meta.helm.sh/release-name\" must equal \"green\": \
         current value is \"blue\"; it belongs to Site.web.example.com {}/blue",
        test.namespace()
    );
    assert_eq!(failed, format!("True InstallError: failed to install release: {expected}"));
    assert_eq!(condition(&sites(&test), "blue", "Deployed").await, "True InstallSuccessful: ");
}

#[tokio::test(start_paused = true)]
async fn undeclared_kind_is_named_with_a_remedy() {
    let template =
        "apiVersion: {{ .Values.version }}\nkind: {{ .Values.kind }}\nmetadata: {name: \"{{ .Release.Name }}\"}\n";
    let values = "version: v1\nkind: ConfigMap\n";
    let sample =
        "apiVersion: web.example.com/v1\nkind: Site\nmetadata: {name: sample}\nspec: {version: v1, kind: Secret}\n";
    let files = [
        ("charts/site/templates/any.yaml", template),
        ("charts/site/values.yaml", values),
        ("config/samples/web_v1_site.yaml", sample),
    ];
    let mut test = test_of(operator_of(project("unforeseen", &files))).start().await;
    for (name, kind) in [("map", "ConfigMap"), ("secret", "Secret"), ("account", "ServiceAccount")] {
        apply_site(&test, name, &format!("{{kind: {kind}}}")).await;
    }
    test.assert_converges().await;
    assert_eq!(history(&test, "map").await, ["1 deployed"]);
    assert_eq!(history(&test, "secret").await, ["1 deployed"]);
    let failed = condition(&sites(&test), "account", "ReleaseFailed").await;
    assert!(
        failed.starts_with("True InstallError: failed to install release: site/templates/any.yaml renders ServiceAccount of v1, a kind that was unknown when the operator started: "),
        "{failed}"
    );
    test.assert_idempotent().await;
}

#[tokio::test(start_paused = true)]
async fn groups_wait_for_their_dependencies() -> kube::Result<()> {
    let tier = |name: &str, depends_on: &str| {
        format!(
            "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: {name}\n  annotations:\n    helm.sh/resource-group: {name}\n    \
             helm.sh/depends-on/resource-groups: '{depends_on}'\nspec:\n  selector: {{matchLabels: {{app: {name}}}}}\n  template:\n    \
             metadata:\n      labels: {{app: {name}}}\n      annotations: {{flyball.dev/ready-after: 30s}}\n    \
             spec: {{containers: [{{name: a, image: a}}]}}\n"
        )
    };
    let (db, backend, frontend) = (tier("db", "[]"), tier("backend", "[\"db\"]"), tier("afront", "[\"backend\"]"));
    let files = [
        ("charts/site/templates/a.yaml", &*frontend),
        ("charts/site/templates/b.yaml", &*backend),
        ("charts/site/templates/c.yaml", &*db),
    ];
    let test = test_of(operator_of(project("groups", &files))).nodes(1).start().await;
    apply_site(&test, "blue", "{}").await;
    let there = async || -> Vec<String> {
        let found = test.api::<Deployment>().list(&Default::default()).await.expect("they can be listed");
        found.into_iter().filter_map(|deployment| deployment.metadata.name).collect()
    };
    sleep(Duration::from_secs(20)).await;
    assert_eq!(there().await, ["db"], "{:?}", sites(&test).get("blue").await?.data);
    let waits = condition(&sites(&test), "blue", "Deployed").await;
    assert!(waits.starts_with("False Installing: ") && waits.contains("group backend waits for group db"), "{waits}");
    sleep(Duration::from_secs(30)).await;
    assert_eq!(there().await, ["backend", "db"]);
    test.assert_converges().await;
    assert_eq!(there().await, ["afront", "backend", "db"]);
    assert_eq!(history(&test, "blue").await, ["1 deployed"]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn each_kind_has_its_own_controller() {
    let watches = "- {group: web.example.com, version: v1, kind: Site, chart: charts/site}\n\
                   - {group: web.example.com, version: v1, kind: Page, chart: charts/page, reconcilePeriod: 10m}\n";
    let page = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: \"{{ .Release.Name }}-page\"}\n";
    let files = [
        ("watches.yaml", watches),
        ("charts/page/Chart.yaml", "apiVersion: v2\nname: page\nversion: 1.0.0\n"),
        ("charts/page/templates/page.yaml", page),
        ("charts/site/templates/kept.yaml", KEPT),
    ];
    let test = test_of(operator_of(project("two-kinds", &files))).start().await;
    apply_site(&test, "blue", "{}").await;
    test.apply("{apiVersion: web.example.com/v1, kind: Page, metadata: {name: red}, spec: {}}").await;
    test.assert_converges().await;
    let pages = api(&test, "web.example.com", "v1", "Page");
    assert_eq!(condition(&pages, "red", "Deployed").await, "True InstallSuccessful: ");
    patch(&pages, "red", json!({"spec": {"a": 1}})).await;
    test.assert_converges().await;
    assert_eq!(
        (history(&test, "red").await, history(&test, "blue").await),
        (vec!["1 deployed".into()], vec!["1 deployed".into()])
    );
}

const DEFINITION: &str = r#"apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: geese.example.org}
spec:
  group: example.org
  scope: Namespaced
  names: {kind: Goose, plural: geese, singular: goose}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
"#;
const GOOSE: &str =
    "apiVersion: example.org/v1\nkind: Goose\nmetadata: {name: \"{{ .Release.Name }}\"}\nspec: {a: 1}\n";

#[tokio::test(start_paused = true)]
async fn crds_of_a_chart_are_installed_first_and_retained() -> kube::Result<()> {
    let files = [("charts/site/crds/geese.yaml", DEFINITION), ("charts/site/templates/goose.yaml", GOOSE)];
    let mut test = test_of(operator_of(project("definitions", &files))).start().await;
    apply_site(&test, "blue", "{}").await;
    test.assert_converges().await;
    assert_eq!(condition(&sites(&test), "blue", "Deployed").await, "True InstallSuccessful: ");
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("example.org", "v1", "Goose"), "geese");
    let geese: Api<DynamicObject> = Api::namespaced_with(test.client(), test.namespace(), &resource);
    patch(&geese, "blue", json!({"spec": {"a": 2}})).await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(geese.get("blue").await?.data["spec"]["a"], 1);
    test.assert_idempotent().await;
    sites(&test).delete("blue", &DeleteParams::default()).await?;
    test.assert_converges().await;
    assert!(geese.list(&Default::default()).await?.items.is_empty());
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn kind_without_a_definition_is_named() {
    let test = test_of(operator_of(project("undefined", &[("charts/site/templates/goose.yaml", GOOSE)]))).start().await;
    apply_site(&test, "blue", "{}").await;
    sleep(Duration::from_secs(60)).await;
    let failed = condition(&sites(&test), "blue", "ReleaseFailed").await;
    assert!(failed.contains("is its CustomResourceDefinition installed?") && failed.contains("/blue"), "{failed}");
}

#[tokio::test(start_paused = true)]
async fn chaos_crashes_leave_nothing_unowned() {
    let operator = operator_of(site("unowned-crashes"));
    explore_crashes(
        || test_of(operator.clone()),
        async |test| {
            apply_site(test, "blue", "{}").await;
            test.assert_converges().await;
            sites(test).delete("blue", &DeleteParams::default()).await.expect("it can be deleted");
            test.assert_converges().await;
            let roles: Api<ClusterRole> = Api::all(test.client());
            roles.get_opt(&format!("{}-blue", test.namespace())).await.expect("it can be read").is_some()
        },
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn existing_objects_in_other_namespaces_are_not_adopted() -> kube::Result<()> {
    let test = test_of(operator_of(site("taken-over"))).start().await;
    let elsewhere: Api<ConfigMap> = Api::namespaced(test.client(), "kube-public");
    let theirs = json!({"metadata": {"name": "blue-elsewhere"}, "data": {"a": "theirs"}});
    elsewhere.create(&Default::default(), &serde_json::from_value(theirs).expect("it is one")).await?;
    apply_site(&test, "blue", "{}").await;
    sleep(Duration::from_secs(60)).await;
    let failed = condition(&sites(&test), "blue", "ReleaseFailed").await;
    let expected = "exists and cannot be imported into the current release: invalid ownership metadata; label \
                    validation error: missing key \"app.kubernetes.io/managed-by\": must be set to \"Helm\"; annotation \
                    validation error: missing key \"meta.helm.sh/release-name\": must be set to \"blue\"; ";
    assert!(failed.contains(expected), "{failed}");
    let found = elsewhere.get("blue-elsewhere").await?.data.expect("it has data");
    assert_eq!(found["a"], "theirs");
    test.expect_errors("exists and cannot be imported into the current release");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn custom_resource_cannot_choose_objects_in_other_namespaces() -> kube::Result<()> {
    let template = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n  namespace: {{ .Values.where }}\n  \
                    annotations:\n    a: {{ .Values.raw }}\n";
    let values = "where: kube-public\nraw: a\n";
    let files = [("charts/site/templates/a.yaml", template), ("charts/site/values.yaml", values)];
    let test = test_of(operator_of(project("no-say", &files))).start().await;
    apply_site(&test, "moved", "{where: kube-system}").await;
    apply_site(
        &test,
        "injected",
        r#"{where: "", raw: "a\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: b, namespace: kube-public}"}"#,
    )
    .await;
    sleep(Duration::from_secs(60)).await;
    for name in ["moved", "injected"] {
        let failed = condition(&sites(&test), name, "ReleaseFailed").await;
        assert!(failed.contains("determined by the custom resource"), "{name}: {failed}");
    }
    apply_site(&test, "own", "{}").await;
    sleep(Duration::from_secs(60)).await;
    let found = Api::<ConfigMap>::namespaced(test.client(), "kube-public").get("a").await?;
    assert_eq!(found.metadata.annotations.expect("it has some")["meta.helm.sh/release-name"], "own");
    Ok(())
}
