//! `flyball helm`: renders charts, without Helm.

use crate::error::{Error, Result};
use clap::{Args, Subcommand};
use flyball_chart::{Seed, TemplateArgs};
use flyball_core::Clock;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

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
    Template(Box<TemplateArgs>),
}

pub(crate) fn cmd_helm(args: &HelmArgs) -> Result<()> {
    let Command::Template(args) = &args.command;
    template(args).map_err(Error::new)
}

/// Runs a command line of Helm, with Helm's output. Returns `None` for other commands and for help.
pub(crate) fn run_as_helm(arguments: &[String]) -> Option<ExitCode> {
    let ["helm", "template"] = [arguments.get(1)?, arguments.get(2)?].map(String::as_str) else { return None };
    let arguments = &arguments[3..];
    if arguments.iter().any(|argument| matches!(argument.as_str(), "-h" | "--help" | "-v" | "--verbose")) {
        return None;
    }
    match TemplateArgs::parse(arguments).and_then(|args| template(&args)) {
        Ok(()) => Some(ExitCode::SUCCESS),
        Err(message) => {
            let _ = writeln!(std::io::stderr(), "Error: {message}");
            Some(ExitCode::FAILURE)
        }
    }
}

fn template(args: &TemplateArgs) -> Result<(), String> {
    let seed = Seed::from_os().map_err(|error| error.to_string())?;
    let here = Path::new(".");
    let output = flyball_chart::template(args, here, Clock::system(), seed)?;
    for warning in &output.warnings {
        let _ = writeln!(std::io::stderr(), "{warning}");
    }
    output.write_files(here)?;
    // The reader may close the pipe early.
    let _ = std::io::stdout().write_all(output.text.as_bytes());
    Ok(())
}
