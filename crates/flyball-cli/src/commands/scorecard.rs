//! `flyball scorecard`: checks an operator on a control plane.

use crate::cluster::connection::block_on_threads;
use crate::duration::parse_flag;
use crate::error::{Error, Result};
use crate::operator::local::{self, LocalArgs};
use crate::operator::process::stop_signal;
use crate::render::output::Output;
use crate::render::terminal::{Style, columns, paint, print_line};
use crate::scorecard::{Check, CheckOutcome, run_checks};
use crate::testing::Report;
use clap::Args;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Default timeout of a step.
pub(crate) const STEP_TIMEOUT: Duration = Duration::from_secs(60);

/// Run checks on an operator with its samples and roles, including a crash and a restart
///
/// Runs the operator as a service account on its own control plane with a simulated node. Exits with 1 if a check
/// fails.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flyball scorecard                             the project in this directory
  flyball scorecard --samples config/samples/small.yaml
  flyball scorecard --program ./site-operator -o junit > scorecard.xml")]
pub(crate) struct ScorecardArgs {
    /// Apply the objects of this file or directory; defaults to `samples` or `config/samples`
    #[arg(long, value_name = "PATH")]
    samples: Option<PathBuf>,
    /// Timeout of each step, such as startup, convergence and deletion
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = parse_flag)]
    timeout: Duration,
    /// Output format
    #[arg(short, long, value_enum)]
    output: Option<Format>,
    #[command(flatten)]
    local: LocalArgs,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Format {
    Json,
    Yaml,
    Junit,
}

pub(crate) fn cmd_scorecard(args: ScorecardArgs) -> Result<()> {
    let samples = local::samples(args.samples.as_deref());
    let (checks, took) = run(args.local, samples.as_deref(), args.timeout)?;
    match args.output {
        Some(Format::Json) => Output::Json.print(&checks)?,
        Some(Format::Yaml) => Output::Yaml.print(&checks)?,
        Some(Format::Junit) => print_line(Report::of_scorecard(&checks, took).junit().trim_end()),
        None => lines(&checks).iter().for_each(|line| print_line(line)),
    }
    match checks.iter().filter(|check| matches!(check.found, CheckOutcome::Failed { .. })).count() {
        0 => Ok(()),
        count => Err(Error::new(format!("{count} of {} checks failed", checks.len()))),
    }
}

/// Runs the checks until a stop signal; also returns the duration.
pub(crate) fn run(local: LocalArgs, samples: Option<&Path>, timeout: Duration) -> Result<(Vec<Check>, Duration)> {
    block_on_threads(async {
        let stop = stop_signal()?;
        let start = tokio::time::Instant::now();
        tokio::select! {
            biased;
            () = stop => Err(Error::interrupted()),
            checks = run_checks(local, samples, timeout) => Ok((checks?, start.elapsed())),
        }
    })
}

/// Lays out the checks as a table.
pub(crate) fn lines(checks: &[Check]) -> Vec<String> {
    let head = ["CHECK", "OUTCOME", ""].map(|word| paint(Style::Strong, word)).to_vec();
    let row = |Check { name, found }: &Check| {
        let (outcome, why) = match found {
            CheckOutcome::Passed => (paint(Style::Good, "passed"), String::new()),
            CheckOutcome::Failed { why, remedy } => (paint(Style::Bad, "failed"), format!("{why}; {remedy}")),
            CheckOutcome::Skipped { why } => (paint(Style::Faint, "skipped"), why.clone()),
        };
        vec![(*name).to_owned(), outcome, why]
    };
    columns(std::iter::once(head).chain(checks.iter().map(row)).collect())
}
