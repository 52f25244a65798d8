use super::*;
use crate::files::Files;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

fn files(files: &[(&str, &str)]) -> Files {
    let mut read = Files::default();
    for (path, content) in files {
        read.insert(*path, content.as_bytes().to_vec()).unwrap();
    }
    read
}

fn package() -> Value {
    json!({"schema": "olm.package", "name": "a", "defaultChannel": "stable"})
}

fn channel(entries: Value) -> Value {
    json!({"schema": "olm.channel", "package": "a", "name": "stable", "entries": entries})
}

fn bundle(name: &str, version: &str) -> Value {
    json!({
        "schema": "olm.bundle", "package": "a", "name": name, "image": "quay.io/a/b:v1",
        "properties": [{"type": "olm.package", "value": {"packageName": "a", "version": version}}],
    })
}

fn blobs(documents: &[Value]) -> Blobs {
    let text: String = documents.iter().map(Value::to_string).collect();
    Blobs::parse(&files(&[("catalog.json", &text)])).unwrap()
}

fn problems(documents: &[Value]) -> Vec<String> {
    Content::new(blobs(documents)).problems().iter().map(Problem::to_string).collect()
}

#[test]
fn catalogs_are_json_and_yaml_in_folders() {
    let yaml = "schema: olm.package\nname: a\ndefaultChannel: stable\nicon: {base64data: aWNvbg==, mediatype: image/png}\n\
                ---\nschema: olm.channel\npackage: a\nname: stable\nentries: [{name: a.v2, replaces: a.v1}, {name: a.v1}]\n";
    let json = format!("{}\n{}", bundle("a.v1", "1.0.0"), bundle("a.v2", "2.0.0"));
    let files = files(&[
        ("a/catalog.yaml", yaml),
        ("a/bundles.json", &json),
        ("a/README.md", "# not a catalog"),
        (".indexignore", "*.md\n"),
    ]);
    let content = Content::new(Blobs::parse(&files).unwrap());
    assert!(content.problems().is_empty(), "{:?}", content.problems());
    let package = content.package("a").unwrap();
    assert_eq!(package.icon.as_ref().map(|icon| icon.media_type.as_str()), Some("image/png"));
    assert_eq!(package.channels["stable"].head.as_deref(), Some("a.v2"));
    let catalog = content.to_catalog(CatalogKey { namespace: "ns".into(), name: "c".into() }, 7);
    let entries: Vec<_> = catalog
        .entries
        .iter()
        .map(|entry| (entry.name(), entry.replaces.as_deref(), entry.is_default_channel))
        .collect();
    assert_eq!(entries, [("a.v2", Some("a.v1"), true), ("a.v1", None, true)]);
    assert_eq!(catalog.priority, 7);
}

#[test]
fn valid_catalogs_have_no_problems() {
    let skipped = json!([{"name": "a.v3", "replaces": "a.v1", "skips": ["a.v2"]}, {"name": "a.v2", "replaces": "a.v1"},
                         {"name": "a.v1", "replaces": "a.v0", "skipRange": "<1.0.0"}]);
    let three = [bundle("a.v1", "1.0.0"), bundle("a.v2", "2.0.0"), bundle("a.v3", "3.0.0")];
    let deprecations = json!({"schema": "olm.deprecations", "package": "a", "entries": [
        {"reference": {"schema": "olm.package"}, "message": "m"},
        {"reference": {"schema": "olm.channel", "name": "stable"}, "message": "m"},
        {"reference": {"schema": "olm.bundle", "name": "a.v1"}, "message": "b"},
    ]});
    let mut documents = vec![package(), channel(skipped), deprecations, json!({"schema": "other", "a": 1})];
    documents.extend(three);
    assert_eq!(problems(&documents), Vec::<String>::new());
    let content = Content::new(blobs(&documents));
    assert_eq!(content.package("a").unwrap().deprecation.as_deref(), Some("m"));
    assert_eq!(content.bundle("a", "a.v1").unwrap().deprecation.as_deref(), Some("b"));
}

#[test]
fn problems_name_package_channel_bundle_and_remedy() {
    let one = || channel(json!([{"name": "a.v1"}]));
    let v1 = || bundle("a.v1", "1.0.0");
    let with = |field: &str, value: Value| {
        let mut bundle = v1();
        bundle[field] = value;
        bundle
    };
    let channel_of = |text: &str| format!("package \"a\", channel \"stable\": {text}");
    let bundle_of = |text: &str| format!("package \"a\", bundle \"a.v1\": {text}");
    let pair = [bundle("a.v1", "1.0.0"), bundle("a.v2", "2.0.0")];
    let chain = |entries: Value| [&[package(), channel(entries)], &pair[..]].concat();
    let cases: Vec<(Vec<Value>, String)> = vec![
        (vec![one(), v1()], "package \"a\": there are 1 channels and 1 bundles, but no olm.package blob".into()),
        (vec![package(), package(), one(), v1()], "package \"a\": there are 2 olm.package blobs; remove".into()),
        (
            vec![json!({"schema": "olm.package", "name": "a"}), one(), v1()],
            "package \"a\": there is no default channel; set the field".into(),
        ),
        (
            vec![json!({"schema": "olm.package", "name": "a", "defaultChannel": "x"}), one(), v1()],
            "package \"a\": the default channel \"x\" does not exist; set the field".into(),
        ),
        (vec![package(), one(), one(), v1()], channel_of("there are several channels of this name")),
        (vec![package(), channel(json!([])), v1()], channel_of("the channel has no entries")),
        (vec![package(), one()], channel_of("there are no olm.bundle blobs for the entries a.v1")),
        (chain(json!([{"name": "a.v1"}, {"name": "a.v2"}])), channel_of("several entries are heads: a.v1, a.v2")),
        (
            chain(json!([{"name": "a.v1", "replaces": "a.v2"}, {"name": "a.v2", "replaces": "a.v1"}])),
            channel_of("no entry is the head"),
        ),
        (
            chain(json!([{"name": "a.v1"}, {"name": "a.v2", "replaces": "a.v2"}])),
            channel_of("from the head \"a.v1\" there is no path to a.v2"),
        ),
        (
            vec![package(), channel(json!([{"name": "a.v1"}, {"name": "a.v1"}])), v1()],
            channel_of("the entry \"a.v1\" is listed twice"),
        ),
        (
            vec![package(), channel(json!([{"name": "a.v1", "skipRange": "nonsense"}])), v1()],
            "package \"a\", channel \"stable\", bundle \"a.v1\": skipRange is invalid".into(),
        ),
        (
            vec![package(), one(), v1(), bundle("a.v2", "2.0.0")],
            "package \"a\", bundle \"a.v2\": the bundle is in no".into(),
        ),
        (vec![package(), one(), v1(), v1()], bundle_of("there are several bundles of this name")),
        (vec![package(), one(), with("image", json!(""))], bundle_of("the bundle has neither an image nor objects")),
        (vec![package(), one(), with("image", json!("A b"))], bundle_of("image: \"A b\" is not an image")),
        (vec![package(), one(), with("properties", json!([]))], bundle_of("it has 0 properties of type olm.package")),
        (vec![package(), one(), bundle("a.v1", "1")], bundle_of("its version \"1\" is invalid")),
        (
            vec![
                package(),
                channel(json!([{"name": "a.v2", "replaces": "a.v1"}, {"name": "a.v1"}])),
                v1(),
                bundle("a.v2", "1.0.0"),
            ],
            "package \"a\": the bundles a.v1, a.v2 have the same version 1.0.0; give".into(),
        ),
        (
            vec![
                package(),
                one(),
                v1(),
                json!({"schema": "olm.deprecations", "package": "a", "entries": [
                {"reference": {"schema": "olm.bundle", "name": "a.v9"}, "message": "m"}]}),
            ],
            "package \"a\": olm.bundle \"a.v9\" is deprecated, but does not exist".into(),
        ),
    ];
    for (documents, expected) in cases {
        let found = problems(&documents);
        assert!(found.iter().any(|problem| problem.starts_with(&expected)), "{expected}\n{found:#?}");
        assert!(Content::new(blobs(&documents)).package("a").is_none(), "{expected}");
    }
    let other = json!({"schema": "olm.package", "name": "b", "defaultChannel": "c"});
    let channel_b = json!({"schema": "olm.channel", "package": "b", "name": "c", "entries": [{"name": "b.v1"}]});
    let bundle_b = json!({"schema": "olm.bundle", "package": "b", "name": "b.v1", "image": "x/b",
        "properties": [{"type": "olm.package", "value": {"packageName": "b", "version": "1.0.0"}}]});
    let content = Content::new(blobs(&[package(), other, channel_b, bundle_b]));
    assert_eq!(content.packages().map(|package| package.name.as_str()).collect::<Vec<_>>(), ["b"]);
}

#[test]
fn cycles_behind_the_head_are_found() {
    let entries = json!([{"name": "a.v3", "replaces": "a.v2"}, {"name": "a.v2", "replaces": "a.v1"},
                         {"name": "a.v1", "replaces": "a.v2"}]);
    let bundles = [bundle("a.v1", "1.0.0"), bundle("a.v2", "2.0.0"), bundle("a.v3", "3.0.0")];
    let found = problems(&[&[package(), channel(entries)], &bundles[..]].concat());
    let expected = "package \"a\", channel \"stable\": the chain of replacements has a cycle: a.v2 -> a.v1 -> a.v2; \
                    correct the `replaces` of one of them";
    assert_eq!(found, [expected]);
}

#[test]
fn documents_of_another_form_are_errors() {
    for (text, expected) in [
        ("name: a", "c.yaml: document 1: field schema is missing"),
        ("schema: olm.package\nname: [a]", "c.yaml: document 1 (olm.package): invalid type"),
        ("schema: olm.channel\nname: x\nentries: 5", "c.yaml: document 1 (olm.channel x): invalid type"),
        ("{", "c.yaml: invalid JSON"),
        ("a: [", "c.yaml: "),
        (
            r#"{"schema": "olm.bundle", "name": "b", "properties": [{"type": "olm.bundle.object", "value": {"ref": "x"}}]}"#,
            "c.yaml: document 1 (olm.bundle b): properties[0].value: field data is missing",
        ),
        (
            r#"{"schema": "olm.bundle", "properties": [{"type": "olm.bundle.object", "value": {"data": "!"}}]}"#,
            "c.yaml: document 1 (olm.bundle): properties[0].value: field data is not base64",
        ),
    ] {
        let error = Blobs::parse(&files(&[("c.yaml", text)])).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn objects_and_metadata_are_kept_and_rendered() {
    let csv = json!({"apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion",
        "metadata": {"name": "a.v1"}, "spec": {"version": "1.0.0", "displayName": "A"}});
    let mut with_object = bundle("a.v1", "1.0.0");
    with_object["image"] = json!("");
    let data = STANDARD.encode(csv.to_string());
    with_object["properties"]
        .as_array_mut()
        .unwrap()
        .push(json!({"type": "olm.bundle.object", "value": {"data": data}}));
    let mut with_metadata = bundle("a.v2", "2.0.0");
    let metadata = json!({"annotations": {"x": "y"}, "displayName": "A two", "crdDescriptions": {"owned": []}});
    with_metadata["properties"].as_array_mut().unwrap().push(json!({"type": "olm.csv.metadata", "value": metadata}));
    let entries = json!([{"name": "a.v2", "replaces": "a.v1"}, {"name": "a.v1"}]);
    let documents = [package(), channel(entries), with_object.clone(), with_metadata.clone()];
    let read = blobs(&documents);
    let rendered: Vec<Value> = read.documents().map(|document| json!(document)).collect();
    assert_eq!(rendered, documents);
    let content = Content::new(read);
    let package = content.package("a").unwrap();
    let manifests = package.bundles["a.v1"].manifests().unwrap().unwrap();
    assert_eq!(manifests.csv(), &csv);
    assert!(package.bundles["a.v2"].manifests().is_none());
    let described = package.csv(&package.bundles["a.v2"]).unwrap();
    assert_eq!(described["metadata"], json!({"name": "a.v2", "annotations": {"x": "y"}}));
    assert_eq!(described["spec"]["displayName"], "A two");
    assert_eq!(described["spec"]["version"], "2.0.0");
    assert_eq!(described["spec"]["customresourcedefinitions"], json!({"owned": []}));
}

#[test]
fn old_packages_become_catalogs() {
    let csv = |name: &str, version: &str, replaces: &str| {
        format!(
            "apiVersion: operators.coreos.com/v1alpha1\nkind: ClusterServiceVersion\nmetadata: {{name: {name}}}\n\
             spec: {{version: {version}, replaces: {replaces}, description: Text}}\n"
        )
    };
    let definition = "apiVersion: apiextensions.k8s.io/v1beta1\nkind: CustomResourceDefinition\n\
                      metadata: {name: xs.example.com}\n\
                      spec: {group: example.com, version: v1, names: {kind: X, plural: xs}}\n";
    let package = "packageName: old\ndefaultChannel: alpha\nchannels:\n- {name: alpha, currentCSV: old.v2}\n\
                   - {name: beta, currentCSV: old.v1}\n";
    let read = read_package_folder(&files(&[
        ("old.package.yaml", package),
        ("1.0.0/csv.yaml", &csv("old.v1", "1.0.0", "old.v0")),
        ("1.0.0/crd.yaml", definition),
        ("2.0.0/csv.yaml", &csv("old.v2", "2.0.0", "old.v1")),
        ("2.0.0/crd.yaml", definition),
    ]));
    let content = Content::new(read.unwrap());
    assert!(content.problems().is_empty(), "{:?}", content.problems());
    let old = content.package("old").unwrap();
    assert_eq!((old.default_channel.as_str(), old.description.as_str()), ("alpha", "Text"));
    assert_eq!(old.channels["alpha"].entries.len(), 2);
    assert_eq!(old.channels["beta"].head.as_deref(), Some("old.v1"));
    let manifests = old.bundles["old.v1"].manifests().unwrap().unwrap();
    assert_eq!(manifests.definitions().next().unwrap()["apiVersion"], "apiextensions.k8s.io/v1");
    let apis: Vec<_> = old.bundles["old.v1"].bundle().apis().iter().map(ToString::to_string).collect();
    assert_eq!(apis, ["X (example.com/v1)"]);
    let error = read_package_folder(&files(&[("p.yaml", package)])).unwrap_err().to_string();
    assert!(error.contains("channel \"alpha\": currentCSV \"old.v2\" does not exist"), "{error}");
}

#[test]
fn values_take_limited_memory() {
    let other = |count: usize| json!({"schema": "custom", "list": vec![1; count]}).to_string();
    let mut bundle = bundle("a.v1", "1.0.0");
    bundle["properties"] = json!([{"type": "custom", "value": vec![1; 3_000]}]);
    for text in [other(100), channel(json!(vec![json!({}); 100])).to_string(), bundle.to_string()] {
        let add = |mut remaining: usize| Blobs::default().add_within("catalog.json", text.as_bytes(), &mut remaining);
        assert_eq!(add(100_000), Ok(()));
        let error = add(5_000).unwrap_err().to_string();
        assert!(error.ends_with("the values of the catalog take more than 536870912 bytes"), "{error}");
    }
    // Many small documents exhaust the memory as well.
    let texts = other(10).repeat(100);
    assert!(Blobs::default().add_within("catalog.json", texts.as_bytes(), &mut 5_000).is_err());
}

#[test]
fn upgrades_are_found_as_by_olm() {
    let entries = json!([
        {"name": "a.v5", "replaces": "a.v4", "skips": ["a.v3"]},
        {"name": "a.v4", "skipRange": ">=1.1.0 <1.2.0"},
        {"name": "a.v3", "replaces": "a.v2"},
    ]);
    let documents =
        [package(), channel(entries), bundle("a.v5", "5.0.0"), bundle("a.v4", "4.0.0"), bundle("a.v3", "3.0.0")];
    let content = Content::new(blobs(&documents));
    let channel = &content.package("a").unwrap().channels["stable"];
    for (installed, version, expected) in [
        ("a.v4", "4.0.0", true),
        ("a.v3", "3.0.0", true),
        ("a.v1", "1.1.5", true),
        ("a.v1", "1.2.0", false),
        ("a.v1", "unknown", false),
        // Its only successor is skipped.
        ("a.v2", "2.0.0", false),
        ("a.v5", "5.0.0", false),
    ] {
        assert_eq!(channel.has_upgrade(installed, version), expected, "{installed} {version}");
    }
}
