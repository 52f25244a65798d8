//! Container images without Docker, by the OCI's specifications.
//!
//! See <https://github.com/opencontainers/image-spec> for their content, and
//! <https://github.com/opencontainers/distribution-spec> for registries.
//!
//! Images are reproducible: files are sorted, belong to root and have the time of `SOURCE_DATE_EPOCH`, by default the
//! beginning of 1970.

pub(crate) mod archive;
pub(crate) mod base;
pub(crate) mod credentials;
pub(crate) mod data;
pub(crate) mod elf;
pub(crate) mod files;
pub(crate) mod inventory;
mod layer;
pub(crate) mod layout;
pub(crate) mod libraries;
pub(crate) mod manifest;
pub(crate) mod platform;
pub(crate) mod project;
pub(crate) mod reference;
pub(crate) mod registry;
pub(crate) mod signature;

use crate::error::{Error, Result, ResultExt};
use base::Base;
use bytes::Bytes;
use files::ImageFile;
use flyball_core::time::{Timestamp, rfc3339};
use manifest::Index;
use platform::ImagePlatform;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;

pub(crate) const INDEX: &str = "application/vnd.oci.image.index.v1+json";
pub(crate) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub(crate) const DOCKER_INDEX: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
pub(crate) const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
const EMPTY: &str = "application/vnd.oci.empty.v1+json";

/// Names some content by its digest.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Descriptor {
    pub(crate) media_type: String,
    pub(crate) digest: String,
    pub(crate) size: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) artifact_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) platform: Option<ImagePlatform>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) annotations: BTreeMap<String, String>,
    /// Unknown fields, which are written unchanged.
    #[serde(flatten)]
    pub(crate) others: BTreeMap<String, Value>,
}

/// Content with its descriptor.
#[derive(Clone, Debug)]
pub(crate) struct Blob {
    pub(crate) descriptor: Descriptor,
    /// Shared by its clones: layers of a base are large.
    pub(crate) bytes: Bytes,
}

impl Blob {
    pub(crate) fn new(media_type: &str, bytes: Vec<u8>) -> Self {
        let descriptor = Descriptor {
            media_type: media_type.into(),
            digest: digest(&bytes),
            size: bytes.len() as u64,
            artifact_type: None,
            platform: None,
            annotations: BTreeMap::new(),
            others: BTreeMap::new(),
        };
        Self { descriptor, bytes: bytes.into() }
    }

    pub(crate) fn json(media_type: &str, value: &Value) -> Self {
        Self::new(media_type, value.to_string().into_bytes())
    }
}

/// Returns the digest of content, as descriptors have it.
pub(crate) fn digest(bytes: &[u8]) -> String {
    let hash = ring::digest::digest(&ring::digest::SHA256, bytes);
    format!("sha256:{}", flyball_core::hex::encode(hash.as_ref()))
}

/// Returns the hexadecimal part of a digest; `None` if the algorithm is not supported.
pub(crate) fn hex(digest: &str) -> Option<&str> {
    let hex = digest.strip_prefix("sha256:")?;
    (hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))).then_some(hex)
}

/// Returns the time that everything carries, see <https://reproducible-builds.org/specs/source-date-epoch/>.
///
/// # Errors
///
/// When `SOURCE_DATE_EPOCH` is not a number of seconds.
pub(crate) fn epoch() -> Result<Timestamp> {
    let value = std::env::var("SOURCE_DATE_EPOCH").unwrap_or_else(|_| "0".into());
    let seconds = value.parse::<i64>().ok().filter(|seconds| (0..=0o77_777_777_777).contains(seconds));
    seconds.and_then(|seconds| Timestamp::from_second(seconds).ok()).ok_or_else(|| {
        Error::new(format!("invalid SOURCE_DATE_EPOCH={value}"))
            .hint("use seconds since 1970, such as $(git log -1 --format=%ct)")
    })
}

/// The image of one platform: its blobs, the last of which is the manifest, and its attached documents.
pub(crate) struct Image {
    pub(crate) platform: &'static platform::Platform,
    pub(crate) blobs: Vec<Blob>,
    pub(crate) manifest: Blob,
    /// Size of the program.
    pub(crate) program: u64,
    /// Compressed size of its own layers, without those of a base.
    pub(crate) own: u64,
}

/// Contents of an image.
pub(crate) struct Contents<'a> {
    /// The program's file name, which is also its path in the image.
    pub(crate) name: &'a str,
    pub(crate) program: &'a [u8],
    /// The libraries that the program loads.
    pub(crate) libraries: &'a [ImageFile],
    pub(crate) certificates: &'a [u8],
    /// Set if they replace those of a base.
    pub(crate) replaces_certificates: bool,
    pub(crate) labels: &'a BTreeMap<String, String>,
    pub(crate) base: Option<&'a Base>,
    /// The files of a project of charts or roles, which are a layer of their own.
    pub(crate) project: Option<&'a ProjectFiles>,
}

/// Files of a project in an image, and how the program starts with them.
#[derive(Debug)]
pub(crate) struct ProjectFiles {
    pub(crate) files: Vec<ImageFile>,
    /// The directory with them.
    pub(crate) folder: String,
    /// Arguments of the program.
    pub(crate) args: Vec<String>,
    /// Environment variables.
    pub(crate) variables: Vec<(&'static str, String)>,
}

impl Image {
    pub(crate) fn new(
        platform: &'static platform::Platform,
        contents: &Contents<'_>,
        epoch: Timestamp,
    ) -> Result<Self> {
        let kept = contents.base.map(|base| base.files(contents.program)).transpose()?.unwrap_or_default();
        let mut archives = vec![layer::program_layer(contents, &kept, epoch).context("cannot create the layer")?];
        if let Some(project) = contents.project {
            archives.push(archive::pack(&project.files, epoch).context("cannot create the layer of the project")?);
        }
        let mut layers: Vec<Blob> = contents.base.map(|base| base.layers.clone()).unwrap_or_default();
        let below = layers.len();
        for bytes in &archives {
            layers.push(Blob::new(LAYER, archive::compress(bytes).context("cannot compress the layer")?));
        }
        let config = Blob::json(CONFIG, &configuration(platform, contents, &archives, epoch));
        let described: Vec<&Descriptor> = layers.iter().map(|layer| &layer.descriptor).collect();
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": config.descriptor,
            "layers": described,
            "annotations": contents.labels,
        });
        let mut manifest = Blob::json(MANIFEST, &manifest);
        manifest.descriptor.platform = Some(platform.image_platform());
        let program = contents.program.len() as u64;
        let own = layers[below..].iter().map(|layer| layer.descriptor.size).sum();
        layers.push(config);
        Ok(Self { platform, blobs: layers, manifest, program, own })
    }
}

/// Creates the configuration of an image: that of its base, with its own fields and layers.
fn configuration(
    platform: &platform::Platform,
    contents: &Contents<'_>,
    archives: &[Vec<u8>],
    epoch: Timestamp,
) -> Value {
    let created = rfc3339(epoch);
    let base = contents.base.map(|base| base.config.clone()).unwrap_or_default();
    let mut entrypoint = vec![format!("/{}", contents.name)];
    let (mut folder, mut variables) = ("/".to_owned(), base.env);
    if let Some(project) = contents.project {
        entrypoint.extend(project.args.iter().cloned());
        folder = format!("/{}", project.folder);
        variables.extend(project.variables.iter().map(|(name, value)| format!("{name}={value}")));
    }
    let (mut layers, mut history) = (base.diff_ids, base.history);
    for archive in archives {
        layers.push(digest(archive));
        let fields = [("created", created.as_str()), ("created_by", "flyball image build")];
        history.push(fields.map(|(name, value)| (name.to_owned(), value.into())).into_iter().collect());
    }
    let ImagePlatform { os, architecture, variant, .. } = platform.image_platform();
    let mut config = json!({
        "architecture": architecture,
        "os": os,
        "created": created,
        "config": {
            "User": "65532:65532",
            "Entrypoint": entrypoint,
            "WorkingDir": folder,
            "Labels": contents.labels,
        },
        "rootfs": {"type": "layers", "diff_ids": layers},
        "history": history,
    });
    if !variables.is_empty() {
        config["config"]["Env"] = variables.into();
    }
    if let Some(variant) = variant {
        config["variant"] = variant.into();
    }
    config
}

/// Creates an index of images.
pub(crate) fn index(images: &[Image], labels: &BTreeMap<String, String>) -> Blob {
    let mut index = Index::new(images.iter().map(|image| image.manifest.descriptor.clone()).collect()).to_json();
    index["annotations"] = json!(labels);
    Blob::json(INDEX, &index)
}

/// Creates the manifest that attaches a document to an image, see
/// <https://github.com/opencontainers/image-spec/blob/main/manifest.md#guidelines-for-artifact-usage>.
pub(crate) fn attachment(kind: &str, document: &Value, subject: &Descriptor, epoch: Timestamp) -> Vec<Blob> {
    let (document, empty) = (Blob::json(kind, document), Blob::new(EMPTY, b"{}".to_vec()));
    let subject = json!({"mediaType": subject.media_type, "digest": subject.digest, "size": subject.size});
    let annotations: BTreeMap<String, String> =
        [("org.opencontainers.image.created".to_owned(), rfc3339(epoch))].into();
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "artifactType": kind,
        "config": empty.descriptor,
        "layers": [document.descriptor],
        "subject": subject,
        "annotations": annotations,
    });
    let mut manifest = Blob::json(MANIFEST, &manifest);
    (manifest.descriptor.artifact_type, manifest.descriptor.annotations) = (Some(kind.into()), annotations);
    vec![empty, document, manifest]
}
