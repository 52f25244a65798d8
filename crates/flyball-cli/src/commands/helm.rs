//! `flyball helm`: fetches, shows, renders and lints charts, without Helm.

mod dependency;
mod lint;
mod live;
mod pull;
mod remote;
mod server;
mod show;

use crate::error::{Error, Result};
use crate::render::terminal::print_text;
use clap::{Args, Subcommand};
use flyball_chart::{LintArgs, Seed, TemplateArgs, parse_flags};
use flyball_core::Clock;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

/// Fetch, show, render and lint Helm charts
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
  flyball helm template site ./site-1.2.3.tgz -f values.yaml --set backend.size=3
  flyball helm template site oci://registry.example.com/charts/site --version ^1.2")]
    Template(Box<TemplateArgs>),
    /// Lint charts, as `helm lint` does, and check the rendered objects with an API server
    #[command(after_help = "Examples:
  flyball helm lint ./helm-charts/site
  flyball helm lint ./site-1.2.3.tgz --strict --with-subcharts -f values.yaml
  flyball helm lint ./helm-charts/site --helm-rules-only -o json

The rules, the output and the exit codes are those of Helm. Findings of the API server, which runs in this process,
have the same form: unknown fields, invalid values, and kinds that it does not have.")]
    Lint(Box<LintArgs>),
    /// Download charts, as `helm pull` does
    #[command(
        visible_alias = "fetch",
        after_help = "Examples:
  flyball helm pull https://charts.example.com/site-1.2.3.tgz
  flyball helm pull --repo https://charts.example.com site --version ^1.2 --untar
  flyball helm pull oci://registry.example.com/charts/site --version 1.2.3
  flyball helm pull oci://registry.example.com/charts/site@sha256:…

The archive must have the digest that the index of the repository or the manifest of the registry lists."
    )]
    Pull(Box<pull::PullArgs>),
    /// Print parts of a chart, as `helm show` does
    #[command(
        visible_alias = "inspect",
        after_help = "Examples:
  flyball helm show values ./helm-charts/site
  flyball helm show chart --repo https://charts.example.com site"
    )]
    Show(Box<show::ShowArgs>),
    /// Manage the subcharts of a chart, as `helm dependency` does
    #[command(visible_aliases = ["dep", "dependencies"], after_help = "Examples:
  flyball helm dependency list ./helm-charts/site
  flyball helm dependency update ./helm-charts/site
  flyball helm dependency build ./helm-charts/site

Repositories in Chart.yaml are URLs: https://…, oci://… or file://… within the project.")]
    Dependency(Box<dependency::DependencyArgs>),
}

/// Error of a command of Helm: in the words of Helm, or with hints.
pub(crate) enum HelmError {
    Helm(String),
    Other(Error),
}

impl From<String> for HelmError {
    fn from(message: String) -> Self {
        Self::Helm(message)
    }
}

impl From<Error> for HelmError {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

impl From<HelmError> for Error {
    fn from(failure: HelmError) -> Self {
        match failure {
            HelmError::Helm(message) => Self::new(message),
            HelmError::Other(error) => error,
        }
    }
}

pub(crate) fn cmd_helm(args: &HelmArgs) -> Result<()> {
    let done = match &args.command {
        Command::Template(args) => template(args),
        Command::Lint(args) => lint::lint(args),
        Command::Pull(args) => pull::pull(args),
        Command::Show(args) => show::show(args),
        Command::Dependency(args) => dependency::dependency(args),
    };
    Ok(done?)
}

/// Runs a command line of Helm, with Helm's output. Returns `None` for other commands and for help.
pub(crate) fn run_as_helm(arguments: &[String]) -> Option<ExitCode> {
    let ["helm", command] = [arguments.get(1)?, arguments.get(2)?].map(String::as_str) else { return None };
    let arguments = &arguments[3..];
    if arguments.iter().any(|argument| matches!(argument.as_str(), "-h" | "--help" | "-v" | "--verbose")) {
        return None;
    }
    let part = arguments.first().map(String::as_str).unwrap_or_default();
    let rest = arguments.get(1..).unwrap_or_default();
    let done = match (command, part) {
        ("template", _) => run(arguments, template),
        ("lint", _) => run(arguments, lint::lint),
        // Without an argument, clap prints the usage.
        ("pull" | "fetch", part) if !part.is_empty() => run(arguments, pull::pull),
        ("show" | "inspect", "chart" | "values" | "readme" | "crds" | "all") if !rest.is_empty() => {
            run(rest, |args| show::show_part(part, args))
        }
        ("dependency" | "dependencies" | "dep", "build") => run(rest, dependency::build),
        ("dependency" | "dependencies" | "dep", "update" | "up") => run(rest, dependency::update),
        ("dependency" | "dependencies" | "dep", "list" | "ls") => run(rest, dependency::list),
        _ => return None,
    };
    let Err(failure) = done else { return Some(ExitCode::SUCCESS) };
    let error = Error::from(failure);
    let hints: String = error.hints().iter().map(|hint| format!("\nhint: {hint}")).collect();
    let _ = writeln!(std::io::stderr(), "Error: {error}{hints}");
    Some(ExitCode::FAILURE)
}

/// Parses the arguments of a command as Helm does, and runs it.
fn run<A: Args>(arguments: &[String], command: impl FnOnce(&A) -> Result<(), HelmError>) -> Result<(), HelmError> {
    command(&parse_flags(arguments)?)
}

fn template(args: &TemplateArgs) -> Result<(), HelmError> {
    let mut args = args.clone();
    let chart = args.args.len().saturating_sub(1);
    let fetched = remote::localize(&mut args.args[chart..], &args.path)?;
    if !fetched.is_empty() {
        args.path.repo = None;
    }
    args.path.access.verify = false;
    if args.dependency_update {
        dependency::update_if_missing(args.args[chart..].iter().map(Path::new), &args.path.access)?;
    }
    let seed = Seed::from_os().map_err(|error| error.to_string())?;
    let here = Path::new(".");
    args.namespace = live::namespace(&args);
    let cluster = live::LiveCluster::new(&args.cluster)?;
    let output = flyball_chart::template(&args, here, Clock::system(), seed, Some(&cluster))?;
    warn(&output.warnings);
    output.write_files(here)?;
    print(&output.text);
    output.error.map_or(Ok(()), |error| Err(error.into()))
}

fn warn(warnings: &[String]) {
    for warning in warnings {
        let _ = writeln!(std::io::stderr(), "{warning}");
    }
}

fn print(text: &str) {
    print_text(text);
}
