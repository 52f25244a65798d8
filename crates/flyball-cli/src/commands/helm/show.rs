//! `flyball helm show`.

use super::remote::localize;
use super::{HelmError, print};
use crate::error::{Error, Result, ResultExt};
use clap::{Args, Subcommand};
use flyball_chart::{Chart, ChartPathArgs, File};
use std::path::Path;

/// Names of the readme, in lower case.
const READMES: [&str; 3] = ["readme.md", "readme.txt", "readme"];

#[derive(Args, Debug)]
pub(super) struct ShowArgs {
    #[command(subcommand)]
    part: Part,
}

#[derive(Debug, Subcommand)]
enum Part {
    /// Print Chart.yaml
    Chart(PartArgs),
    /// Print values.yaml
    Values(PartArgs),
    /// Print the readme
    Readme(PartArgs),
    /// Print the CRDs
    Crds(PartArgs),
    /// Print Chart.yaml, values.yaml, the readme and the CRDs
    All(PartArgs),
}

#[derive(Args, Debug)]
pub(super) struct PartArgs {
    /// A chart: a directory, a .tgz, an https:// URL, an oci:// reference, or a name in the repository
    chart: String,
    /// Print the values at this path; not supported
    #[arg(long, hide = true)]
    jsonpath: Option<String>,
    #[command(flatten)]
    path: ChartPathArgs,
}

/// Runs `helm show` with a part of a chart.
pub(super) fn show(args: &ShowArgs) -> Result<(), HelmError> {
    match &args.part {
        Part::Chart(args) => show_part("chart", args),
        Part::Values(args) => show_part("values", args),
        Part::Readme(args) => show_part("readme", args),
        Part::Crds(args) => show_part("crds", args),
        Part::All(args) => show_part("all", args),
    }
}

/// Prints a part of a chart, by its name.
pub(super) fn show_part(part: &str, args: &PartArgs) -> Result<(), HelmError> {
    if args.jsonpath.is_some() {
        return Err(Error::new("--jsonpath is not supported").hint("filter the output with yq").into());
    }
    let mut charts = [args.chart.clone()];
    let _local = localize(&mut charts, &args.path)?;
    let [chart] = charts;
    print(&render_part(part, Path::new(&chart))?);
    Ok(())
}

fn render_part(part: &str, path: &Path) -> Result<String> {
    let what = || format!("cannot load the chart in {}", path.display());
    let chart = Chart::open(path).context(what()).map_err(|error| {
        error.hint(
            "pass a directory with a Chart.yaml, a .tgz, an https:// URL, oci://HOST/PATH/CHART, or --repo URL NAME",
        )
    })?;
    let files = Chart::read_files(path).context(what())?;
    let is_shown = |one: &str| part == "all" || part == one;
    let separator = if part == "all" { "---\n" } else { "" };
    let document = |file: &File| format!("{separator}{}\n", String::from_utf8_lossy(&file.data));
    let mut out = String::new();
    if is_shown("chart") {
        out += &format!("{}\n", chart.metadata().to_yaml());
    }
    if is_shown("values") {
        out += &files.iter().find(|file| file.path == "values.yaml").map(document).unwrap_or_default();
    }
    if is_shown("readme") {
        let is_readme = |file: &&File| READMES.contains(&file.path.to_lowercase().as_str());
        out += &files.iter().find(is_readme).map(document).unwrap_or_default();
    }
    if is_shown("crds") {
        for file in chart.crds() {
            let start = if file.text.starts_with("---") { "" } else { "---\n" };
            out += &format!("{start}{}\n", file.text);
        }
    }
    Ok(out)
}
