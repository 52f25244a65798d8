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
use std::collections::BTreeSet;

/// Limit of the bundles with unusable objects that are listed.
const MAX_LISTED: usize = 100;

/// Check a catalog: one head and no cycle in each channel, no stranded bundle, default channels exist, unique versions
///
/// Objects of bundles that the catalog contains must be installable. All problems are reported, each with its remedy. A
/// lifecycle manager skips packages whose channels or properties have problems, and serves the others.
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
    let unusable = unusable_bundles(&content);
    let listed: Vec<&Problem> = problems.iter().chain(unusable.iter().take(MAX_LISTED)).collect();
    let found = problems.count() + unusable.len();
    match args.output {
        Some(output) => output.print(&Report {
            is_valid: found == 0,
            packages,
            channels,
            bundles,
            problems: listed.iter().map(|problem| ProblemReport::new(problem)).collect(),
            more_problems: found - listed.len(),
        })?,
        None => {
            for problem in listed {
                let hint = format!("hint: {}", problem.remedy);
                print_line(&format!("{} {}", paint(Style::Bad, "error:"), one_line(&describe(problem))));
                print_line(&format!("  {}", paint(Style::Faint, &one_line(&hint))));
            }
            let (packages, channels) = (count(packages, "package"), count(channels, "channel"));
            let counted = format!("{packages}, {channels}, {}", count(bundles, "bundle"));
            if found == 0 {
                print_line(&format!("{} {counted}", paint(Style::Good, "valid")));
            }
        }
    }
    match found {
        0 => Ok(()),
        found => {
            let of_bundles = unusable.iter().filter_map(|problem| problem.package.as_deref());
            let invalid: BTreeSet<&str> = problems.packages().chain(of_bundles).collect();
            let invalid = count(invalid.len(), "package");
            Err(Error::new(format!("{} in {invalid} of {}", count(found, "problem"), args.reference)))
        }
    }
}

/// Returns the bundles whose objects the catalog contains, and that cannot be installed.
fn unusable_bundles(content: &Content) -> Vec<Problem> {
    let mut problems = Vec::new();
    for package in content.packages() {
        for bundle in package.bundles.values() {
            let Some(Err(error)) = bundle.manifests() else { continue };
            problems.push(Problem {
                package: Some(package.name.clone()),
                channel: None,
                bundle: Some(bundle.name().to_owned()),
                why: error.to_string(),
                remedy: "correct the objects of the bundle, or remove it".to_owned(),
            });
        }
    }
    problems
}

/// Returns the package, channel and bundle of a problem, and its reason.
fn describe(problem: &Problem) -> String {
    let places = [("package", &problem.package), ("channel", &problem.channel), ("bundle", &problem.bundle)];
    let places: Vec<String> =
        places.iter().filter_map(|(what, name)| Some(format!("{what} {}", name.as_ref()?))).collect();
    if places.is_empty() { problem.why.clone() } else { format!("{}: {}", places.join(", "), problem.why) }
}
