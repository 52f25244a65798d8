//! Forged release Secrets: write access to Secrets in the namespace does not permit more than the chart renders.

use crate::project::{CHART, apply_site, condition, notes, operator_of, patch, project, revisions, sites};
use flyball_cluster::testing::Test;
use flyball_helm::storage::{Hook, PAYLOAD, Revision};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
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

/// A page whose text is a value.
const PAGE: &str =
    "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: '{{ .Release.Name }}-page'}\ndata: {text: {{ .Values.text }}}\n";

fn pages(name: &str) -> PathBuf {
    project(name, &[("charts/site/templates/page.yaml", PAGE), ("charts/site/values.yaml", "text: first\n")])
}

fn secret_name(version: u32) -> String {
    format!("sh.helm.release.v1.blue.v{version}")
}

/// Creates a Secret of revision `version`, which the custom resource seems to control.
async fn create_forged(test: &Test, version: u32, payload: Vec<u8>) {
    let site = sites(test).get("blue").await.expect("it is there");
    let owner = json!({"apiVersion": "web.example.com/v1", "kind": "Site", "name": "blue", "uid": site.metadata.uid,
        "controller": true});
    let labels = json!({"owner": "helm", "name": "blue", "version": version.to_string(), "status": "deployed",
        "modifiedAt": "9999999999"});
    let secret = json!({"metadata": {"name": secret_name(version), "labels": labels, "ownerReferences": [owner]},
        "type": "helm.sh/release.v1", "data": {PAYLOAD: ByteString(payload)}});
    let secret: Secret = serde_json::from_value(secret).expect("it is a Secret");
    test.api::<Secret>().create(&PostParams::default(), &secret).await.expect("it can be created");
}

/// Changes the text of the site, and waits until the release has it, in the revision with this number.
async fn publish(test: &Test, text: &str, version: u32) {
    patch(&sites(test), "blue", json!({"spec": {"text": text}})).await;
    test.assert_converges().await;
    let page = test.api::<ConfigMap>().get("blue-page").await.expect("it is there");
    assert_eq!(page.data.unwrap_or_default()["text"], text);
    assert_deployed(test, version).await;
}

async fn assert_deployed(test: &Test, version: u32) {
    let site = sites(test).get("blue").await.expect("it is there");
    assert_eq!(site.data["status"]["release"]["revision"], version);
    assert!(condition(&sites(test), "blue", "Deployed").await.starts_with("True"));
}

#[tokio::test(start_paused = true)]
async fn invalid_revision_is_reported_and_replaced() {
    let test = Test::of(operator_of(pages("broken"))).start().await;
    apply_site(&test, "blue", "{}").await;
    test.assert_converges().await;
    let bomb = serde_json::to_vec(&json!({"hooks": vec![json!({}); 200_000]})).expect("it is JSON");
    use base64::Engine;
    let bomb = base64::engine::general_purpose::STANDARD.encode(bomb).into_bytes();
    let cases = [
        (1, json!({PAYLOAD: ByteString(bomb)}), "too many objects and items"),
        (2, json!({PAYLOAD: ByteString(b"%".to_vec())}), "not valid base64"),
        (3, json!({PAYLOAD: null, "other": ByteString(Vec::new())}), "data.release does not exist"),
    ];
    for (version, data, expected) in cases {
        let merge = Patch::Merge(json!({"data": data}));
        let secrets = test.api::<Secret>();
        let changed = secrets.patch(&secret_name(version), &PatchParams::default(), &merge).await;
        changed.expect("it can be changed");
        test.assert_converges().await;
        assert_deployed(&test, version + 1).await;
        let notes = notes(&test, "InvalidSecret").await;
        assert!(notes.contains(expected) && notes.contains(&secret_name(version)), "{notes}");
    }
}

#[tokio::test(start_paused = true)]
async fn forged_revisions_of_any_owner_do_not_block_the_release() {
    let test = Test::of(operator_of(pages("numbers"))).start().await;
    apply_site(&test, "blue", "{}").await;
    test.assert_converges().await;
    let genuine = revisions(&test, "blue").await.pop().expect("there is one");
    let other = |version: u32, chart: &str| {
        let chart = json!({"metadata": {"name": chart, "version": "1.0.0"}});
        Revision { version, chart, manifest: FORGED.into(), ..genuine.clone() }.encode().expect("it is small")
    };
    // The next numbers: one without labels, a broken one, one of another chart, and one with the payload of another.
    let unlabeled = json!({"metadata": {"name": secret_name(2)}});
    let unlabeled: Secret = serde_json::from_value(unlabeled).expect("it is a Secret");
    test.api::<Secret>().create(&PostParams::default(), &unlabeled).await.expect("it can be created");
    create_forged(&test, 3, b"%".to_vec()).await;
    create_forged(&test, 4, other(4, "other")).await;
    create_forged(&test, 5, other(7, "site")).await;
    publish(&test, "second", 6).await;
    let found = notes(&test, "InvalidSecret").await;
    for expected in ["v3: the payload is not valid base64", "v4 is of chart \"other\"", "v5: the payload is that of"] {
        assert!(found.contains(expected), "{expected}: {found}");
    }

    // A later number, for as long as its Secret exists.
    create_forged(&test, 1_000_000, b"%".to_vec()).await;
    publish(&test, "third", 7).await;
    let namespace = test.namespace();
    let expected = format!(
        "True InvalidSecret: release Secret {namespace}/{}: the payload is not valid base64",
        secret_name(1_000_000)
    );
    let found = condition(&sites(&test), "blue", "InvalidRevision").await;
    assert!(found.starts_with(&expected) && found.ends_with(": delete the Secret"), "{found}");
    let kept = test.api::<Secret>().get(&secret_name(1_000_000)).await.expect("it is not deleted");
    assert_eq!(kept.data.unwrap_or_default()[PAYLOAD].0, b"%");

    // The last numbers. The chart does not render the first one, so it is replaced at once.
    create_forged(&test, i32::MAX as u32, other(i32::MAX as u32, "site")).await;
    create_forged(&test, u32::MAX, other(u32::MAX, "site")).await;
    test.assert_converges().await;
    assert_deployed(&test, 8).await;
    publish(&test, "fourth", 9).await;
    assert!(!is_forged(&test).await);

    sites(&test).delete("blue", &DeleteParams::default()).await.expect("it can be deleted");
    test.assert_converges().await;
    assert!(sites(&test).get_opt("blue").await.expect("the server answers").is_none());
    assert!(test.api::<ConfigMap>().get_opt("blue-page").await.expect("the server answers").is_none());
}

#[tokio::test(start_paused = true)]
async fn deletion_without_a_valid_revision_names_its_remedy() {
    let test = Test::of(operator_of(pages("no-revision"))).start().await;
    apply_site(&test, "blue", "{}").await;
    test.assert_converges().await;
    // The operator would replace an invalid revision.
    let pause =
        |value: Value| json!({"metadata": {"annotations": {"helm.sdk.operatorframework.io/pause-reconcile": value}}});
    patch(&sites(&test), "blue", pause("true".into())).await;
    let secrets = test.api::<Secret>();
    let merge = Patch::Merge(json!({"data": {PAYLOAD: ByteString(b"%".to_vec())}}));
    secrets.patch(&secret_name(1), &PatchParams::default(), &merge).await.expect("it can be changed");
    sites(&test).delete("blue", &DeleteParams::default()).await.expect("it can be deleted");
    patch(&sites(&test), "blue", pause(Value::Null)).await;
    sleep(Duration::from_secs(60)).await;
    let namespace = test.namespace();
    let expected = format!(
        "True UninstallError: no revision is valid, so the objects of the release are unknown: release Secret \
         {namespace}/{}: the payload is not valid base64: ",
        secret_name(1)
    );
    let remedy = ": delete these Secrets to end the deletion, then the objects that remain with the annotation \
                  meta.helm.sh/release-name: blue";
    let found = condition(&sites(&test), "blue", "ReleaseFailed").await;
    assert!(found.starts_with(&expected) && found.ends_with(remedy), "{found}");

    secrets.delete(&secret_name(1), &DeleteParams::default()).await.expect("it can be deleted");
    test.assert_converges().await;
    assert!(sites(&test).get_opt("blue").await.expect("the server answers").is_none());
    assert!(test.api::<ConfigMap>().get_opt("blue-page").await.expect("the server answers").is_none());
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
    notes(test, "HooksSkipped").await.lines().map(str::to_owned).collect()
}
