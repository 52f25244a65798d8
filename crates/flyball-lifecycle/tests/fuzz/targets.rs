//! The inputs: catalogs, bundles, packages in the old format, and layers of images.

use crate::engine;
use flyball_core::Clock;
use flyball_lifecycle::content::{Blobs, Content, Rendering, read_package_folder};
use flyball_lifecycle::manifests::BundleFolder;
use flyball_lifecycle::packages::{CatalogSummary, PackageServer};
use flyball_lifecycle::source::{ImageRegistry, PullError, Repository, pull};
use flyball_lifecycle::validation::validate_bundle;
use flyball_lifecycle::{CatalogKey, Catalogs, Files, ImageName};
use futures_util::future::BoxFuture;
use serde_json::json;
use std::fmt::Write;

/// A target: returns a short description of the outcome.
pub(crate) struct Target {
    seeds: fn() -> Vec<String>,
    play: fn(&[u8]) -> String,
}

impl engine::Target for Target {
    type World = ();

    fn seeds(&self) -> Vec<Vec<u8>> {
        (self.seeds)().into_iter().map(String::into_bytes).collect()
    }

    async fn open(&self) {}

    async fn play(&self, (): &mut (), input: &[u8]) -> String {
        (self.play)(input)
    }
}

/// The first words of a message. Digests would make each one another message.
fn outline(message: &str) -> String {
    let texts = message.split(' ').filter(|text| !text.contains("sha256:"));
    let words = texts.flat_map(|text| text.split(|c: char| !c.is_ascii_alphabetic())).filter(|word| word.len() > 1);
    words.take(12).collect::<Vec<_>>().join(" ")
}

fn files<'f>(files: impl IntoIterator<Item = (&'f str, &'f [u8])>) -> Files {
    let mut read = Files::default();
    for (path, content) in files {
        read.insert(path, content.to_vec()).unwrap();
    }
    read
}

/// Uses the content of a catalog for everything that it is for.
fn explore(content: &Content) -> String {
    let key = CatalogKey { namespace: "ns".into(), name: "c".into() };
    let catalog = content.to_catalog(key.clone(), 0);
    let _ = Catalogs::new(vec![catalog]);
    let summary = CatalogSummary {
        key,
        display_name: String::new(),
        publisher: String::new(),
        labels: Default::default(),
        created: String::new(),
    };
    let server = PackageServer::new("olm", Clock::system());
    server.insert(&summary, content);
    let path = "/apis/packages.operators.coreos.com/v1/packagemanifests";
    let response = server.handle(&http::Request::get(path).body(()).unwrap());
    let mut output = format!("{} {}", content.packages().count(), response.status());
    for package in content.packages() {
        for bundle in package.bundles.values() {
            let _ = package.csv(bundle);
            if let Some(manifests) = bundle.manifests() {
                output += &manifests.map_or_else(|error| outline(&error.to_string()), |_| "manifests".into());
            }
        }
    }
    for problem in content.problems().iter().take(3) {
        write!(output, " {}", outline(&problem.why)).unwrap();
    }
    output
}

/// File-based catalogs, with a file of exclusions.
pub(crate) fn catalogs() -> Target {
    Target {
        seeds: || {
            vec![
                "schema: olm.package\nname: a\ndefaultChannel: s\nicon: {base64data: eA==, mediatype: image/png}\n---\n\
                 schema: olm.channel\npackage: a\nname: s\nentries: [{name: a.v2, replaces: a.v1, skips: [a.v0], skipRange: <2.0.0}, {name: a.v1}]\n---\n\
                 schema: olm.bundle\npackage: a\nname: a.v1\nimage: x/y\nproperties: [{type: olm.package, value: {packageName: a, version: 1.0.0}}]\n---\n\
                 schema: olm.bundle\npackage: a\nname: a.v2\nproperties:\n- {type: olm.package, value: {packageName: a, version: 2.0.0}}\n\
                 - {type: olm.csv.metadata, value: {annotations: {a: b}, displayName: A}}\n- {type: olm.bundle.object, value: {data: e30=}}\n---\n\
                 schema: olm.deprecations\npackage: a\nentries: [{reference: {schema: olm.bundle, name: a.v1}, message: m}]\n"
                    .to_owned(),
                json!({"schema": "olm.package", "name": "a"}).to_string() + &json!({"schema": "other"}).to_string(),
                "*.md\n!a/**/b\n[a-z]?/x\n\\#\n".to_owned(),
            ]
        },
        play: |input| {
            let files = files([("a/catalog.yaml", input), (".indexignore", &input[..input.len().min(4096)])]);
            let mut blobs = match Blobs::parse(&files) {
                Ok(blobs) => blobs,
                Err(error) => return outline(&error.to_string()),
            };
            // The file may exclude itself.
            if blobs == Blobs::default()
                && let Err(error) = blobs.add("catalog.yaml", input)
            {
                return outline(&error.to_string());
            }
            let rendered: Vec<String> =
                blobs.documents().map(|document: Rendering<'_>| serde_json::to_string(&document).unwrap()).collect();
            let mut again = Blobs::default();
            again.add("again.json", rendered.concat().as_bytes()).expect("a rendered catalog is a catalog");
            explore(&Content::unchecked(again)) + &explore(&Content::new(blobs))
        },
    }
}

/// Bundles: one text with their objects and annotations.
pub(crate) fn bundles() -> Target {
    Target {
        seeds: || {
            let annotations = "annotations:\n  operators.operatorframework.io.bundle.package.v1: a\n  \
                               operators.operatorframework.io.bundle.channels.v1: stable\n";
            vec![
                format!(
                    "{annotations}---\napiVersion: operators.coreos.com/v1alpha1\nkind: ClusterServiceVersion\nmetadata: {{name: a.v1, annotations: {{alm-examples: '[{{}}]'}}}}\n\
                     spec: {{version: 1.0.0, installModes: [{{type: AllNamespaces, supported: true}}], customresourcedefinitions: {{owned: [{{name: as.b, kind: A, version: v1, resources: [{{kind: X}}]}}]}}, \
                     install: {{strategy: deployment, spec: {{deployments: [{{name: m, spec: {{template: {{spec: {{containers: [{{name: c, image: i}}]}}}}}}}}], permissions: [{{rules: [{{apiGroups: [''], resources: [x], verbs: [get]}}]}}]}}}}}}\n---\n\
                     apiVersion: apiextensions.k8s.io/v1beta1\nkind: CustomResourceDefinition\nmetadata: {{name: as.b}}\n\
                     spec: {{group: b, version: v1, names: {{kind: A}}, validation: {{openAPIV3Schema: {{properties: {{spec: {{properties: {{a: {{items: {{}}}}}}}}}}}}}}, conversion: {{strategy: Webhook, webhookClientConfig: {{}}}}}}\n"
                ),
                format!(
                    "{annotations}dependencies: [{{type: olm.package, value: {{packageName: b, version: '>1'}}}}]\nproperties: [{{type: olm.gvk, value: {{}}}}]\n"
                ),
            ]
        },
        play: |input| {
            let text = String::from_utf8_lossy(input);
            let (annotations, manifests) = text.split_once("---\n").unwrap_or((&text, ""));
            let parts = [("metadata/annotations.yaml", annotations), ("manifests/all.yaml", manifests)];
            let files = files(parts.map(|(path, text)| (path, text.as_bytes())));
            match BundleFolder::read(&files) {
                Ok(folder) => {
                    let findings = validate_bundle(&folder);
                    let found = findings.iter().take(3).map(|finding| outline(&finding.why)).collect::<String>();
                    format!("{} {found}", folder.properties().len())
                }
                Err(error) => outline(&error.to_string()),
            }
        },
    }
}

/// Packages in the format before file-based catalogs.
pub(crate) fn old_packages() -> Target {
    Target {
        seeds: || {
            vec![
                "packageName: a\nchannels: [{name: s, currentCSV: a.v2}]\n---\napiVersion: a/v1\nkind: ClusterServiceVersion\n\
                 metadata: {name: a.v2, annotations: {olm.skipRange: <1.0.0}}\nspec: {version: 2.0.0, replaces: a.v1, skips: [a.v2], icon: [{}]}\n"
                    .to_owned(),
            ]
        },
        play: |input| {
            let files = files([("a.package.yaml", input), ("1/a.yaml", input), ("2/b.json", input)]);
            match read_package_folder(&files) {
                Ok(blobs) => explore(&Content::new(blobs)),
                Err(error) => outline(&error.to_string()),
            }
        },
    }
}

/// An image whose manifest, configuration or layer is the input.
struct Hostile(Vec<u8>);

impl ImageRegistry for Hostile {
    fn open<'r>(&'r self, _: &'r ImageName, _: &'r [String]) -> BoxFuture<'r, Result<Box<dyn Repository>, PullError>> {
        let repository = Hostile(self.0.clone());
        Box::pin(async move { Ok(Box::new(repository) as Box<dyn Repository>) })
    }
}

fn digest(bytes: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    digest.as_ref().iter().fold("sha256:".to_owned(), |text, byte| format!("{text}{byte:02x}"))
}

const CONFIG: &[u8] = br#"{"config": {"Labels": {"operators.operatorframework.io.index.configs.v1": "/"}}}"#;

impl Repository for Hostile {
    fn manifest<'r>(&'r mut self, version: &'r str) -> BoxFuture<'r, Result<Vec<u8>, PullError>> {
        let layer = json!({"digest": digest(&self.0), "mediaType": "tar"});
        let manifest = json!({"config": {"digest": digest(CONFIG)}, "layers": [layer]}).to_string().into_bytes();
        let found = if version == "layer" { manifest } else { self.0.clone() };
        Box::pin(async move { Ok(found) })
    }

    fn blob<'r>(&'r mut self, wanted: &'r str, _: usize) -> BoxFuture<'r, Result<Vec<u8>, PullError>> {
        let found = if wanted == digest(CONFIG) { CONFIG.to_vec() } else { self.0.clone() };
        Box::pin(async move { Ok(found) })
    }
}

/// Images of registries.
pub(crate) struct Images;

pub(crate) fn images() -> Images {
    Images
}

impl engine::Target for Images {
    type World = ();

    fn seeds(&self) -> Vec<Vec<u8>> {
        let mut archive = tar::Builder::new(Vec::new());
        for (path, content) in [("configs/a.yaml", "a: 1"), ("configs/.wh.b", ""), ("c/.wh..wh..opq", "")] {
            let mut header = tar::Header::new_gnu();
            header.set_size(content.len() as u64);
            archive.append_data(&mut header, path, content.as_bytes()).unwrap();
        }
        let archive = String::from_utf8(archive.into_inner().unwrap()).unwrap();
        let platform = json!({"os": "linux", "architecture": "amd64"});
        [
            archive,
            json!({"config": {"digest": "sha256:x", "size": 1}, "layers": [{"digest": "x"}]}).to_string(),
            json!({"manifests": [{"digest": "x", "platform": platform}]}).to_string(),
        ]
        .map(String::into_bytes)
        .to_vec()
    }

    async fn open(&self) {}

    async fn play(&self, (): &mut (), input: &[u8]) -> String {
        let registry = Hostile(input.to_vec());
        let mut output = String::new();
        for image in ["x.y/a:layer", "x.y/a:manifest"] {
            output += &match pull(&registry, &image.parse().unwrap(), &[], None).await {
                Ok(pulled) => format!("{} files ", pulled.map_or(0, |pulled| pulled.files.iter().count())),
                Err(error) => outline(&error.to_string()),
            };
        }
        output
    }
}
