//! Images in a folder, see <https://github.com/opencontainers/image-spec/blob/main/image-layout.md>.

use super::{Blob, Descriptor, INDEX, digest, hex};
use crate::error::{Error, Result, ResultExt};
use serde_json::{Value, json};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const MARK: &str = "oci-layout";

/// A folder with images.
pub(crate) struct Layout {
    folder: PathBuf,
    /// Entries of the index.
    pub(crate) manifests: Vec<Descriptor>,
}

impl Layout {
    /// Writes a layout atomically, and replaces an existing one.
    ///
    /// # Errors
    ///
    /// If it cannot be written, or the folder has other content.
    pub(crate) fn write(folder: &Path, blobs: &[Blob], manifests: &[Descriptor]) -> Result<()> {
        let what = || format!("cannot write {}", folder.display());
        let is_free = fs::read_dir(folder).map_or(true, |mut entries| entries.next().is_none());
        if !is_free && !folder.join(MARK).is_file() {
            return Err(Error::new(format!("{} is not an image layout", folder.display()))
                .hint("pass another directory: --out DIR"));
        }
        let name = folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let new = folder.with_file_name(format!(".{name}.new-{}", std::process::id()));
        let written = fill(&new, blobs, manifests).and_then(|()| {
            match fs::remove_dir_all(folder) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            fs::rename(&new, folder)
        });
        if written.is_err() {
            let _ = fs::remove_dir_all(&new);
        }
        written.when(what())
    }

    /// Opens an existing layout.
    pub(crate) fn open(folder: &Path) -> Result<Self> {
        if !folder.join(MARK).is_file() {
            return Err(Error::new(format!("no image found in {}", folder.display()))
                .hint("build one with `flyball image build`, or pass --from DIR"));
        }
        let what = || format!("the index of {} cannot be read", folder.display());
        let index = fs::read(folder.join("index.json")).when(what())?;
        let mut index: Value = serde_json::from_slice(&index).when(what())?;
        let manifests: Vec<Descriptor> = serde_json::from_value(index["manifests"].take()).when(what())?;
        Ok(Self { folder: folder.to_owned(), manifests })
    }

    /// Returns the entry to push: the one with a name.
    pub(crate) fn named(&self) -> Result<&Descriptor> {
        let named =
            self.manifests.iter().find(|descriptor| descriptor.annotations.contains_key(super::reference::NAME));
        named.ok_or_else(|| Error::new(format!("no named image in {}", self.folder.display())))
    }

    /// Reads content and verifies its digest.
    pub(crate) fn read(&self, descriptor: &Descriptor) -> Result<Vec<u8>> {
        let hex =
            hex(&descriptor.digest).ok_or_else(|| Error::new(format!("{} is not a digest", descriptor.digest)))?;
        let path = self.folder.join("blobs/sha256").join(hex);
        let bytes = fs::read(&path).when(format!("cannot read {}", path.display()))?;
        match digest(&bytes) == descriptor.digest {
            true => Ok(bytes),
            false => {
                Err(Error::new(format!("{} is corrupt", path.display())).hint("rebuild the image: flyball image build"))
            }
        }
    }

    /// Reads a manifest or an index.
    pub(crate) fn read_json(&self, descriptor: &Descriptor) -> Result<Value> {
        serde_json::from_slice(&self.read(descriptor)?).when(format!("{} is not a manifest", descriptor.digest))
    }

    /// Returns the images of an entry: those of an index, or itself.
    pub(crate) fn images(&self, entry: &Descriptor) -> Result<Vec<Descriptor>> {
        if entry.media_type != INDEX {
            return Ok(vec![entry.clone()]);
        }
        let manifests = self.read_json(entry)?["manifests"].take();
        serde_json::from_value(manifests).when(format!("{} is not an index", entry.digest))
    }

    /// Returns the content that a manifest names: its configuration and its layers.
    pub(crate) fn parts(&self, manifest: &Descriptor) -> Result<Vec<Descriptor>> {
        let what = || format!("{} is not a manifest", manifest.digest);
        let mut read = self.read_json(manifest)?;
        let mut parts = vec![serde_json::from_value(read["config"].take()).when(what())?];
        parts.extend(serde_json::from_value::<Vec<Descriptor>>(read["layers"].take()).when(what())?);
        Ok(parts)
    }

    /// Writes the images that have a name into an archive that other tools import.
    pub(crate) fn archive(&self, file: &Path) -> Result<()> {
        let what = || format!("cannot write {}", file.display());
        let named = self.named()?;
        let mut archive = tar::Builder::new(fs::File::create(file).when(what())?);
        let mut add = |path: &str, bytes: &[u8]| {
            let mut header = tar::Header::new_ustar();
            header.set_size(bytes.len() as u64);
            header.set_mode(0o644);
            archive.append_data(&mut header, path, bytes).when(what())
        };
        add(MARK, &mark())?;
        add("index.json", &index(std::slice::from_ref(named)))?;
        let mut all = vec![named.clone()];
        for image in self.images(named)? {
            all.extend(self.parts(&image)?);
            all.push(image);
        }
        all.sort_by(|one, other| one.digest.cmp(&other.digest));
        all.dedup_by(|one, other| one.digest == other.digest);
        for descriptor in &all {
            let path = format!("blobs/sha256/{}", hex(&descriptor.digest).unwrap_or_default());
            add(&path, &self.read(descriptor)?)?;
        }
        archive.finish().when(what())
    }
}

fn fill(folder: &Path, blobs: &[Blob], manifests: &[Descriptor]) -> io::Result<()> {
    let _ = fs::remove_dir_all(folder);
    let place = folder.join("blobs/sha256");
    fs::create_dir_all(&place)?;
    for blob in blobs {
        fs::write(place.join(hex(&blob.descriptor.digest).unwrap_or_default()), &blob.bytes)?;
    }
    fs::write(folder.join(MARK), mark())?;
    fs::write(folder.join("index.json"), index(manifests))
}

fn mark() -> Vec<u8> {
    json!({"imageLayoutVersion": "1.0.0"}).to_string().into_bytes()
}

fn index(manifests: &[Descriptor]) -> Vec<u8> {
    json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests}).to_string().into_bytes()
}
