//! Releases that are larger than a Secret.

use crate::project::{apply_site, condition, notes, operator_of, patch, project, sites};
use flyball_cluster::testing::Test;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;

const PAGE: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}-page\ndata:\n  \
                    title: {{ .Values.title }}\n  text: {{ .Files.Get \"text\" }}\n";
const INDEX: &str = "sh.helm.release.v1.blue.v1";

/// Text that does not compress well.
fn text(mut seed: u64, length: usize) -> String {
    let mut character = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789xx"[(seed >> 58) as usize])
    };
    (0..length).map(|_| character()).collect()
}

async fn secrets(test: &Test) -> Vec<Secret> {
    let secrets = test.api::<Secret>().list(&ListParams::default()).await.expect("they can be listed");
    secrets.into_iter().filter(|secret| secret.name_any().contains("blue")).collect()
}

/// Describes the Secrets by type, key, version and status.
async fn lines(test: &Test) -> Vec<String> {
    let line = |secret: Secret| {
        let label = |name: &str| secret.labels().get(name).cloned().unwrap_or_default();
        let labels = ["key", "type", "version", "status"].map(label).join(" ");
        format!("{} {labels}", secret.type_.unwrap_or_default())
    };
    secrets(test).await.into_iter().map(line).collect()
}

#[tokio::test(start_paused = true)]
async fn large_release_is_stored_in_several_secrets() {
    let folder = project(
        "chunks",
        &[
            ("charts/site/values.yaml", "title: Hello\n"),
            ("charts/site/templates/page.yaml", PAGE),
            ("charts/site/text", &text(1, 900_000)),
        ],
    );
    let mut test = Test::of(operator_of(folder)).start().await;
    apply_site(&test, "blue", "{}").await;
    test.assert_converges().await;
    assert_eq!(condition(&sites(&test), "blue", "Deployed").await, "True InstallSuccessful: ");
    let line =
        |kind: &str, more: &str| format!("operatorframework.io/{kind}.v1 {INDEX} {}", more.replace("KIND", kind));
    assert_eq!(lines(&test).await, [line("index", "KIND 1 deployed"), line("chunk", "KIND  ")]);
    let [index, chunk] = &*secrets(&test).await else { panic!("there are two Secrets") };
    let data = index.data.as_ref().expect("it has data");
    assert!(data["chunk"].0.starts_with(&[0x1f, 0x8b]), "no base64 is added");
    assert_eq!(data["extraChunks"].0, json!([chunk.name_any()]).to_string().into_bytes());
    assert!(chunk.name_any().starts_with(&format!("{INDEX}-")) && chunk.immutable == Some(true));
    let deployed = sites(&test).get("blue").await.expect("it is there").data["status"]["deployedRelease"].clone();
    assert_eq!(deployed, json!({"name": "blue"}), "the status does not contain a large manifest");
    // It is read again after a restart, also from another operator.
    let label = Patch::Merge(json!({"metadata": {"labels": {"owner": "other-operator"}}}));
    test.api::<Secret>().patch(INDEX, &PatchParams::default(), &label).await.expect("it can be changed");
    test.assert_idempotent().await;

    patch(&sites(&test), "blue", json!({"spec": {"title": "Bluer"}})).await;
    test.assert_converges().await;
    let found = lines(&test).await;
    assert_eq!((found.len(), &*found[0]), (4, &*line("index", "KIND 1 superseded")), "{found:?}");
    assert!(found.iter().any(|line| line.ends_with("index 2 deployed")), "{found:?}");
    let page = test.api::<ConfigMap>().get("blue-page").await.expect("it is there");
    assert_eq!(page.data.unwrap_or_default()["title"], "Bluer");
    test.assert_idempotent().await;

    sites(&test).delete("blue", &DeleteParams::default()).await.expect("it can be deleted");
    test.assert_converges().await;
    assert_eq!(lines(&test).await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn revision_without_a_chunk_is_named_and_replaced() {
    let folder = project(
        "missing-chunk",
        &[
            ("charts/site/values.yaml", "title: Hello\n"),
            ("charts/site/templates/page.yaml", PAGE),
            ("charts/site/text", &text(2, 900_000)),
        ],
    );
    let test = Test::of(operator_of(folder)).start().await;
    apply_site(&test, "blue", "{}").await;
    test.assert_converges().await;
    let chunk = secrets(&test).await.pop().expect("there are two").name_any();
    test.api::<Secret>().delete(&chunk, &DeleteParams::default()).await.expect("it can be deleted");
    test.assert_converges().await;
    let found = notes(&test, "InvalidSecret").await;
    let expected = format!(
        "release Secret {}/{INDEX}: its chunk, Secret {chunk}, does not exist: delete the Secret",
        test.namespace()
    );
    assert_eq!(found, expected);
    let found = lines(&test).await;
    assert!(found.len() == 3 && found.iter().any(|line| line.ends_with("index 2 deployed")), "{found:?}");
}

#[tokio::test(start_paused = true)]
async fn crashes_leave_no_incomplete_release() {
    let folder = project(
        "crashes-in-chunks",
        &[
            ("charts/site/values.yaml", "title: Hello\n"),
            ("charts/site/templates/page.yaml", PAGE),
            ("charts/site/text", &text(3, 900_000)),
        ],
    );
    let operator = operator_of(folder);
    // All crashes would take minutes: these are around the writes of chunks and indexes.
    for request in [8, 10, 11, 12, 13] {
        let test = Test::of(operator.clone()).crash_after(request).start().await;
        apply_site(&test, "blue", "{}").await;
        test.assert_converges().await;
        assert!(test.crashed(), "request {request}");
        assert_eq!(condition(&sites(&test), "blue", "Deployed").await, "True InstallSuccessful: ", "request {request}");
        assert_eq!(lines(&test).await.len(), 2, "request {request}");
        sites(&test).delete("blue", &DeleteParams::default()).await.expect("it can be deleted");
        test.assert_converges().await;
        assert_eq!(lines(&test).await, [""; 0], "request {request}");
    }
}
