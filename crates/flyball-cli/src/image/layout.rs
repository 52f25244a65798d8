//! Images in a directory, see <https://github.com/opencontainers/image-spec/blob/main/image-layout.md>.

use super::archive::ArchiveWriter;
use super::manifest::{Index, MAX_DOCUMENT_BYTES, Manifest};
use super::{Blob, Descriptor, INDEX, digest, hex};
use crate::error::{Error, Result, ResultExt};
use flyball_core::time::Timestamp;
use serde_json::json;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The file that marks a directory as a layout.
const MARKER: &str = "oci-layout";
/// Hint for an invalid layout.
const REBUILD: &str = "rebuild the image: flyball image build";

/// A directory with images.
pub(crate) struct Layout {
    folder: PathBuf,
    /// Entries of the index.
    pub(crate) manifests: Vec<Descriptor>,
}

impl Layout {
    /// Writes a layout, and replaces an existing one. A crash may leave no layout, but never a part of one.
    ///
    /// # Errors
    ///
    /// If it cannot be written, or the directory has other content.
    pub(crate) fn write(folder: &Path, blobs: &[Blob], manifests: &[Descriptor]) -> Result<()> {
        let what = || format!("cannot write {}", folder.display());
        let is_free = fs::read_dir(folder).map_or(true, |mut entries| entries.next().is_none());
        if !is_free && !folder.join(MARKER).is_file() {
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
        written.context(what())
    }

    /// Opens an existing layout.
    pub(crate) fn open(folder: &Path) -> Result<Self> {
        if !folder.join(MARKER).is_file() {
            return Err(Error::new(format!("no image found in {}", folder.display()))
                .hint("build one with `flyball image build`, or pass --from DIR"));
        }
        let path = folder.join("index.json");
        let what = || format!("cannot read {}", path.display());
        if fs::metadata(&path).context(what())?.len() > MAX_DOCUMENT_BYTES {
            return Err(Error::new(format!("{} is larger than {} MiB", path.display(), MAX_DOCUMENT_BYTES >> 20)));
        }
        let bytes = fs::read(&path).context(what())?;
        let index = Index::read(&path.display().to_string(), &bytes).map_err(|error| error.hint(REBUILD))?;
        Ok(Self { folder: folder.to_owned(), manifests: index.manifests })
    }

    /// Returns the entry to push: the one with a name.
    pub(crate) fn named(&self) -> Result<&Descriptor> {
        let named =
            self.manifests.iter().find(|descriptor| descriptor.annotations.contains_key(super::reference::NAME));
        named.ok_or_else(|| Error::new(format!("no named image in {}", self.folder.display())))
    }

    /// Reads content and verifies its size and its digest.
    pub(crate) fn read(&self, descriptor: &Descriptor) -> Result<Vec<u8>> {
        let hex = hex(&descriptor.digest)
            .ok_or_else(|| Error::new(format!("{:?} is not a SHA-256 digest", descriptor.digest)).hint(REBUILD))?;
        let path = self.folder.join("blobs/sha256").join(hex);
        let what = || format!("cannot read {}", path.display());
        let corrupt = || Error::new(format!("{} is corrupt", path.display())).hint(REBUILD);
        if fs::metadata(&path).context(what())?.len() != descriptor.size {
            return Err(corrupt());
        }
        let bytes = fs::read(&path).context(what())?;
        if digest(&bytes) == descriptor.digest { Ok(bytes) } else { Err(corrupt()) }
    }

    /// Returns the images of an entry: those of an index, or itself.
    pub(crate) fn images(&self, entry: &Descriptor) -> Result<Vec<Descriptor>> {
        if entry.media_type != INDEX {
            return Ok(vec![entry.clone()]);
        }
        let index = Index::read(&self.document("index", entry), &self.read(entry)?);
        index.map(|index| index.manifests).map_err(|error| error.hint(REBUILD))
    }

    pub(crate) fn manifest(&self, descriptor: &Descriptor) -> Result<Manifest> {
        let manifest = Manifest::read(&self.document("manifest", descriptor), &self.read(descriptor)?);
        manifest.map_err(|error| error.hint(REBUILD))
    }

    /// Returns the name of a document in errors.
    fn document(&self, kind: &str, descriptor: &Descriptor) -> String {
        format!("{kind} {} in {}", descriptor.digest, self.folder.display())
    }

    /// Returns the blobs that a manifest refers to: its configuration and its layers.
    pub(crate) fn blobs(&self, descriptor: &Descriptor) -> Result<Vec<Descriptor>> {
        let Manifest { config, layers, .. } = self.manifest(descriptor)?;
        Ok([config].into_iter().chain(layers).collect())
    }

    /// Writes the images that have a name into an archive that other tools import.
    pub(crate) fn archive(&self, file: &Path) -> Result<()> {
        let what = || format!("cannot write {}", file.display());
        let named = self.named()?;
        let mut archive = ArchiveWriter::new(fs::File::create(file).context(what())?, Timestamp::UNIX_EPOCH);
        let mut add = |path: &str, bytes: &[u8]| archive.add(path, 0o644, bytes).context(what());
        add(MARKER, &marker())?;
        add("index.json", &index(vec![named.clone()]))?;
        let mut all = vec![named.clone()];
        for image in self.images(named)? {
            all.extend(self.blobs(&image)?);
            all.push(image);
        }
        all.sort_by(|one, other| one.digest.cmp(&other.digest));
        all.dedup_by(|one, other| one.digest == other.digest);
        for descriptor in &all {
            let path = format!("blobs/sha256/{}", hex(&descriptor.digest).unwrap_or_default());
            add(&path, &self.read(descriptor)?)?;
        }
        archive.finish().map(drop).context(what())
    }
}

fn fill(folder: &Path, blobs: &[Blob], manifests: &[Descriptor]) -> io::Result<()> {
    let _ = fs::remove_dir_all(folder);
    let blob_directory = folder.join("blobs/sha256");
    fs::create_dir_all(&blob_directory)?;
    for blob in blobs {
        fs::write(blob_directory.join(hex(&blob.descriptor.digest).unwrap_or_default()), &blob.bytes)?;
    }
    fs::write(folder.join(MARKER), marker())?;
    fs::write(folder.join("index.json"), index(manifests.to_vec()))
}

fn marker() -> Vec<u8> {
    json!({"imageLayoutVersion": "1.0.0"}).to_string().into_bytes()
}

fn index(manifests: Vec<Descriptor>) -> Vec<u8> {
    Index::new(manifests).to_json().to_string().into_bytes()
}
