//! `flyball helm`: renders and lints charts, without Helm.

mod lint;
mod server;

use crate::error::{Error, Result};
use clap::{Args, Subcommand};
use flyball_chart::{LintArgs, Seed, TemplateArgs};
use flyball_core::Clock;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

/// Render and lint Helm charts
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
    /// Lint charts, as `helm lint` does, and check the rendered objects with an API server
    #[command(after_help = "Examples:
  flyball helm lint ./helm-charts/site
  flyball helm lint ./site-1.2.3.tgz --strict --with-subcharts -f values.yaml
  flyball helm lint ./helm-charts/site --helm-rules-only -o json

The rules, the output and the exit codes are those of Helm. Findings of the API server, which runs in this process,
have the same form: unknown fields, invalid values, and kinds that it does not have.")]
    Lint(Box<LintArgs>),
}

pub(crate) fn cmd_helm(args: &HelmArgs) -> Result<()> {
    match &args.command {
        Command::Template(args) => template(args),
        Command::Lint(args) => lint::lint(args),
    }
    .map_err(Error::new)
}

/// Runs a command line of Helm, with Helm's output. Returns `None` for other commands and for help.
pub(crate) fn run_as_helm(arguments: &[String]) -> Option<ExitCode> {
    let ["helm", command] = [arguments.get(1)?, arguments.get(2)?].map(String::as_str) else { return None };
    let arguments = &arguments[3..];
    if arguments.iter().any(|argument| matches!(argument.as_str(), "-h" | "--help" | "-v" | "--verbose")) {
        return None;
    }
    let done = match command {
        "template" => TemplateArgs::parse(arguments).and_then(|args| template(&args)),
        "lint" => LintArgs::parse(arguments).and_then(|args| lint::lint(&args)),
        _ => return None,
    };
    match done {
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
    warn(&output.warnings);
    output.write_files(here)?;
    print(&output.text);
    Ok(())
}

fn warn(warnings: &[String]) {
    for warning in warnings {
        let _ = writeln!(std::io::stderr(), "{warning}");
    }
}

fn print(text: &str) {
    // The reader may stop halfway.
    let _ = std::io::stdout().write_all(text.as_bytes());
}
