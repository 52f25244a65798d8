//! Forged release Secrets: write access to Secrets in the namespace does not permit more than the chart renders.

use crate::project::{CHART, apply_site, condition, operator_of, patch, project, revisions, sites};
use flyball_cluster::testing::Test;
use flyball_helm::storage::{Hook, PAYLOAD, Revision};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, DeleteParams, ListParams};
use serde_json::json;
use std::path::PathBuf;
use std::time::Duration;
use tokio::time::sleep;

const ELSEWHERE: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}-elsewhere\n  namespace: kube-public\n\
                         data: {a: b}\n";
const FORGED: &str = "---\n# Source: site/templates/a.yaml\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: forged, namespace: kube-system}\n\
                      data: {a: forged}\n";

fn site(name: &str) -> PathBuf {
    project(name, &[("charts/site/templates/elsewhere.yaml", ELSEWHERE)])
}

/// Replaces the manifest in the Secret of a release.
async fn forge(test: &Test, release: &str, change: impl Fn(&mut Revision)) {
    let mut revision = revisions(test, release).await.pop().expect("there is one");
    change(&mut revision);
    let data = json!({PAYLOAD: ByteString(revision.encode().expect("it is small"))});
    let secrets = test.api::<Secret>();
    let labels = json!({"labels": revision.labels()});
    let merge = kube::api::Patch::Merge(json!({"metadata": labels, "data": data}));
    secrets
        .patch(&revision.secret_name(), &kube::api::PatchParams::default(), &merge)
        .await
        .expect("it can be changed");
}

async fn is_forged(test: &Test) -> bool {
    let system: Api<ConfigMap> = Api::namespaced(test.client(), "kube-system");
    system.get_opt("forged").await.expect("the server answers").is_some()
}

fn hook() -> Hook {
    let (_, manifest) = FORGED.split_once("a.yaml\n").expect("it has a source");
    Hook {
        name: "forged".into(),
        kind: "ConfigMap".into(),
        path: "site/templates/a.yaml".into(),
        manifest: manifest.into(),
        events: vec!["pre-delete".into(), "pre-install".into()],
        ..Hook::default()
    }
}

#[tokio::test(start_paused = true)]
async fn forged_release_creates_nothing_beyond_the_chart() {
    let test = Test::of(operator_of(site("forged"))).allows_changes_in("kube-public").start().await;
    apply_site(&test, "blue", "{}").await;
    test.assert_converges().await;
    forge(&test, "blue", |revision| revision.manifest.push_str(FORGED)).await;
    sleep(Duration::from_secs(60)).await;
    test.assert_converges().await;
    assert!(!is_forged(&test).await);
    assert_eq!(condition(&sites(&test), "blue", "Deployed").await, "True UpgradeSuccessful: ");

    // The same for a pending release with hooks.
    forge(&test, "blue", |revision| {
        revision.info.status = flyball_helm::storage::State::PendingUpgrade;
        revision.manifest.push_str(FORGED);
        revision.hooks.push(hook());
    })
    .await;
    sleep(Duration::from_secs(60)).await;
    test.assert_converges().await;
    assert!(!is_forged(&test).await);

    // The same for a release being uninstalled.
    forge(&test, "blue", |revision| revision.hooks.push(hook())).await;
    sites(&test).delete("blue", &DeleteParams::default()).await.expect("it can be deleted");
    test.assert_converges().await;
    assert!(!is_forged(&test).await);
    assert!(sites(&test).get_opt("blue").await.expect("the server answers").is_none());
}

#[tokio::test(start_paused = true)]
async fn invalid_release_is_reported_as_a_condition() {
    let test = Test::of(operator_of(site("broken"))).allows_changes_in("kube-public").start().await;
    apply_site(&test, "blue", "{}").await;
    test.assert_converges().await;
    let bomb = serde_json::to_vec(&json!({"hooks": vec![json!({}); 200_000]})).expect("it is JSON");
    use base64::Engine;
    let bomb = base64::engine::general_purpose::STANDARD.encode(bomb).into_bytes();
    for (payload, expected) in [(bomb, "too many objects and items"), (b"%".to_vec(), "not valid base64")] {
        let data = json!({"data": {PAYLOAD: ByteString(payload)}});
        let name = "sh.helm.release.v1.blue.v1";
        let merge = kube::api::Patch::Merge(data);
        let secrets = test.api::<Secret>();
        secrets.patch(name, &kube::api::PatchParams::default(), &merge).await.expect("it can be changed");
        patch(&sites(&test), "blue", json!({"spec": {"a": expected}})).await;
        sleep(Duration::from_secs(5)).await;
        let failed = condition(&sites(&test), "blue", "Irreconcilable").await;
        assert!(failed.contains(expected) && failed.contains("sh.helm.release.v1.blue.v1"), "{failed}");
    }
}

/// Objects that the chart renders only on request, so that the operator may create their kinds; and a hook.
const ON_REQUEST: &str = "{{- if .Values.more }}\napiVersion: v1\nkind: Pod\nmetadata: {name: a}\n---\n\
                          apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: a}\n{{- end }}\n---\n\
                          apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}-last\n  \
                          annotations: {helm.sh/hook: pre-delete}\n";
const FORGED_POD: &str =
    "apiVersion: v1\nkind: Pod\nmetadata: {name: forged-pod}\nspec: {containers: [{name: a, image: a}]}\n";
const FORGED_BINDING: &str = "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: forged-binding}\n\
                              roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}\n\
                              subjects: [{kind: ServiceAccount, name: default}]\n";

#[tokio::test(start_paused = true)]
async fn forged_hooks_of_any_kind_do_not_run() {
    let files = [("charts/site/templates/all.yaml", ON_REQUEST), ("charts/site/values.yaml", "more: false\n")];
    let mut test = Test::of(operator_of(project("forged-hooks", &files))).nodes(1).start().await;
    apply_site(&test, "blue", "{}").await;
    test.assert_converges().await;
    // The operator finds the forged Secret only when the release is being deleted.
    test.crash().await;
    forge(&test, "blue", |revision| {
        for (kind, manifest) in [("Pod", FORGED_POD), ("RoleBinding", FORGED_BINDING)] {
            for event in ["pre-delete", "post-delete"] {
                let events = vec![event.into()];
                let name = format!("forged-{event}-{}", kind.to_lowercase());
                let manifest = manifest.replace("forged-", &format!("forged-{event}-"));
                revision.hooks.push(Hook { name, kind: kind.into(), manifest, events, ..hook() });
            }
        }
    })
    .await;
    sites(&test).delete("blue", &DeleteParams::default()).await.expect("it can be deleted");
    test.restart().await;
    test.assert_converges().await;
    assert!(sites(&test).get_opt("blue").await.expect("the server answers").is_none());
    let trace = test.trace();
    let created = |path: &str| trace.lines().filter(|line| line.contains("POST") && line.contains(path)).count();
    assert_eq!((created("/pods"), created("/rolebindings")), (0, 0));
    assert_eq!(created("/configmaps"), 1, "the hook of the chart runs");
    assert_eq!(
        skipped(&test).await,
        ["Hooks forged-pre-delete-pod, forged-post-delete-pod, forged-pre-delete-rolebinding, \
          forged-post-delete-rolebinding of release blue were not run: the chart does not render them for this custom resource"]
    );
}

/// A hook that differs between versions of the chart.
const LAST: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}-last\n  \
                    namespace: kube-public\n  labels: {helm.sh/chart: \"{{ .Chart.Name }}-{{ .Chart.Version }}\"}\n  \
                    annotations: {helm.sh/hook: pre-delete}\ndata: {a: b}\n";

#[tokio::test(start_paused = true)]
async fn hook_of_an_earlier_chart_runs_as_the_present_chart_renders_it() {
    let folder = project("upgraded-hooks", &[("charts/site/templates/last.yaml", LAST)]);
    let mut test = Test::of(operator_of(folder.clone())).allows_changes_in("kube-public").start().await;
    for name in ["blue", "green"] {
        apply_site(&test, name, "{}").await;
    }
    test.assert_converges().await;
    // Both are deleted before their upgrade.
    test.crash().await;
    let chart = CHART.replace("version: 0.1.0", "version: 0.2.0");
    std::fs::write(folder.join("charts/site/Chart.yaml"), chart).expect("files can be written");
    forge(&test, "green", |revision| {
        let last = &mut revision.hooks[0];
        last.manifest = last.manifest.replace("data: {a: b}", "data: {a: forged}");
        let elsewhere = last.manifest.replace("kube-public", "kube-system");
        let elsewhere = Hook { manifest: elsewhere, ..last.clone() };
        revision.hooks.push(elsewhere);
    })
    .await;
    for name in ["blue", "green"] {
        sites(&test).delete(name, &DeleteParams::default()).await.expect("it can be deleted");
    }
    test.restart().await;
    test.assert_converges().await;
    let public: Api<ConfigMap> = Api::namespaced(test.client(), "kube-public");
    let system: Api<ConfigMap> = Api::namespaced(test.client(), "kube-system");
    for name in ["blue", "green"] {
        assert!(sites(&test).get_opt(name).await.expect("the server answers").is_none());
        let hook = public.get(&format!("{name}-last")).await.expect("the hook runs");
        assert_eq!(hook.metadata.labels.unwrap_or_default()["helm.sh/chart"], "site-0.2.0");
        assert_eq!(hook.data.unwrap_or_default()["a"], "b");
        assert!(system.get_opt(&format!("{name}-last")).await.expect("the server answers").is_none());
    }
    assert_eq!(
        skipped(&test).await,
        ["Hooks green-last of release green were not run: the chart does not render them for this custom resource"]
    );
}

/// Returns the notes of events about skipped hooks.
async fn skipped(test: &Test) -> Vec<String> {
    // Events are sent in the background.
    sleep(Duration::from_secs(10)).await;
    let events = test.api::<Event>().list(&ListParams::default()).await.expect("they can be listed").items;
    let skipped = events.into_iter().filter(|event| event.reason.as_deref() == Some("HooksSkipped"));
    skipped.filter_map(|event| event.note).collect()
}
