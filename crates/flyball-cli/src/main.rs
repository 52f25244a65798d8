//! The `flyball` program.
//!
//! Each command is a file in `commands`; this one parses the command line and returns the exit code: 0 success, 1
//! failure, 2 usage error, 130 interrupted.

mod allocator;
mod bundle;
mod cases;
mod catalog;
mod chart;
mod cluster;
mod commands;
mod duration;
mod error;
mod explore;
mod files;
mod image;
mod operator;
mod project;
#[cfg(test)]
mod reference;
mod render;
mod scorecard;
mod testing;
mod web;
mod why;

use clap::{ArgAction, CommandFactory, Parser};
use commands::Command;
use error::Result;
use std::process::ExitCode;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Build, test and run Kubernetes operators
#[derive(Debug, Parser)]
#[command(name = "flyball", version, arg_required_else_help = true, after_help = duration::HELP)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Increase log output on standard error: -v for warnings and steps, -vv for more, -vvv for everything
    #[arg(short, long, global = true, action = ArgAction::Count)]
    verbose: u8,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args_os().map(|text| text.to_string_lossy().into_owned()).collect();
    if let Some(code) = commands::helm_command(&arguments) {
        return end(Ok(code));
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => match commands::replacement_error(&arguments[1..]).filter(|_| error.use_stderr()) {
            Some(error) => return fail(&error),
            None => error.exit(),
        },
    };
    // An operator has a log of its own.
    if !cli.command.has_own_log() {
        log(cli.verbose, matches!(cli.command, Command::Cluster(_) | Command::Replay(_)));
    }
    end(cli.command.run(cli.verbose, Cli::command))
}

/// Returns the exit code of a command, and prints its error.
fn end(done: Result<ExitCode>) -> ExitCode {
    match done.and_then(|code| render::terminal::check_output().map(|()| code)) {
        Ok(code) => code,
        Err(error) => fail(&error),
    }
}

fn fail(error: &error::Error) -> ExitCode {
    render::terminal::print_error(error);
    ExitCode::from(error.kind().exit_code())
}

/// Logs to standard error, so that standard output has the result only.
fn log(verbose: u8, serves: bool) {
    // Data directories are always reported, regardless of verbosity.
    let quietest = if serves { LevelFilter::WARN } else { LevelFilter::ERROR };
    let ours = [quietest, LevelFilter::INFO, LevelFilter::DEBUG, LevelFilter::TRACE];
    let others = [LevelFilter::OFF, LevelFilter::WARN, LevelFilter::WARN, LevelFilter::DEBUG];
    let at = usize::from(verbose).min(3);
    let targets = std::env::var("RUST_LOG").ok().and_then(|text| text.parse::<Targets>().ok());
    let filter = targets.unwrap_or_else(|| {
        let crates = ["flyball", "flyball_server", "flyball_cluster", "vmgroup"];
        Targets::new().with_default(others[at]).with_targets(crates.map(|name| (name, ours[at])))
    });
    let colored = render::terminal::shows_colors(&std::io::stderr());
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(colored);
    tracing_subscriber::registry().with(lines).with(filter).init();
}
