//! `flyball olm install`.

use super::local::Record;
use super::manager::{self, ManagedCluster};
use super::original::OriginalOlm;
use crate::cluster::connection::{ContextArgs, block_on};
use crate::cluster::rollout::{self, AppliedObject};
use crate::cluster::safety;
use crate::duration::parse_flag;
use crate::error::{Error, Result, ResultExt};
use crate::operator::overlay::parse_image;
use crate::render::output::Output;
use crate::render::terminal::{Style, paint, print_labeled, print_line};
use clap::Args;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use serde::Serialize;
use serde_json::{Value, json};
use std::time::Duration;

/// Install the lifecycle manager: CRDs, roles, policies, and the manager
///
/// On an embedded control plane, the manager is a process of flyball on this machine, with its own permissions only; it
/// ends with the control plane. On other clusters, it is a Deployment with an image of flyball. A second run changes
/// nothing. While OLM runs in the cluster, nothing is installed.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flyball olm install
  flyball olm install --image registry.example.com/flyball:1.0
  flyball olm install -o json")]
pub(super) struct InstallArgs {
    #[command(flatten)]
    connection: ContextArgs,
    /// Namespace of the manager, whose catalogs all namespaces see
    #[arg(short, long, default_value = super::NAMESPACE)]
    namespace: String,
    /// Image of flyball; required on clusters other than embedded control planes of this machine
    #[arg(long, value_name = "REF", value_parser = parse_image)]
    image: Option<String>,
    /// Timeout for readiness
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = parse_flag)]
    timeout: Duration,
    /// Print only errors
    #[arg(short, long, conflicts_with = "output")]
    quiet: bool,
    /// Output format
    #[arg(short, long, value_enum)]
    output: Option<Output>,
}

/// Result of an installation.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct InstallReport {
    namespace: String,
    objects: Vec<AppliedObject>,
    manager: manager::ManagerState,
}

pub(super) fn cmd_install(args: &InstallArgs) -> Result<()> {
    block_on(async {
        let place = ManagedCluster::connect(&args.connection).await?;
        check_place(&place, args)?;
        let remark = check_absence_of_olm(&place).await?;
        let installation = manager::installation(&args.namespace, args.image.as_deref()).await?;
        let mut objects = installation.objects(false);
        match args.image {
            Some(_) => manager::set_command(&mut objects),
            None => objects = manager::without_pod(objects),
        }
        keep_namespace(&place, &mut objects).await?;
        safety::check(&place.connection, &installation.definitions(), false).await?;
        let mut applied = Vec::new();
        for object in &objects {
            let (object, outcome) = place.connection.apply_with(object, false, false).await?;
            applied.push(AppliedObject { object, outcome });
        }
        match &args.image {
            Some(_) => {
                for deployment in objects.iter().filter(|object| object["kind"] == "Deployment") {
                    rollout::until_ready(&place.connection, deployment, args.timeout, true).await?;
                }
            }
            None => drop(start(&place, args, &installation).await?),
        }
        report(&place, args, applied).await?;
        if let Some(remark) = remark {
            print_labeled("note", &remark);
        }
        Ok(())
    })
}

/// Starts the process, unless it runs.
async fn start(
    place: &ManagedCluster,
    args: &InstallArgs,
    installation: &crate::operator::installation::Installation,
) -> Result<Record> {
    let (Some(process), Some(cluster)) = (place.process()?, &place.local) else {
        return Err(Error::new("the cluster does not run on this machine"));
    };
    match process.find()? {
        Some(record) => Ok(record),
        None => process.start(cluster, &manager::local_flags(installation), args.timeout).await,
    }
}

fn check_place(place: &ManagedCluster, args: &InstallArgs) -> Result<()> {
    match (&place.local, &args.image) {
        (None, None) => Err(Error::usage("not an embedded control plane of this machine: pass --image REF")
            .hint("build an image of flyball: flyball image build; or run the manager here: flyball olm run")),
        _ => Ok(()),
    }
}

/// Fails if OLM runs in the cluster: two managers would install and remove the same operators. Returns a remark about
/// what is left of it.
async fn check_absence_of_olm(place: &ManagedCluster) -> Result<Option<String>> {
    let original = OriginalOlm::find(place).await?;
    if original.is_active() {
        return Err(Error::new(format!("OLM runs in the cluster: {}", original.names()))
            .hint(format!("stop OLM before: {}", original.stop_command()))
            .hint("or keep it: `flyball olm why`, `status`, `approve` and `rehearse` work with it as well"));
    }
    Ok(original.package_remark())
}

/// Does not apply a namespace that somebody else created, so that it is not deleted with the manager.
async fn keep_namespace(place: &ManagedCluster, objects: &mut Vec<Value>) -> Result<()> {
    let Some(at) = objects.iter().position(|object| object["kind"] == "Namespace") else { return Ok(()) };
    let name = objects[at]["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let namespaces: Api<Namespace> = Api::all(place.connection.client.clone());
    let found = namespaces.get_opt(&name).await.context(format!("cannot read Namespace {name}"))?;
    if found.is_some_and(|found| !crate::commands::deploy::is_created_by_flyball(&found)) {
        objects.remove(at);
    }
    Ok(())
}

async fn report(place: &ManagedCluster, args: &InstallArgs, objects: Vec<AppliedObject>) -> Result<()> {
    let manager = manager::state(place, &args.namespace).await?;
    if let Some(output) = args.output {
        return output.print(&InstallReport { namespace: args.namespace.clone(), objects, manager });
    }
    if args.quiet {
        return Ok(());
    }
    let count = |outcome: &str| objects.iter().filter(|object| json!(object.outcome) == outcome).count();
    print_line(&format!("lifecycle manager is {}", paint(Style::Good, "ready")));
    print_line(&format!("  {:<10} {} {}", "manager", manager.kind, manager.name));
    print_line(&format!("  {:<10} {}", "namespace", args.namespace));
    print_line(&format!("  {:<10} {} created, {} unchanged", "objects", count("created"), count("unchanged")));
    print_line(&format!("  {:<10} flyball olm status", "try"));
    Ok(())
}
