//! `flyball catalog`: rendered, validated and served catalogs.

use crate::registry::{Manner, Registry};
use crate::{CommandOutput, Home};
use flyball_core::Clock;
use flyball_lifecycle::CatalogKey;
use flyball_lifecycle::content::{Blobs, Content};
use flyball_lifecycle::grpc::Connection;
use flyball_lifecycle::packages::{CatalogSummary, PackageServer, Reach, publish};
use flyball_lifecycle::source::read_folder;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::future::pending;
use std::io::{BufRead, BufReader};

const CATALOG: &str = "\
schema: olm.package
name: site
defaultChannel: stable
---
schema: olm.channel
package: site
name: stable
entries:
- name: site.v2.0.0
  replaces: site.v1.0.0
- name: site.v1.0.0
";

fn bundle(version: &str) -> String {
    let value = json!({"packageName": "site", "version": version});
    let image = format!("quay.io/team/site-bundle:{version}");
    let metadata = json!({"type": "olm.csv.metadata", "value": {"displayName": "Site"}});
    let properties = [json!({"type": "olm.package", "value": value}), metadata];
    json!({"schema": "olm.bundle", "package": "site", "name": format!("site.v{version}"), "image": image, "properties": properties})
        .to_string()
}

impl Home {
    fn write(&self, path: &str, content: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn with_catalog(test: &str) -> Self {
        let home = Self::new(test);
        home.write("catalog/site/catalog.yaml", CATALOG);
        home.write("catalog/site/bundles.json", &(bundle("1.0.0") + &bundle("2.0.0")));
        home.write("catalog/README.md", "# A catalog");
        home.write("catalog/.indexignore", "*.md\n");
        home
    }
}

fn documents(output: &CommandOutput) -> Vec<Value> {
    serde_json::Deserializer::from_str(&output.out).into_iter().collect::<Result<_, _>>().unwrap()
}

#[test]
fn catalogs_are_rendered_in_order() {
    let home = Home::with_catalog("catalogrender");
    let rendered = documents(&home.run(&["catalog", "render", "catalog"]).ok());
    let schemas: Vec<_> = rendered.iter().map(|document| document["schema"].as_str().unwrap()).collect();
    assert_eq!(schemas, ["olm.package", "olm.channel", "olm.bundle", "olm.bundle"]);
    assert_eq!(rendered[2]["name"], "site.v1.0.0");
    let yaml = home.run(&["catalog", "render", "catalog", "-o", "yaml"]).ok().out;
    home.write("again/catalog.yaml", &yaml);
    assert_eq!(documents(&home.run(&["catalog", "render", "again"]).ok()), rendered);
    assert_eq!(home.run(&["catalog", "render", "catalog/README.md"]).code, Some(2));
    home.run(&["catalog", "render", "UPPER"]).fails_with(&[
        "cannot load UPPER",
        "is not an image",
        "hint: pass a folder",
    ]);
}

#[test]
fn invalid_catalogs_are_reported_with_remedies() {
    let home = Home::with_catalog("catalogvalidate");
    let valid = home.run(&["catalog", "validate", "catalog"]).ok();
    assert_eq!(valid.out, "valid 1 package, 1 channel, 2 bundles\n");
    home.write("catalog/site/catalog.yaml", &CATALOG.replace("  replaces: site.v1.0.0\n", ""));
    let output = home.run(&["catalog", "validate", "catalog"]);
    output.fails_with(&["1 problem in 1 package of catalog"]);
    let expected = "error: package site, channel stable: several entries are heads: site.v1.0.0, site.v2.0.0\n  hint: make the \
                    newest one replace or skip the others, so that one head remains\n";
    assert_eq!(output.out, expected);
    let output = home.run(&["catalog", "validate", "catalog", "-o", "json"]);
    assert_eq!(output.code, Some(1));
    let report: Value = serde_json::from_str(&output.out).unwrap();
    assert_eq!((&report["isValid"], &report["problems"][0]["channel"]), (&json!(false), &json!("stable")));
    home.write("catalog/site/catalog.yaml", "schema: [");
    home.run(&["catalog", "validate", "catalog"]).fails_with(&["cannot load catalog", "site/catalog.yaml"]);
}

#[test]
fn names_in_catalogs_write_nothing_else_to_the_terminal() {
    let home = Home::with_catalog("catalogcontrols");
    let evil = "e\u{1b}[2J\nvalid 1 package\u{9b}31m\u{202e}";
    let mut bundle: Value = serde_json::from_str(&bundle("1.0.0")).unwrap();
    bundle["name"] = evil.into();
    let channel = |entry: &str| {
        json!({"schema": "olm.channel", "package": "site", "name": evil,
        "entries": [{"name": entry}, {"name": evil, "replaces": entry}]})
    };
    let package = json!({"schema": "olm.package", "name": "site", "defaultChannel": evil});
    let write = |folder: &str, channel: Value| {
        home.write(&format!("{folder}/all.json"), &format!("{package}{channel}{bundle}"));
    };
    write("evil", channel("none\u{1b}[0m"));
    write("other", channel("other"));
    for args in [
        &["catalog", "validate", "evil"][..],
        &["catalog", "graph", "evil"],
        &["catalog", "graph", "evil", "-o", "mermaid"],
        &["catalog", "graph", "evil", "-o", "dot"],
        &["catalog", "graph", "evil", "--package", "none"],
        &["catalog", "diff", "catalog", "evil"],
        &["catalog", "diff", "evil", "other"],
    ] {
        let output = home.run(args);
        let text = format!("{}{}", output.out, output.err);
        let is_control = |char: char| char != '\n' && (char.is_control() || char == '\u{202e}');
        assert!(!text.contains(is_control), "{args:?}: {text:?}");
        assert!(!text.lines().any(|line| line.starts_with("valid")), "{args:?}: {text}");
        assert!(text.contains("e^[[2J^Jvalid 1 package") || args.contains(&"none"), "{args:?}: {text}");
    }
}

#[test]
fn catalogs_are_generated_from_templates() {
    let home = Home::with_catalog("catalogtemplate");
    for version in ["1.0.0", "1.0.1", "1.1.0"] {
        home.write_bundle(&format!("bundles/{version}"));
        let csv = format!("bundles/{version}/manifests/csv.yaml");
        let text = fs::read_to_string(home.0.join(&csv)).unwrap();
        home.write(&csv, &text.replace("1.0.0", version));
    }
    let images = ["1.0.0", "1.0.1", "1.1.0"].map(|version| format!("  - Image: bundles/{version}\n")).concat();
    home.write(
        "semver.yaml",
        &format!("Schema: olm.semver\nGenerateMajorChannels: true\nStable:\n  Bundles:\n{images}"),
    );
    let rendered = home.run(&["catalog", "render", "semver.yaml"]).ok();
    let found = documents(&rendered);
    assert_eq!((&found[0]["name"], &found[0]["defaultChannel"]), (&json!("site"), &json!("stable-v1")));
    let entries = json!([
        {"name": "site.v1.0.0"}, {"name": "site.v1.0.1", "skips": ["site.v1.0.0"]},
        {"name": "site.v1.1.0", "replaces": "site.v1.0.1", "skips": ["site.v1.0.0"]},
    ]);
    assert_eq!((&found[1]["name"], &found[1]["entries"]), (&json!("stable-v1"), &entries));
    home.write("generated/catalog.json", &rendered.out);
    home.run(&["catalog", "validate", "generated"]).ok();
    assert_eq!(home.run(&["catalog", "diff", "generated", "semver.yaml"]).ok().out, "no differences\n");

    let entries = "[{schema: olm.package, name: site, defaultChannel: a},\n  {schema: olm.channel, package: site, \
                   name: a, entries: [{name: site.v1.1.0}]},\n  {schema: olm.bundle, image: bundles/1.1.0}]\n";
    home.write("basic.yaml", &format!("schema: olm.template.basic\nentries: {entries}"));
    let valid = home.run(&["catalog", "validate", "basic.yaml"]).ok();
    assert_eq!(valid.out, "valid 1 package, 1 channel, 1 bundle\n");
    home.write("basic.yaml", &format!("schema: olm.template.basic\nentries: {}", entries.replace("bundles/", "UP/")));
    home.run(&["catalog", "render", "basic.yaml"]).fails_with(&["cannot load basic.yaml: cannot load UP/1.1.0"]);
    home.write("semver.yaml", "schema: olm.semver\nstabel: {}\n");
    home.run(&["catalog", "render", "semver.yaml"]).fails_with(&["unknown field `stabel`"]);
}

#[test]
fn differences_and_stranded_versions_are_printed() {
    let home = Home::with_catalog("catalogdiff");
    assert_eq!(home.run(&["catalog", "diff", "catalog", "catalog"]).ok().out, "no differences\n");
    home.write("new/catalog.yaml", &CATALOG.replace("  replaces: site.v1.0.0\n- name: site.v1.0.0\n", ""));
    home.write("new/bundles.json", &bundle("2.0.0").replace("site-bundle:2.0.0", "site-bundle:2.0.1"));
    let output = home.run(&["catalog", "diff", "catalog", "new"]);
    assert_eq!(output.code, Some(1), "{output:?}");
    let expected = "removed  package site, channel stable, bundle site.v1.0.0\n\
                    changed  package site, channel stable, bundle site.v2.0.0\n           \
                    replaces: site.v1.0.0 -> none\n\
                    stranded package site, channel stable, bundle site.v1.0.0\n\
                    removed  package site, bundle site.v1.0.0\n\
                    changed  package site, bundle site.v2.0.0\n           \
                    image: quay.io/team/site-bundle:2.0.0 -> quay.io/team/site-bundle:2.0.1\n\
                    1 installed version would not be upgraded any more: keep an entry that replaces or skips it\n";
    assert_eq!(output.out, expected);
    let json = home.run(&["catalog", "diff", "catalog", "new", "-o", "json"]);
    let found: Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!(found[2]["change"], "stranded");
}

#[test]
fn graphs_of_upgrades_are_drawn() {
    let home = Home::with_catalog("cataloggraph");
    let text = home.run(&["catalog", "graph", "catalog"]).ok().out;
    let expected = "package site, channel stable, the default\n  site.v2.0.0                      head; replaces site.v1.0.0\n  \
                    site.v1.0.0\n";
    assert_eq!(text, expected);
    let mermaid = home.run(&["catalog", "graph", "catalog", "-o", "mermaid"]).ok().out;
    assert!(mermaid.starts_with("graph LR\n  subgraph c0[\"site, stable\"]\n"), "{mermaid}");
    assert!(mermaid.contains("    c0-site-v1-0-0 -->|replaces| c0-site-v2-0-0\n"), "{mermaid}");
    let dot = home.run(&["catalog", "graph", "catalog", "-o", "dot"]).ok().out;
    assert!(dot.contains("    \"0/site.v1.0.0\" -> \"0/site.v2.0.0\" [label=\"replaces\"];\n"), "{dot}");
    let json = home.run(&["catalog", "graph", "catalog", "--channel", "stable", "-o", "json"]).ok();
    let graphs: Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!(graphs[0]["edges"][0]["field"], "replaces");
    home.run(&["catalog", "graph", "catalog", "--package", "other"])
        .fails_with(&["catalog has no such package or channel", "it has the packages site"]);
    home.run(&["catalog", "graph", "catalog", "--package", "site", "--channel", "none"])
        .fails_with(&["package site has no channel \"none\"", "it has the channels "]);
}

#[test]
fn served_catalogs_answer_clients() {
    let home = Home::with_catalog("catalogserve");
    let mut child = home.spawn(&["catalog", "serve", "catalog", "--listen", "127.0.0.1:0"]);
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("serving 1 package with 2 bundles at ").expect("the address is printed");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut connection = Connection::open(address).await.unwrap();
        assert!(connection.is_healthy().await.unwrap());
        let head = connection.get_bundle_for_channel("site", "stable").await.unwrap();
        assert_eq!(
            (head.csv_name.as_str(), head.bundle_path.as_str()),
            ("site.v2.0.0", "quay.io/team/site-bundle:2.0.0")
        );
    });
    child.kill().unwrap();
    child.wait().unwrap();
    home.write("empty/catalog.yaml", "schema: olm.package\nname: site\n");
    home.run(&["catalog", "serve", "empty"])
        .fails_with(&["empty has no valid packages", "flyball catalog validate empty"]);
}

#[test]
fn bundles_are_pushed_to_registries_and_rendered_from_there() {
    let home = Home::new("bundleimage");
    home.write_bundle("bundle");
    let registry = Registry::start(Manner::Open);
    let name = format!("{}/team/op:1.0.0", registry.address);
    let output = home.run(&["bundle", "publish", "bundle", "--image", &name, "-o", "json"]).ok();
    let report: Value = serde_json::from_str(&output.out).unwrap();
    assert_eq!(report["image"], json!(name));
    let rendered = documents(&home.run(&["catalog", "render", &name]).ok());
    assert_eq!(rendered.len(), 1);
    assert_eq!((&rendered[0]["name"], &rendered[0]["image"]), (&json!("site.v1.0.0"), &json!(name)));
    let kinds: Vec<_> =
        rendered[0]["properties"].as_array().unwrap().iter().map(|property| &property["type"]).collect();
    assert_eq!(kinds, ["olm.gvk", "olm.package", "olm.csv.metadata"]);
}

#[test]
fn packages_are_listed_on_a_cluster() {
    let home = Home::with_catalog("packages");
    home.run(&["cluster", "up", "--quiet"]).ok();
    home.write("olm.yaml", "{apiVersion: v1, kind: Namespace, metadata: {name: olm}}");
    home.run(&["apply", "-f", "olm.yaml"]).ok();
    let packages = PackageServer::new("olm", Clock::system());
    let catalog = CatalogSummary {
        key: CatalogKey { namespace: "olm".into(), name: "demo".into() },
        display_name: "Demo".into(),
        publisher: "Flyball".into(),
        labels: BTreeMap::new(),
        created: "2026-01-01T00:00:00Z".into(),
    };
    packages.insert(&catalog, &Content::new(Blobs::parse(&read_folder(&home.0.join("catalog")).unwrap()).unwrap()));
    let kubeconfig = Kubeconfig::read_from(home.0.join(".kube/config")).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.spawn(async move {
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        publish(&packages, &Client::try_from(config).unwrap(), "olm", &Reach::Local, pending()).await.unwrap();
    });
    let list = || home.run(&["get", "packagemanifests", "-n", "default"]);
    let listed = (0..500).map(|_| list()).find(|output| output.code == Some(0)).unwrap_or_else(list);
    let line = listed.out.lines().nth(1).unwrap_or_default();
    assert!(listed.out.starts_with("NAME ") && line.starts_with("site ") && line.contains("Demo"), "{listed:?}");
    let package = home.run(&["get", "packagemanifest", "site", "-n", "default", "-o", "json"]).ok().out;
    let package: Value = serde_json::from_str(&package).unwrap();
    assert_eq!(package["status"]["channels"][0]["currentCSV"], "site.v2.0.0");
}
