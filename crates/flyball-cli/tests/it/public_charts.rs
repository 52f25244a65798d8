//! Public charts and a public role with the program. `.ci/public-charts` downloads them.

use crate::Home;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// The error about the sample that does not match the CRD of its own repository.
const INVALID: &str = "ApplicationSet argocd/test-hello-world-appset: failed to create typed patch object \
                       (argocd/test-hello-world-appset; argoproj.io/v1alpha1, Kind=ApplicationSet): \
                       .spec.generators[0].list.template.spec.source.revision: field not declared in schema";

fn documents(text: &str) -> Option<Vec<Value>> {
    let mut documents: Vec<Value> = serde_saphyr::from_multiple(text).ok()?;
    documents.retain(|document| document["apiVersion"].is_string() && document["kind"].is_string());
    Some(documents)
}

/// Returns the objects of YAML files, and of YAML in Markdown where it is complete, below a directory.
fn objects_below(folder: &Path) -> Vec<Value> {
    let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let mut objects = Vec::new();
    for path in paths {
        if path.is_dir() {
            objects.extend(objects_below(&path));
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        if path.extension().is_some_and(|extension| extension == "md") {
            let blocks = text.split("```").skip(1).step_by(2).filter_map(|block| block.strip_prefix("yaml"));
            objects.extend(blocks.filter_map(documents).flatten());
        } else {
            objects.extend(documents(&text).unwrap_or_else(|| panic!("{} is not YAML", path.display())));
        }
    }
    objects
}

fn namespaces(objects: &[Value]) -> BTreeSet<&str> {
    objects.iter().filter_map(|object| object["metadata"]["namespace"].as_str()).collect()
}

fn group(object: &Value) -> &str {
    object["apiVersion"].as_str().and_then(|version| version.split_once('/')).map_or("", |(group, _)| group)
}

impl Home {
    /// Applies objects and the namespaces that they need; returns the output.
    fn apply_all(&self, objects: &[Value], flags: &[&str]) -> crate::CommandOutput {
        let namespace = |name: &&str| format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}}}}}");
        let needed: Vec<String> = namespaces(objects).iter().map(namespace).collect();
        let texts: Vec<String> = objects.iter().map(Value::to_string).collect();
        for (file, texts) in [("namespaces.yaml", &needed), ("objects.yaml", &texts)] {
            fs::write(self.0.join(file), texts.join("\n---\n")).unwrap();
        }
        if !needed.is_empty() {
            self.run(&["apply", "-f", "namespaces.yaml"]).ok();
        }
        self.run(&[&["apply", "-f", "objects.yaml"], flags].concat())
    }
}

/// Installs a chart on a control plane of its own, validates its samples, and returns a row of the table.
fn install(name: &str, folder: &Path) -> String {
    let home = Home::new(&format!("public-{name}"));
    let (chart, values) = (folder.join("chart"), folder.join("values.yaml"));
    let mut args = vec!["helm", "template", name, chart.to_str().unwrap(), "--helm-version=4", "--include-crds"];
    if values.exists() {
        args.extend(["-f", values.to_str().unwrap()]);
    }
    let rendered = documents(&home.run(&args).ok().out).unwrap();
    home.run(&["cluster", "up"]).ok();
    home.apply_all(&rendered, &[]).ok();
    let definitions = rendered.iter().filter(|object| object["kind"] == "CustomResourceDefinition");
    let groups: BTreeSet<&str> = definitions.clone().filter_map(|crd| crd["spec"]["group"].as_str()).collect();

    // No pods run, so nothing serves the webhooks of a chart.
    for kind in ["validatingwebhookconfigurations", "mutatingwebhookconfigurations"] {
        home.run(&["delete", kind, "--all"]).ok();
    }
    let mut samples = objects_below(&folder.join("samples"));
    samples.retain(|sample| groups.contains(group(sample)));
    assert!(!samples.is_empty(), "{name} has no samples");
    let output = home.apply_all(&samples, &["--dry-run=server"]);
    let is_about_sample = |line: &&str| line.starts_with("error: ") && !line.starts_with("error: failed to apply");
    let errors = output.err.lines().filter(is_about_sample);
    let (known, unknown): (Vec<&str>, Vec<&str>) = errors.partition(|error| error.contains(INVALID));
    assert!(unknown.is_empty(), "{name}: {unknown:#?}");

    let version = version_of(&chart);
    let (objects, crds, valid) = (rendered.len(), definitions.count(), samples.len() - known.len());
    format!("| {name} | {version} | {objects} | {crds} | {valid} of {} |", samples.len())
}

fn version_of(chart: &Path) -> String {
    let metadata: Value = serde_saphyr::from_str(&fs::read_to_string(chart.join("Chart.yaml")).unwrap()).unwrap();
    metadata["version"].as_str().unwrap().to_owned()
}

fn downloads() -> Option<PathBuf> {
    std::env::var_os("FLYBALL_TEST_PUBLIC_CHARTS").map(PathBuf::from)
}

#[test]
fn public_charts_install_and_their_samples_are_valid() {
    let Some(folder) = downloads() else { return };
    let mut charts: Vec<_> = fs::read_dir(folder.join("charts")).unwrap().map(|entry| entry.unwrap().path()).collect();
    charts.sort();
    let mut table = "| Chart | Version | Objects | of these CRDs | Valid samples |\n|---|---|---|---|---|\n".to_owned();
    for chart in charts {
        let _ = writeln!(table, "{}", install(chart.file_name().unwrap().to_str().unwrap(), &chart));
    }
    fs::write(Path::new(env!("CARGO_TARGET_TMPDIR")).join("public-charts.md"), table).unwrap();
}

/// Creates an operator of the Visitors site, runs its generated case, and one with these fields of the spec.
fn run_visitors(name: &str, flags: &str, create: &str, spec: &str) {
    let home = Home::new(name);
    let folder = home.0.join("visitors");
    home.within(&home.0, &format!("init {flags} --domain acme.io visitors")).ok();
    home.within(&folder, &format!("create api --group web --version v1 --kind VisitorsApp {create}")).ok();
    home.within(&folder, "lint").ok();
    home.within(&folder, "test --suite cluster").ok();

    // Names and ports of the objects are fixed, so there can be only one site.
    fs::remove_dir_all(folder.join("tests/e2e/level_1_install_visitorsapp")).unwrap();
    let case = folder.join("tests/e2e/size_and_title");
    fs::create_dir_all(&case).unwrap();
    let site = format!("apiVersion: web.acme.io/v1\nkind: VisitorsApp\nmetadata: {{name: site}}\nspec: {spec}\n");
    let deployment = |name: &str, spec: &str| {
        let namespace = if flags == "--ansible" { ", namespace: default" } else { "" };
        format!("apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: visitors-{name}{namespace}}}\nspec: {spec}\n")
    };
    let title = "{template: {spec: {containers: [{env: [{name: REACT_APP_TITLE, value: Welcome}]}]}}}";
    let expected = [deployment("backend", "{replicas: 3}"), deployment("frontend", title)].join("---\n");
    fs::write(case.join("00-install.yaml"), site).unwrap();
    fs::write(case.join("00-assert.yaml"), expected).unwrap();
    home.within(&folder, "test --suite cluster").ok();
}

#[test]
fn chart_and_role_of_the_book_run_unchanged() {
    let Some(folder) = downloads() else { return };
    let of = |part: &str| folder.join("visitors").join(part).canonicalize().unwrap().display().to_string();
    let spec = "{backend: {size: 3}, frontend: {title: Welcome}}";
    run_visitors("public-visitors-helm", "--helm", &format!("--chart {}", of("chart")), spec);
    // The namespace of the objects is a default of the role.
    let spec = "{size: 3, title: Welcome}";
    run_visitors("public-visitors-ansible", "--ansible", &format!("--role {}", of("role")), spec);
}
