//! Base image, whose layers are below those of the operator: from a folder in OCI layout, or from a registry.

use super::elf::Elf;
use super::layout::Layout;
use super::platform::Platform;
use super::reference::Reference;
use super::registry::{Purpose, Registry};
use super::{Blob, Descriptor, INDEX, LAYER, MANIFEST, hex};
use crate::error::{Error, Result, ResultExt};
use bytes::Bytes;
use flate2::read::MultiGzDecoder;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{self, Read};
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

/// Paths of CA bundles.
pub(crate) const BUNDLES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];
/// Paths of the lists of groups and users.
pub(super) const LISTS: [&str; 2] = ["/etc/group", "/etc/passwd"];
/// Maximum size of such a list.
const MAX_LIST_BYTES: u64 = 1 << 20;
/// Maximum size of all layers together when they are unpacked.
const MAX_UNPACKED_BYTES: u64 = 16 << 30;
/// First bytes of gzip's format.
const GZIP: [u8; 2] = [0x1f, 0x8b];

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

    /// Finds the files that the layer of a program must not replace.
    ///
    /// # Errors
    ///
    /// If there is no loader for the program.
    pub(super) fn files(&self, program: &[u8]) -> Result<BaseFiles> {
        let loader = Elf::read(program).and_then(|elf| elf.loader);
        let name = loader.as_deref().and_then(|loader| loader.rsplit('/').next());
        let (mut files, mut left) = (BaseFiles::default(), MAX_UNPACKED_BYTES);
        for layer in &self.layers {
            let mut unpacked = unpack(&layer.bytes).take(left);
            // Other formats than gzip are not read.
            files.is_partial |= files.add(&mut unpacked, name).is_err();
            left = unpacked.limit();
        }
        files.is_partial |= left == 0;
        match loader {
            Some(loader) if !files.has_loader && !files.is_partial => {
                Err(Error::new(format!("base image {} lacks {loader}, which loads the program", self.name))
                    .hint("use a base with the C library of the program, or a statically linked program"))
            }
            _ => Ok(files),
        }
    }
}

fn unpack(layer: &[u8]) -> Box<dyn Read + '_> {
    if layer.starts_with(&GZIP) { Box::new(MultiGzDecoder::new(layer)) } else { Box::new(layer) }
}

/// The files of a base image that the layer of a program must not replace.
#[derive(Debug, Default)]
pub(super) struct BaseFiles {
    /// CA bundles and lists of users and groups, by path. Those that cannot be extended, such as links, are empty.
    found: BTreeMap<String, Vec<u8>>,
    has_loader: bool,
    /// Set if a layer could not be read.
    is_partial: bool,
}

impl BaseFiles {
    pub(super) fn has_certificates(&self) -> bool {
        BUNDLES.iter().any(|path| self.found.contains_key(*path))
    }

    /// Returns a list of users or groups with the line of an ID; `None` if that of the base remains.
    pub(super) fn list(&self, path: &str, own: &str, line: &str, id: &str) -> Option<Vec<u8>> {
        let Some(list) = self.found.get(path) else { return (!self.is_partial).then(|| own.into()) };
        let has_id = |line: &[u8]| line.split(|byte| *byte == b':').nth(2) == Some(id.as_bytes());
        if list.is_empty() || list.split(|byte| *byte == b'\n').any(has_id) {
            return None;
        }
        let end = if list.ends_with(b"\n") { "" } else { "\n" };
        Some([list, end.as_bytes(), line.as_bytes(), b"\n"].concat())
    }

    /// Adds the files of a layer. A loader is found by its name, since its folder may be a link.
    fn add(&mut self, layer: impl Read, loader: Option<&str>) -> io::Result<()> {
        let mut archive = tar::Archive::new(layer);
        // Long names are not read: they may be of any size.
        for entry in archive.entries()?.raw(true) {
            let entry = entry?;
            let path = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
            let path = format!("/{}", path.trim_start_matches("./").trim_start_matches('/'));
            let (folder, name) = path.rsplit_once('/').unwrap_or_default();
            self.has_loader |= loader == Some(name);
            if let Some(removed) = name.strip_prefix(".wh.") {
                self.found.remove(&format!("{folder}/{removed}"));
            }
            let is_list = LISTS.contains(&&*path);
            if !is_list && !BUNDLES.contains(&&*path) {
                continue;
            }
            let mut bytes = Vec::new();
            if is_list && entry.header().entry_type().is_file() && entry.size() <= MAX_LIST_BYTES {
                entry.take(MAX_LIST_BYTES).read_to_end(&mut bytes)?;
            }
            self.found.insert(path, bytes);
        }
        Ok(())
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
                    return Err(Error::new(format!("the content of {reference} does not match its digest")));
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
                    Some(_) => Err(Error::new(format!(
                        "{reference} returned content that does not match {}",
                        descriptor.digest
                    ))),
                    None => Err(Error::new(format!("{reference} lacks its manifest {}", descriptor.digest))),
                }
            }
        }
    }

    async fn blob(&mut self, descriptor: &Descriptor) -> Result<Bytes> {
        match self {
            Self::Folder(layout) => layout.read(descriptor).map(Into::into),
            Self::Remote(registry, _) => {
                let size = usize::try_from(descriptor.size.max(MIN_RESPONSE_BYTES)).unwrap_or(usize::MAX);
                let limit = size.min(MAX_LAYER_BYTES);
                registry.download_blob(&descriptor.digest, limit, &mut |_, _| ()).await
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
    use super::super::files::ImageFile;
    use super::super::layer;
    use super::*;
    use flyball_core::time::Timestamp;

    fn base(layers: &[&[(&str, &str)]]) -> Base {
        let file = |&(path, text): &(&str, &str)| ImageFile {
            path: path.to_owned(),
            is_executable: false,
            bytes: text.as_bytes().to_vec(),
        };
        let layer = |files: &&[(&str, &str)]| {
            let files: Vec<ImageFile> = files.iter().map(file).collect();
            let archive = layer::of_files(&files, Timestamp::from_second(0).unwrap()).unwrap();
            Blob::new(LAYER, layer::compress(&archive).unwrap())
        };
        let layers = layers.iter().map(layer).collect();
        Base { layers, config: Value::Null, name: "debian".into(), digest: String::new() }
    }

    #[test]
    fn files_of_a_base_are_kept() {
        let line = "op:x:7:7::/:/bin/false";
        let list = |base: &Base| {
            let files = base.files(b"").unwrap();
            let list = files.list("/etc/passwd", "own\n", line, "7").map(|list| String::from_utf8(list).unwrap());
            (list, files.has_certificates())
        };
        let own = Some("own\n".to_owned());
        assert_eq!(list(&base(&[&[("bin/sh", "")]])), (own.clone(), false));
        let lower: &[_] = &[("etc/passwd", "root:x:0:0"), ("etc/ssl/cert.pem", "-")];
        assert_eq!(list(&base(&[lower])), (Some(format!("root:x:0:0\n{line}\n")), true));
        assert_eq!(list(&base(&[lower, &[("etc/passwd", "me:x:7:7\n")]])), (None, true));
        assert_eq!(list(&base(&[lower, &[("etc/.wh.passwd", ""), ("etc/ssl/.wh.cert.pem", "")]])), (own, false));
        let mut unknown = base(&[lower]);
        unknown.layers[0].bytes = b"another format ".repeat(100).into();
        assert_eq!(list(&unknown), (None, false));
    }

    #[test]
    fn loader_of_a_program_is_in_the_base() {
        let loader = "/lib64/ld-linux-x86-64.so.2";
        let mut program = vec![0; 64 + 56];
        program[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        (program[18], program[32], program[54], program[56], program[64]) = (62, 64, 56, 1, 3);
        (program[64 + 8], program[64 + 32]) = (120, u8::try_from(loader.len() + 1).unwrap());
        program.extend([loader.as_bytes(), b"\0"].concat());
        assert!(base(&[&[("usr/lib/ld-linux-x86-64.so.2", "")], &[]]).files(&program).is_ok());
        let error = base(&[&[("lib/ld-musl-x86_64.so.1", "")]]).files(&program).unwrap_err();
        assert_eq!(error.to_string(), format!("base image debian lacks {loader}, which loads the program"));
    }

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
