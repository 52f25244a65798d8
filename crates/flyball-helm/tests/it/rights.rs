//! Permissions of operators, derived from their charts.

use crate::project::{apply_site, condition, operator_of, patch, project, sites};
use flyball_cluster::testing::Test;
use k8s_openapi::api::networking::v1::Ingress;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use serde_json::json;
use std::path::Path;

const VALUES: &str = "ingress: {enabled: false}\nbudget: {enabled: false}\nworkload: Deployment\n";

/// As in the charts of Bitnami: versions are computed, and the objects are disabled by default.
const VERSIONS: &str = "{{- define \"ingress.version\" -}}\n{{- if semverCompare \"<1.19-0\" .Capabilities.KubeVersion.Version -}}\n\
                        extensions/v1beta1\n{{- else -}}\nnetworking.k8s.io/v1\n{{- end -}}\n{{- end -}}\n";
const INGRESS: &str = "{{- if .Values.ingress.enabled }}\napiVersion: {{ include \"ingress.version\" . }}\nkind: Ingress\nmetadata:\n  \
                       name: {{ .Release.Name }}\nspec: {defaultBackend: {service: {name: web, port: {number: 80}}}}\n{{- end }}\n";
const BUDGET: &str = "{{- if .Values.budget.enabled }}\n{{- if .Capabilities.APIVersions.Has \"policy/v1/PodDisruptionBudget\" }}\napiVersion: policy/v1\n{{- else }}\n\
                      apiVersion: policy/v1beta1\n{{- end }}\nkind: PodDisruptionBudget\nmetadata:\n  name: {{ .Release.Name }}\nspec: {minAvailable: 1}\n\
                      {{- end }}\n";
const PROBE: &str = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {{ .Release.Name }}-test\n  annotations:\n    \"helm.sh/hook\": test\nspec: {}\n";

fn resources(folder: &Path) -> Vec<String> {
    let rules = operator_of(folder.to_owned())().rules().into_iter();
    let group = |rule: &k8s_openapi::api::rbac::v1::PolicyRule| rule.api_groups.clone().unwrap_or_default().join(",");
    let own = ["coordination.k8s.io", "events.k8s.io", "web.example.com"];
    let mut found: Vec<String> = rules
        .filter(|rule| !own.contains(&&*group(rule)))
        .flat_map(|rule| {
            let group = group(&rule);
            rule.resources.unwrap_or_default().into_iter().map(move |resource| format!("{resource}.{group}"))
        })
        .collect();
    found.sort();
    found.dedup();
    found
}

#[tokio::test(start_paused = true)]
async fn computed_versions_are_known_at_startup() -> kube::Result<()> {
    let files = [
        ("charts/site/values.yaml", VALUES),
        ("charts/site/templates/_versions.tpl", VERSIONS),
        ("charts/site/templates/ingress.yaml", INGRESS),
        ("charts/site/templates/budget.yaml", BUDGET),
    ];
    let folder = project("rights-computed", &files);
    let test = Test::of(operator_of(folder)).start().await;
    apply_site(&test, "blue", "{}").await;
    test.assert_converges().await;
    patch(&sites(&test), "blue", json!({"spec": {"ingress": {"enabled": true}, "budget": {"enabled": true}}})).await;
    test.assert_converges().await;
    assert_eq!(condition(&sites(&test), "blue", "Deployed").await, "True UpgradeSuccessful: ");
    assert!(test.api::<Ingress>().get_opt("blue").await?.is_some());
    assert!(test.api::<PodDisruptionBudget>().get_opt("blue").await?.is_some());
    Ok(())
}

#[test]
fn permissions_are_those_of_the_operations() {
    let page = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}-page\n";
    let files = [
        ("charts/site/values.yaml", VALUES),
        ("charts/site/templates/_versions.tpl", VERSIONS),
        ("charts/site/templates/page.yaml", page),
        ("charts/site/templates/ingress.yaml", INGRESS),
        ("charts/site/templates/budget.yaml", BUDGET),
        ("charts/site/templates/tests/probe.yaml", PROBE),
    ];
    let expected = ["configmaps.", "ingresses.networking.k8s.io", "poddisruptionbudgets.policy", "secrets."];
    assert_eq!(
        resources(&project("rights", &files)),
        expected,
        "none for tests, nor for versions that are not selected"
    );
}

#[test]
fn unknown_kinds_are_named_until_a_sample_renders_them() {
    let job = "{{- range $version := .Values.versions }}\n---\napiVersion: {{ $version }}\nkind: Job\nmetadata: {name: a}\n{{- end }}\n";
    let files = [("charts/site/values.yaml", "versions: []\n"), ("charts/site/templates/job.yaml", job)];
    let folder = project("rights-unknown", &files);
    let unknown = || {
        let watches = flyball_helm::Watches::read(folder.join("watches.yaml")).unwrap();
        flyball_helm::unknown_kinds(&watches).unwrap()
    };
    let [found] = &*unknown() else { panic!("{:?}", unknown()) };
    let expected =
        "site/templates/job.yaml: apiVersion: {{ $version }}, kind: Job: the operator has no permission for it";
    assert!(found.starts_with(expected), "{found}");
    assert_eq!(resources(&folder), ["secrets."]);
    let sample = "{apiVersion: web.example.com/v1, kind: Site, metadata: {name: a}, spec: {versions: [batch/v1]}}";
    std::fs::create_dir_all(folder.join("config/samples")).unwrap();
    std::fs::write(folder.join("config/samples/site.yaml"), sample).unwrap();
    assert_eq!((unknown(), resources(&folder)), (Vec::new(), vec!["jobs.batch".to_owned(), "secrets.".to_owned()]));
}
