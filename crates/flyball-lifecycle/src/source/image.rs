//! Images in registries: pulled through a client, verified and unpacked.
//!
//! Layers are unpacked on threads of their own, as they may be those of users: a small layer may unpack to gigabytes.

use super::offload;
use super::unpack::{self, Descriptor, InvalidImage, Manifest};
use crate::files::{Files, MAX_BUNDLE_BYTES};
use crate::image::ImageName;
use futures_util::future::BoxFuture;
use ring::digest::{Context, SHA256};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

/// Label of the folder of a file-based catalog.
pub const CATALOG_LABEL: &str = "operators.operatorframework.io.index.configs.v1";
/// Labels of the folders of a bundle, and the folders without them.
const BUNDLE_LABELS: [(&str, &str); 2] = [
    ("operators.operatorframework.io.bundle.manifests.v1", "manifests"),
    ("operators.operatorframework.io.bundle.metadata.v1", "metadata"),
];
/// Maximum size of a manifest or a configuration, in bytes.
const MAX_DOCUMENT_BYTES: usize = 4 << 20;
/// Maximum size of a packed layer of a catalog, in bytes.
const MAX_LAYER_BYTES: usize = 1 << 30;
/// Maximum size of a packed layer of a bundle, in bytes. Most bundles have layers of a few KiB, some a base image.
const MAX_BUNDLE_LAYER_BYTES: usize = 256 << 20;

/// A registry that did not return the requested content.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct PullError(pub String);

/// A client of registries.
pub trait ImageRegistry: Send + Sync {
    /// Connects to the repository of an image. The secrets are configurations of Docker with credentials.
    fn open<'r>(
        &'r self,
        image: &'r ImageName,
        secrets: &'r [String],
    ) -> BoxFuture<'r, Result<Box<dyn Repository>, PullError>>;
}

/// A repository of a registry.
pub trait Repository: Send {
    /// Returns the manifest or index of a tag or digest.
    fn manifest<'r>(&'r mut self, version: &'r str) -> BoxFuture<'r, Result<Vec<u8>, PullError>>;

    /// Returns a blob. It is an error if it is larger than this.
    fn blob<'r>(&'r mut self, digest: &'r str, max_bytes: usize) -> BoxFuture<'r, Result<Vec<u8>, PullError>>;
}

/// An image that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The registry did not return it.
    #[error("cannot pull the image {image}: {source}")]
    Pull {
        /// The image.
        image: String,
        /// The reason.
        source: PullError,
    },
    /// The content does not have its digest.
    #[error("the registry returned another content than {digest} of the image {image}")]
    Digest {
        /// The image.
        image: String,
        /// The digest.
        digest: String,
    },
    /// The image cannot be unpacked.
    #[error("image {image}: {source}")]
    Invalid {
        /// The image.
        image: String,
        /// The reason.
        source: InvalidImage,
    },
    /// The image contains no catalog.
    #[error("the image {image} is not a file-based catalog: the label {CATALOG_LABEL} is missing")]
    NoCatalog {
        /// The image.
        image: String,
    },
}

/// A pulled image: its digest, labels and files.
#[derive(Clone, Debug)]
pub struct Pulled {
    /// The digest of its manifest or index.
    pub digest: String,
    /// The labels.
    pub labels: BTreeMap<String, String>,
    /// The files of its catalog or bundle.
    pub files: Files,
}

/// Pulls the catalog or the bundle in an image; `None` if it still has the digest that is known.
///
/// All content is verified against its digest. Only the folders that the labels name are kept; those of a bundle are
/// named `manifests` and `metadata`.
///
/// # Errors
///
/// If the registry fails, or the image is invalid.
pub async fn pull(
    registry: &dyn ImageRegistry,
    name: &ImageName,
    secrets: &[String],
    known: Option<&str>,
) -> Result<Option<Pulled>, ImageError> {
    let image = name.to_string();
    let invalid = |source| ImageError::Invalid { image: image.clone(), source };
    let failed = |source| ImageError::Pull { image: image.clone(), source };
    let mut repository = registry.open(name, secrets).await.map_err(failed)?;
    let bytes = repository.manifest(name.version()).await.map_err(failed)?;
    let digest = digest_of(&bytes);
    if name.digest.as_ref().is_some_and(|pinned| *pinned != digest) {
        return Err(ImageError::Digest { image, digest: name.version().to_owned() });
    }
    if known == Some(digest.as_str()) {
        return Ok(None);
    }
    let mut pull = Pull { image: &image, repository: &mut *repository };
    let (config, layers) = match Manifest::read(&bytes).map_err(invalid)? {
        Manifest::Image { config, layers } => (config, layers),
        Manifest::Index(listed) => {
            let bytes = pull.repository.manifest(&listed.digest).await.map_err(failed)?;
            verify(&image, &listed.digest, &bytes)?;
            match Manifest::read(&bytes).map_err(invalid)? {
                Manifest::Image { config, layers } => (config, layers),
                Manifest::Index(_) => return Err(invalid(InvalidImage::NoPlatform)),
            }
        }
    };
    let labels = unpack::labels(&pull.blob(&config, MAX_DOCUMENT_BYTES).await?).map_err(invalid)?;
    let folders = folders(&labels);
    let is_catalog = labels.contains_key(CATALOG_LABEL);
    let max_layer_bytes = if is_catalog { MAX_LAYER_BYTES } else { MAX_BUNDLE_LAYER_BYTES };
    let mut files = if is_catalog { Files::default() } else { Files::with_max_bytes(MAX_BUNDLE_BYTES) };
    let mut remaining = unpack::MAX_IMAGE_BYTES;
    let folders = Arc::new(folders);
    for layer in layers {
        let bytes = pull.download(&layer, max_layer_bytes).await?;
        let (name, folders) = (image.clone(), folders.clone());
        let unpacked = offload(move || {
            verify(&name, &layer.digest, &bytes)?;
            let size = unpack::add_layer(&layer, &bytes, &folders, remaining, &mut files);
            let size = size.map_err(|source| ImageError::Invalid { image: name, source })?;
            Ok::<_, ImageError>((files, size))
        });
        let size;
        (files, size) = unpacked.await?;
        remaining -= size;
    }
    if !is_catalog {
        files = with_bundle_folders(&files, &folders).map_err(|error| invalid(error.into()))?;
    }
    Ok(Some(Pulled { digest, labels, files }))
}

/// Returns the digest of the manifest or index of an image. Only names without a digest need a request.
pub(super) async fn digest(
    registry: &dyn ImageRegistry,
    name: &ImageName,
    secrets: &[String],
) -> Result<String, ImageError> {
    if let Some(digest) = &name.digest {
        return Ok(digest.clone());
    }
    let failed = |source| ImageError::Pull { image: name.to_string(), source };
    let mut repository = registry.open(name, secrets).await.map_err(failed)?;
    repository.manifest(name.version()).await.map(|bytes| digest_of(&bytes)).map_err(failed)
}

/// Returns the folders that are kept: that of the catalog, or those of the bundle.
fn folders(labels: &BTreeMap<String, String>) -> Vec<String> {
    match labels.get(CATALOG_LABEL) {
        Some(folder) => vec![folder.clone()],
        None => BUNDLE_LABELS
            .map(|(label, default)| labels.get(label).map_or(default, String::as_str).trim_matches('/').to_owned())
            .into(),
    }
}

/// Moves the folders of a bundle to their usual names.
fn with_bundle_folders(files: &Files, folders: &[String]) -> Result<Files, crate::files::TooManyFiles> {
    let mut moved = Files::default();
    for (folder, (_, name)) in folders.iter().zip(BUNDLE_LABELS) {
        for (path, content) in files.below(folder).iter() {
            moved.insert(format!("{name}/{path}"), content.to_vec())?;
        }
    }
    Ok(moved)
}

struct Pull<'p> {
    image: &'p str,
    repository: &'p mut dyn Repository,
}

impl Pull<'_> {
    /// Downloads a small blob, and verifies it.
    async fn blob(&mut self, blob: &Descriptor, max_bytes: usize) -> Result<Vec<u8>, ImageError> {
        let bytes = self.download(blob, max_bytes).await?;
        verify(self.image, &blob.digest, &bytes).map(|()| bytes)
    }

    /// Returns a blob that is not verified.
    async fn download(&mut self, blob: &Descriptor, max_bytes: usize) -> Result<Vec<u8>, ImageError> {
        let failed = |source| ImageError::Pull { image: self.image.to_owned(), source };
        if blob.size > max_bytes as u64 {
            let why = format!("{} has {} bytes, at most {max_bytes} are read", blob.digest, blob.size);
            return Err(failed(PullError(why)));
        }
        self.repository.blob(&blob.digest, max_bytes).await.map_err(failed)
    }
}

fn verify(image: &str, digest: &str, bytes: &[u8]) -> Result<(), ImageError> {
    match digest_of(bytes) == digest {
        true => Ok(()),
        false => Err(ImageError::Digest { image: image.to_owned(), digest: digest.to_owned() }),
    }
}

/// Returns the SHA-256 digest of content.
fn digest_of(bytes: &[u8]) -> String {
    let mut context = Context::new(&SHA256);
    context.update(bytes);
    context.finish().as_ref().iter().fold("sha256:".to_owned(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
