//! Templates that read from the cluster, draw random values, or read the time.

use crate::project::{apply_site, condition, history, operator_of, patch, project, sites};
use flyball_cluster::testing::Test;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::DeleteParams;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::sleep;

const PAGE: &str = r#"{{- $source := lookup "v1" "ConfigMap" .Release.Namespace "source" }}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .Release.Name }}-page
data:
  {{- if $source }}
  title: {{ $source.data.title }}
  {{- else }}
  title: nothing
  {{- end }}
  accounts: {{ len (lookup "v1" "ServiceAccount" .Release.Namespace "").items | quote }}
  drawn: {{ randAlphaNum 12 | quote }}
  time: {{ now | unixEpoch | quote }}
  policies: {{ .Capabilities.APIVersions.Has "policy/v1/PodDisruptionBudget" | quote }}
"#;

fn site(name: &str) -> PathBuf {
    project(name, &[("charts/site/templates/page.yaml", PAGE)])
}

async fn page(test: &Test) -> std::collections::BTreeMap<String, String> {
    let page = test.api::<ConfigMap>().get("blue-page").await.expect("it is there");
    page.data.expect("it has data")
}

#[tokio::test(start_paused = true)]
async fn changed_lookup_results_cause_an_upgrade() {
    let mut test = Test::of(operator_of(site("lookup"))).start().await;
    apply_site(&test, "blue", "{}").await;
    test.assert_converges().await;
    let first = page(&test).await;
    assert_eq!((&*first["title"], &*first["accounts"], &*first["policies"]), ("nothing", "1", "true"));
    sleep(Duration::from_secs(3600)).await;
    assert_eq!((page(&test).await, history(&test, "blue").await), (first.clone(), vec!["1 deployed".to_owned()]));

    test.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: source}, data: {title: Found}}").await;
    sleep(Duration::from_secs(90)).await;
    let second = page(&test).await;
    assert_eq!((&*second["title"], &second["drawn"]), ("Found", &first["drawn"]));
    assert_eq!(history(&test, "blue").await, ["1 superseded", "2 deployed"]);
    test.assert_idempotent().await;
}

/// Counts the lines about renderings.
#[derive(Clone, Default)]
struct Renderings(Arc<AtomicUsize>);

impl std::io::Write for Renderings {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        let is_rendering = String::from_utf8_lossy(line).contains("rendering the chart");
        self.0.fetch_add(usize::from(is_rendering), Ordering::Relaxed);
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn unchanged_lookup_results_cause_no_rendering() {
    let renderings = Renderings::default();
    let writer = renderings.clone();
    let lines = tracing_subscriber::fmt().with_max_level(tracing::Level::DEBUG);
    // With a single subscriber, events that other tests log first would be cached as disabled.
    let _second = tracing::Dispatch::new(tracing_subscriber::registry());
    let _guard = tracing::subscriber::set_default(lines.with_writer(move || writer.clone()).finish());
    let once = [("charts/site/templates/all.yaml", ONCE), ("charts/site/values.yaml", "title: Hello\nkeep: false\n")];
    for folder in [site("not-rendered-again"), project("once-not-rendered-again", &once)] {
        let test = Test::of(operator_of(folder)).start().await;
        apply_site(&test, "blue", "{}").await;
        test.assert_converges().await;
        sleep(Duration::from_secs(600)).await;
        let before = renderings.0.load(Ordering::Relaxed);
        sleep(Duration::from_secs(3600)).await;
        assert_eq!(renderings.0.load(Ordering::Relaxed), before);
        test.apply("{apiVersion: v1, kind: ServiceAccount, metadata: {name: another}}").await;
        test.apply("{apiVersion: v1, kind: Secret, metadata: {name: blue-password, labels: {a: b}}}").await;
        sleep(Duration::from_secs(90)).await;
        assert!(renderings.0.load(Ordering::Relaxed) > before);
    }
}

#[tokio::test(start_paused = true)]
async fn unchanged_release_is_not_rendered_again() {
    let renderings = Renderings::default();
    let writer = renderings.clone();
    let lines = tracing_subscriber::fmt().with_max_level(tracing::Level::DEBUG);
    // With a single subscriber, events that other tests log first would be cached as disabled.
    let _second = tracing::Dispatch::new(tracing_subscriber::registry());
    let _guard = tracing::subscriber::set_default(lines.with_writer(move || writer.clone()).finish());
    let watches = "- {group: web.example.com, version: v1, kind: Site, chart: charts/site, reconcilePeriod: 1m}\n";
    let page = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}-page\ndata: {title: {{ .Values.title }}}\n";
    let files = [
        ("watches.yaml", watches),
        ("charts/site/templates/page.yaml", page),
        ("charts/site/values.yaml", "title: Hello\n"),
    ];
    let test = Test::of(operator_of(project("plain-not-rendered-again", &files))).start().await;
    apply_site(&test, "blue", "{}").await;
    test.assert_converges().await;
    let count = || renderings.0.load(Ordering::Relaxed);
    let before = count();
    assert!(before > 0);
    patch(&sites(&test), "blue", serde_json::json!({"metadata": {"labels": {"a": "b"}}})).await;
    sleep(Duration::from_secs(3600)).await;
    test.api::<ConfigMap>().delete("blue-page", &DeleteParams::default()).await.expect("it is there");
    test.eventually("the repair", async || test.api::<ConfigMap>().get_opt("blue-page").await.unwrap().is_some()).await;
    assert_eq!(count(), before, "60 reconciles and a repair");
    patch(&sites(&test), "blue", serde_json::json!({"spec": {"title": "Blue"}})).await;
    test.assert_converges().await;
    assert!(count() > before);
}

#[tokio::test(start_paused = true)]
async fn number_of_the_revision_causes_no_upgrade() {
    let template = PAGE.replace(
        "data:\n",
        "data:\n  revision: {{ .Release.Revision | quote }}\n  upgrade: {{ .Release.IsUpgrade | quote }}\n",
    );
    let test = Test::of(operator_of(project("looked-up-revision", &[("charts/site/templates/page.yaml", &*template)])));
    let mut test = test.start().await;
    apply_site(&test, "blue", "{}").await;
    test.assert_converges().await;
    sleep(Duration::from_secs(3600)).await;
    assert_eq!((&*page(&test).await["revision"], history(&test, "blue").await), ("1", vec!["1 deployed".to_owned()]));
    test.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: source}, data: {title: Found}}").await;
    sleep(Duration::from_secs(3600)).await;
    let second = page(&test).await;
    assert_eq!((&*second["title"], &*second["revision"], &*second["upgrade"]), ("Found", "2", "true"));
    assert_eq!(history(&test, "blue").await, ["1 superseded", "2 deployed"]);
    test.assert_idempotent().await;
}

/// A common way to create a password once: the chart omits it when it exists.
const ONCE: &str = "{{- if not (lookup \"v1\" \"Secret\" .Release.Namespace (printf \"%s-password\" .Release.Name)) }}\n\
                    apiVersion: v1\nkind: Secret\nmetadata:\n  name: {{ .Release.Name }}-password\n  \
                    annotations: {a: b{{ if .Values.keep }}, helm.sh/resource-policy: keep{{ end }}}\n\
                    stringData: {password: {{ randAlphaNum 20 }}}\n{{- end }}\n---\n\
                    apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}-page\n\
                    data: {title: {{ .Values.title }}}\n";

#[tokio::test(start_paused = true)]
async fn object_that_is_rendered_once_stays() {
    let files = [("charts/site/templates/all.yaml", ONCE), ("charts/site/values.yaml", "title: Hello\nkeep: false\n")];
    let test = Test::of(operator_of(project("rendered-once", &files))).start().await;
    let secret = async |test: &Test, name: &str| test.api::<Secret>().get_opt(name).await.expect("the server answers");
    apply_site(&test, "blue", "{}").await;
    apply_site(&test, "kept", "{keep: true}").await;
    test.assert_converges().await;
    let (blue, kept) = (secret(&test, "blue-password").await, secret(&test, "kept-password").await);
    sleep(Duration::from_secs(3600)).await;
    assert!(history(&test, "blue").await.len() <= 2 && history(&test, "kept").await.len() <= 2);
    assert_eq!(secret(&test, "blue-password").await, blue);
    assert_eq!(secret(&test, "kept-password").await.expect("it is there").data, kept.expect("it is there").data);
}

#[tokio::test(start_paused = true)]
async fn releases_have_different_random_values() {
    let test = Test::of(operator_of(site("drawn"))).start().await;
    apply_site(&test, "blue", "{}").await;
    apply_site(&test, "green", "{}").await;
    test.assert_converges().await;
    let green = test.api::<ConfigMap>().get("green-page").await.expect("it is there").data.expect("it has data");
    assert_ne!(page(&test).await["drawn"], green["drawn"]);
}

#[tokio::test(start_paused = true)]
async fn forbidden_lookup_is_named() {
    let template = "{{- $kind := .Values.kind }}\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n  annotations: {a: {{ len (lookup \"v1\" $kind \"\" \"\") | quote }}}\n";
    let files = [("charts/site/templates/page.yaml", template), ("charts/site/values.yaml", "kind: Node\n")];
    let test = Test::of(operator_of(project("not-looked-up", &files))).start().await;
    apply_site(&test, "blue", "{}").await;
    test.assert_converges().await;
    let failed = condition(&crate::project::sites(&test), "blue", "ReleaseFailed").await;
    assert!(failed.contains("lookup of Node of v1: the operator has no permission for this kind"), "{failed}");
}

#[tokio::test(start_paused = true)]
async fn lookups_outside_the_namespace_need_literal_names() {
    let template = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: '{{ .Release.Name }}'}\ndata:\n  \
                    named: {{ (lookup \"v1\" \"Namespace\" \"\" \"kube-system\").metadata.name | quote }}\n  \
                    asked: {{ len (lookup \"v1\" \"Secret\" .Values.where .Values.what) | quote }}\n";
    let values = "where: ''\nwhat: a\n";
    let files = [("charts/site/templates/page.yaml", template), ("charts/site/values.yaml", values)];
    let test = Test::of(operator_of(project("looked-up-elsewhere", &files))).start().await;
    apply_site(&test, "own", &format!("{{where: {}}}", test.namespace())).await;
    apply_site(&test, "all", "{where: '', what: ''}").await;
    apply_site(&test, "other", "{where: kube-system}").await;
    test.assert_converges().await;
    let found = test.api::<ConfigMap>().get("own").await.expect("it is there").data.expect("it has data");
    assert_eq!(found["named"], "kube-system");
    for name in ["all", "other"] {
        let failed = condition(&crate::project::sites(&test), name, "ReleaseFailed").await;
        assert!(failed.contains("outside of the release's namespace"), "{failed}");
    }
}
