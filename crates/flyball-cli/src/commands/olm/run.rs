//! `flyball olm run`: the manager in the foreground, with the command line of every operator.

use crate::catalog::images::Images;
use crate::error::Result;
use clap::Args;
use flyball::Operator;
use flyball_core::Clock;
use flyball_lifecycle::packages::{PackageServer, Reach};
use flyball_lifecycle::source::Sources;
use flyball_lifecycle::{Isolation, NAME, Settings};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;

/// Run the lifecycle manager on this machine against the current context, with the flags of every operator
///
/// The manager has the permissions of the kubeconfig. `flyball olm install` runs it with its own permissions only.
/// `flyball olm run manifests` prints its CRDs, roles and policies, `flyball olm run --help` its flags.
#[derive(Args, Debug)]
#[command(
    disable_help_flag = true,
    after_help = "Examples:
  flyball olm run
  flyball olm run --global-namespace catalogs --metrics-addr 0
  flyball olm run manifests"
)]
pub(super) struct RunArgs {
    /// Arguments of the manager
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<OsString>,
}

/// The operator lifecycle manager: installs, upgrades and removes operators with the APIs of OLM.
#[derive(Args, Debug)]
struct Flags {
    /// Namespace whose CatalogSources all namespaces see
    #[arg(long, value_name = "NAMESPACE", default_value = super::NAMESPACE)]
    global_namespace: String,
    /// Resolve no Subscription of a namespace unless all of them can be satisfied, as OLM does
    #[arg(long)]
    all_or_nothing: bool,
    /// Use HTTP without TLS for registries of other machines
    #[arg(long)]
    insecure_registries: bool,
    /// Publish PackageManifests to a control plane on this machine
    #[arg(long)]
    local_packages: bool,
    /// Publish PackageManifests from the pod of the manager, on this port
    #[arg(long, value_name = "PORT", conflicts_with = "local_packages")]
    package_port: Option<u16>,
}

impl Flags {
    fn operator(&self) -> Operator {
        let images = Images { is_insecure: self.insecure_registries };
        let mut settings = Settings::new(Arc::new(Sources::with_images(Arc::new(images))));
        settings.global_namespace.clone_from(&self.global_namespace);
        if self.all_or_nothing {
            settings.isolation = Isolation::Namespace;
        }
        settings.reach = match self.package_port {
            Some(port) => Some(Reach::Pod { selector: pod_labels(), port }),
            None => self.local_packages.then_some(Reach::Local),
        };
        if settings.reach.is_some() {
            settings.packages = Some(PackageServer::new(&self.global_namespace, Clock::system()));
        }
        flyball_lifecycle::operator(&settings)
    }
}

/// Returns the labels of the pods of the manager.
fn pod_labels() -> BTreeMap<String, String> {
    BTreeMap::from([("app.kubernetes.io/name".to_owned(), NAME.to_owned())])
}

pub(super) fn cmd_run(args: RunArgs) -> Result<ExitCode> {
    Ok(run(args.args))
}

/// Runs the manager with these arguments until it is stopped.
pub(super) fn run(args: Vec<OsString>) -> ExitCode {
    Operator::main_with_from(std::iter::once(NAME.into()).chain(args), |flags: Flags| flags.operator())
}
