//! The flags of an operator of roles and playbooks, besides those of all operators.

use crate::error::Result;
use crate::metrics::ROLE_METRICS_ADDRESS;
use crate::operator::operator;
use crate::watches::{Defaults, Executor, LogEvents, Watches};
use flyball::Operator;
use flyball_core::time::parse_unsigned_duration;
use std::ffi::OsString;
use std::fmt;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::Path;
use std::time::Duration;

/// The commands of [`Operator::main`] that do not run the operator.
const DESCRIBING_COMMANDS: [&str; 2] = ["manifests", "describe"];

/// Command-line flags of an Ansible operator.
#[derive(Clone, Debug, clap::Args)]
#[command(about = "An operator that reconciles objects with Ansible roles and playbooks", long_about = None)]
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
    /// Address on the loopback interface at which the module `osdk_metric` reaches the operator; 0 for none
    #[arg(long, value_parser = address, default_value_t = Address(Some(ROLE_METRICS_ADDRESS)), value_name = "ADDRESS")]
    role_metrics_addr: Address,
    /// Describe the operator even if files of some entries cannot be decrypted, without their permissions
    #[arg(long, hide = true)]
    allow_locked_entries: bool,
}

/// An address to listen on, or none.
#[derive(Clone, Copy, Debug)]
struct Address(Option<SocketAddr>);

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(address) => address.fmt(f),
            None => f.write_str("0"),
        }
    }
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
        let mut watches = Watches::read(watches)?.defaults(defaults).role_metrics_address(self.role_metrics_addr.0);
        if self.allow_locked_entries || !is_described(std::env::args_os()) {
            watches = watches.allow_locked_entries();
        }
        operator(&watches, self.executor)
    }
}

/// Returns true if the arguments of a program may have a command of operators that describes instead of running.
///
/// An operator is created from its flags alone, which may precede or follow the command. The value of a flag counts as
/// well: manifests without a part of the permissions are worse than an error.
fn is_described(mut arguments: impl Iterator<Item = OsString>) -> bool {
    arguments.any(|argument| DESCRIBING_COMMANDS.iter().any(|command| argument == *command))
}

fn duration(text: &str) -> Result<Duration, String> {
    parse_unsigned_duration(text).ok_or_else(|| format!("invalid duration {text:?}: use a duration such as 30s or 10h"))
}

/// Parses an address of the loopback interface: other machines must not change metrics.
fn address(text: &str) -> Result<Address, String> {
    match text.parse() {
        Ok(address) if SocketAddr::ip(&address).is_loopback() => Ok(Address(Some(address))),
        _ if text == "0" => Ok(Address(None)),
        _ => Err("expected an address of the loopback interface, such as 127.0.0.1:5050, or 0".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_that_describe_are_found_among_the_flags() {
        for (line, expected) in [
            ("ansible-operator", false),
            ("ansible-operator run --namespace a", false),
            ("ansible-operator manifests", true),
            ("flyball operate watches.yaml --namespace a describe", true),
        ] {
            assert_eq!(is_described(line.split(' ').map(OsString::from)), expected, "{line}");
        }
    }

    #[test]
    fn metrics_are_changed_only_on_the_same_machine() {
        for (text, expected) in [("127.0.0.1:5051", "127.0.0.1:5051"), ("[::1]:1", "[::1]:1"), ("0", "0")] {
            assert_eq!(address(text).unwrap().to_string(), expected);
        }
        for text in ["0.0.0.0:5050", "10.0.0.1:5050", ":5050", "5050", "localhost:5050"] {
            assert!(address(text).is_err(), "{text}");
        }
    }
}
