//! Flags of an existing chart, for `flyball init` and `flyball create api`.

use crate::chart::access::{Access, keyring};
use crate::chart::provenance::verify_file;
use crate::chart::source::{LocalChart, Request, Source};
use crate::cluster::connection::block_on;
use crate::error::Result;
use clap::Args;
use flyball_chart::AccessArgs;

/// An existing chart.
#[derive(Args, Debug)]
pub(crate) struct ChartArgs {
    /// Existing chart for a kind, copied into a Helm project: a directory, a .tgz, an https:// URL, an oci://
    /// reference, or a name in --chart-repo. The kind is the chart's name in CamelCase, unless --kind is set; --group
    /// defaults to charts, --version to v1alpha1
    #[arg(long, alias = "helm-chart", value_name = "CHART")]
    pub(crate) chart: Option<String>,
    /// URL of the repository of the chart
    #[arg(long, alias = "helm-chart-repo", value_name = "URL", requires = "chart")]
    chart_repo: Option<String>,
    /// Version of the chart, or a constraint such as ^1.2; the newest release by default
    #[arg(long, alias = "helm-chart-version", value_name = "VERSION", requires = "chart")]
    chart_version: Option<String>,
    #[command(flatten)]
    access: AccessArgs,
}

impl ChartArgs {
    /// Returns the chart on this machine, and fetches it if necessary.
    pub(crate) fn local(&self) -> Result<Option<LocalChart>> {
        let Some(chart) = &self.chart else { return Ok(None) };
        let (repository, version) = (self.chart_repo.as_deref(), self.chart_version.as_deref());
        let request = Request { chart, repository, version, devel: false };
        let local = match request.source() {
            Ok(Source::Local(path)) => match keyring(&self.access) {
                Some(keyring) => verify_file(&path, &keyring).map(|_| LocalChart::at(path)),
                None => Ok(LocalChart::at(path)),
            },
            Ok(Source::Remote(remote)) => {
                Access::new(&self.access).and_then(|access| block_on(remote.localize(&access, 0)))
            }
            Err(error) => Err(error),
        };
        local.map(Some).map_err(|error| error.within(&format!("--chart {chart}")))
    }
}
