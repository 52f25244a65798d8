//! `flyball catalog validate`: checks catalogs by the rules of operator-registry.

use super::{ImageFlags, count};
use crate::catalog::reference;
use crate::cluster::connection::block_on;
use crate::error::{Error, Result};
use crate::render::output::Output;
use crate::render::terminal::{Style, one_line, paint, print_line};
use clap::Args;
use flyball_lifecycle::content::{Content, Problem};
use serde::Serialize;

/// Check a catalog: one head and no cycle in each channel, no stranded bundle, default channels exist, unique versions
///
/// All problems are reported, each with its remedy. A lifecycle manager skips packages with problems, and serves the
/// others.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flyball catalog validate catalog/
  flyball catalog validate quay.io/team/catalog:latest -o json")]
pub(super) struct ValidateArgs {
    /// Folder or image of the catalog
    #[arg(value_name = "REF")]
    reference: String,
    #[command(flatten)]
    images: ImageFlags,
    /// Output format
    #[arg(short, long, value_enum)]
    output: Option<Output>,
}

/// Result of a validation.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Report<'c> {
    is_valid: bool,
    packages: usize,
    channels: usize,
    bundles: usize,
    problems: Vec<ProblemReport<'c>>,
    /// Problems that are not listed.
    more_problems: usize,
}

#[derive(Serialize)]
struct ProblemReport<'c> {
    #[serde(skip_serializing_if = "Option::is_none")]
    package: Option<&'c str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    channel: Option<&'c str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bundle: Option<&'c str>,
    why: &'c str,
    remedy: &'c str,
}

impl<'c> ProblemReport<'c> {
    fn new(problem: &'c Problem) -> Self {
        Self {
            package: problem.package.as_deref(),
            channel: problem.channel.as_deref(),
            bundle: problem.bundle.as_deref(),
            why: &problem.why,
            remedy: &problem.remedy,
        }
    }
}

pub(super) fn cmd_validate(args: &ValidateArgs) -> Result<()> {
    let blobs = block_on(reference::load(&args.reference, args.images.images()))?;
    let (packages, channels, bundles) = (blobs.packages.len(), blobs.channels.len(), blobs.bundles.len());
    let content = Content::new(blobs);
    let problems = content.problems();
    match args.output {
        Some(output) => output.print(&Report {
            is_valid: problems.is_empty(),
            packages,
            channels,
            bundles,
            problems: problems.iter().map(ProblemReport::new).collect(),
            more_problems: problems.count() - problems.iter().count(),
        })?,
        None => {
            for problem in problems.iter() {
                let hint = format!("hint: {}", problem.remedy);
                print_line(&format!("{} {}", paint(Style::Bad, "error:"), one_line(&describe(problem))));
                print_line(&format!("  {}", paint(Style::Faint, &one_line(&hint))));
            }
            let (packages, channels) = (count(packages, "package"), count(channels, "channel"));
            let counted = format!("{packages}, {channels}, {}", count(bundles, "bundle"));
            if problems.is_empty() {
                print_line(&format!("{} {counted}", paint(Style::Good, "valid")));
            }
        }
    }
    match problems.count() {
        0 => Ok(()),
        found => {
            let invalid = count(problems.packages().count(), "package");
            Err(Error::new(format!("{} in {invalid} of {}", count(found, "problem"), args.reference)))
        }
    }
}

/// Returns the package, channel and bundle of a problem, and its reason.
fn describe(problem: &Problem) -> String {
    let places = [("package", &problem.package), ("channel", &problem.channel), ("bundle", &problem.bundle)];
    let places: Vec<String> =
        places.iter().filter_map(|(what, name)| Some(format!("{what} {}", name.as_ref()?))).collect();
    if places.is_empty() { problem.why.clone() } else { format!("{}: {}", places.join(", "), problem.why) }
}
