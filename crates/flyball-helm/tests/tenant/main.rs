//! A tenant who may write custom resources in one namespace sends arbitrary payloads to a chart that uses values in
//! all common ways. Afterwards, nothing outside of that namespace has been read or changed, and the neighbors are
//! served.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod payloads;
#[path = "../it/project.rs"]
#[allow(dead_code, reason = "this test uses only a part of it")]
mod project;
#[path = "../../../flyball-cluster/tests/tenant/suite.rs"]
mod suite;

use flyball_chart::{Budget, Capabilities, Chart, Lookup, Release, RenderOptions, Values};
use flyball_cluster::testing::Test;
use flyball_helm::storage::{Hook, PAYLOAD, Revision, SECRET_TYPE, State, secret_name};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams,
};
use project::{operator_of, project};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;
use suite::{CANARY, Latencies, Suite};

/// The patterns of Bitnami's library chart, and more: strings and whole values are passed to `tpl`.
const HELPERS: &str = r#"
{{- define "site.render" -}}
{{- $value := typeIs "string" .value | ternary .value (.value | toYaml) }}
{{- if contains "{{" (toJson .value) }}{{ tpl $value .context }}{{ else }}{{ $value }}{{ end }}
{{- end -}}
{{- define "site.secret" -}}
{{- $found := lookup "v1" "Secret" .Release.Namespace "own" }}{{ if $found }}{{ index $found.data "own" | b64dec }}{{ end }}
{{- end -}}
"#;

const PAGE: &str = r#"apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .Release.Name }}-page
  labels: {{- include "site.render" (dict "value" .Values.labels "context" $) | nindent 4 }}
data:
  secret: {{ include "site.secret" . | quote }}
  text: {{ tpl .Values.text . | quote }}
  more: {{ tpl (printf "%s %s" .Values.prefix .Values.text) $ | quote }}
  joined: {{ tpl (list .Values.prefix .Values.text | join "-") $ | quote }}
  wrapped: {{ tpl (cat "{{ with $ }}" .Values.text "{{ end }}") $ | quote }}
  built: {{ tpl (replace "TEXT" .Values.text "{{ .Release.Name }} TEXT") $ | quote }}
  merged: {{ tpl (toYaml (mergeOverwrite (deepCopy .Values.own) (dict "text" .Values.text))) $ | quote }}
  {{- range $key, $value := .Values.map }}
  {{ printf "%s-%s" "map" $key | sha256sum | trunc 20 }}: {{ tpl $key $ | quote }}
  {{ printf "%s-%s" "value" $key | sha256sum | trunc 20 }}: {{ include "site.render" (dict "value" $value "context" $) | quote }}
  {{- end }}
  list: {{ tpl (toYaml .Values.list) . | quote }}
  whole: {{ tpl (toYaml (omit .Values "list" "map")) . | quote }}
  read: {{ fromYaml .Values.yaml | toJson | quote }}
  json: {{ fromJson .Values.json | toJson | quote }}
  matches: {{ regexMatch .Values.pattern "aaaaaaaaaaaaaaaaaaaaaaaa" | quote }}
  date: {{ toDate "2006-01-02" (toString .Values.date) | quote }}
  size: {{ len (until (int .Values.count)) | quote }}
  wide: {{ printf "%*d" (int .Values.width) 1 | len | quote }}
"#;

const NAMED: &str = "{{- if .Values.define }}\n{{ include .Values.define . }}\n{{- end }}\n";

/// Without quotes: the value becomes part of the document.
const RAW: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}-raw\n  annotations:\n    a: {{ .Values.raw }}\n";
const ROLE: &str = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata:\n  name: {{ .Release.Namespace }}-{{ .Release.Name }}\n  \
                    annotations:\n    a: {{ .Values.role }}\nrules: []\n---\napiVersion: v1\nkind: Secret\nmetadata:\n  \
                    name: {{ .Release.Name }}-secret\nstringData: {a: b}\n";
const ELSEWHERE: &str = "{{- if .Values.elsewhere }}\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Values.elsewhereName }}\n  \
                         namespace: {{ .Values.elsewhere }}\n{{- end }}\n";
const VALUES: &str = "labels: {app: '{{ .Release.Name }}'}\nprefix: '{{ .Chart.Name }}'\ntext: plain\nown: {name: '{{ .Release.Name }}'}\n\
                      map: {one: '{{ .Chart.Name }}'}\nlist: ['{{ .Chart.Name }}']\nyaml: 'a: b'\njson: '{}'\npattern: a*\ndate: '2020-01-01'\n\
                      count: 3\nwidth: 3\nraw: a\nrole: a\nelsewhereName: stray\n";

/// The fields of the chart that the payloads are put into.
const FIELDS: &[&str] = &[
    "text",
    "prefix",
    "raw",
    "role",
    "yaml",
    "json",
    "pattern",
    "date",
    "define",
    "map",
    "list",
    "labels",
    "own",
    "elsewhere",
];

fn files() -> Vec<(&'static str, &'static str)> {
    vec![
        ("charts/site/templates/_helpers.tpl", HELPERS),
        ("charts/site/templates/page.yaml", PAGE),
        ("charts/site/templates/named.yaml", NAMED),
        ("charts/site/templates/raw.yaml", RAW),
        ("charts/site/templates/role.yaml", ROLE),
        ("charts/site/templates/elsewhere.yaml", ELSEWHERE),
        ("charts/site/values.yaml", VALUES),
    ]
}

fn site(name: &str) -> PathBuf {
    project(name, &files())
}

fn release() -> Release {
    Release { name: "blue".into(), namespace: "tenant".into(), revision: 1, is_upgrade: false }
}

/// A cluster with all objects; returns whether the operator read or changed objects outside of the namespace.
struct Everything;

impl Lookup for Everything {
    fn lookup(&self, _: &str, kind: &str, namespace: &str, name: &str) -> Result<Option<Value>, String> {
        match (kind, namespace, name) {
            ("Secret", "tenant", "own") => Ok(Some(json!({"data": {"own": "b3du"}}))),
            _ => Ok(Some(json!({"data": {"jewels": CANARY}, "items": [{"data": CANARY}]}))),
        }
    }
}

#[test]
fn no_payload_is_evaluated() {
    let chart = Chart::open(&site("tenant-rendered").join("charts/site")).unwrap();
    let options =
        || RenderOptions { cluster: Some(&Everything), budget: Budget::untrusted(), ..RenderOptions::default() };
    let specs = payloads::specs(FIELDS);
    assert!(specs.len() >= 1_000, "{}", specs.len());
    let mut rendered = 0;
    for spec in &specs {
        let values = Values::untrusted(spec.as_object().unwrap().clone());
        let Ok(found) = chart.render_with(&values, &release(), &Capabilities::default(), &options()) else { continue };
        rendered += 1;
        let text: String = found.manifests.iter().map(|manifest| manifest.text.as_str()).collect();
        assert!(!text.contains(CANARY), "{spec:.200}");
        let page = found.manifests.iter().find(|manifest| manifest.object["metadata"]["name"] == "blue-page").unwrap();
        // The chart's own templates are evaluated nevertheless, and the text is unchanged.
        assert!(
            page.object["data"]["list"].as_str().unwrap().contains("site") || spec.get("list").is_some(),
            "{spec:.200}"
        );
        if let Some(text) = spec["text"].as_str().filter(|text| !text.contains("<no value>")) {
            assert_eq!(page.object["data"]["text"], text);
            assert_eq!(page.object["data"]["built"], format!("blue {text}"));
        }
    }
    assert!(rendered > specs.len() / 2, "only {rendered} of {} rendered", specs.len());
}

#[test]
fn chart_text_is_evaluated_and_tenant_text_is_not() {
    let files = [
        ("charts/site/templates/page.yaml", "a: {{ tpl (toYaml .Values.x) . | quote }}\n"),
        (
            "charts/site/values.yaml",
            "x: {own: '{{ .Release.Name }}', list: ['{{ .Chart.Name }}'], deep: {a: '{{ .Chart.Name }}'}}\n",
        ),
    ];
    let chart = Chart::open(&project("tenant-mixed", &files).join("charts/site")).unwrap();
    let render = |spec: Value, evaluates_data| {
        let values = Values::untrusted(spec.as_object().unwrap().clone());
        let options = RenderOptions { evaluates_data, ..RenderOptions::default() };
        let found = chart.render_with(&values, &release(), &Capabilities::default(), &options).unwrap();
        found.manifests[0].object["a"].as_str().unwrap().to_owned()
    };
    let spec = json!({"x": {"own": "{{ .Release.Name }}", "more": "{{ .Chart.Name }}", "{{ .Chart.Name }}": 1, "deep": {"b": "{{ 1 }}"}}});
    // Text that equals the chart's text at the same position is the chart's.
    assert_eq!(
        render(spec.clone(), false),
        "'{{ .Chart.Name }}': 1\ndeep:\n  a: 'site'\n  b: '{{ 1 }}'\nlist:\n- 'site'\nmore: '{{ .Chart.Name }}'\nown: 'blue'"
    );
    assert_eq!(
        render(spec, true),
        "'site': 1\ndeep:\n  a: 'site'\n  b: '1'\nlist:\n- 'site'\nmore: 'site'\nown: 'blue'"
    );
}

#[test]
fn tenant_text_is_rejected_in_actions() {
    let files = [
        ("charts/site/templates/page.yaml", "a: {{ tpl (printf \"{{ .Values.%s }}\" .Values.key) . | quote }}\n"),
        ("charts/site/values.yaml", "key: own\nown: 3\n"),
    ];
    let chart = Chart::open(&project("tenant-action", &files).join("charts/site")).unwrap();
    let render = |spec: Value| {
        let values = Values::untrusted(spec.as_object().unwrap().clone());
        chart.render_with(&values, &release(), &Capabilities::default(), &RenderOptions::default())
    };
    assert_eq!(render(json!({})).unwrap().manifests[0].object["a"], "3");
    assert_eq!(render(json!({"key": "own"})).unwrap().manifests[0].object["a"], "3");
    let error = render(json!({"key": "x | toYaml"})).unwrap_err().to_string();
    assert!(
        error.contains("an action contains text of the custom resource") && error.contains("evaluateTemplates"),
        "{error}"
    );
}

fn site_kind() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("web.example.com", "v1", "Site"))
}

fn site_of(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "web.example.com/v1", "kind": "Site", "metadata": {"name": name}, "spec": spec})
}

/// The number of concurrent reconciles of the operator.
const WORKERS: u64 = 16;

/// Asserts that the latency of neighbors during an attack is about the same as before: in simulated time, which does
/// not advance during computations, and in the number of requests for other objects.
///
/// A neighbor that gets a free worker is served with as many requests as when it is alone; each of the other workers
/// sends about as many requests in the meantime, since payloads need the same requests as neighbors.
fn assert_kept(calm: &Latencies, attacked: &Latencies) {
    const TOLERANCE: Duration = Duration::from_millis(100);
    let ((calm, few), (attacked, many)) = (calm.p99(), attacked.p99());
    assert!(attacked <= calm + TOLERANCE, "p99 of the neighbors is {attacked:?} instead of {calm:?}");
    assert!(many <= few * WORKERS, "p99 of the neighbors waits for {many} requests instead of {few}");
}

fn is_deployed(site: &DynamicObject) -> bool {
    let conditions = site.data["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|found| found["type"] == "Deployed" && found["status"] == "True")
}

/// Sends every payload whose index is this one modulo [`PARTS`] to a running operator, and a neighbor whenever all
/// workers but one have payloads.
async fn attack(part: usize) {
    let test = Test::of(operator_of(site(&format!("tenant{part}"))))
        .allows_changes_in("kube-public")
        .allows_changes_of::<ClusterRole>()
        .allows_changes_of::<ClusterRoleBinding>()
        .start()
        .await;
    let suite = Suite::begin(&test, &[site_kind()], "vault").await;
    let api = suite.api(&site_kind());
    let neighbor = |name: String| [site_of(&name, &json!({"text": "hello"}))];
    let mut calm = Latencies::default();
    for at in 0..20 {
        calm.join(
            suite.latencies(&site_kind(), neighbor(format!("calm{at}")), async |object| is_deployed(object)).await,
        );
    }
    let specs: Vec<_> = payloads::specs(FIELDS).into_iter().enumerate().filter(|(at, _)| at % PARTS == part).collect();
    let (mut attacked, mut sent) = (Latencies::default(), 0);
    for (round, payloads) in specs.chunks(WORKERS as usize - 1).enumerate() {
        let create = async |(at, spec): &(usize, Value)| {
            let site: DynamicObject = serde_json::from_value(site_of(&format!("t{at}"), spec)).unwrap();
            // The API server rejects some of them.
            api.create(&PostParams::default(), &site).await.is_ok()
        };
        let created = futures_util::future::join_all(payloads.iter().map(create)).await;
        sent += created.into_iter().filter(|created| *created).count();
        let neighbor = neighbor(format!("attacked{round}"));
        attacked.join(suite.latencies(&site_kind(), neighbor, async |object| is_deployed(object)).await);
    }
    assert!(sent > specs.len() / 2, "{sent} of {}", specs.len());
    Latencies::print(&calm, &attacked, sent, "Helm");
    assert_kept(&calm, &attacked);
    tokio::time::sleep(Duration::from_secs(120)).await;

    // The chart has a ClusterRole, named after its release.
    let role = format!("ClusterRole /{}-", test.namespace());
    suite.assert_harmless(|place| place.starts_with(&role)).await;
    for found in api.list(&ListParams::default()).await.unwrap() {
        let status = found.data["status"].to_string();
        assert!(
            status.contains("Deployed") || status.contains("ReleaseFailed") || status.contains("Irreconcilable"),
            "{:?}: {status:.300}",
            found.metadata.name
        );
    }
}

/// Concurrent tests that share the payloads: each has its own operator and cluster.
const PARTS: usize = 4;

#[tokio::test(start_paused = true)]
async fn nothing_outside_of_the_namespace_is_read_or_changed_0() {
    attack(0).await;
}

#[tokio::test(start_paused = true)]
async fn nothing_outside_of_the_namespace_is_read_or_changed_1() {
    attack(1).await;
}

#[tokio::test(start_paused = true)]
async fn nothing_outside_of_the_namespace_is_read_or_changed_2() {
    attack(2).await;
}

#[tokio::test(start_paused = true)]
async fn nothing_outside_of_the_namespace_is_read_or_changed_3() {
    attack(3).await;
}

/// Writes a Secret of a release as the tenant would.
async fn forge(secrets: &kube::Api<DynamicObject>, name: &str, change: impl Fn(&mut Revision)) -> bool {
    let Ok(found) = secrets.get(name).await else { return false };
    let secret: Secret = serde_json::from_value(serde_json::to_value(&found).unwrap()).unwrap();
    let Ok(mut revision) = Revision::decode(&secret.data.unwrap()[PAYLOAD].0) else { return false };
    change(&mut revision);
    let payload = ByteString(revision.encode().unwrap());
    let change = json!({"metadata": {"labels": revision.labels()}, "data": {PAYLOAD: payload}});
    secrets.patch(name, &PatchParams::default(), &Patch::Merge(change)).await.is_ok()
}

#[tokio::test(start_paused = true)]
async fn forged_release_secrets_reach_nothing_outside_of_the_namespace() {
    let test = Test::of(operator_of(site("tenant-secrets")))
        .allows_changes_in("kube-public")
        .allows_changes_of::<ClusterRole>()
        .allows_changes_of::<ClusterRoleBinding>()
        .start()
        .await;
    let (secret, config) = (ApiResource::erase::<Secret>(&()), ApiResource::erase::<ConfigMap>(&()));
    let suite = Suite::begin(&test, &[site_kind(), secret.clone(), config.clone()], "vault").await;
    let (sites, secrets, configs) = (suite.api(&site_kind()), suite.api(&secret), suite.api(&config));
    let neighbors =
        |name: &'static str| (0..20).map(move |at| site_of(&format!("{name}{at}"), &json!({"text": "hello"})));
    let calm = suite.latencies(&site_kind(), neighbors("calm"), async |object| is_deployed(object)).await;
    let documents: Vec<String> =
        payloads::texts().into_iter().filter_map(|text| Some(text.strip_prefix("a\n---\n")?.to_owned())).collect();
    assert!(documents.len() >= 8, "{}", documents.len());
    let states = [State::Deployed, State::PendingInstall, State::PendingUpgrade, State::Failed, State::Superseded];
    let releases: Vec<(String, &String, State)> = documents
        .iter()
        .flat_map(|document| states.map(|state| (document, state)))
        .enumerate()
        .map(|(at, (document, state))| (format!("t{at}"), document, state))
        .collect();
    for (name, ..) in &releases {
        let site: DynamicObject = serde_json::from_value(site_of(name, &json!({}))).unwrap();
        sites.create(&PostParams::default(), &site).await.unwrap();
    }
    test.assert_converges().await;
    let mut forged = 0;
    for (name, document, state) in &releases {
        forged += usize::from(
            forge(&secrets, &secret_name(name, 1), |revision| {
                revision.info.status = *state;
                revision.manifest += &format!("---\n# Source: site/templates/raw.yaml\n{document}");
                revision.hooks.push(Hook {
                    name: "stray".into(),
                    kind: "ConfigMap".into(),
                    path: "site/templates/raw.yaml".into(),
                    manifest: document.to_string(),
                    events: ["pre-install", "pre-upgrade", "pre-delete", "post-delete"].map(str::to_owned).into(),
                    ..Hook::default()
                });
            })
            .await,
        );
        // The rendered objects are changed as well, and the stored Secrets are not valid releases.
        let text = json!({"data": {"text": document}});
        let _ = configs.patch(&format!("{name}-page"), &PatchParams::default(), &Patch::Merge(text)).await;
        let labels = json!({"owner": "helm", "name": name, "status": state.as_str(), "version": u32::MAX.to_string()});
        let broken = json!({"apiVersion": "v1", "kind": "Secret", "type": SECRET_TYPE, "stringData": {PAYLOAD: document},
            "metadata": {"name": secret_name(&format!("{name}-x"), u32::MAX), "labels": labels}});
        secrets.create(&PostParams::default(), &serde_json::from_value(broken).unwrap()).await.unwrap();
    }
    assert_eq!(forged, releases.len());
    let attacked = suite.latencies(&site_kind(), neighbors("attacked"), async |object| is_deployed(object)).await;
    Latencies::print(&calm, &attacked, forged, "forged releases");
    assert_kept(&calm, &attacked);
    // Others change, or are deleted together with their sources.
    for (at, (name, document, _)) in releases.iter().enumerate().filter(|(at, _)| at % 3 != 0) {
        for version in [1, 2] {
            let hook = |revision: &mut Revision| revision.manifest += &format!("---\n{document}");
            forge(&secrets, &secret_name(name, version), hook).await;
        }
        if at % 3 == 1 {
            sites.delete(name, &DeleteParams::default()).await.unwrap();
        } else {
            let change = json!({"spec": {"text": "other"}});
            sites.patch(name, &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
        }
    }
    tokio::time::sleep(Duration::from_secs(600)).await;
    let role = format!("ClusterRole /{}-", test.namespace());
    suite.assert_harmless(|place| place.starts_with(&role)).await;
}
