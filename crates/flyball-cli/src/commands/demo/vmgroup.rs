//! VmGroup, the operator of virtual machines, on a simulated vCenter: creation, scaling, repair and deletion.

use super::cluster::DemoCluster;
use super::show::{MANAGER, POLL_INTERVAL, STEP_TIMEOUT, print_done, print_title, timeout_error, wait_until};
use crate::cluster::wait;
use crate::error::{Error, Result, ResultExt};
use crate::render::terminal::{Style, paint, print_line};
use ::vmgroup::NAME as OPERATOR;
use ::vmgroup::api::vmgroup_v1alpha1::{Phase, VmGroup};
use ::vmgroup::controllers::vmgroup::{VmGroupReconciler, controller};
use ::vmgroup::converge::Groups;
use ::vmgroup::simulator::{self, Simulator, TaskTimes};
use ::vmgroup::vsphere::{self, Site, Timing};
use flyball::Operator;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::core::Status;
use serde_json::{Value, json};
use std::time::Duration;

/// Resync interval of groups.
const RESYNC: Duration = Duration::from_secs(1);
const NAME: &str = "vg-1";

/// Creates a simulated vCenter with realistic latencies.
pub(super) fn vcenter() -> Simulator {
    Simulator::new(simulator::Options {
        tasks: TaskTimes {
            clone: Duration::from_millis(250),
            power: Duration::from_millis(150),
            destroy: Duration::from_millis(150),
        },
        ..simulator::Options::default()
    })
}

/// Creates the operator for the simulated vCenter.
pub(super) fn operator(vcenter: &Simulator) -> Result<Operator> {
    let timing = Timing { poll: Duration::from_millis(50), ..Timing::default() };
    let client = vsphere::Client::new(Simulator::credentials(), Site::default(), timing, vcenter.transport());
    let groups = VmGroupReconciler::new(Groups::new(client.context("cannot create a client of vCenter")?, 3), RESYNC);
    Ok(Operator::new(OPERATOR).controller(controller(groups)))
}

pub(super) fn sample() -> Value {
    json!({
        "apiVersion": "vm.codeconnect.vmworld.com/v1alpha1",
        "kind": "VmGroup",
        "metadata": {"name": NAME},
        "spec": {"cpu": 1, "memory": 1, "replicas": 3, "template": "vm-operator-template"},
    })
}

struct Show<'a> {
    cluster: &'a DemoCluster,
    vcenter: &'a Simulator,
    groups: Api<VmGroup>,
}

/// Runs the show.
pub(super) async fn run(cluster: &DemoCluster, vcenter: &Simulator) -> Result<()> {
    let groups = Api::namespaced(cluster.admin.clone(), cluster.namespace);
    let show = Show { cluster, vcenter, groups };

    print_title("Apply vg-1: three machines of one CPU and 1 GiB");
    let applied = Patch::Apply(sample());
    show.groups.patch(NAME, &PatchParams::apply(MANAGER), &applied).await.context("cannot apply vg-1")?;
    show.running("three machines are running", 3).await?;

    for (replicas, word) in [(5, "up to five"), (2, "down to two")] {
        print_title(&format!("Scale {word}, through the scale subresource"));
        let scale = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        show.groups.patch_scale(NAME, &PatchParams::default(), &scale).await.context("cannot scale vg-1")?;
        show.running(&format!("{replicas} machines are running"), replicas).await?;
    }

    show.show_repair().await?;
    show.show_rejection().await?;
    show.delete().await
}

impl Show<'_> {
    /// Shows the table until the group is in its desired state.
    async fn running(&self, what: &str, replicas: i32) -> Result<()> {
        self.wait_until(what, |group| {
            let status = group.status.as_ref();
            let vms = self.vcenter.vms();
            group.spec.replicas == replicas
                && status.is_some_and(|status| {
                    status.phase == Some(Phase::Running)
                        && status.current_replicas == Some(replicas)
                        && status.desired_replicas == Some(replicas)
                })
                && i32::try_from(vms.len()) == Ok(replicas)
                && vms.iter().all(|vm| vm.powered_on)
        })
        .await
    }

    /// Shows the table until the group meets a condition.
    async fn wait_until(&self, what: &str, holds: impl Fn(&VmGroup) -> bool) -> Result<()> {
        wait_until(self.cluster, &self.groups, NAME, what, |group| std::future::ready(holds(group))).await
    }

    async fn show_repair(&self) -> Result<()> {
        let vcenter = self.vcenter;
        let first = vcenter.vms().into_iter().next().ok_or_else(|| Error::new("no machine to power off"))?;
        print_title(&format!("Power off {} behind the operator's back", first.name));
        if !vcenter.power_off(&first.name) {
            return Err(Error::new(format!("machine {} cannot be powered off", first.name)));
        }
        // The operator detects it at the next resync, so the status is outdated at first.
        self.wait_until("the operator detected it", |group| {
            group.status.as_ref().is_some_and(|status| status.current_replicas == Some(1))
                || vcenter.calls().iter().any(|(call, n)| call.contains("PowerOn") && *n > 0)
        })
        .await?;
        self.running("it is powered on again", 2).await
    }

    async fn show_rejection(&self) -> Result<()> {
        print_title("Apply an invalid object: five CPUs, where four are allowed");
        let mut invalid = sample();
        invalid["metadata"]["name"] = "too-large".into();
        invalid["spec"]["cpu"] = 5.into();
        let response = self.groups.patch("too-large", &PatchParams::apply(MANAGER), &Patch::Apply(invalid)).await;
        match response {
            Err(kube::Error::Api(status)) if status.code == 422 && names_field(&status, "spec.cpu") => {
                print_line(&format!("  {}", paint(Style::Faint, &status.message)));
                print_done("rejected, with the field's name");
                Ok(())
            }
            Err(error) => Err(error).context("step \"rejected, with the field's name\" got an unexpected response"),
            Ok(_) => Err(Error::new("step \"rejected, with the field's name\": the object was accepted")),
        }
    }

    async fn delete(&self) -> Result<()> {
        print_title("Delete vg-1");
        let vcenter = self.vcenter;
        let folder = format!("{}-{NAME}", self.cluster.namespace);
        self.groups.delete(NAME, &DeleteParams::default()).await.context("cannot delete vg-1")?;
        let (mut machines, mut folder_there) = (vcenter.vms().len(), true);
        let gone = wait::poll_until(STEP_TIMEOUT, POLL_INTERVAL, async || {
            // The object is read first, so that deletions in vCenter are known to precede its deletion.
            let group = self.groups.get_opt(NAME).await.context("cannot read vg-1")?;
            let left = vcenter.vms().len();
            if left != machines {
                print_line(&format!("  {left} machines left"));
                machines = left;
            }
            if folder_there && !vcenter.folders().contains(&folder) {
                if left > 0 {
                    return Err(Error::new(format!("folder {folder} was deleted before its machines")));
                }
                print_line(&format!("  folder {folder} deleted"));
                folder_there = false;
            }
            match group {
                None if folder_there => Err(Error::new(format!("vg-1 was deleted but folder {folder} was not"))),
                None => {
                    print_line("  finalizer removed, vg-1 deleted");
                    Ok(Ok(()))
                }
                Some(group) => Ok(Err(group)),
            }
        });
        gone.await?.or_else(|group| Err(timeout_error("nothing is left", &group)?))?;
        print_done("nothing is left");
        Ok(())
    }
}

/// Commands to try.
pub(super) const COMMANDS: [&str; 4] =
    ["get vg -w", "scale vg/vg-1 --replicas=4", "describe vg vg-1", "delete vg vg-1"];

/// Returns true if the API server rejected an object because of a field.
fn names_field(status: &Status, field: &str) -> bool {
    status.details.iter().flat_map(|details| &details.causes).any(|cause| cause.field == field)
}
