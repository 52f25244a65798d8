//! `flyball helm dependency`.

use super::{HelmError, print};
use crate::chart::access::Access;
use crate::chart::dependencies::{self, Dependencies};
use crate::cluster::connection::block_on;
use clap::{Args, Subcommand};
use flyball_chart::{AccessArgs, Chart};
use std::path::{Path, PathBuf};

#[derive(Args, Debug)]
pub(super) struct DependencyArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Download the subcharts in the versions of Chart.lock
    ///
    /// Credentials are sent to one server: --username is rejected if the dependencies are on several.
    Build(FetchArgs),
    /// Download the newest subcharts that Chart.yaml allows, and write Chart.lock
    ///
    /// Credentials are sent to one server: --username is rejected if the dependencies are on several.
    #[command(visible_alias = "up")]
    Update(FetchArgs),
    /// List the subcharts and their status
    #[command(visible_alias = "ls")]
    List(ListArgs),
}

#[derive(Args, Debug)]
pub(super) struct FetchArgs {
    /// Directory of the chart
    #[arg(value_name = "CHART", default_value = ".")]
    chart: PathBuf,
    /// Without effect: indices of repositories are not kept
    #[arg(long, hide = true)]
    skip_refresh: bool,
    #[command(flatten)]
    access: AccessArgs,
}

#[derive(Args, Debug)]
pub(super) struct ListArgs {
    /// Directory or archive of the chart
    #[arg(value_name = "CHART", default_value = ".")]
    chart: PathBuf,
    /// Maximum width of a column
    #[arg(long, value_name = "WIDTH", default_value_t = 80)]
    max_col_width: u16,
}

pub(super) fn dependency(args: &DependencyArgs) -> Result<(), HelmError> {
    match &args.command {
        Command::Build(args) => build(args),
        Command::Update(args) => update(args),
        Command::List(args) => list(args),
    }
}

pub(super) fn build(args: &FetchArgs) -> Result<(), HelmError> {
    let access = Access::new(&args.access)?;
    let mut dependencies = Dependencies::open(&access, &args.chart)?;
    Ok(block_on(dependencies.build())?)
}

pub(super) fn update(args: &FetchArgs) -> Result<(), HelmError> {
    let access = Access::new(&args.access)?;
    let mut dependencies = Dependencies::open(&access, &args.chart)?;
    Ok(block_on(dependencies.update())?)
}

/// Downloads the subcharts of unpacked charts that lack some. Other errors of a chart are reported when it is rendered.
pub(super) fn update_if_missing<'c>(
    charts: impl Iterator<Item = &'c Path>,
    access: &AccessArgs,
) -> Result<(), HelmError> {
    let access = Access::new(access)?;
    for folder in charts.filter(|folder| folder.is_dir()) {
        if Chart::open(folder).is_ok_and(|chart| chart.check_dependencies().is_err()) {
            block_on(Dependencies::open(&access, folder)?.update())?;
        }
    }
    Ok(())
}

pub(super) fn list(args: &ListArgs) -> Result<(), HelmError> {
    print(&dependencies::list(&args.chart, usize::from(args.max_col_width))?);
    Ok(())
}
