//! Catalogs and bundles in images, pulled from a registry in memory.

use flate2::Compression;
use flate2::write::GzEncoder;
use flyball_lifecycle::content::Content;
use flyball_lifecycle::source::{
    CatalogClient, ImageError, ImageRegistry, Location, PullError, Repository, SourceError, Sources,
};
use flyball_lifecycle::{Files, ImageName};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;

const CATALOG: &str = "schema: olm.package\nname: a\ndefaultChannel: stable\n---\nschema: olm.channel\npackage: a\nname: stable\n\
                       entries: [{name: a.v1}]\n---\nschema: olm.bundle\npackage: a\nname: a.v1\nimage: quay.io/team/bundle:v1\n\
                       properties: [{type: olm.package, value: {packageName: a, version: 1.0.0}}]\n";
const CSV: &str = "apiVersion: operators.coreos.com/v1alpha1\nkind: ClusterServiceVersion\nmetadata: {name: a.v1}\n\
                   spec: {version: 1.0.0}\n";
const ANNOTATIONS: &str = "annotations:\n  operators.operatorframework.io.bundle.mediatype.v1: registry+v1\n  \
                           operators.operatorframework.io.bundle.package.v1: a\n  \
                           operators.operatorframework.io.bundle.channels.v1: stable\n";

fn digest(bytes: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    digest.as_ref().iter().fold("sha256:".to_owned(), |text, byte| format!("{text}{byte:02x}"))
}

/// A registry with images, by name, and blobs, by digest.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    manifests: BTreeMap<String, Vec<u8>>,
    blobs: BTreeMap<String, Vec<u8>>,
    /// Blobs that were asked for.
    pulled: usize,
}

impl Memory {
    fn blob(&self, bytes: Vec<u8>, media_type: &str) -> Value {
        let (digest, size) = (digest(&bytes), bytes.len());
        self.0.lock().blobs.insert(digest.clone(), bytes);
        json!({"mediaType": media_type, "digest": digest, "size": size})
    }

    /// Adds an image with labels, and layers of files.
    fn image(&self, name: &str, labels: Value, layers: &[&[(&str, &str)]]) -> String {
        let config = json!({"architecture": "amd64", "os": "linux", "config": {"Labels": labels}});
        let config = self.blob(config.to_string().into_bytes(), "application/vnd.oci.image.config.v1+json");
        let layers: Vec<Value> = layers
            .iter()
            .map(|files| self.blob(packed(files), "application/vnd.oci.image.layer.v1.tar+gzip"))
            .collect();
        let manifest = json!({"schemaVersion": 2, "config": config, "layers": layers}).to_string().into_bytes();
        let digest = digest(&manifest);
        let mut state = self.0.lock();
        state.manifests.insert(digest.clone(), manifest.clone());
        state.manifests.insert(name.to_owned(), manifest);
        digest
    }

    fn catalog(&self, name: &str) -> String {
        let labels = json!({"operators.operatorframework.io.index.configs.v1": "/configs"});
        self.image(name, labels, &[&[("configs/a/catalog.yaml", CATALOG), ("etc/passwd", "root")]])
    }

    fn sources(&self) -> Sources {
        Sources::with_images(Arc::new(self.clone()))
    }
}

fn packed(files: &[(&str, &str)]) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    for (path, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, path, content.as_bytes()).unwrap();
    }
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(&archive.into_inner().unwrap()).unwrap();
    packed.finish().unwrap()
}

struct MemoryRepository(Memory, String);

impl ImageRegistry for Memory {
    fn open<'r>(
        &'r self,
        image: &'r ImageName,
        _: &'r [String],
    ) -> BoxFuture<'r, Result<Box<dyn Repository>, PullError>> {
        let repository = MemoryRepository(self.clone(), image.repository.clone());
        Box::pin(async move { Ok(Box::new(repository) as Box<dyn Repository>) })
    }
}

impl Repository for MemoryRepository {
    fn manifest<'r>(&'r mut self, version: &'r str) -> BoxFuture<'r, Result<Vec<u8>, PullError>> {
        let state = self.0.0.lock();
        let named = state.manifests.get(&format!("{}:{version}", self.1)).or_else(|| state.manifests.get(version));
        let found = named.cloned().ok_or_else(|| PullError(format!("there is no {version}")));
        Box::pin(async move { found })
    }

    fn blob<'r>(&'r mut self, digest: &'r str, _: usize) -> BoxFuture<'r, Result<Vec<u8>, PullError>> {
        let mut state = self.0.0.lock();
        state.pulled += 1;
        let found = state.blobs.get(digest).cloned().ok_or_else(|| PullError(format!("there is no {digest}")));
        Box::pin(async move { found })
    }
}

fn image(name: &str) -> Location {
    Location::Image { image: name.to_owned(), secrets: Vec::new() }
}

async fn load(registry: &Memory, name: &str) -> Result<Arc<Content>, SourceError> {
    Ok(registry.sources().load(&image(name), None).await?.expect("nothing is known").content)
}

#[tokio::test]
async fn catalogs_are_loaded_once_for_each_digest() {
    let registry = Memory::default();
    let digest = registry.catalog("team/catalog:v1");
    let sources = registry.sources();
    let loaded = sources.load(&image("quay.io/team/catalog:v1"), None).await.unwrap().unwrap();
    assert_eq!(loaded.revision, digest);
    assert!(loaded.content.problems().is_empty() && loaded.content.package("a").is_some());
    let pulled = registry.0.lock().pulled;
    let again = sources.load(&image("quay.io/team/catalog:v1"), Some(&digest)).await.unwrap();
    assert!(again.is_none() && registry.0.lock().pulled == pulled, "an unchanged image is not pulled again");
    let pinned = format!("quay.io/team/catalog@{digest}");
    assert!(load(&registry, &pinned).await.unwrap().package("a").is_some());
}

#[tokio::test]
async fn bundles_are_unpacked_from_the_folders_of_their_labels() {
    let registry = Memory::default();
    registry.catalog("team/catalog:v1");
    let labels = json!({
        "operators.operatorframework.io.bundle.manifests.v1": "deploy/",
        "operators.operatorframework.io.bundle.metadata.v1": "meta/",
    });
    let first: &[(&str, &str)] =
        &[("deploy/csv.yaml", "not: it"), ("deploy/old.yaml", "{"), ("meta/annotations.yaml", ANNOTATIONS)];
    let second: &[(&str, &str)] = &[("deploy/csv.yaml", CSV), ("deploy/.wh.old.yaml", "")];
    registry.image("team/bundle:v1", labels, &[first, second]);
    let content = load(&registry, "quay.io/team/catalog:v1").await.unwrap();
    let bundle = content.bundle("a", "a.v1").unwrap();
    let manifests = registry.sources().manifests(bundle, &[]).await.unwrap();
    assert_eq!((manifests.name(), manifests.objects().count()), ("a.v1", 1));

    let other = CSV.replace("a.v1", "b.v1");
    registry.image(
        "team/bundle:v1",
        json!({}),
        &[&[("manifests/csv.yaml", &other), ("metadata/annotations.yaml", ANNOTATIONS)]],
    );
    let error = registry.sources().manifests(bundle, &[]).await.unwrap_err().to_string();
    let expected = "the image quay.io/team/bundle:v1 contains the bundle \"b.v1\", but the catalog names it \"a.v1\"";
    assert_eq!(error, expected);
}

#[tokio::test]
async fn indexes_name_the_image_of_a_platform() {
    let registry = Memory::default();
    let digest = registry.catalog("team/one:v1");
    let listed = |os: &str, digest: &str| json!({"mediaType": "m", "digest": digest, "size": 1, "platform": {"os": os, "architecture": "arm64"}});
    let index =
        |os: &str| json!({"manifests": [listed("windows", "sha256:x"), listed(os, &digest)]}).to_string().into_bytes();
    registry.0.lock().manifests.insert("team/catalog:v1".into(), index("linux"));
    assert!(load(&registry, "quay.io/team/catalog:v1").await.unwrap().package("a").is_some());
    registry.0.lock().manifests.insert("team/catalog:v1".into(), index("plan9"));
    let error = load(&registry, "quay.io/team/catalog:v1").await.unwrap_err().to_string();
    assert_eq!(error, "image quay.io/team/catalog:v1: its index lists no image for linux");
}

#[tokio::test]
async fn damaged_and_hostile_images_are_errors() {
    let labels = || json!({"operators.operatorframework.io.index.configs.v1": "/configs"});
    let name = "quay.io/team/catalog:v1";
    let registry = Memory::default();
    let error = load(&registry, name).await.unwrap_err().to_string();
    assert_eq!(error, "cannot pull the image quay.io/team/catalog:v1: there is no v1");
    assert!(matches!(load(&registry, "A").await.unwrap_err(), SourceError::ImageName(_)));

    registry.image("team/catalog:v1", json!({}), &[]);
    assert!(matches!(load(&registry, name).await.unwrap_err(), SourceError::Image(ImageError::NoCatalog { .. })));

    // Another content than the digest says.
    registry.catalog("team/catalog:v1");
    registry.0.lock().blobs.values_mut().for_each(|blob| blob.push(0));
    assert!(matches!(load(&registry, name).await.unwrap_err(), SourceError::Image(ImageError::Digest { .. })));
    let pinned = format!("quay.io/team/catalog@sha256:{}", "00".repeat(32));
    registry.0.lock().manifests.insert(format!("sha256:{}", "00".repeat(32)), b"{}".to_vec());
    assert!(matches!(load(&registry, &pinned).await.unwrap_err(), SourceError::Image(ImageError::Digest { .. })));

    for manifest in ["", "[]", "{}", r#"{"config": 1}"#, r#"{"config": {"digest": "x"}, "layers": 7}"#] {
        registry.0.lock().manifests.insert("team/catalog:v1".into(), manifest.as_bytes().to_vec());
        assert!(load(&registry, name).await.is_err(), "{manifest}");
    }
    // Layers that are not archives, and paths that leave the image.
    for layer in [b"no archive".to_vec(), vec![0x1f, 0x8b, 0, 0]] {
        let registry = Memory::default();
        let digest = registry.catalog("team/catalog:v1");
        let blob = registry.blob(layer, "application/vnd.oci.image.layer.v1.tar+gzip");
        let mut manifest: Value = serde_json::from_slice(&registry.0.lock().manifests[&digest]).unwrap();
        manifest["layers"] = json!([blob]);
        registry.0.lock().manifests.insert("team/catalog:v1".into(), manifest.to_string().into_bytes());
        let error = load(&registry, name).await.unwrap_err().to_string();
        assert!(error.contains("cannot be unpacked"), "{error}");
    }
    let registry = Memory::default();
    registry.image("team/catalog:v1", labels(), &[&[("configs/a.yaml", CATALOG)]]);
    let zstd = registry.blob(vec![0x28, 0xb5, 0x2f, 0xfd], "application/vnd.oci.image.layer.v1.tar+zstd");
    let mut manifest: Value = serde_json::from_slice(&registry.0.lock().manifests["team/catalog:v1"]).unwrap();
    manifest["layers"] = json!([zstd]);
    registry.0.lock().manifests.insert("team/catalog:v1".into(), manifest.to_string().into_bytes());
    let error = load(&registry, name).await.unwrap_err().to_string();
    assert!(error.contains("only tar and gzip are supported"), "{error}");
}

#[tokio::test]
async fn images_have_limited_sizes() {
    let registry = Memory::default();
    let labels = json!({"operators.operatorframework.io.index.configs.v1": "/configs"});
    let name = "quay.io/team/catalog:v1";
    for (length, expected) in
        [(70_000, "the headers of a file have more than 65536 bytes"), (5_000, "a path has 5008 bytes")]
    {
        // Also the names of files that are not kept.
        let path = format!("other/{}", "a".repeat(length + 2));
        registry.image("team/catalog:v1", labels.clone(), &[&[("configs/a.yaml", CATALOG), (&path, "")]]);
        let error = load(&registry, name).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    registry.catalog("team/catalog:v1");
    let content = load(&registry, name).await.unwrap();
    let large = "a".repeat(20 << 20);
    let layer: &[(&str, &str)] =
        &[("manifests/csv.yaml", CSV), ("manifests/a.txt", &large), ("manifests/b.txt", &large)];
    registry.image("team/bundle:v1", json!({}), &[layer]);
    let bundle = content.bundle("a", "a.v1").unwrap();
    let error = registry.sources().manifests(bundle, &[]).await.unwrap_err().to_string();
    assert_eq!(error, "image quay.io/team/bundle:v1: the files have more than 33554432 bytes");
}

#[test]
fn files_of_bundles_are_read_from_folders() {
    let mut files = Files::default();
    for (path, content) in [("manifests/csv.yaml", CSV), ("metadata/annotations.yaml", ANNOTATIONS)] {
        files.insert(path, content.as_bytes().to_vec()).unwrap();
    }
    let folder = flyball_lifecycle::manifests::BundleFolder::read(&files).unwrap();
    assert_eq!(
        (folder.annotations.package.as_str(), &folder.annotations.channels[..]),
        ("a", &["stable".to_owned()][..])
    );
    files.insert("metadata/annotations.yaml", ANNOTATIONS.replace("registry+v1", "helm").into_bytes()).unwrap();
    let error = flyball_lifecycle::manifests::BundleFolder::read(&files).unwrap_err().to_string();
    assert_eq!(error, "metadata/annotations.yaml: the media type is \"helm\", only \"registry+v1\" is supported");
    let climbing = ANNOTATIONS.replace("package.v1: a", "package.v1: ../a");
    files.insert("metadata/annotations.yaml", climbing.into_bytes()).unwrap();
    let error = flyball_lifecycle::manifests::BundleFolder::read(&files).unwrap_err().to_string();
    assert!(error.starts_with("metadata/annotations.yaml: the package \"../a\" is not a DNS name"), "{error}");
    files.remove("metadata");
    let error = flyball_lifecycle::manifests::BundleFolder::read(&files).unwrap_err().to_string();
    assert!(error.starts_with("there is no metadata/annotations.yaml"), "{error}");
}
