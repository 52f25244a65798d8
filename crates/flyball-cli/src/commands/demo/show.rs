//! What is shown, step by step. A step that does not come to pass ends the show and says which it was.

use super::installed::Installed;
use super::stage::Stage;
use super::table;
use crate::error::{Error, Result, ResultExt};
use crate::terminal::{Board, Style, paint, say};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use std::fs;
use std::time::Duration;
use tokio::time::{Instant, sleep};
use vmgroup::resource::{Phase, VmGroup};

/// How long a step may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often is looked.
const GLANCE: Duration = Duration::from_millis(25);
const NAME: &str = "vg-1";
const MANAGER: &str = "flyball-demo";

fn sample() -> Value {
    json!({
        "apiVersion": "vm.codeconnect.vmworld.com/v1alpha1",
        "kind": "VmGroup",
        "metadata": {"name": NAME},
        "spec": {"cpu": 1, "memory": 1, "replicas": 3, "template": "vm-operator-template"},
    })
}

struct Show<'a> {
    stage: &'a Stage,
    installed: &'a Installed,
    groups: Api<VmGroup>,
}

/// Runs the show.
pub(super) async fn run(stage: &Stage, installed: &Installed) -> Result<()> {
    let groups = Api::namespaced(stage.admin.clone(), stage.namespace);
    let show = Show { stage, installed, groups };

    title("Apply vg-1: three machines of one CPU and 1 GiB");
    let applied = Patch::Apply(sample());
    show.groups.patch(NAME, &PatchParams::apply(MANAGER), &applied).await.when("cannot apply vg-1")?;
    show.running("three machines run", 3).await?;

    for (replicas, word) in [(5, "up to five"), (2, "down to two")] {
        title(&format!("Scale {word}, through the scale subresource"));
        let scale = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        show.groups.patch_scale(NAME, &PatchParams::default(), &scale).await.when("cannot scale vg-1")?;
        show.running(&format!("{replicas} machines run"), replicas).await?;
    }

    show.heal().await?;
    show.refuse().await?;
    show.delete().await
}

impl Show<'_> {
    /// Shows the table until the group is what it should be.
    async fn running(&self, what: &str, replicas: i32) -> Result<()> {
        self.until(what, |group| {
            let status = group.status.as_ref();
            let vms = self.installed.vcenter.vms();
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

    /// Shows the table until something holds for the group.
    async fn until(&self, what: &str, holds: impl Fn(&VmGroup) -> bool) -> Result<()> {
        let path = self.groups.resource_url();
        let (mut board, began) = (Board::default(), Instant::now());
        loop {
            let group = self.groups.get(NAME).await.when(format!("step {what:?}: cannot read vg-1"))?;
            board.show(table::fetch(&self.stage.admin, path).await?);
            if holds(&group) {
                // What held may be shown by a table that is a moment older.
                board.show(table::fetch(&self.stage.admin, path).await?);
                done(what);
                return Ok(());
            }
            check(what, began, || format!("{:?}", group.status))?;
            sleep(GLANCE).await;
        }
    }

    async fn heal(&self) -> Result<()> {
        let vcenter = &self.installed.vcenter;
        let first = vcenter.vms().into_iter().next().ok_or_else(|| Error::new("there is no machine to power off"))?;
        title(&format!("Power off {} behind the operator's back", first.name));
        if !vcenter.power_off(&first.name) {
            return Err(Error::new(format!("machine {} cannot be powered off", first.name)));
        }
        // It is seen at the next look at vCenter, so the status first says what it said before.
        self.until("the operator found out", |group| {
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
        let answer = self.groups.patch("too-large", &PatchParams::apply(MANAGER), &Patch::Apply(invalid)).await;
        match answer {
            Err(kube::Error::Api(status)) if status.code == 422 && status.message.contains("spec.cpu") => {
                say(&format!("  {}", paint(Style::Faint, &status.message)));
                done("refused, with the field's name");
                Ok(())
            }
            Err(error) => Err(error).when("step \"refused, with the field's name\" got another answer"),
            Ok(_) => Err(Error::new("step \"refused, with the field's name\": the object was accepted")),
        }
    }

    async fn delete(&self) -> Result<()> {
        title("Delete vg-1");
        let vcenter = &self.installed.vcenter;
        let folder = format!("{}-{NAME}", self.stage.namespace);
        self.groups.delete(NAME, &DeleteParams::default()).await.when("cannot delete vg-1")?;
        let began = Instant::now();
        let (mut machines, mut folder_there) = (vcenter.vms().len(), true);
        loop {
            // The object is looked at first: what is gone in vCenter by then was gone before it.
            let group = self.groups.get_opt(NAME).await.when("cannot read vg-1")?;
            let left = vcenter.vms().len();
            if left != machines {
                say(&format!("  {left} machines left"));
                machines = left;
            }
            if folder_there && !vcenter.folders().contains(&folder) {
                if left > 0 {
                    return Err(Error::new(format!("folder {folder} went before its machines")));
                }
                say(&format!("  folder {folder} gone"));
                folder_there = false;
            }
            match group {
                None if folder_there => {
                    return Err(Error::new(format!("vg-1 is gone and left folder {folder} behind")));
                }
                None => {
                    say("  finalizer taken off, vg-1 gone");
                    done("nothing is left");
                    return Ok(());
                }
                Some(group) => {
                    check("nothing is left", began, || format!("finalizers {:?}", group.finalizers()))?;
                }
            }
            sleep(GLANCE).await;
        }
    }
}

/// Fails if a step takes too long.
fn check(what: &str, began: Instant, state: impl Fn() -> String) -> Result<()> {
    if began.elapsed() < PATIENCE {
        return Ok(());
    }
    Err(Error::new(format!("step {what:?} does not come to pass; last seen: {}", state())))
}

fn title(text: &str) {
    say("");
    say(&format!("{} {}", paint(Style::Strong, "▸"), paint(Style::Strong, text)));
}

fn done(text: &str) {
    say(&format!("{} {text}", paint(Style::Good, "✓")));
}

/// Says what to do next.
pub(super) fn how_to_go_on(stage: &Stage, keep: bool) -> Result<()> {
    if !keep {
        say("Go on: `flyball demo --keep` leaves all of this running for kubectl,");
        say("       `flyball cluster up` starts a control plane of your own.");
        return Ok(());
    }
    let path = stage.kubeconfig.with_file_name("vg-1.yaml");
    let flags = stage.kubectl_flags();
    let file = serde_saphyr::to_string(&sample()).when("cannot write the sample")?;
    // Beside a kubeconfig of somebody's nothing is written.
    let apply = if stage.kubeconfig.starts_with(std::env::temp_dir()) && fs::write(&path, &file).is_ok() {
        format!("kubectl {flags} apply -f {}", path.display())
    } else {
        format!("kubectl {flags} apply -f vg-1.yaml   # with:\n\n{file}")
    };
    say("All of this goes on until Ctrl-C. Try, in another terminal:");
    for command in [
        apply,
        format!("kubectl {flags} get vg -w"),
        format!("kubectl {flags} scale vg/vg-1 --replicas=4"),
        format!("kubectl {flags} describe vg vg-1"),
        format!("kubectl {flags} delete vg vg-1"),
    ] {
        say(&format!("  {command}"));
    }
    Ok(())
}
