//! `flyball bundle validate`: checks a bundle.

use super::{findings, read_bundle, server};
use crate::cluster::connection::block_on;
use crate::error::Result;
use crate::render::output::Output;
use crate::render::terminal::{Style, one_line, paint, print_line};
use clap::Args;
use flyball_lifecycle::manifests::BundleFolder;
use flyball_lifecycle::validation::{Finding, Severity, validate_bundle};
use serde::Serialize;
use std::path::PathBuf;

/// Check a bundle with the rules of OLM and OperatorHub, and its objects with an API server
///
/// The API server runs in this process: CRDs are created, samples, roles and the Deployment are dry runs.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flyball bundle validate operators/site-operator/1.0.0
  flyball bundle validate operators/site-operator/1.0.0 --strict -o json")]
pub(super) struct ValidateArgs {
    /// Folder with manifests and metadata
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Fail on warnings, too
    #[arg(long)]
    strict: bool,
    /// Output format
    #[arg(short, long, value_enum)]
    output: Option<Output>,
}

/// Result of a validation.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Report<'f> {
    name: &'f str,
    package: &'f str,
    is_valid: bool,
    findings: &'f [Finding],
}

/// Returns all findings, errors first.
pub(super) async fn all_findings(bundle: &BundleFolder) -> Result<Vec<Finding>> {
    let mut found = validate_bundle(bundle);
    found.extend(server::check(bundle).await?);
    found.sort_by_key(|finding| finding.severity);
    Ok(found)
}

pub(super) fn cmd_validate(args: &ValidateArgs) -> Result<()> {
    let (_, bundle) = read_bundle(&args.folder)?;
    let found = block_on(all_findings(&bundle))?;
    let name = bundle.manifests.name();
    match args.output {
        Some(output) => output.print(&Report {
            name,
            package: &bundle.annotations.package,
            is_valid: findings::number(&found, Severity::Error) == 0,
            findings: &found,
        })?,
        None => {
            findings::print(&found);
            if findings::number(&found, Severity::Error) == 0 {
                let word = paint(Style::Good, "valid");
                print_line(&format!("{word} {}, {}", one_line(name), findings::summary(&found)));
            }
        }
    }
    match findings::failure(&found, name, args.strict) {
        Some(error) => Err(error),
        None => Ok(()),
    }
}
