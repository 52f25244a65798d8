//! The `vmgroup` program: the operator with a vCenter on the network.

use clap::Args;
use flyball::Operator;
use flyball_core::time::parse_unsigned_duration;
use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;
use vmgroup::controllers::vmgroup::{VmGroupReconciler, deferred_controller};
use vmgroup::converge::Groups;
use vmgroup::vsphere::{Client, Credentials, Site, Timing, https};

/// Manages groups of virtual machines in vCenter.
///
/// The environment variables VC_HOST, VC_USER and VC_PASS hold the address of vCenter and the credentials.
#[derive(Args, Debug)]
#[command(version)]
struct Flags {
    /// Interval at which groups are reconciled again, to detect changes in vCenter
    #[arg(long, env = "VC_RESYNC", default_value = "5m", value_parser = parse_resync)]
    resync: Duration,
    /// Maximum number of concurrent operations in vCenter
    #[arg(long, env = "VC_OPERATIONS", default_value_t = 3, value_parser = parse_operations)]
    vcenter_operations: usize,
    /// Do not verify vCenter's certificate
    #[arg(long, env = "VC_INSECURE")]
    insecure: bool,
    /// Datacenter; needed where there are several
    #[arg(long, env = "VC_DATACENTER")]
    datacenter: Option<String>,
    /// Folder that holds the groups' folders
    #[arg(long, env = "VC_FOLDER", default_value = "vm-operator")]
    folder: String,
    /// Resource pool below the datacenter's hosts, such as cluster-1/Resources; needed where there are several clusters
    #[arg(long, env = "VC_RESOURCE_POOL")]
    resource_pool: Option<String>,
}

fn main() -> ExitCode {
    Operator::main_with(|flags: Flags| vmgroup::operator(deferred_controller(|| connect(flags))))
}

fn connect(flags: Flags) -> Result<VmGroupReconciler<Client>, Box<dyn Error + Send + Sync>> {
    let site = Site { datacenter: flags.datacenter, folder: flags.folder, resource_pool: flags.resource_pool };
    let client = Client::new(Credentials::from_env()?, site, Timing::default(), https(flags.insecure)?)?;
    Ok(VmGroupReconciler::new(Groups::new(client, flags.vcenter_operations), flags.resync))
}

fn parse_operations(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|n| *n > 0).ok_or_else(|| "must be an integer, 1 or more".into())
}

fn parse_resync(text: &str) -> Result<Duration, String> {
    let resync = parse_unsigned_duration(text).filter(|resync| *resync >= Duration::from_secs(1));
    resync.ok_or_else(|| "must be a second or more, such as 30s or 5m".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resync_period_has_a_minimum() {
        assert_eq!(parse_resync("5m"), Ok(Duration::from_secs(300)));
        assert_eq!(parse_resync("1h30s"), Ok(Duration::from_secs(3630)));
        for wrong in ["", "5", "0s", "-5m", "999ms", "1h 30s"] {
            assert!(parse_resync(wrong).is_err(), "{wrong}");
        }
    }
}
