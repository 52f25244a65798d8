//! `flyball explore`: searches for faults that an operator does not tolerate.

mod cargo;
mod process;
mod progress;

use crate::duration::parse_duration;
use crate::error::{Error, Result};
use crate::explore::condition::Condition;
use crate::explore::kept;
use crate::operator::program::Program;
use crate::render::terminal::{print_labeled, print_line};
use clap::{Args, ValueEnum};
use flyball_explore::{Budget, BudgetError, Schedule};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Search for faults that an operator does not tolerate
///
/// Runs the operator again and again on embedded control planes, each time with other faults: crashes, lost responses,
/// late and stale caches, conflicts, partitions, changes by others. Reports each violated rule with the smallest
/// schedule of faults that shows it.
///
/// In a project in Rust, runs the tests whose names begin with explore_, which simulate the operator in virtual time.
/// In a project with a watches.yaml, with --program and with --exec, runs the operator as a process in real time; its
/// language does not matter. The process gets a kubeconfig in KUBECONFIG, and free ports in PORT1 to PORT4.
///
/// Exits with 1 if a rule is violated, and with 2 if the operator cannot be explored.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flyball explore                                the project in this directory
  flyball explore --program target/debug/site-operator --samples config/samples
  flyball explore --exec 'python3 operator.py' --crds crds --samples samples
  flyball explore --exec './manager --metrics-bind-address :$PORT1' --crds config/crd --samples config/samples \\
    --rbac config/rbac --wait condition=Ready --budget 5m
  flyball explore --replay 'default; seed=1; patch:apps/deployments/web#2 crash-after'
  flyball explore --pause --replay 'default; seed=1; patch:apps/deployments/web#2 crash-after'
  flyball explore --keep leak                    adds the schedules of findings to explore.txt")]
pub(crate) struct ExploreArgs {
    /// Start the operator with this command of the shell
    #[arg(long, value_name = "COMMAND", conflicts_with = "program")]
    exec: Option<String>,
    /// Run this program built with Flyball, or the operator of this watches.yaml, with its own CRDs and roles
    #[arg(long, value_name = "FILE")]
    program: Option<Program>,
    /// Apply and delete the objects of this file or directory; may be repeated. Defaults to `samples` or
    /// `config/samples`
    #[arg(long, value_name = "PATH", conflicts_with = "scenario")]
    samples: Vec<PathBuf>,
    /// Play this list of steps in YAML instead: settle, apply: OBJECT or FILE, delete: NAME, wait: 5s; may be repeated
    #[arg(long, value_name = "FILE")]
    scenario: Vec<PathBuf>,
    /// Install the definitions and other objects of this file or directory before; may be repeated
    #[arg(long, value_name = "PATH", requires = "exec")]
    crds: Vec<PathBuf>,
    /// Install the roles and bindings of the operator, which acts as the service account that they name; otherwise it
    /// is an administrator
    #[arg(long, value_name = "PATH", requires = "exec")]
    rbac: Vec<PathBuf>,
    /// Wait until custom resources satisfy a condition, as of `kubectl wait --for`; may be repeated
    #[arg(long, value_name = "CONDITION")]
    wait: Vec<Condition>,
    /// Duration, or number of schedules
    #[arg(long, default_value = "60s", value_parser = parse_budget)]
    budget: Budget,
    /// Run only this schedule of a report
    #[arg(long, value_name = "SCHEDULE", value_parser = parse_schedule)]
    replay: Option<String>,
    /// Wait for Enter at each request, delivery and step of the schedule; the clock of the operator waits as well. Not
    /// for operators as processes
    #[arg(long, requires = "replay", conflicts_with = "exec", conflicts_with = "program")]
    pause: bool,
    /// Seed of the search
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of runs at the same time; defaults to three for each processor
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=256))]
    jobs: Option<u16>,
    /// Time without writes after which a process has settled
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = parse_time)]
    quiet: Duration,
    /// Maximum time of a process to settle, and to recover from faults
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_time)]
    timeout: Duration,
    /// Apply unusual values of each property of the samples as well
    #[arg(long)]
    campaigns: bool,
    /// Add the schedules of findings under this name to explore.txt, whose schedules are tried first
    #[arg(long, value_name = "NAME", value_parser = kept::parse_name)]
    keep: Option<String>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    output: Format,
    /// Arguments of cargo test, or of --program
    #[arg(last = true)]
    args: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
    Junit,
}

/// The reports of a command.
#[derive(Default)]
struct Reports {
    texts: Vec<String>,
    values: Vec<Value>,
    /// As XML documents.
    suites: Vec<String>,
}

fn parse_schedule(text: &str) -> Result<String, String> {
    text.parse::<Schedule>().map(|_| text.to_owned()).map_err(|error| error.to_string())
}

fn parse_budget(text: &str) -> Result<Budget, String> {
    text.parse().or_else(|error: BudgetError| parse_duration(text).map(Budget::time).ok_or_else(|| error.to_string()))
}

fn parse_time(text: &str) -> Result<Duration, String> {
    let time = parse_duration(text).filter(|time| *time >= Duration::from_millis(50));
    time.ok_or_else(|| "expected a duration of at least 50ms, such as 1s".to_owned())
}

pub(crate) fn cmd_explore(args: &ExploreArgs) -> Result<ExitCode> {
    let kept = kept::read(Path::new(kept::FILE))?;
    let program = args.program.clone().or_else(Program::here).filter(|_| args.exec.is_none());
    let reports = match (&args.exec, program) {
        (Some(exec), _) => process::explore(args, process::Source::Shell(exec), kept)?,
        (None, Some(program)) => process::explore(args, process::Source::Program(&program), kept)?,
        (None, None) => cargo::explore(args, &kept)?,
    };
    reports.print(args.output);
    if let Some(error) = reports.error() {
        return Err(Error::usage(format!("the operator cannot be explored: {error}")).hint(hint(&error)));
    }
    let schedules = reports.schedules();
    if let Some(name) = &args.keep {
        let added = kept::add(Path::new(kept::FILE), name, &schedules)?;
        print_labeled("note", &format!("{added} schedules added to {}", kept::FILE));
    }
    Ok(if schedules.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns the remedy of an error of an exploration.
fn hint(error: &str) -> &'static str {
    match error {
        error if error.contains("serves no kind") => "pass the definitions of the kinds: --crds FILE",
        error if error.contains("not found") => "pass the path of the program: --exec ./manager",
        error if error.contains("in use") => "pass free ports to the operator: $PORT1 to $PORT4, or --jobs 1",
        error if error.contains("has ended") => "run the command alone; the operator has to run until it is stopped",
        error if error.contains("KUBECONFIG") => "check that the operator reads the variable KUBECONFIG",
        error if error.contains("is rejected") => "fix the samples, or pass others: --samples FILE",
        _ => "see docs/explore-any-language.md",
    }
}

impl Reports {
    fn print(&self, format: Format) {
        match format {
            Format::Text => self.texts.iter().for_each(|text| print_line(text.trim_end())),
            Format::Json => print_line(&format!("{:#}", json!({"reports": self.values}))),
            Format::Junit => {
                let inner = |suite: &String| {
                    suite.lines().filter(|line| !line.starts_with("<?xml")).collect::<Vec<_>>().join("\n")
                };
                let suites: Vec<String> = self.suites.iter().map(inner).collect();
                let head = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"flyball explore\">";
                print_line(&format!("{head}\n{}\n</testsuites>", suites.join("\n")));
            }
        }
    }

    fn error(&self) -> Option<String> {
        self.values.iter().find_map(|report| report["error"].as_str().map(str::to_owned))
    }

    /// Returns the schedules of all findings.
    fn schedules(&self) -> Vec<String> {
        let findings = self.values.iter().flat_map(|report| report["findings"].as_array().into_iter().flatten());
        findings.filter_map(|finding| finding["schedule"].as_str().map(str::to_owned)).collect()
    }
}
