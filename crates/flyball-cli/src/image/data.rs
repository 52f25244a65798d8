//! Images of files without a program: bundles and catalogs.

use super::archive::{compress, pack};
use super::files::ImageFile;
use super::registry::Registry;
use super::{Blob, CONFIG, LAYER, MANIFEST, epoch};
use crate::error::{Result, ResultExt};
use flyball_core::time::rfc3339;
use serde_json::json;
use std::collections::BTreeMap;

/// An image with one layer of files.
pub(crate) struct DataImage {
    blobs: Vec<Blob>,
    manifest: Blob,
}

impl DataImage {
    /// Packs files, which are sorted by their paths. The image depends on its content and `SOURCE_DATE_EPOCH` only.
    pub(crate) fn new(files: &[ImageFile], labels: &BTreeMap<String, String>) -> Result<Self> {
        let epoch = epoch()?;
        let archive = pack(files, epoch).context("cannot create the layer")?;
        let layer = Blob::new(LAYER, compress(&archive).context("cannot compress the layer")?);
        let config = json!({
            "architecture": "amd64", "os": "linux", "created": rfc3339(epoch),
            "config": {"Labels": labels},
            "rootfs": {"type": "layers", "diff_ids": [super::digest(&archive)]},
            "history": [{"created": rfc3339(epoch), "created_by": "flyball"}],
        });
        let config = Blob::json(CONFIG, &config);
        let manifest = json!({
            "schemaVersion": 2, "mediaType": MANIFEST, "config": config.descriptor, "layers": [layer.descriptor],
        });
        Ok(Self { manifest: Blob::json(MANIFEST, &manifest), blobs: vec![layer, config] })
    }

    /// Returns the digest of its manifest.
    pub(crate) fn digest(&self) -> &str {
        &self.manifest.descriptor.digest
    }

    /// Pushes the image under a tag.
    pub(crate) async fn push(&self, registry: &mut Registry, tag: &str) -> Result<()> {
        for blob in &self.blobs {
            registry.put_blob(&blob.descriptor.digest, blob.bytes.to_vec()).await?;
        }
        registry.put_manifest(MANIFEST, tag, self.manifest.bytes.to_vec()).await.map(drop)
    }
}
