//! Base image, whose layers are below those of the operator: from a directory in OCI layout, or from a registry.

use super::elf::Elf;
use super::layout::Layout;
use super::manifest::{ImageConfig, IndexOrManifest, MAX_DOCUMENT_BYTES, Manifest};
use super::platform::Platform;
use super::reference::Reference;
use super::registry::{Purpose, Registry};
use super::{Blob, DOCKER_INDEX, DOCKER_MANIFEST, Descriptor, INDEX, LAYER, MANIFEST, hex};
use crate::error::{Error, Result};
use bytes::Bytes;
use flate2::read::MultiGzDecoder;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::mem::take;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Maximum size of a downloaded layer.
const MAX_LAYER_BYTES: usize = 1 << 30;
/// Maximum size of all layers together, which are kept in memory.
const MAX_BYTES: u64 = 4 << 30;
/// Size of a response, such as a redirect, that may be larger than a small blob.
const MIN_RESPONSE_BYTES: u64 = 64 << 10;

/// Media types of Docker, which registries still serve, and the OCI's that equal them.
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
/// Limit of the number of paths of loaders.
const MAX_LOADERS: usize = 64;
/// First bytes of gzip's format.
const GZIP: [u8; 2] = [0x1f, 0x8b];
/// Name prefix of a file that hides another one of lower layers, see
/// <https://github.com/opencontainers/image-spec/blob/main/layer.md#whiteouts>.
const WHITEOUT: &str = ".wh.";
/// Name of a file that hides all other files of its directory in lower layers.
const OPAQUE_WHITEOUT: &str = ".wh..wh..opq";

/// The name of a base image, or a directory with it.
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
    pub(super) config: ImageConfig,
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
        let name = match name {
            BaseName::Folder(folder) => folder.display().to_string(),
            BaseName::Remote(reference) => reference.to_string().replace(":sha256:", "@sha256:"),
        };
        let invalid = |error: Error| error.hint("use another base image, or build this one again");
        let document = |kind: &str, digest: &str| format!("base image {name}: {kind} {digest}");
        let (mut digest, bytes) = store.root().await?;
        let manifest = match IndexOrManifest::read(&document("document", &digest), &bytes).map_err(invalid)? {
            IndexOrManifest::Manifest(manifest) => *manifest,
            IndexOrManifest::Index(index) => {
                let is_of = |entry: &Descriptor| entry.platform.as_ref().is_some_and(|image| platform.is_of(image));
                let entry = index.manifests.into_iter().find(is_of).ok_or_else(|| {
                    Error::new(format!("base image {name} has no image for platform {}", platform.name))
                        .hint("pass another --platform, or another base")
                })?;
                check_document(&document("manifest", &entry.digest), &entry)?;
                let bytes = store.manifest(&entry).await?;
                digest = entry.digest;
                Manifest::read(&document("manifest", &digest), &bytes).map_err(invalid)?
            }
        };
        let config = document("config", &manifest.config.digest);
        check_document(&config, &manifest.config)?;
        let config = ImageConfig::read(&config, &store.blob(&manifest.config).await?).map_err(invalid)?;
        if !platform.is_of(&config.platform) {
            return Err(Error::new(format!("base image {name} is not for platform {}", platform.name))
                .hint("pass another --platform, or another base"));
        }
        let described = manifest.layers;
        let (layers, diff_ids) = (described.len(), config.diff_ids.len());
        if layers > MAX_LAYERS || layers != diff_ids {
            return Err(invalid(Error::new(format!(
                "base image {name}: layers of the manifest and rootfs.diff_ids of the config have {layers} and \
                 {diff_ids} items, not the same number of at most {MAX_LAYERS}"
            ))));
        }
        check_size(&described).map_err(|error| error.within(&format!("base image {name}")))?;
        let mut layers = Vec::new();
        for descriptor in described {
            let bytes = store.blob(&descriptor).await?;
            let media_type =
                if descriptor.media_type == DOCKER_LAYER { LAYER.to_owned() } else { descriptor.media_type.clone() };
            layers.push(Blob { descriptor: Descriptor { media_type, ..descriptor }, bytes });
        }
        Ok(Self { layers, config, name, digest })
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
            files.is_partial |= files.add_layer(&mut unpacked, name).is_err();
            left = unpacked.limit();
        }
        files.is_partial |= left == 0;
        match loader {
            Some(loader) if files.loaders.is_empty() && !files.is_partial => {
                Err(Error::new(format!("base image {} has no {loader}, the dynamic linker of the program", self.name))
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
    /// Paths of files with the name of the loader: its directory may be a link.
    loaders: BTreeSet<String>,
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

    /// Adds a layer on top of the others.
    fn add_layer(&mut self, layer: impl Read, loader: Option<&str>) -> io::Result<()> {
        let mut lower = Self { found: take(&mut self.found), loaders: take(&mut self.loaders), is_partial: false };
        let result = self.add_entries(layer, loader, &mut lower);
        lower.found.extend(take(&mut self.found));
        lower.loaders.append(&mut self.loaders);
        self.is_partial |= lower.loaders.len() > MAX_LOADERS;
        (self.found, self.loaders) = (lower.found, lower.loaders);
        result
    }

    /// Adds the files of a layer, and removes those of lower layers that it hides. The order of whiteouts and files in
    /// the archive does not matter.
    fn add_entries(&mut self, layer: impl Read, loader: Option<&str>, lower: &mut Self) -> io::Result<()> {
        let mut archive = tar::Archive::new(layer);
        // Long names are not read: they may be of any size.
        for entry in archive.entries()?.raw(true) {
            let entry = entry?;
            let path = absolute(&String::from_utf8_lossy(&entry.path_bytes()));
            let (folder, name) = path.rsplit_once('/').unwrap_or_default();
            match name.strip_prefix(WHITEOUT) {
                Some(_) if name == OPAQUE_WHITEOUT => lower.remove_below(folder),
                Some(hidden) => lower.remove(&format!("{folder}/{hidden}")),
                // A file or a link hides a directory of lower layers.
                None if !entry.header().entry_type().is_dir() => lower.remove_below(&path),
                None => {}
            }
            if loader == Some(name) && self.loaders.len() <= MAX_LOADERS {
                self.loaders.insert(path.clone());
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

    /// Removes a path, and all paths below it.
    fn remove(&mut self, path: &str) {
        self.found.remove(path);
        self.loaders.remove(path);
        self.remove_below(path);
    }

    fn remove_below(&mut self, folder: &str) {
        let is_below = |path: &String| path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
        self.found.retain(|path, _| !is_below(path));
        self.loaders.retain(|path| !is_below(path));
    }
}

/// Returns the path of an archive's entry in the image: `./etc//passwd` is `/etc/passwd`.
fn absolute(path: &str) -> String {
    let parts = path.split('/').filter(|part| !matches!(*part, "" | "."));
    parts.fold(String::new(), |path, part| format!("{path}/{part}"))
}

/// A directory or registry with a base image.
enum Store {
    Folder(Layout),
    Remote(Box<Registry>, Reference),
}

impl Store {
    /// Returns the index or manifest of the image, and its digest.
    async fn root(&mut self) -> Result<(String, Vec<u8>)> {
        match self {
            Self::Folder(layout) => {
                let first = layout.named().or_else(|error| layout.manifests.first().ok_or(error))?;
                check_document(&format!("document {}", first.digest), first)?;
                Ok((first.digest.clone(), layout.read(first)?))
            }
            Self::Remote(registry, reference) => {
                let types = [INDEX, MANIFEST, DOCKER_INDEX, DOCKER_MANIFEST];
                let found = registry.get_manifest(&reference.tag, &types).await?;
                let found = found.ok_or_else(|| Error::new(format!("image {reference} not found")))?;
                let digest = super::digest(&found);
                if hex(&reference.tag).is_some() && digest != reference.tag {
                    return Err(Error::new(format!("{reference}: the registry returned other content")));
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
                        "{reference}: the registry returned other content for {}",
                        descriptor.digest
                    ))),
                    None => Err(Error::new(format!("{reference}: manifest {} not found", descriptor.digest))),
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

/// Checks the size of a manifest or a configuration, before it is read.
fn check_document(document: &str, descriptor: &Descriptor) -> Result<()> {
    match descriptor.size <= MAX_DOCUMENT_BYTES {
        true => Ok(()),
        false => {
            let (size, limit) = (descriptor.size, MAX_DOCUMENT_BYTES >> 20);
            Err(Error::new(format!("{document} has {size} bytes, more than {limit} MiB"))
                .hint("use another base image"))
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
    use super::super::archive;
    use super::super::files::ImageFile;
    use super::*;
    use crate::files::private::PrivateDirectory;
    use flyball_core::time::Timestamp;
    use serde_json::json;

    fn base(layers: &[&[(&str, &str)]]) -> Base {
        let file = |&(path, text): &(&str, &str)| ImageFile {
            path: path.to_owned(),
            is_executable: false,
            bytes: text.as_bytes().to_vec(),
        };
        let layer = |files: &&[(&str, &str)]| {
            let files: Vec<ImageFile> = files.iter().map(file).collect();
            let bytes = archive::pack(&files, Timestamp::from_second(0).unwrap()).unwrap();
            Blob::new(LAYER, archive::compress(&bytes).unwrap())
        };
        let layers = layers.iter().map(layer).collect();
        Base { layers, config: ImageConfig::default(), name: "debian".into(), digest: String::new() }
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
    fn whiteouts_hide_files_of_lower_layers() {
        let lower: &[_] = &[("etc/passwd", "root:x:0:0\n"), ("etc/ssl/cert.pem", "-"), ("etc2/passwd", "")];
        let own: &[_] = &[("etc/passwd", "me:x:1:1\n")];
        for (upper, users, has_certificates) in [
            (&["etc/.wh.passwd"][..], None, true),
            (&["etc/.wh.ssl"], Some("root"), false),
            (&["etc/ssl/.wh..wh..opq"], Some("root"), false),
            (&["etc/.wh..wh..opq"], None, false),
            (&[".wh.etc"], None, false),
            (&["./.wh..wh..opq"], None, false),
            // A file in place of a directory.
            (&["etc"], None, false),
            (&["etc/.wh.group", "etc/.wh.pass", "etc/.wh..wh.plnk", "et/.wh..wh..opq", ".wh.et"], Some("root"), true),
        ] {
            let whiteouts: Vec<(&str, &str)> = upper.iter().map(|path| (*path, "")).collect();
            let check = |layers: &[&[(&str, &str)]], users: Option<&str>, has_certificates: bool| {
                let files = base(layers).files(b"").unwrap();
                let found = files.found.get("/etc/passwd").map(|list| String::from_utf8_lossy(list));
                assert_eq!(found.as_deref().and_then(|list| list.split(':').next()), users, "{upper:?}");
                assert_eq!((files.has_certificates(), files.is_partial), (has_certificates, false), "{upper:?}");
            };
            check(&[lower, &whiteouts], users, has_certificates);
            check(&[lower, &[], &whiteouts, &[]], users, has_certificates);
            check(&[lower, &whiteouts, lower], Some("root"), true);
            if upper != ["etc"] {
                // Files of the same layer remain, in any order.
                check(&[lower, &[own, &whiteouts[..]].concat()], Some("me"), has_certificates);
                check(&[lower, &[&whiteouts[..], own].concat()], Some("me"), has_certificates);
            }
        }
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
        let hidden: &[&[_]] = &[&[("usr/lib/ld-linux-x86-64.so.2", "")], &[("usr/.wh.lib", "")]];
        for layers in [&[&[("lib/ld-musl-x86_64.so.1", "")][..]][..], hidden] {
            let error = base(layers).files(&program).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("base image debian has no {loader}, the dynamic linker of the program")
            );
        }
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

    #[tokio::test]
    async fn malformed_bases_are_rejected() {
        let folder = PrivateDirectory::new("flyball-malformed-base").unwrap();
        let path = folder.path().join("base");
        let platform = &super::super::platform::PLATFORMS[0];
        let read = async |root: Blob, mut others: Vec<Blob>| {
            let named = root.descriptor.clone();
            others.push(root);
            Layout::write(&path, &others, &[named]).unwrap();
            let error = Base::read(&BaseName::Folder(path.clone()), platform).await.unwrap_err();
            assert!(!error.hints().is_empty(), "{error}");
            error.to_string().replace(&path.display().to_string(), "BASE")
        };
        let blob = |text: &str| Blob::new(MANIFEST, text.as_bytes().to_vec());
        for text in ["[]", "\"x\"", "null", "7", "{"] {
            let error = read(blob(text), Vec::new()).await;
            assert!(error.starts_with("base image BASE: document sha256:"), "{error}");
            assert!(error.contains(" is not a JSON object"), "{error}");
        }
        let error = read(blob(r#"{"manifests": ["a", "b"]}"#), Vec::new()).await;
        assert!(error.contains("field manifests is invalid"), "{error}");
        let manifest = |config: &Descriptor| Blob::json(MANIFEST, &json!({"config": config, "layers": []}));
        for (config, expected) in [
            ("[]", "is not a JSON object"),
            ("\"x\"", "is not a JSON object"),
            (r#"{"os": "linux", "architecture": "amd64", "rootfs": {"diff_ids": ["x"]}}"#, "have 0 and 1 items"),
            (r#"{"os": "linux", "architecture": "amd64", "config": "x"}"#, "field config is invalid"),
            ("{}", "is not for platform linux/amd64"),
        ] {
            let config = blob(config);
            let error = read(manifest(&config.descriptor), vec![config]).await;
            assert!(error.contains(expected), "{error}");
        }
        let config = blob("{}");
        let large = Descriptor { size: MAX_DOCUMENT_BYTES + 1, ..config.descriptor.clone() };
        let error = read(manifest(&large), vec![config.clone()]).await;
        let expected = format!("config {} has 16777217 bytes, more than 16 MiB", config.descriptor.digest);
        assert!(error.ends_with(&expected), "{error}");
        // Neither is a file larger than its descriptor read.
        let small = Descriptor { size: 1, ..config.descriptor.clone() };
        let error = read(manifest(&small), vec![config]).await;
        assert!(error.ends_with("is corrupt"), "{error}");
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
