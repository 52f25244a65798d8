//! `flyball helm lint`: the findings of an API server beside those of Helm.

use crate::Home;
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
