//! The flags of an operator of roles and playbooks, besides those of all operators.

use crate::error::Result;
use crate::operator::operator;
use crate::watches::{Defaults, Executor, LogEvents, Watches};
use flyball::Operator;
use flyball_core::time::parse_unsigned_duration;
use std::num::NonZeroUsize;
use std::path::Path;
use std::time::Duration;

/// An operator that reconciles objects with Ansible roles and playbooks.
#[derive(Clone, Debug, clap::Args)]
pub struct Flags {
    /// Executor of roles and playbooks
    #[arg(long, value_enum, default_value = "auto")]
    executor: Executor,
    /// Interval of reconciles without a change, unless `reconcilePeriod` in `watches.yaml` or an annotation sets it; 0
    /// disables them
    #[arg(long, value_parser = duration, default_value = "10h", value_name = "TIME")]
    reconcile_period: Duration,
    /// Concurrent reconciles of a kind, unless `MAX_CONCURRENT_RECONCILES_<KIND>_<GROUP>` sets them
    #[arg(long, default_value_t = Defaults::default().max_concurrent_reconciles, value_name = "N")]
    max_concurrent_reconciles: NonZeroUsize,
    /// Verbosity of Ansible, unless `ANSIBLE_VERBOSITY_<KIND>_<GROUP>` or an annotation sets it
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

impl Flags {
    /// Creates the operator of a `watches.yaml` with these flags.
    ///
    /// # Errors
    ///
    /// As [`operator()`].
    pub fn operator(&self, watches: impl AsRef<Path>) -> Result<Operator> {
        let defaults = Defaults {
            reconcile_period: self.reconcile_period,
            max_concurrent_reconciles: self.max_concurrent_reconciles,
            verbosity: self.ansible_verbosity,
            log_events: self.ansible_log_events,
        };
        operator(&Watches::read(watches)?.defaults(defaults), self.executor)
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    parse_unsigned_duration(text).ok_or_else(|| format!("invalid duration {text:?}: use a duration such as 30s or 10h"))
}
