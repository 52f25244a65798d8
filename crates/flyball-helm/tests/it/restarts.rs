//! Releases across restarts of the operator, which verifies each against a rendering: no restart creates a revision.

use crate::project::{apply_site, condition, history, notes, operator_of, patch, project, revisions, sites};
use flyball_cluster::testing::{Test, explore_crashes};
use flyball_helm::storage::{PAYLOAD, Revision, SECRET_TYPE, State};
use k8s_openapi::ByteString;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{DeleteParams, PostParams};
use kube::core::ObjectMeta;
use serde_json::json;

/// Random values, and values that depend on time and number of renderings.
const DRAWN: &str = r#"{{- $key := genPrivateKey "ecdsa" }}
{{- $ca := genCAWithKey "ca" 365 $key }}
{{- $rsa := genCA "rsa" 365 }}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .Release.Name }}-drawn
data:
  title: {{ .Values.title }}
  text: {{ printf "%s %s %s" (randAlphaNum 12) (uuidv4) (shuffle "abcdefghij") | quote }}
  number: {{ randInt 0 1000000 | quote }}
  bytes: {{ randBytes 16 | quote }}
  time: {{ now | unixEpoch | quote }}
  user: {{ htpasswd "user" "word" | quote }}
  cipher: {{ encryptAES "key" "text" | quote }}
  ca: {{ $ca.Cert | quote }}
  signed: {{ (genSignedCertWithKey "a" nil (list "a.example.com") 365 $ca (genPrivateKey "ecdsa")).Cert | quote }}
  edwards: {{ (genSelfSignedCertWithKey "a" nil nil 365 (genPrivateKey "ed25519")).Cert | quote }}
  rsa: {{ (genSelfSignedCertWithKey "a" nil nil 365 $rsa.Key).Cert | quote }}
  upgrade: {{ printf "%t %t %d" .Release.IsInstall .Release.IsUpgrade .Release.Revision | quote }}
"#;

/// A common way to keep a password: the existing one, or a new one.
const PASSWORD: &str = r#"{{- $found := lookup "v1" "Secret" .Release.Namespace (printf "%s-password" .Release.Name) }}
apiVersion: v1
kind: Secret
metadata:
  name: {{ .Release.Name }}-password
data:
  password: {{ if $found }}{{ $found.data.password }}{{ else }}{{ randAlphaNum 20 | b64enc }}{{ end }}
"#;

const PAGE: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}-page\ndata:\n  title: {{ .Values.title }}\n  \
                    upgrade: {{ .Release.IsUpgrade | quote }}\n";

fn operator(name: &str, template: &str) -> impl Fn() -> flyball::Operator + Send + Sync + Clone + 'static {
    operator_of(project(
        name,
        &[("charts/site/values.yaml", "title: Hello\n"), ("charts/site/templates/page.yaml", template)],
    ))
}

/// Writes a revision as Helm does, without the operator's annotations.
pub(crate) async fn write_as_helm(test: &Test, revision: &Revision) {
    let secrets = test.api::<Secret>();
    // The Secret exists if it is replaced.
    let _ = secrets.delete(&revision.secret_name(), &DeleteParams::default()).await;
    let metadata =
        ObjectMeta { name: Some(revision.secret_name()), labels: Some(revision.labels()), ..ObjectMeta::default() };
    let data = Some([(PAYLOAD.to_owned(), ByteString(revision.encode().expect("it is small")))].into());
    let secret = Secret { metadata, data, type_: Some(SECRET_TYPE.into()), ..Secret::default() };
    secrets.create(&PostParams::default(), &secret).await.expect("it can be created");
}

#[tokio::test(start_paused = true)]
async fn random_values_survive_restarts() {
    let mut test = Test::of(operator("restart-drawn", DRAWN)).start().await;
    apply_site(&test, "blue", "{}").await;
    test.assert_converges().await;
    assert_eq!(condition(&sites(&test), "blue", "Deployed").await, "True InstallSuccessful: ");
    let first = test.api::<ConfigMap>().get("blue-drawn").await.expect("it is there").data.expect("it has data");
    assert_eq!(first["upgrade"], "true false 1");
    assert!(first["ca"].contains("BEGIN CERTIFICATE") && first["signed"].contains("BEGIN CERTIFICATE"), "{first:?}");
    test.assert_idempotent().await;
    assert_eq!(history(&test, "blue").await, ["1 deployed"]);
    patch(&sites(&test), "blue", json!({"spec": {"title": "Bluer"}})).await;
    test.assert_converges().await;
    test.assert_idempotent().await;
    assert_eq!(history(&test, "blue").await, ["1 superseded", "2 deployed"]);
    let second = test.api::<ConfigMap>().get("blue-drawn").await.expect("it is there").data.expect("it has data");
    assert_eq!((&second["text"], &*second["upgrade"]), (&first["text"], "false true 2"));
}

#[tokio::test(start_paused = true)]
async fn lookups_of_own_objects_survive_restarts() {
    let mut test = Test::of(operator("restart-lookup", PASSWORD)).start().await;
    apply_site(&test, "blue", "{}").await;
    test.assert_converges().await;
    let first = test.api::<Secret>().get("blue-password").await.expect("it is there").data;
    test.assert_idempotent().await;
    test.assert_idempotent().await;
    assert_eq!(history(&test, "blue").await, ["1 deployed"]);
    assert_eq!(test.api::<Secret>().get("blue-password").await.expect("it is there").data, first);
}

#[tokio::test(start_paused = true)]
async fn release_of_helm_is_adopted_once() {
    // The same digest; another digest; another version of the hook format.
    for (name, added, expected) in
        [("restart-same", "", &["1 deployed"][..]), ("restart-other", "# by hand\n", &["1 superseded", "2 deployed"])]
    {
        let mut test = Test::of(operator(name, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n")).start().await;
        apply_site(&test, "blue", "{}").await;
        test.assert_converges().await;
        let before = test.api::<ConfigMap>().get("a").await.expect("it is there").metadata.uid;
        test.crash().await;
        let mut revision = revisions(&test, "blue").await.pop().expect("there is one");
        revision.manifest.push_str(added);
        write_as_helm(&test, &revision).await;
        test.restart().await;
        test.assert_converges().await;
        test.assert_idempotent().await;
        assert_eq!(history(&test, "blue").await, expected);
        assert_eq!(test.api::<ConfigMap>().get("a").await.expect("it is there").metadata.uid, before);
    }
}

#[tokio::test(start_paused = true)]
async fn release_whose_secrets_are_deleted_is_installed_again_and_says_so() {
    let mut test = Test::of(operator("secrets-deleted", PAGE)).start().await;
    apply_site(&test, "blue", "{title: One}").await;
    test.assert_converges().await;
    patch(&sites(&test), "blue", json!({"spec": {"title": "Two"}})).await;
    test.assert_converges().await;
    assert_eq!(history(&test, "blue").await, ["1 superseded", "2 deployed"]);
    assert_eq!(notes(&test, "ReleaseSecretsDeleted").await, "");
    let page = async || test.api::<ConfigMap>().get("blue-page").await.expect("it is there");
    let before = page().await.metadata.uid;
    let delete = async |version: u32| {
        let name = format!("sh.helm.release.v1.blue.v{version}");
        test.api::<Secret>().delete(&name, &DeleteParams::default()).await.expect("it can be deleted");
    };
    delete(2).await;
    let found = notes(&test, "ReleaseSecretsDeleted").await;
    let expected = "Release blue was at revision 2, but the Secret of this revision was deleted: it is upgraded from \
                    revision 1, as revision 2; ";
    assert!(found.starts_with(expected), "{found}");
    assert_eq!(history(&test, "blue").await, ["1 superseded", "2 deployed"]);

    delete(1).await;
    delete(2).await;
    let found = notes(&test, "ReleaseSecretsDeleted").await;
    let expected = "but the Secrets of all revisions were deleted: it is installed again, and adopts its objects, as \
                    revision 1; ";
    assert!(found.contains(expected), "{found}");
    assert_eq!(history(&test, "blue").await, ["1 deployed"]);
    let page = page().await;
    assert_eq!((page.metadata.uid, page.data.unwrap_or_default()["title"].as_str()), (before, "Two"));
    test.assert_idempotent().await;
}

#[tokio::test(start_paused = true)]
async fn deletion_after_that_of_the_secrets_says_what_remains() {
    let test = Test::of(operator("secrets-deleted-first", PAGE)).start().await;
    apply_site(&test, "blue", "{title: One}").await;
    test.assert_converges().await;
    // While it is paused, nothing is installed again.
    let pause =
        |paused: &str| json!({"metadata": {"annotations": {"helm.sdk.operatorframework.io/pause-reconcile": paused}}});
    patch(&sites(&test), "blue", pause("true")).await;
    test.api::<Secret>().delete("sh.helm.release.v1.blue.v1", &DeleteParams::default()).await.expect("it is deleted");
    sites(&test).delete("blue", &DeleteParams::default()).await.expect("it is deleted");
    patch(&sites(&test), "blue", pause("false")).await;
    let found = notes(&test, "ReleaseSecretsDeleted").await;
    assert!(found.starts_with("The Secrets of release blue were deleted, so its deletion hooks do not run"), "{found}");
    assert!(sites(&test).get_opt("blue").await.expect("it can be read").is_none());
    assert!(test.api::<ConfigMap>().get_opt("blue-page").await.expect("it can be read").is_none());
}

#[tokio::test(start_paused = true)]
async fn rollback_by_helm_is_followed_by_one_revision() {
    let mut test = Test::of(operator("restart-rollback", PAGE)).start().await;
    apply_site(&test, "blue", "{title: One}").await;
    test.assert_converges().await;
    patch(&sites(&test), "blue", json!({"spec": {"title": "Two"}})).await;
    test.assert_converges().await;
    test.crash().await;
    let [first, mut second]: [Revision; 2] = revisions(&test, "blue").await.try_into().expect("there are two");
    second.info.status = State::Superseded;
    write_as_helm(&test, &second).await;
    let mut third = Revision { version: 3, ..first };
    third.info.status = State::Deployed;
    write_as_helm(&test, &third).await;
    test.restart().await;
    test.assert_converges().await;
    test.assert_idempotent().await;
    assert_eq!(history(&test, "blue").await, ["1 superseded", "2 superseded", "3 superseded", "4 deployed"]);
    let page = test.api::<ConfigMap>().get("blue-page").await.expect("it is there").data.expect("it has data");
    assert_eq!(page["title"], "Two");
}

#[tokio::test(start_paused = true)]
async fn chaos_crashes_cause_no_second_upgrade() {
    let job = "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: {{ .Release.Name }}-first\n  annotations: {helm.sh/hook: pre-install}\n\
               spec:\n  backoffLimit: 0\n  template:\n    metadata: {annotations: {flyball.dev/complete-after: 5s}}\n    spec:\n      \
               restartPolicy: Never\n      containers: [{name: run, image: run}]\n";
    let files = [
        ("charts/site/values.yaml", "title: Hello\n"),
        ("charts/site/templates/page.yaml", PAGE),
        ("charts/site/templates/job.yaml", job),
    ];
    let operator = operator_of(project("restart-upgrade", &files));
    explore_crashes(
        || Test::of(operator.clone()).nodes(1),
        async |test| {
            apply_site(test, "blue", "{}").await;
            test.assert_converges().await;
            patch(&sites(test), "blue", json!({"spec": {"title": "Bluer"}})).await;
            test.assert_converges().await;
            // A hook that ran again would have failed, since its object exists.
            assert_eq!(notes(test, "ReleaseSecretsDeleted").await, "");
            let jobs = test.api::<Job>().list(&Default::default()).await.expect("they can be listed").items.len();
            let page = test.api::<ConfigMap>().get("blue-page").await.expect("it is there").data;
            (history(test, "blue").await, jobs, page)
        },
    )
    .await;
}
