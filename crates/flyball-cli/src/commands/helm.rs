//! `flyball helm`: renders charts, without Helm.

use crate::error::{Error, Result, ResultExt};
use crate::render::terminal::complain;
use clap::{Args, Subcommand};
use flyball_chart::{Seed, TemplateArgs};
use flyball_core::Clock;
use std::io::Write;
use std::path::Path;

/// Render Helm charts
#[derive(Args, Debug)]
pub(crate) struct HelmArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Render a chart, as `helm template` does
    #[command(after_help = "Examples:
  flyball helm template site ./helm-charts/site
  flyball helm template site ./site-1.2.3.tgz -f values.yaml --set backend.size=3")]
    Template(TemplateArgs),
}

pub(crate) fn cmd_helm(args: &HelmArgs) -> Result<()> {
    let Command::Template(args) = &args.command;
    let seed = Seed::from_os().when("no randomness available")?;
    let output = flyball_chart::template(args, Path::new("."), Clock::system(), seed).map_err(Error::new)?;
    output.warnings.iter().for_each(|warning| complain("note", warning));
    // Whoever reads it may stop halfway.
    let _ = std::io::stdout().write_all(output.text.as_bytes());
    Ok(())
}
