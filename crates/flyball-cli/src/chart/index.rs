//! Repositories of charts: a file `index.yaml`, and archives. See <https://helm.sh/docs/topics/chart_repository/>.

use super::access::{self, Access, display_url};
use super::archive::{Archive, MAX_ARCHIVE_BYTES};
use super::oci::OciChart;
use super::provenance;
use super::range::{self, Range};
use crate::error::{Error, Result, ResultExt};
use crate::image::{digest, hex};
use serde::Deserialize;
use std::collections::BTreeMap;
use url::Url;

/// Size limit of `index.yaml`.
const MAX_INDEX_BYTES: usize = 64 << 20;

/// The index of a repository.
#[derive(Clone, Debug)]
pub(crate) struct Index {
    repository: Url,
    /// The versions of each chart, in descending order.
    charts: BTreeMap<String, Vec<Release>>,
}

/// A version of a chart in a repository.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Release {
    #[serde(default)]
    pub(crate) version: String,
    #[serde(default)]
    urls: Option<Vec<String>>,
    #[serde(default)]
    digest: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    #[serde(default)]
    api_version: Option<String>,
    #[serde(default)]
    entries: Option<BTreeMap<String, Option<Vec<Option<Release>>>>>,
}

impl Index {
    /// Downloads the index of a repository.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub(crate) async fn fetch(access: &Access, repository: &str) -> Result<Self> {
        let url = access::parse(repository)?;
        let address = resolve(&url, "index.yaml")?;
        let bytes = access.download(&address, &url, MAX_INDEX_BYTES, &format!("index of {}", display_url(&url))).await;
        let bytes = bytes.map_err(|error| {
            error.hint(format!("check that {} is a chart repository with an index.yaml", display_url(&url)))
        })?;
        Self::read(url, &bytes)
    }

    fn read(repository: Url, bytes: &[u8]) -> Result<Self> {
        let what = || format!("{} has no chart index", display_url(&repository));
        let document: Document = match bytes.trim_ascii_start().first() {
            Some(b'{') => serde_json::from_slice(bytes).context(what())?,
            _ => {
                // An index has no anchors, and many nodes.
                let options = serde_saphyr::options! {
                    budget: serde_saphyr::budget! {
                        max_anchors: 0,
                        max_aliases: 0,
                        max_events: MAX_INDEX_BYTES,
                        max_nodes: MAX_INDEX_BYTES,
                        max_total_scalar_bytes: MAX_INDEX_BYTES,
                    },
                };
                serde_saphyr::from_slice_with_options(bytes, options).context(what())?
            }
        };
        if document.api_version.is_none_or(|version| version.is_empty()) {
            return Err(Error::new(what()).hint("index.yaml must have an apiVersion; helm repo index creates it"));
        }
        let mut charts = BTreeMap::new();
        for (name, releases) in document.entries.unwrap_or_default() {
            let releases: Vec<Release> = releases.unwrap_or_default().into_iter().flatten().collect();
            charts.insert(name, range::sorted(releases, |release| &release.version));
        }
        Ok(Self { repository, charts })
    }

    /// Returns the versions of a chart.
    ///
    /// # Errors
    ///
    /// If the repository has no such chart.
    pub(crate) fn releases(&self, name: &str) -> Result<&[Release]> {
        if let Some(releases) = self.charts.get(name) {
            return Ok(releases);
        }
        let similar = self.charts.keys().filter(|other| other.contains(name) || name.contains(other.as_str()));
        let similar: Vec<&str> = similar.map(String::as_str).take(5).collect();
        let error = Error::new(format!("chart {name} not found in {}", display_url(&self.repository)));
        Err(match (similar.as_slice(), self.charts.len()) {
            ([], 0) => error.hint("the repository is empty"),
            ([], count) => error.hint(format!("the repository has {count} charts, see its index.yaml")),
            _ => error.hint(format!("similar charts: {}", similar.join(", "))),
        })
    }

    /// Selects a version of a chart.
    ///
    /// # Errors
    ///
    /// If the repository has no such chart, or no version of it that is allowed.
    pub(crate) fn select(&self, name: &str, range: &Range) -> Result<&Release> {
        let of = format!("{name} in {}", display_url(&self.repository));
        range.select(self.releases(name)?, &of, |release| &release.version)
    }

    /// Downloads the archive of a version.
    ///
    /// # Errors
    ///
    /// If it is not available, or has another digest.
    pub(crate) async fn download(&self, access: &Access, name: &str, release: &Release) -> Result<Archive> {
        let what = format!("{name} {}", release.version);
        let home = display_url(&self.repository);
        let url = release.urls.iter().flatten().next();
        let url = url.ok_or_else(|| Error::new(format!("{home} lists no URL for {what}")))?;
        let url = resolve(&self.repository, url)?;
        if url.scheme() == "oci" {
            let chart = OciChart::parse(url.as_str(), None)?;
            return chart.fetch(access, false, &Range::requested(Some(&release.version), false)?).await;
        }
        let bytes = access.download(&url, &self.repository, MAX_ARCHIVE_BYTES, &what).await;
        let bytes = bytes.map_err(|error| error.hint(format!("{home} lists this URL for {what}")))?;
        let listed = release.digest.as_deref().map(str::trim).filter(|digest| !digest.is_empty());
        if let Some(listed) = listed {
            let expected = format!("sha256:{}", listed.trim_start_matches("sha256:").to_ascii_lowercase());
            let actual = digest(&bytes);
            if hex(&expected).is_none() || actual != expected {
                return Err(Error::new(format!(
                    "the archive of {what} has digest {actual}, but {home} lists {listed}"
                ))
                .hint("nothing was written; the archive was changed, or the index is out of date: contact its owner"));
            }
        }
        let mut archive = Archive::of_url(bytes, &url)?;
        provenance::attach_of_url(access, &mut archive, &url, &self.repository).await?;
        Ok(archive)
    }
}

/// Resolves an address of an index as Helm does: relative to the directory of the repository, and with its query. Other
/// servers do not get the query, which may contain a token.
fn resolve(repository: &Url, reference: &str) -> Result<Url> {
    if let Ok(url) = Url::parse(reference) {
        return Ok(url);
    }
    let mut base = repository.clone();
    if !base.path().ends_with('/') {
        base.set_path(&format!("{}/", base.path()));
    }
    let mut url =
        base.join(reference).context(format!("{} lists an invalid URL {reference:?}", display_url(repository)))?;
    if url.origin() == repository.origin() {
        url.set_query(repository.query());
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Index> {
        Index::read(Url::parse("https://charts.example.com/stable?token=1").unwrap(), text.as_bytes())
    }

    #[test]
    fn addresses_are_relative_to_the_repository() {
        let repository = Url::parse("https://charts.example.com/stable?token=1").unwrap();
        for (reference, expected) in [
            ("site-1.0.0.tgz", "https://charts.example.com/stable/site-1.0.0.tgz?token=1"),
            ("../site-1.0.0+b.tgz", "https://charts.example.com/site-1.0.0+b.tgz?token=1"),
            ("/a/../b.tgz", "https://charts.example.com/b.tgz?token=1"),
            ("//cdn.example.com/b.tgz", "https://cdn.example.com/b.tgz"),
            ("//charts.example.com:8443/b.tgz", "https://charts.example.com:8443/b.tgz"),
            ("https://cdn.example.com/b.tgz?x=2", "https://cdn.example.com/b.tgz?x=2"),
            ("oci://registry.example.com/site:1.0.0", "oci://registry.example.com/site:1.0.0"),
        ] {
            assert_eq!(resolve(&repository, reference).unwrap().as_str(), expected);
        }
    }

    #[test]
    fn broken_entries_do_not_hide_others() {
        let text = "apiVersion: v1\nentries:\n  empty:\n  site:\n  - \n  - {version: 1.0.0, urls: }\n  - version: 1.10\n    \
                    urls: [a.tgz]\n    created: 2026-01-01T00:00:00Z\n    digest: 12\n";
        let index = read(text).unwrap();
        let versions = |name: &str| {
            index.releases(name).unwrap().iter().map(|release| release.version.clone()).collect::<Vec<_>>()
        };
        assert_eq!((versions("site"), versions("empty")), (vec!["1.10".to_owned(), "1.0.0".to_owned()], vec![]));
        let json = read(r#"{"apiVersion": "v1", "entries": {"site": [{"version": "2.0.0", "urls": []}]}}"#).unwrap();
        assert_eq!(json.releases("site").unwrap()[0].version, "2.0.0");
        let error = json.releases("websites").unwrap_err();
        assert_eq!(error.to_string(), "chart websites not found in https://charts.example.com/stable");
        assert_eq!(error.hints(), ["similar charts: site"]);
        for wrong in ["", "<html>", "entries: {}", "apiVersion: v1\nentries: []", "a: &a [1]\nb: *a", "{}"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
