//! The operator of a project with a `watches.yaml`.

use clap::Error;
use clap::error::ErrorKind;
use flyball::Operator;
use flyball_ansible::{Defaults, Executor, LogEvents, Watches, operator};
use flyball_core::time::parse_unsigned_duration;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// An operator that reconciles objects with Ansible roles and playbooks.
#[derive(Debug, clap::Args)]
#[command(version)]
struct Args {
    /// File that maps kinds to roles and playbooks
    #[arg(long, default_value = "watches.yaml", value_name = "FILE")]
    watches_file: PathBuf,
    /// Executor of roles and playbooks
    #[arg(long, value_enum, default_value = "auto")]
    executor: Executor,
    /// Interval of reconciles without a change, unless `reconcilePeriod` in `watches.yaml` or an annotation sets it; 0
    /// disables them
    #[arg(long, value_parser = duration, default_value = "10h", value_name = "TIME")]
    reconcile_period: Duration,
    /// Concurrent reconciles of a kind, unless MAX_CONCURRENT_RECONCILES_<KIND>_<GROUP> sets them
    #[arg(long, default_value_t = Defaults::default().max_concurrent_reconciles, value_name = "N")]
    max_concurrent_reconciles: NonZeroUsize,
    /// Verbosity of Ansible, unless ANSIBLE_VERBOSITY_<KIND>_<GROUP> or an annotation sets it
    #[arg(
        long,
        default_value_t = Defaults::default().verbosity,
        value_parser = clap::value_parser!(u8).range(0..=7),
        value_name = "0-7"
    )]
    ansible_verbosity: u8,
    /// Tasks in the log, besides failed ones
    #[arg(long, value_enum, default_value = "nothing")]
    ansible_log_events: LogEvents,
}

fn duration(text: &str) -> Result<Duration, String> {
    parse_unsigned_duration(text).ok_or_else(|| format!("invalid duration {text:?}: use a duration such as 30s or 10h"))
}

fn main() -> ExitCode {
    Operator::main_with(|args: Args| {
        let defaults = Defaults {
            reconcile_period: args.reconcile_period,
            max_concurrent_reconciles: args.max_concurrent_reconciles,
            verbosity: args.ansible_verbosity,
            log_events: args.ansible_log_events,
        };
        let watches = Watches::read(args.watches_file).map(|watches| watches.defaults(defaults));
        let operator = watches.and_then(|watches| operator(&watches, args.executor));
        operator.unwrap_or_else(|error| <Error>::raw(ErrorKind::Io, format!("{error}\n")).exit())
    })
}
