//! Images, unpacked in memory: manifest, configuration and layers in, files out.
//!
//! See <https://github.com/opencontainers/image-spec/blob/main/spec.md>. Images come from people with fewer rights than
//! this process: every size is bounded before memory is used, and no path leaves the image.

use crate::files::{Files, MAX_FILES, TooManyFiles};
use flate2::read::GzDecoder;
use serde::Deserialize;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::path::{Component, Path};

/// Maximum number of layers.
const MAX_LAYERS: usize = 128;
/// Maximum size of all unpacked layers, in bytes. They are read in one go, also the files that are not kept.
pub(super) const MAX_IMAGE_BYTES: u64 = 4 << 30;
/// Maximum number of files in a layer, also of those that are not kept.
const MAX_ENTRIES: usize = 1_000_000;
/// Maximum size of a file that is kept, in bytes.
const MAX_FILE_BYTES: u64 = 512 << 20;
/// Maximum size of the headers of a file, in bytes: long names and attributes, which are read as a whole.
const MAX_HEADER_BYTES: u64 = 64 << 10;
/// Maximum length of a path, in bytes, as on Linux.
const MAX_PATH_BYTES: usize = 4096;
/// Maximum number of deletions in a layer that concern a folder that is kept.
const MAX_DELETIONS: usize = 10_000;
/// Prefix of files that delete others.
const WHITEOUT: &str = ".wh.";
/// File that deletes the content of its folder.
const OPAQUE: &str = ".wh..wh..opq";

/// An image that cannot be unpacked.
#[derive(Debug, thiserror::Error)]
pub enum InvalidImage {
    /// A document of the image is invalid.
    #[error("its {document} is invalid: {why}")]
    Document {
        /// The document.
        document: &'static str,
        /// The reason.
        why: String,
    },
    /// An index has no image.
    #[error("its index lists no image for linux")]
    NoPlatform,
    /// A layer has an unsupported format.
    #[error("layer {digest} has the media type {media_type:?}, only tar and gzip are supported; rebuild the image")]
    MediaType {
        /// The layer.
        digest: String,
        /// The media type.
        media_type: String,
    },
    /// There are too many layers.
    #[error("it has {0} layers, at most {MAX_LAYERS} are unpacked")]
    Layers(usize),
    /// A layer is damaged or too large.
    #[error("layer {digest} cannot be unpacked: {why}")]
    Layer {
        /// The layer.
        digest: String,
        /// The reason.
        why: String,
    },
    /// The files are too large.
    #[error(transparent)]
    Files(#[from] TooManyFiles),
}

/// A reference to a manifest, a configuration or a layer.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Descriptor {
    #[serde(default)]
    pub(super) media_type: String,
    pub(super) digest: String,
    #[serde(default)]
    pub(super) size: u64,
    #[serde(default)]
    platform: Option<Platform>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Platform {
    #[serde(default)]
    os: String,
    #[serde(default)]
    architecture: String,
}

/// A manifest, or the manifest that an index lists for this platform.
#[derive(Debug)]
pub(super) enum Manifest {
    Image { config: Descriptor, layers: Vec<Descriptor> },
    Index(Descriptor),
}

impl Manifest {
    /// Reads a manifest or an index. The content does not depend on the platform, so that any image for Linux will do;
    /// amd64 is preferred.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, InvalidImage> {
        #[derive(Deserialize)]
        struct Written {
            config: Option<Descriptor>,
            #[serde(default)]
            layers: Vec<Descriptor>,
            #[serde(default)]
            manifests: Vec<Descriptor>,
        }
        let invalid = |why: String| InvalidImage::Document { document: "manifest", why };
        let Written { config, layers, manifests } =
            serde_json::from_slice(bytes).map_err(|error| invalid(error.to_string()))?;
        match config {
            Some(_) if layers.len() > MAX_LAYERS => Err(InvalidImage::Layers(layers.len())),
            Some(config) => Ok(Self::Image { config, layers }),
            None => {
                let is_linux = |listed: &&Descriptor| listed.platform.as_ref().is_none_or(|on| on.os == "linux");
                let is_amd64 = |listed: &&Descriptor| {
                    listed.platform.as_ref().is_some_and(|on| on.architecture == "amd64" && on.os == "linux")
                };
                let found = manifests.iter().find(is_amd64).or_else(|| manifests.iter().find(is_linux));
                found.cloned().map(Self::Index).ok_or(InvalidImage::NoPlatform)
            }
        }
    }
}

/// Returns the labels in the configuration of an image. The rest of it is not kept.
pub(super) fn labels(config: &[u8]) -> Result<BTreeMap<String, String>, InvalidImage> {
    #[derive(Deserialize)]
    struct Written {
        #[serde(default)]
        config: Option<Process>,
    }
    #[derive(Deserialize)]
    struct Process {
        #[serde(default, rename = "Labels")]
        labels: Option<BTreeMap<String, String>>,
    }
    let written: Written = serde_json::from_slice(config)
        .map_err(|error| InvalidImage::Document { document: "configuration", why: error.to_string() })?;
    Ok(written.config.and_then(|config| config.labels).unwrap_or_default())
}

/// Adds the files of a layer that are below one of these folders, and returns the size of the unpacked layer. A layer
/// may also delete files.
pub(super) fn add_layer(
    layer: &Descriptor,
    bytes: &[u8],
    folders: &[String],
    max_bytes: u64,
    files: &mut Files,
) -> Result<u64, InvalidImage> {
    let media_type = layer.media_type.as_str();
    let is_compressed = bytes.starts_with(&[0x1f, 0x8b]);
    if media_type.ends_with("zstd") {
        let (digest, media_type) = (layer.digest.clone(), media_type.to_owned());
        return Err(InvalidImage::MediaType { digest, media_type });
    }
    let unpacked: Box<dyn Read + '_> = if is_compressed { Box::new(GzDecoder::new(bytes)) } else { Box::new(bytes) };
    let failed = |why: String| InvalidImage::Layer { digest: layer.digest.clone(), why };
    let (position, end) = (Cell::new(0), Cell::new(MAX_HEADER_BYTES));
    let headers = Headers { archive: unpacked, max_bytes, position: &position, end: &end };
    let mut archive = tar::Archive::new(headers);
    let entries = archive.entries().map_err(|error| failed(error.to_string()))?;
    let mut changes = Changes { remaining: files.max_bytes(), deleted: BTreeSet::new(), added: Vec::new() };
    for (count, entry) in entries.enumerate() {
        if count > MAX_ENTRIES {
            return Err(failed(format!("it has more than {MAX_ENTRIES} files")));
        }
        let entry = entry.map_err(|error| failed(error.to_string()))?;
        let is_sparse = entry.header().entry_type().is_gnu_sparse();
        let size = if is_sparse { entry.header().entry_size().unwrap_or_default() } else { entry.size() };
        end.set(position.get().saturating_add(size).saturating_add(MAX_HEADER_BYTES));
        changes.add(entry, folders, files.max_bytes(), &failed)?;
    }
    // Deletions concern the layers below.
    changes.deleted.iter().for_each(|path| files.remove(path));
    changes.added.into_iter().try_for_each(|(path, content)| files.insert(path, content))?;
    Ok(position.get())
}

/// Changes of a layer in the layers below.
struct Changes {
    /// Bytes that its files may still have.
    remaining: usize,
    deleted: BTreeSet<String>,
    added: Vec<(String, Vec<u8>)>,
}

impl Changes {
    /// Adds an entry of the archive.
    fn add(
        &mut self,
        entry: tar::Entry<'_, impl Read>,
        folders: &[String],
        max_bytes: usize,
        failed: &impl Fn(String) -> InvalidImage,
    ) -> Result<(), InvalidImage> {
        let path = entry.path().map_err(|error| failed(error.to_string()))?;
        let Some(path) = normal(&path) else { return Ok(()) };
        if path.len() > MAX_PATH_BYTES {
            return Err(failed(format!("a path has {} bytes, at most {MAX_PATH_BYTES} are read", path.len())));
        }
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", &path));
        if name == OPAQUE {
            self.deleted.extend(Some(folder.to_owned()).filter(|path| concerns(path, folders)));
        } else if let Some(name) = name.strip_prefix(WHITEOUT) {
            let path = if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") };
            self.deleted.extend(Some(path).filter(|path| concerns(path, folders)));
        } else if entry.header().entry_type().is_file() && folders.iter().any(|folder| is_below(&path, folder)) {
            if entry.size() > MAX_FILE_BYTES {
                return Err(failed(format!("{path} has {} bytes, at most {MAX_FILE_BYTES} are read", entry.size())));
            }
            let mut content = Vec::new();
            let mut bounded = entry.take(self.remaining as u64 + 1);
            bounded.read_to_end(&mut content).map_err(|error| failed(error.to_string()))?;
            let too_large = TooManyFiles::Size { max: max_bytes };
            self.remaining = self.remaining.checked_sub(content.len() + path.len()).ok_or(too_large)?;
            self.added.push((path, content));
        }
        if self.deleted.len() > MAX_DELETIONS {
            return Err(failed(format!("it deletes more than {MAX_DELETIONS} files")));
        }
        if self.added.len() > MAX_FILES {
            return Err(TooManyFiles::Count.into());
        }
        Ok(())
    }
}

/// An archive whose headers have a limited size.
///
/// The reader of archives holds long names and attributes in memory. So the content of a file may be read, and then no
/// more than [`MAX_HEADER_BYTES`] until the next file.
struct Headers<'p, R> {
    archive: R,
    /// The maximum size of the archive.
    max_bytes: u64,
    position: &'p Cell<u64>,
    /// The position at which the headers of the next file end at the latest.
    end: &'p Cell<u64>,
}

impl<R: Read> Read for Headers<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let position = self.position.get();
        if position >= self.max_bytes {
            return Err(io::Error::other(format!("the layers of the image have more than {MAX_IMAGE_BYTES} bytes")));
        }
        let remaining = self.end.get().min(self.max_bytes).saturating_sub(position);
        if remaining == 0 {
            return Err(io::Error::other(format!("the headers of a file have more than {MAX_HEADER_BYTES} bytes")));
        }
        let length = usize::try_from(remaining).map_or(buffer.len(), |remaining| remaining.min(buffer.len()));
        let read = self.archive.read(&mut buffer[..length])?;
        self.position.set(position + read as u64);
        Ok(read)
    }
}

/// Returns a path in an image without its root; `None` if it leaves the image or is not UTF-8.
fn normal(path: &Path) -> Option<String> {
    let mut names = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => names.push(name.to_str()?),
            Component::CurDir | Component::RootDir => {}
            Component::ParentDir | Component::Prefix(_) => return None,
        }
    }
    Some(names.join("/")).filter(|path| !path.is_empty())
}

/// Returns true if the deletion of a path concerns a folder: it is the folder, or above or below it.
fn concerns(path: &str, folders: &[String]) -> bool {
    folders.iter().any(|folder| {
        let folder = folder.trim_matches('/');
        path == folder || is_below(path, folder) || is_below(folder, path)
    })
}

fn is_below(path: &str, folder: &str) -> bool {
    let folder = folder.trim_matches('/');
    folder.is_empty() || path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
}
