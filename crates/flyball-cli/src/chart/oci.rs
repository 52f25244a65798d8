//! Charts in registries. See <https://helm.sh/docs/topics/registries/>.

use super::access::Access;
use super::archive::{Archive, MAX_ARCHIVE_BYTES};
use super::provenance;
use super::range::{self, Range};
use crate::error::{Error, Result};
use crate::image::manifest::Manifest;
use crate::image::reference::Reference;
use crate::image::registry::{Purpose, Registry};
use crate::image::{Descriptor, MANIFEST, digest, hex};
use crate::render::progress::Progress;
use flyball_chart::Version;

/// Prefix of references to charts in registries.
pub(crate) const SCHEME: &str = "oci://";
/// Media type of the metadata of a chart.
const CONFIG: &str = "application/vnd.cncf.helm.config.v1+json";
/// Media types of archives; the second one is of early versions of Helm.
const LAYERS: [&str; 2] = ["application/vnd.cncf.helm.chart.content.v1.tar+gzip", "application/tar+gzip"];

/// A chart in a registry: `oci://registry.example.com/team/site`, with `:VERSION`, `@sha256:DIGEST`, or both.
#[derive(Clone, Debug)]
pub(crate) struct OciChart {
    /// Its tag is not used.
    repository: Reference,
    version: Option<String>,
    digest: Option<String>,
}

impl OciChart {
    /// Reads a reference; the version may be apart from it.
    ///
    /// # Errors
    ///
    /// If it is invalid, or names two versions.
    pub(crate) fn parse(text: &str, version: Option<&str>) -> Result<Self> {
        let invalid = |why: String| {
            Error::new(format!("{text} is not a chart reference: {why}"))
                .hint("use oci://HOST/PATH/CHART, and --version VERSION or @sha256:DIGEST")
        };
        let rest = text.strip_prefix(SCHEME).ok_or_else(|| invalid("it does not begin with oci://".into()))?;
        let (rest, digest) = match rest.rsplit_once('@') {
            Some((_, digest)) if hex(digest).is_none() => return Err(invalid("expected @sha256:DIGEST".into())),
            Some((rest, digest)) => (rest, Some(digest.to_owned())),
            None => (rest, None),
        };
        let (host, path) = rest.split_once('/').ok_or_else(|| invalid("it has no path".into()))?;
        let (path, tag) = match path.rsplit_once(':') {
            Some((path, tag)) => (path, Some(tag.to_owned())),
            None => (path, None),
        };
        let version = version.map(str::trim).filter(|version| !version.is_empty());
        if let (Some(tag), Some(version)) = (&tag, version)
            && tag != version
        {
            return Err(Error::new(format!("chart reference and version mismatch: {version} is not {tag}"))
                .hint("pass the version once"));
        }
        let repository = Reference::new(host, path, "latest").map_err(invalid)?;
        Ok(Self { repository, version: tag.or_else(|| version.map(str::to_owned)), digest })
    }

    /// Returns the version in the reference, or the one apart from it.
    pub(crate) fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    fn url(&self) -> String {
        format!("{SCHEME}{}/{}", self.repository.registry, self.repository.repository)
    }

    async fn connect(&self, access: &Access, is_named: bool) -> Result<Registry> {
        let is_plain = self.repository.is_loopback();
        if access.has_plain_http() && !is_plain {
            return Err(Error::new(format!("--plain-http: {} is not on this machine", self.repository.registry))
                .hint("remove --plain-http, and use a registry with TLS"));
        }
        let credentials = access.credentials(&self.repository.registry, is_named).await?;
        Registry::connect_with(access.web(), credentials, &self.repository, is_plain, Purpose::Pull).await
    }

    /// Resolves a constraint to a version. An exact version is not looked up.
    ///
    /// # Errors
    ///
    /// If the registry is not available, or has no version that is allowed.
    pub(crate) async fn resolve(&self, access: &Access, is_named: bool, range: &Range) -> Result<String> {
        match range.exact() {
            Some(version) => Ok(version.to_owned()),
            None => self.select(&mut self.connect(access, is_named).await?, range).await,
        }
    }

    async fn select(&self, registry: &mut Registry, range: &Range) -> Result<String> {
        // Tags cannot have a plus.
        let versions = registry.tags().await?.into_iter().map(|tag| tag.replace('_', "+"));
        let versions = versions.filter(|version| is_complete_version(version)).collect();
        let versions: Vec<String> = range::sorted(versions, |version| version);
        range.select(&versions, &self.url(), |version| version).cloned()
    }

    /// Downloads the archive of the chart. `is_named` is true if the user named the registry, whose credentials may be
    /// on the command line.
    ///
    /// # Errors
    ///
    /// If it is not available, is not a chart, or has another digest.
    pub(crate) async fn fetch(&self, access: &Access, is_named: bool, range: &Range) -> Result<Archive> {
        let shown = self.url();
        let mut registry = self.connect(access, is_named).await?;
        let (label, manifest) = match (&self.digest, &self.version) {
            (Some(digest), None) => {
                let found = registry.get_manifest(digest, &[MANIFEST]).await?;
                (format!("@{digest}"), found.ok_or_else(|| Error::new(format!("chart {shown}@{digest} not found")))?)
            }
            _ => {
                let version = match range.exact() {
                    Some(version) => version.to_owned(),
                    None => self.select(&mut registry, range).await?,
                };
                match registry.get_manifest(&version.replace('+', "_"), &[MANIFEST]).await? {
                    Some(found) => (format!(":{version}"), found),
                    None => {
                        let exact = Range::parse(&format!("={version}"))?;
                        self.select(&mut registry, &exact).await?;
                        return Err(Error::new(format!("chart {shown}:{version} not found")));
                    }
                }
            }
        };
        let actual = digest(&manifest);
        if let Some(expected) = self.digest.as_ref().filter(|expected| **expected != actual) {
            return Err(Error::new(format!("{shown}{label} has digest {actual}, not {expected}"))
                .hint("remove the version or the digest, or contact the owner of the chart"));
        }
        let what = format!("{shown}{label}");
        let layer = layer(&manifest, &what)?;
        let mut progress = Progress::new(&what);
        let mut on_received = |received, total| progress.update(received, total);
        let bytes = registry.download_blob(&layer.digest, MAX_ARCHIVE_BYTES, &mut on_received).await?;
        drop(progress);
        let name = self.repository.repository.rsplit('/').next().unwrap_or_default();
        // File names have no colon.
        let file = match &self.digest {
            Some(digest) => format!("{name}@{}.tgz", digest.replace(':', "-")),
            None => format!("{name}-{}.tgz", label.trim_start_matches(':')),
        };
        let mut archive = Archive::new(bytes, &file, &what)?;
        let reference = format!("{}{label}", shown.trim_start_matches(SCHEME));
        archive.manifest = Some((reference, actual));
        provenance::attach(access, &mut archive, async {
            let layer = provenance_layer(&manifest, &what)?;
            registry.download_blob(&layer.digest, provenance::MAX_BYTES, &mut |_, _| {}).await
        })
        .await?;
        Ok(archive)
    }
}

/// Returns true if a tag is a version with all of its numbers, and without `v`.
fn is_complete_version(tag: &str) -> bool {
    Version::parse(tag).is_ok_and(|version| version.to_string() == tag)
}

/// Returns the archive that a manifest names.
fn layer(manifest: &[u8], what: &str) -> Result<Descriptor> {
    let manifest = Manifest::read(&format!("manifest of {what}"), manifest)
        .map_err(|error| error.hint("charts are pushed with helm push"))?;
    let config = &manifest.config.media_type;
    if config != CONFIG {
        return Err(Error::new(format!("{what} is not a chart: its config has media type {config}"))
            .hint("charts are pushed with helm push"));
    }
    let layer = LAYERS.iter().find_map(|kind| manifest.layers.iter().find(|layer| layer.media_type == *kind));
    let layer =
        layer.ok_or_else(|| Error::new(format!("{what} is not a chart: no layer has media type {}", LAYERS[0])))?;
    if layer.size > MAX_ARCHIVE_BYTES as u64 {
        return Err(Error::new(format!("{what} is larger than {} MiB", MAX_ARCHIVE_BYTES >> 20)));
    }
    Ok(layer.clone())
}

/// Returns the provenance file that a manifest names.
fn provenance_layer(manifest: &[u8], what: &str) -> Result<Descriptor> {
    let manifest = Manifest::read(&format!("manifest of {what}"), manifest)?;
    let layer = manifest.layers.into_iter().find(|layer| layer.media_type == provenance::MEDIA_TYPE);
    layer.ok_or_else(|| Error::new(format!("{what} was pushed without a provenance file")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_have_versions_and_digests() {
        let digest = format!("sha256:{}", "0a".repeat(32));
        let with_digest = format!("oci://r.io/site:1.0.0@{digest}");
        for (text, version, expected) in [
            ("oci://r.io:5000/team/site", None, Ok(("oci://r.io:5000/team/site", None))),
            ("oci://r.io:5000/team/site", Some("^1"), Ok(("oci://r.io:5000/team/site", Some("^1")))),
            ("oci://localhost/site:1.0.0+b", Some("1.0.0+b"), Ok(("oci://localhost/site", Some("1.0.0+b")))),
            (&with_digest, None, Ok(("oci://r.io/site", Some("1.0.0")))),
            ("oci://r.io/site:1.0.0", Some("1.0.1"), Err("chart reference and version mismatch: 1.0.1 is not 1.0.0")),
            ("oci://r.io/site@sha256:12", None, Err("expected @sha256:DIGEST")),
            ("oci://r.io", None, Err("it has no path")),
            ("oci://r.io/Site", None, Err("\"r.io/Site:latest\" is not an image: expected lower case letters")),
            ("oci://me@r.io/site", None, Err("expected @sha256:DIGEST")),
        ] {
            match (OciChart::parse(text, version), expected) {
                (Ok(chart), Ok(expected)) => assert_eq!((chart.url().as_str(), chart.version()), expected),
                (Err(error), Err(expected)) => assert!(error.to_string().contains(expected), "{error}"),
                (parsed, _) => panic!("{text}: {parsed:?}"),
            }
        }
        assert_eq!(OciChart::parse(&with_digest, None).unwrap().digest, Some(digest));
    }
}
