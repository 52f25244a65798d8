//! VmGroup, the operator of virtual machines, on a simulated vCenter: creation, scaling, repair and deletion.

use super::show::{GLANCE, MANAGER, STEP_TIMEOUT, done, late, title, until};
use super::stage::Stage;
use crate::cluster::wait;
use crate::error::{Error, Result, ResultExt};
use crate::render::terminal::{Style, paint, say};
use ::vmgroup::NAME as OPERATOR;
use ::vmgroup::api::vmgroup_v1alpha1::{Phase, VmGroup};
use ::vmgroup::controllers::vmgroup::{VmGroupReconciler, controller};
use ::vmgroup::converge::Groups;
use ::vmgroup::simulator::{self, Simulator, TaskTimes};
use ::vmgroup::vsphere::{self, Site, Timing};
use flyball::Operator;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
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
    let groups = VmGroupReconciler::new(Groups::new(client.when("cannot create a client of vCenter")?, 3), RESYNC);
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
    stage: &'a Stage,
    vcenter: &'a Simulator,
    groups: Api<VmGroup>,
}

/// Runs the show.
pub(super) async fn run(stage: &Stage, vcenter: &Simulator) -> Result<()> {
    let groups = Api::namespaced(stage.admin.clone(), stage.namespace);
    let show = Show { stage, vcenter, groups };

    title("Apply vg-1: three machines of one CPU and 1 GiB");
    let applied = Patch::Apply(sample());
    show.groups.patch(NAME, &PatchParams::apply(MANAGER), &applied).await.when("cannot apply vg-1")?;
    show.running("three machines are running", 3).await?;

    for (replicas, word) in [(5, "up to five"), (2, "down to two")] {
        title(&format!("Scale {word}, through the scale subresource"));
        let scale = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        show.groups.patch_scale(NAME, &PatchParams::default(), &scale).await.when("cannot scale vg-1")?;
        show.running(&format!("{replicas} machines are running"), replicas).await?;
    }

    show.heal().await?;
    show.refuse().await?;
    show.delete().await
}

impl Show<'_> {
    /// Shows the table until the group is in its desired state.
    async fn running(&self, what: &str, replicas: i32) -> Result<()> {
        self.until(what, |group| {
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
    async fn until(&self, what: &str, holds: impl Fn(&VmGroup) -> bool) -> Result<()> {
        until(self.stage, &self.groups, NAME, what, |group| std::future::ready(holds(group))).await
    }

    async fn heal(&self) -> Result<()> {
        let vcenter = self.vcenter;
        let first = vcenter.vms().into_iter().next().ok_or_else(|| Error::new("no machine to power off"))?;
        title(&format!("Power off {} behind the operator's back", first.name));
        if !vcenter.power_off(&first.name) {
            return Err(Error::new(format!("machine {} cannot be powered off", first.name)));
        }
        // The operator detects it at the next resync, so the status is outdated at first.
        self.until("the operator detected it", |group| {
            group.status.as_ref().is_some_and(|status| status.current_replicas == Some(1))
                || vcenter.calls().iter().any(|(call, n)| call.contains("PowerOn") && *n > 0)
        })
        .await?;
        self.running("it is powered on again", 2).await
    }

    async fn refuse(&self) -> Result<()> {
        title("Apply an invalid object: five CPUs, where four are allowed");
        let mut invalid = sample();
        invalid["metadata"]["name"] = "too-large".into();
        invalid["spec"]["cpu"] = 5.into();
        let response = self.groups.patch("too-large", &PatchParams::apply(MANAGER), &Patch::Apply(invalid)).await;
        match response {
            Err(kube::Error::Api(status)) if status.code == 422 && status.message.contains("spec.cpu") => {
                say(&format!("  {}", paint(Style::Faint, &status.message)));
                done("rejected, with the field's name");
                Ok(())
            }
            Err(error) => Err(error).when("step \"rejected, with the field's name\" got an unexpected response"),
            Ok(_) => Err(Error::new("step \"rejected, with the field's name\": the object was accepted")),
        }
    }

    async fn delete(&self) -> Result<()> {
        title("Delete vg-1");
        let vcenter = self.vcenter;
        let folder = format!("{}-{NAME}", self.stage.namespace);
        self.groups.delete(NAME, &DeleteParams::default()).await.when("cannot delete vg-1")?;
        let (mut machines, mut folder_there) = (vcenter.vms().len(), true);
        let gone = wait::until(STEP_TIMEOUT, GLANCE, async || {
            // The object is read first, so that deletions in vCenter are known to precede its deletion.
            let group = self.groups.get_opt(NAME).await.when("cannot read vg-1")?;
            let left = vcenter.vms().len();
            if left != machines {
                say(&format!("  {left} machines left"));
                machines = left;
            }
            if folder_there && !vcenter.folders().contains(&folder) {
                if left > 0 {
                    return Err(Error::new(format!("folder {folder} was deleted before its machines")));
                }
                say(&format!("  folder {folder} deleted"));
                folder_there = false;
            }
            match group {
                None if folder_there => Err(Error::new(format!("vg-1 was deleted but folder {folder} was not"))),
                None => {
                    say("  finalizer removed, vg-1 deleted");
                    Ok(Ok(()))
                }
                Some(group) => Ok(Err(group)),
            }
        });
        gone.await?.or_else(|group| Err(late("nothing is left", &group)?))?;
        done("nothing is left");
        Ok(())
    }
}

/// Commands to try.
pub(super) const COMMANDS: [&str; 4] =
    ["get vg -w", "scale vg/vg-1 --replicas=4", "describe vg vg-1", "delete vg vg-1"];
