//! Sources of charts.

use super::access::{self, Access};
use super::archive::{Archive, MAX_ARCHIVE_BYTES};
use super::index::Index;
use super::oci::{OciChart, SCHEME};
use super::provenance;
use super::range::Range;
use crate::error::{Error, Result};
use crate::files::private::PrivateDirectory;
use std::path::{Path, PathBuf};
use url::Url;

/// A requested chart, in the words of Helm.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Request<'r> {
    /// A directory, an archive, a URL, a reference to a registry, or a name in the repository.
    pub(crate) chart: &'r str,
    /// URL of the repository.
    pub(crate) repository: Option<&'r str>,
    /// Version, or a constraint.
    pub(crate) version: Option<&'r str>,
    /// True if pre-releases may be selected.
    pub(crate) devel: bool,
}

/// Source of a chart.
#[derive(Debug)]
pub(crate) enum Source {
    /// A directory or an archive on this machine.
    Local(PathBuf),
    Remote(RemoteSource),
}

/// Source of a chart that must be fetched.
#[derive(Debug)]
pub(crate) enum RemoteSource {
    /// An archive.
    Url(Url),
    /// A chart of a repository.
    Repository { repository: String, name: String, range: Range },
    /// A chart of a registry.
    Registry { chart: OciChart, range: Range },
}

/// A chart on this machine. A chart that was fetched is removed when this is dropped.
pub(crate) struct LocalChart {
    path: PathBuf,
    _folder: Option<PrivateDirectory>,
}

impl LocalChart {
    pub(crate) fn at(path: PathBuf) -> Self {
        Self { path, _folder: None }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Request<'_> {
    /// Returns true if the chart must be fetched.
    pub(crate) fn is_remote(&self) -> bool {
        let schemes = ["http://", "https://", SCHEME];
        self.repository.is_some() || schemes.iter().any(|scheme| self.chart.trim().starts_with(scheme))
    }

    /// Finds the source of the chart.
    ///
    /// # Errors
    ///
    /// If there is none, or the version is invalid.
    pub(crate) fn source(&self) -> Result<Source> {
        let chart = self.chart.trim();
        let range = |version: Option<&str>| Range::requested(version, self.devel);
        let registry = |reference: &str| {
            let chart = OciChart::parse(reference, self.version)?;
            let range = range(chart.version())?;
            Ok(Source::Remote(RemoteSource::Registry { chart, range }))
        };
        match self.repository.map(str::trim) {
            Some(repository) if chart.contains("://") || !super::archive::is_file_name(chart) => {
                Err(Error::new(format!("{chart} is not the name of a chart in {repository}"))
                    .hint("pass only the chart's name, or remove the repository"))
            }
            Some(repository) if repository.starts_with(SCHEME) => {
                registry(&format!("{}/{chart}", repository.trim_end_matches('/')))
            }
            Some(repository) => {
                check_repository(repository)?;
                let (repository, name) = (repository.to_owned(), chart.to_owned());
                Ok(Source::Remote(RemoteSource::Repository { repository, name, range: range(self.version)? }))
            }
            None if chart.starts_with(SCHEME) => registry(chart),
            None if self.is_remote() => Ok(Source::Remote(RemoteSource::Url(access::parse(chart)?))),
            None if Path::new(chart).exists() => Ok(Source::Local(chart.into())),
            None if chart.starts_with(['/', '.']) || chart.is_empty() => {
                Err(Error::new(format!("path {chart:?} not found"))
                    .hint("pass a directory with a Chart.yaml, or a .tgz"))
            }
            None => Err(match chart.split_once('/') {
                Some((repository, name)) => Error::new(format!("repo {repository} not found"))
                    .hint(format!("the repositories of helm repo add are not read; pass the URL: --repo URL {name}")),
                None => Error::new(format!("chart {chart} not found"))
                    .hint("pass a directory, a .tgz, an https:// URL, oci://HOST/PATH/CHART, or --repo URL NAME"),
            }),
        }
    }
}

/// Rejects text that cannot be the URL of a repository.
pub(super) fn check_repository(repository: &str) -> Result<()> {
    if repository.starts_with('@') || repository.starts_with("alias:") {
        return Err(Error::new(format!("{repository} is an alias in the configuration of Helm, which is not read"))
            .hint("pass the URL of the repository; helm repo list prints it"));
    }
    if !repository.contains("://") {
        return Err(Error::new(format!("{repository:?} is not the URL of a repository"))
            .hint("use a URL such as https://charts.example.com, oci://HOST/PATH or file://../FOLDER"));
    }
    Ok(())
}

impl RemoteSource {
    /// Fetches the archive of the chart.
    ///
    /// # Errors
    ///
    /// If it is not available, or has another digest than listed.
    pub(crate) async fn fetch(&self, access: &Access) -> Result<Archive> {
        match self {
            Self::Url(url) => {
                let bytes = access.download(url, url, MAX_ARCHIVE_BYTES, &access::display_url(url)).await?;
                let mut archive = Archive::of_url(bytes, url)?;
                provenance::attach_of_url(access, &mut archive, url, url).await?;
                Ok(archive)
            }
            Self::Repository { repository, name, range } => {
                let index = Index::fetch(access, repository).await?;
                index.download(access, name, index.select(name, range)?).await
            }
            Self::Registry { chart, range } => chart.fetch(access, true, range).await,
        }
    }

    /// Fetches the chart into a temporary directory. Charts of one process have different numbers.
    ///
    /// # Errors
    ///
    /// See [`Remote::fetch`].
    pub(crate) async fn localize(&self, access: &Access, number: usize) -> Result<LocalChart> {
        let archive = self.fetch(access).await?;
        let folder = PrivateDirectory::new(&format!("flyball-chart-{number}"))?;
        Ok(LocalChart { path: archive.save(folder.path())?, _folder: Some(folder) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_sources() {
        let of = |chart, repository, version| Request { chart, repository, version, devel: false };
        for (request, expected) in [
            (of(".", None, None), "Local(\".\")"),
            (of("https://x.io/a.tgz", None, None), "Url("),
            (of("site", Some("https://x.io"), Some("^1")), "Repository { repository: \"https://x.io\""),
            (of("site", Some("oci://x.io/team/"), Some("^1")), "Registry { chart: OciChart"),
            (of("oci://x.io/site:1.0.0", None, None), "version: Some(\"1.0.0\")"),
            (of("http://x.io/a.tgz", None, None), "x.io/a.tgz has no TLS"),
            (of("stable/site", None, None), "repo stable not found"),
            (of("site-of-nowhere", None, None), "chart site-of-nowhere not found"),
            (of("./nowhere", None, None), "path \\\"./nowhere\\\" not found"),
            (of("site", Some("@stable"), None), "is an alias"),
            (of("site", Some("stable"), None), "is not the URL of a repository"),
            (of("../site", Some("https://x.io"), None), "is not the name of a chart"),
            (of("site", Some("https://x.io"), Some("one")), "is neither a version nor a constraint"),
        ] {
            let found = format!("{:?}", request.source());
            assert!(found.contains(expected), "{request:?}: {found}");
        }
    }
}
