//! Large catalogs.

use flyball_lifecycle::content::{Blobs, Content};
use flyball_lifecycle::{CatalogKey, Files};
use serde_json::{Value, json};
use std::fmt::Write;

const PACKAGES: usize = 350;
const VERSIONS: usize = 20;

/// Writes a catalog of 7,000 bundles with twenty APIs each.
fn catalog() -> Files {
    let mut files = Files::default();
    for package in 0..PACKAGES {
        let mut text = String::new();
        let name = format!("package-{package}");
        let mut add = |blob: Value| writeln!(text, "{blob}").unwrap();
        add(json!({"schema": "olm.package", "name": name, "defaultChannel": "stable"}));
        let entry = |version: usize| {
            let replaces = version.checked_sub(1).map(|older| format!("{name}.v1.{older}.0"));
            json!({"name": format!("{name}.v1.{version}.0"), "replaces": replaces})
        };
        let entries: Vec<Value> = (0..VERSIONS).map(entry).collect();
        add(json!({"schema": "olm.channel", "package": name, "name": "stable", "entries": entries}));
        for version in 0..VERSIONS {
            let api = |kind: usize| json!({"type": "olm.gvk", "value": {"group": format!("{name}.example.com"), "version": "v1", "kind": format!("Kind{kind}")}});
            let mut properties: Vec<Value> = (0..20).map(api).collect();
            properties.push(
                json!({"type": "olm.package", "value": {"packageName": name, "version": format!("1.{version}.0")}}),
            );
            properties.push(json!({"type": "olm.csv.metadata", "value": {"description": "x".repeat(1_000)}}));
            let bundle = format!("{name}.v1.{version}.0");
            add(
                json!({"schema": "olm.bundle", "package": name, "name": bundle, "image": "quay.io/x/y:v1", "properties": properties}),
            );
        }
        files.insert(format!("{name}/catalog.json"), text.into_bytes()).unwrap();
    }
    files
}

#[test]
fn seven_thousand_bundles_are_loaded() {
    let content = Content::new(Blobs::parse(&catalog()).unwrap());
    assert!(content.problems().is_empty(), "{:?}", content.problems());
    assert_eq!(content.packages().count(), PACKAGES);
    let catalog = content.to_catalog(CatalogKey { namespace: "ns".into(), name: "c".into() }, 0);
    assert_eq!(catalog.entries.len(), PACKAGES * VERSIONS);
}

#[test]
fn many_problems_are_counted_and_few_are_listed() {
    let text: String =
        (0..500).map(|at| json!({"schema": "olm.package", "name": format!("p{at}")}).to_string()).collect();
    let mut files = Files::default();
    files.insert("catalog.json", text.into_bytes()).unwrap();
    let content = Content::new(Blobs::parse(&files).unwrap());
    assert_eq!((content.problems().count(), content.problems().iter().count()), (1_000, 100));
    assert_eq!(content.packages().count(), 0);
}
