//! Charts that commands of Helm name.

use super::HelmError;
use crate::chart::access::{Access, keyring};
use crate::chart::provenance::verify_file;
use crate::chart::source::{LocalChart, Request, Source};
use crate::cluster::connection::block_on;
use flyball_chart::ChartPathArgs;
use std::path::Path;

/// Returns the request of a chart.
pub(super) fn request<'r>(chart: &'r str, path: &'r ChartPathArgs) -> Request<'r> {
    let (repository, version) = (path.repo.as_deref(), path.version.as_deref());
    Request { chart, repository, version, devel: path.devel }
}

/// Fetches charts that are not on this machine, and replaces their names by the paths of the archives, which remain
/// until the result is dropped. All of them are verified, if requested.
pub(super) fn localize(charts: &mut [String], path: &ChartPathArgs) -> Result<Vec<LocalChart>, HelmError> {
    let is_remote = |chart: &String| request(chart, path).is_remote();
    if let Some(keyring) = keyring(&path.access) {
        // The command reports a missing file.
        for chart in charts.iter().filter(|chart| !is_remote(chart) && Path::new(chart.trim()).exists()) {
            verify_file(Path::new(chart.trim()), &keyring)?;
        }
    }
    if !charts.iter().any(is_remote) {
        return Ok(Vec::new());
    }
    let access = Access::new(&path.access)?;
    let mut local = Vec::new();
    for chart in charts.iter_mut().filter(|chart| is_remote(chart)) {
        let Source::Remote(remote) = request(chart, path).source()? else { continue };
        let fetched = block_on(remote.localize(&access, local.len()))?;
        *chart = fetched.path().display().to_string();
        local.push(fetched);
    }
    Ok(local)
}
