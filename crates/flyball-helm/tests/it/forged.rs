//! Forged release Secrets: write access to Secrets in the namespace does not permit more than the chart renders.

use crate::project::{apply_site, condition, operator_of, patch, project, revisions, sites};
use flyball_cluster::testing::Test;
use flyball_helm::storage::{Hook, PAYLOAD, Revision};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, DeleteParams};
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
