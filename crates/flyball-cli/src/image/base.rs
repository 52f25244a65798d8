//! Base image, whose layers are below those of the operator: from a folder in OCI layout, or from a registry.

use super::layout::Layout;
use super::platform::Platform;
use super::reference::Reference;
use super::registry::{Purpose, Registry};
use super::{Blob, Descriptor, INDEX, LAYER, MANIFEST, hex};
use crate::error::{Error, Result, ResultExt};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Maximum size of a downloaded layer.
const MAX_LAYER_BYTES: usize = 1 << 30;
/// Maximum size of all layers together, which are kept in memory.
const MAX_BYTES: u64 = 4 << 30;
/// Size of a response, such as a redirect, that may be larger than a small blob.
const MIN_RESPONSE_BYTES: u64 = 64 << 10;

/// Media types of Docker, which registries still serve, and the OCI's that equal them.
const DOCKER_INDEX: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
const DOCKER_LAYER: &str = "application/vnd.docker.image.rootfs.diff.tar.gzip";
/// Limit of the number of layers.
const MAX_LAYERS: usize = 128;

/// The name of a base image, or a folder with it.
#[derive(Clone, Debug)]
pub(crate) enum BaseName {
    Folder(PathBuf),
    /// A reference, whose tag may be a digest.
    Remote(Reference),
}

impl FromStr for BaseName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if Path::new(text).join("oci-layout").is_file() {
            return Ok(Self::Folder(text.into()));
        }
        match text.split_once('@') {
            None => text.parse().map(Self::Remote),
            Some((name, digest)) if hex(digest).is_some() => {
                let reference: Reference = name.parse()?;
                Ok(Self::Remote(Reference { tag: digest.to_owned(), ..reference }))
            }
            Some((_, digest)) => {
                Err(format!("{digest:?} is not a digest: expected sha256:, and 64 hexadecimal digits"))
            }
        }
    }
}

/// A base image of one platform.
#[derive(Debug)]
pub(crate) struct Base {
    pub(super) layers: Vec<Blob>,
    /// Its configuration.
    pub(super) config: Value,
    /// Name and digest, for the annotations.
    pub(crate) name: String,
    pub(crate) digest: String,
}

impl Base {
    /// Reads a base image.
    ///
    /// # Errors
    ///
    /// If it does not exist, or not for this platform.
    pub(crate) async fn read(name: &BaseName, platform: &Platform) -> Result<Self> {
        let mut store = match name {
            BaseName::Folder(folder) => Store::Folder(Layout::open(folder)?),
            BaseName::Remote(reference) => {
                let registry = Registry::connect(reference, reference.is_loopback(), Purpose::Pull).await?;
                Store::Remote(Box::new(registry), reference.clone())
            }
        };
        let shown = match name {
            BaseName::Folder(folder) => folder.display().to_string(),
            BaseName::Remote(reference) => reference.to_string().replace(":sha256:", "@sha256:"),
        };
        let invalid = || format!("base image {shown} is not valid");
        let (mut digest, top) = store.top().await?;
        let mut manifest: Value = serde_json::from_slice(&top).when(invalid())?;
        if manifest["manifests"].is_array() {
            let all: Vec<Descriptor> = serde_json::from_value(manifest["manifests"].take()).when(invalid())?;
            let found = all.iter().find(|one| one.platform.as_ref().is_some_and(|found| platform.is_of(found)));
            let found = found.ok_or_else(|| {
                Error::new(format!("base image {shown} has no image for platform {}", platform.name))
                    .hint("pass another --platform, or another base")
            })?;
            manifest = serde_json::from_slice(&store.manifest(found).await?).when(invalid())?;
            digest.clone_from(&found.digest);
        }
        let config: Descriptor = serde_json::from_value(manifest["config"].take()).when(invalid())?;
        let config: Value = serde_json::from_slice(&store.blob(&config).await?).when(invalid())?;
        if !platform.is_of(&config) {
            return Err(Error::new(format!("base image {shown} is not for platform {}", platform.name)));
        }
        let described: Vec<Descriptor> = serde_json::from_value(manifest["layers"].take()).when(invalid())?;
        let count = config["rootfs"]["diff_ids"].as_array().map_or(0, Vec::len);
        if described.len() > MAX_LAYERS || described.len() != count {
            return Err(Error::new(format!("{}: {} layers, {count} diff_ids", invalid(), described.len())));
        }
        check_size(&described).map_err(|error| error.within(&format!("base image {shown}")))?;
        let mut layers = Vec::new();
        for descriptor in described {
            let bytes = store.blob(&descriptor).await?;
            let media_type =
                if descriptor.media_type == DOCKER_LAYER { LAYER.to_owned() } else { descriptor.media_type.clone() };
            layers.push(Blob { descriptor: Descriptor { media_type, ..descriptor }, bytes });
        }
        Ok(Self { layers, config, name: shown, digest })
    }
}

/// Place of a base image.
enum Store {
    Folder(Layout),
    Remote(Box<Registry>, Reference),
}

impl Store {
    /// Returns its index or manifest, with the digest.
    async fn top(&mut self) -> Result<(String, Vec<u8>)> {
        match self {
            Self::Folder(layout) => {
                let first = layout.named().or_else(|error| layout.manifests.first().ok_or(error))?;
                Ok((first.digest.clone(), layout.read(first)?))
            }
            Self::Remote(registry, reference) => {
                let types = [INDEX, MANIFEST, DOCKER_INDEX, DOCKER_MANIFEST];
                let found = registry.get_manifest(&reference.tag, &types).await?;
                let found = found.ok_or_else(|| Error::new(format!("no such image: {reference}")))?;
                let digest = super::digest(&found);
                if hex(&reference.tag).is_some() && digest != reference.tag {
                    return Err(Error::new(format!("{reference} returned other content")));
                }
                Ok((digest, found.into()))
            }
        }
    }

    async fn manifest(&mut self, descriptor: &Descriptor) -> Result<Vec<u8>> {
        match self {
            Self::Folder(layout) => layout.read(descriptor),
            Self::Remote(registry, reference) => {
                let found = registry.get_manifest(&descriptor.digest, &[&descriptor.media_type]).await?;
                match found {
                    Some(bytes) if super::digest(&bytes) == descriptor.digest => Ok(bytes.into()),
                    Some(_) => Err(Error::new(format!("{reference} returned other content for {}", descriptor.digest))),
                    None => Err(Error::new(format!("{reference} lacks its manifest {}", descriptor.digest))),
                }
            }
        }
    }

    async fn blob(&mut self, descriptor: &Descriptor) -> Result<Vec<u8>> {
        match self {
            Self::Folder(layout) => layout.read(descriptor),
            Self::Remote(registry, _) => {
                let size = usize::try_from(descriptor.size.max(MIN_RESPONSE_BYTES)).unwrap_or(usize::MAX);
                let limit = size.min(MAX_LAYER_BYTES);
                registry.download_blob(&descriptor.digest, limit, &mut |_, _| ()).await.map(Into::into)
            }
        }
    }
}

/// Checks that layers are small enough to be kept in memory together.
fn check_size(layers: &[Descriptor]) -> Result<()> {
    let size = layers.iter().fold(0_u64, |sum, layer| sum.saturating_add(layer.size));
    match size <= MAX_BYTES {
        true => Ok(()),
        false => Err(Error::new(format!("its layers have {size} bytes, more than {} GiB", MAX_BYTES >> 30))
            .hint("use a smaller base")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_of_all_layers_is_bounded() {
        let layers = |sizes: &[u64]| -> Vec<Descriptor> {
            let layer = Blob::new(LAYER, Vec::new()).descriptor;
            sizes.iter().map(|&size| Descriptor { size, ..layer.clone() }).collect()
        };
        assert!(check_size(&layers(&[1 << 30; 4])).is_ok());
        let error = check_size(&layers(&[1 << 30, 3 << 30, 1])).unwrap_err();
        assert_eq!(error.to_string(), "its layers have 4294967297 bytes, more than 4 GiB");
        assert!(check_size(&layers(&[u64::MAX, 1])).is_err());
    }

    #[test]
    fn bases_are_named_by_tag_or_digest() {
        let digest = format!("sha256:{}", "a".repeat(64));
        let read = |text: &str| text.parse::<BaseName>().map(|name| format!("{name:?}"));
        assert!(read("python:3.12-slim").is_ok_and(|name| name.contains("tag: \"3.12-slim\"")));
        assert!(read(&format!("python@{digest}")).is_ok_and(|name| name.contains(&digest)));
        assert!(read("python@sha256:1").is_err_and(|error| error.contains("not a digest")));
    }
}
