//! `flyball helm lint`: the findings of an API server beside those of Helm.

use crate::{CommandOutput, Home};
use serde_json::Value;
use std::fs;

const METADATA: &str = "apiVersion: v2\nname: site\nversion: 1.0.0\nicon: https://example.org/i.png\n";

const CRD: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: pages.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: pages, singular: page, kind: Page}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {size: {type: integer, maximum: 9}}}
";

const DEPLOYMENT: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replica: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: web, image: {{ .Values.image | quote }}, ports: [{containerPort: 99999}]}
";

fn object(api_version: &str, kind: &str, rest: &str) -> String {
    format!("apiVersion: {api_version}\nkind: {kind}\nmetadata: {{name: a}}\n{rest}")
}

impl Home {
    fn chart(&self, files: &[(&str, &str)]) {
        let own = [("Chart.yaml", METADATA), ("values.yaml", "image: web:1\n")];
        for (path, text) in own.iter().chain(files) {
            let path = self.0.join("site").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }
}

#[test]
fn lint_reports_errors_that_helm_accepts() {
    let home = Home::new("lint");
    home.chart(&[
        ("crds/page.yaml", CRD),
        ("templates/deployment.yaml", DEPLOYMENT),
        ("templates/ingress.yaml", &object("networking.k8s.io/v1", "Ingres", "")),
        ("templates/monitor.yaml", &object("monitoring.coreos.com/v1", "ServiceMonitor", "")),
        ("templates/page.yaml", &object("example.com/v1", "Page", "spec: {size: 12}\n")),
    ]);
    let output = home.run(&["helm", "lint", "site"]);
    output.fails_with(&["Error: 1 chart(s) linted, 1 chart(s) failed"]);
    let strict = "Deployment in version \"v1\" cannot be handled as a Deployment: strict decoding error: \
                  unknown field \"spec.replica\"";
    let invalid = "Deployment.apps \"web\" is invalid: spec.template.spec.containers[0].ports[0].containerPort: \
                   Invalid value: 99999: must be between 1 and 65535, inclusive";
    let page = "Page.example.com \"a\" is invalid: spec.size: Invalid value: 12: spec.size in body should be less than \
                or equal to 9";
    let expected = format!(
        "==> Linting site
[ERROR] templates/deployment.yaml: Deployment web: {strict}
[ERROR] templates/deployment.yaml: Deployment web: {invalid}
[ERROR] templates/ingress.yaml: the API server has no kind Ingres in networking.k8s.io/v1
[WARNING] templates/monitor.yaml: the API server has no kind ServiceMonitor in monitoring.coreos.com/v1
[ERROR] templates/page.yaml: Page a: {page}

"
    );
    assert_eq!(output.out, expected);
    let helm = home.run(&["helm", "lint", "site", "--helm-rules-only", "--strict"]).ok().out;
    assert_eq!(helm, "==> Linting site\n\n1 chart(s) linted, 0 chart(s) failed\n");
}

/// Reads what a cluster has.
const READER: &str = "
apiVersion: v1
kind: ConfigMap
metadata: {name: reader}
data:
  found: {{ (lookup \"v1\" \"ConfigMap\" \"default\" \"source\").data | toJson | quote }}
  deployment: {{ .Capabilities.APIVersions.Has \"apps/v1/Deployment\" }}
";

#[test]
fn chart_is_rendered_for_a_cluster() {
    let home = Home::new("template-cluster");
    home.run(&["cluster", "up", "--quiet"]).ok();
    home.chart(&[("templates/reader.yaml", READER)]);
    let source = "{apiVersion: v1, kind: ConfigMap, metadata: {name: source}, data: {a: b}}";
    home.run_with_input(&["apply", "-f", "-"], source).ok();
    let render = |flags: &str| home.within(&home.0, &format!("helm template one site {flags}"));
    let found = "found: \"{\\\"a\\\":\\\"b\\\"}\"";
    for (flags, looks_up, validates) in [
        ("", false, false),
        ("--dry-run=client", false, false),
        ("--dry-run=server", true, false),
        ("--validate", false, true),
        ("--validate --dry-run=server", true, true),
        ("--helm-version 4 --dry-run=client", false, false),
        ("--helm-version 4 --dry-run=server", true, true),
        ("--helm-version 4 --validate", true, true),
    ] {
        let out = render(flags).ok().out;
        assert_eq!(out.contains(found), looks_up, "{flags}: {out}");
        assert_eq!(out.contains("deployment: true"), validates, "{flags}: {out}");
    }

    // An object that exists belongs to another owner.
    let reader = "{apiVersion: v1, kind: ConfigMap, metadata: {name: reader}}";
    home.run_with_input(&["apply", "-f", "-"], reader).ok();
    let problem = "able to continue with install: ConfigMap \"reader\" in namespace \"default\" exists and cannot be imported \
                   into the current release: invalid ownership metadata; label validation error: missing key \
                   \"app.kubernetes.io/managed-by\": must be set to \"Helm\"; annotation validation error: missing key \
                   \"meta.helm.sh/release-name\": must be set to \"one\"; annotation validation error: missing key \
                   \"meta.helm.sh/release-namespace\": must be set to \"default\"\n";
    assert_eq!(render("--validate").err, format!("Error: Un{problem}"));
    assert_eq!(render("--helm-version 4 --dry-run=server").err, format!("Error: un{problem}"));
    for flags in ["--is-upgrade", "--take-ownership", "--namespace other"] {
        render(&format!("--validate {flags}")).ok();
    }

    // A kind that the cluster does not have, and one that a chart reads.
    home.chart(&[("templates/page.yaml", &object("example.com/v1", "Page", ""))]);
    let unmapped = "Error: unable to build kubernetes objects from release manifest: resource mapping not found for name: \
                    \"a\" namespace: \"\" from \"\": no matches for kind \"Page\" in version \"example.com/v1\"\nensure CRDs \
                    are installed first\n";
    assert_eq!(render("--validate --take-ownership").err, unmapped);
    home.chart(&[("templates/page.yaml", "{{ lookup \"example.com/v1\" \"Page\" \"\" \"a\" }}")]);
    render("--dry-run=server").fails_with(&[
        "unable to get apiresource from unstructured: example.com/v1, Kind=Page: the server could not find the \
         requested resource",
    ]);
    // Without a cluster, the reason is named.
    render("--validate --kubeconfig nowhere").fails_with(&["Error: Kubernetes cluster unreachable: ", "nowhere"]);
    render("--helm-version 4 --validate --kubeconfig nowhere")
        .fails_with(&["Error: cluster reachability check failed: kubernetes cluster unreachable: "]);
    home.chart(&[("templates/page.yaml", "")]);
    fs::remove_file(home.0.join("site/templates/reader.yaml")).unwrap();
    render("--dry-run=server --kubeconfig nowhere").ok();
}

#[test]
fn namespace_defaults_to_that_of_the_environment() {
    let home = Home::new("template-namespace");
    home.chart(&[("templates/a.yaml", &object("v1", "ConfigMap", "data: {namespace: {{ .Release.Namespace }}}\n"))]);
    let config = "{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a, \
                  namespace: of-context}}], clusters: []}";
    fs::write(home.0.join("config"), config).unwrap();
    let check = |args: &[&str], variable: &str, expected: &str| {
        let args = [&["helm", "template", "one", "site"], args].concat();
        let output = home.command(&args).env("HELM_NAMESPACE", variable).output().unwrap();
        let output = CommandOutput::of(&output).ok().out;
        assert!(output.contains(&format!("namespace: {expected}}}")), "{args:?} {variable}: {output}");
    };
    check(&[], "", "default");
    check(&["--kubeconfig", "config"], "", "of-context");
    check(&["--kubeconfig", "config"], "of-variable", "of-variable");
    check(&["--kubeconfig", "config", "-n", "of-flag"], "of-variable", "of-flag");
}

#[test]
fn findings_are_printed_as_json() {
    let home = Home::new("lint-json");
    let required = object("v1", "ConfigMap", "data: {a: '{{ required \"name it\" .Values.name }}'}\n");
    home.chart(&[("templates/a.yaml", &required)]);
    let output = home.run(&["helm", "lint", "site", "-o", "json"]).ok();
    let report: Value = serde_json::from_str(&output.out).unwrap();
    assert_eq!((&report["failed"], &report["charts"][0]["messages"][0]["severity"]), (&0.into(), &"info".into()));
    assert_eq!(output.err, "[INFO] Missing required value: name it\n");
    // An API server has the last word if nothing is missing.
    let numbers = object("v1", "ConfigMap", "data: {a: {{ .Values.number }}}\n");
    home.chart(&[("templates/a.yaml", &numbers)]);
    let output = home.run(&["helm", "lint", "site", "-o", "json", "--set", "number=3"]);
    output.fails_with(&["1 chart(s) failed"]);
    let report: Value = serde_json::from_str(&output.out).unwrap();
    let message = &report["charts"][0]["messages"][0];
    assert_eq!((&message["severity"], &message["path"]), (&"error".into(), &"templates/a.yaml".into()));
}
