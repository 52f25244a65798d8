//! Convergence and teardown of a group of virtual machines.
//!
//! Level-based: each pass observes vCenter, plans the next few operations, and executes them. There is no state between
//! passes, so a pass may be interrupted at any point, and its responses may be lost: the next pass observes the result.
//! Three rules make this safe.
//!
//! * A group has one folder, identified by its name, which contains its machines.
//! * A machine's name is derived from the group's UID and the machine's number. A repeated clone is rejected because
//!   its name exists, so there are no duplicate machines, and no machine is outside the folder.
//! * A folder is destroyed only when it is empty.
//!
//! As in the original operator, changes of CPU, memory and template apply to new machines; existing machines are not
//! changed.
//!
//! This module does not depend on Kubernetes, and accesses vCenter only through [`Vcenter`].

mod difference;
mod group;

pub use group::Group;

use crate::vsphere::{self, CloneSpec, Contents, Hardware, ManagedObject, Vcenter, Vm};
use difference::{Difference, free_names};
use futures_util::future::join_all;
use std::fmt;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Timeout of a step in the queue. Afterwards, the plan is outdated: machines to delete may be desired again.
const SLOT_TIMEOUT: Duration = Duration::from_secs(10);

/// The reason why a group does not converge.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The template does not exist.
    #[error("vCenter has no template {0:?}")]
    TemplateNotFound(String),
    /// The template's name is not unique.
    #[error("vCenter has {count} virtual machines named {template:?}: specify a path")]
    TemplateAmbiguous {
        /// The name.
        template: String,
        /// Number of machines.
        count: usize,
    },
    /// The name of the folder or of a machine is too long.
    #[error("the name {name:?} is longer than vCenter's limit of {max} characters")]
    NameTooLong {
        /// The rejected name.
        name: String,
        /// The limit.
        max: usize,
    },
    /// vCenter failed, or cannot be reached.
    #[error(transparent)]
    Vcenter(#[from] vsphere::Error),
}

impl Error {
    /// Returns true if the error requires a change of the group or of the templates, so that an early retry would fail.
    ///
    /// All other errors may be temporary and are retried.
    pub fn is_permanent(&self) -> bool {
        match self {
            Self::TemplateNotFound(_) | Self::TemplateAmbiguous { .. } | Self::NameTooLong { .. } => true,
            Self::Vcenter(_) => false,
        }
    }
}

/// Result of a pass or of a part of one.
pub type Result<T> = std::result::Result<T, Error>;

/// The next operations.
#[derive(Debug, Default)]
pub struct Plan {
    /// Number of running machines of the group.
    pub running: usize,
    /// Reason why the group cannot reach its desired state, if there are no steps.
    pub obstacle: Option<Error>,
    steps: Vec<Step>,
    /// Actions and numbers of machines, including those of later passes.
    totals: Vec<(&'static str, usize)>,
}

#[derive(Debug)]
enum Step {
    PowerOn(ManagedObject),
    Destroy(Vm),
    Clone { template: ManagedObject, folder: ManagedObject, name: String, hardware: Hardware },
    RemoveFolder(ManagedObject),
}

impl Plan {
    /// Returns true if the group is in its desired state.
    pub fn is_done(&self) -> bool {
        self.steps.is_empty() && self.obstacle.is_none()
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let machines =
            |(verb, n): &(&str, usize)| format!("{verb} {n} virtual machine{}", if *n == 1 { "" } else { "s" });
        let totals: Vec<String> = self.totals.iter().filter(|(_, n)| *n > 0).map(machines).collect();
        match self.steps[..] {
            [] => f.write_str("nothing to do"),
            [Step::RemoveFolder(_)] => f.write_str("deleting the folder"),
            _ => f.write_str(&totals.join(", ")),
        }
    }
}

/// Result of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Its operations are done; the next pass may follow immediately.
    Made,
    /// Some operations could not run: other groups use the slots, or other tasks (for example of an interrupted pass)
    /// are using the machines. The next pass should follow later.
    Awaited,
}

/// Converges groups, with a limit on concurrent vCenter operations of all groups.
#[derive(Debug)]
pub struct Groups<V> {
    vcenter: V,
    slots: Semaphore,
    width: usize,
}

impl<V: Vcenter> Groups<V> {
    /// Creates a converger for `vcenter` with at most `operations` concurrent operations, at least one.
    pub fn new(vcenter: V, operations: usize) -> Self {
        let width = operations.max(1);
        Self { vcenter, slots: Semaphore::new(width), width }
    }

    /// Observes a group and plans its next operations. A missing folder is created.
    pub async fn plan(&self, group: &Group) -> Result<Plan> {
        let folder = match self.find_folder(group).await? {
            Some(folder) => folder,
            None => self.create_folder(group).await?,
        };
        self.plan_in(group, &folder).await
    }

    /// Returns the folder of a group.
    pub async fn find_folder(&self, group: &Group) -> Result<Option<ManagedObject>> {
        group.check_names()?;
        Ok(self.vcenter.find_folder(&group.folder()).await?)
    }

    /// Creates the folder of a group.
    pub async fn create_folder(&self, group: &Group) -> Result<ManagedObject> {
        Ok(self.vcenter.create_folder(&group.folder()).await?)
    }

    /// Observes a group in its folder and plans its next operations.
    pub async fn plan_in(&self, group: &Group, folder: &ManagedObject) -> Result<Plan> {
        let vms = self.vcenter.contents(folder).await?.vms;
        let Difference { running, off, surplus, missing } = Difference::new(group, group.replicas, &vms);
        let totals = vec![("powering on", off.len()), ("deleting", surplus.len()), ("creating", missing)];
        let mut obstacle = None;
        let mut steps: Vec<Step> = off.into_iter().map(|vm| Step::PowerOn(vm.object)).collect();
        steps.extend(surplus.into_iter().take(self.width).map(Step::Destroy));
        if missing > 0 {
            match self.template(&group.template).await {
                Ok(template) => {
                    steps.extend(free_names(group, &vms, missing.min(self.width)).into_iter().map(|name| Step::Clone {
                        template: template.clone(),
                        folder: folder.clone(),
                        name,
                        hardware: group.hardware,
                    }))
                }
                Err(error) if error.is_permanent() && steps.is_empty() => obstacle = Some(error),
                // A missing template must not prevent powering on machines. The next pass reports the error again.
                Err(error) if error.is_permanent() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Plan { running, obstacle, steps, totals })
    }

    /// Observes a group that is deleted, and plans its next operations: first its machines, then its folder.
    ///
    /// A folder with objects that do not belong to the group is kept.
    pub async fn plan_teardown(&self, group: &Group) -> Result<Plan> {
        let Some(folder) = self.vcenter.find_folder(&group.folder()).await? else { return Ok(Plan::default()) };
        let Contents { vms, others } = self.vcenter.contents(&folder).await?;
        let Difference { running, surplus, .. } = Difference::new(group, 0, &vms);
        let foreign = vms.len() + others - surplus.len();
        let totals = vec![("deleting", surplus.len())];
        let mut steps: Vec<Step> = surplus.into_iter().take(self.width).map(Step::Destroy).collect();
        if steps.is_empty() {
            match foreign {
                0 => steps.push(Step::RemoveFolder(folder)),
                _ => tracing::warn!(
                    folder = group.folder(),
                    foreign,
                    "keeping the folder: it contains objects that do not belong to the group"
                ),
            }
        }
        Ok(Plan { running, obstacle: None, steps, totals })
    }

    /// Executes a plan, concurrently up to the limit.
    ///
    /// Tries all steps, and then returns the first error.
    pub async fn carry_out(&self, plan: &Plan) -> Result<Progress> {
        let mut progress = Progress::Made;
        for result in join_all(plan.steps.iter().map(|step| self.perform_in_slot(step))).await {
            if result? == Progress::Awaited {
                progress = Progress::Awaited;
            }
        }
        Ok(progress)
    }

    async fn perform_in_slot(&self, step: &Step) -> Result<Progress> {
        let Ok(slot) = timeout(SLOT_TIMEOUT, self.slots.acquire()).await else { return Ok(Progress::Awaited) };
        let _slot = slot.expect("the semaphore is never closed");
        match self.perform(step).await {
            Ok(()) => Ok(Progress::Made),
            Err(error) if is_outdated(&error) => {
                tracing::debug!(%error, "another task is in progress");
                Ok(Progress::Awaited)
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn perform(&self, step: &Step) -> vsphere::Result<()> {
        match step {
            Step::PowerOn(vm) => self.vcenter.power_on(vm).await,
            Step::Clone { template, folder, name, hardware } => {
                self.vcenter.clone_vm(template, &CloneSpec { folder, name, hardware: *hardware }).await
            }
            Step::RemoveFolder(folder) => self.vcenter.destroy_folder(folder).await,
            Step::Destroy(vm) => {
                if vm.powered_on {
                    match self.vcenter.power_off(&vm.object).await {
                        Ok(()) | Err(vsphere::Error::InvalidPowerState { .. }) => {}
                        Err(error) => return Err(error),
                    }
                }
                self.vcenter.destroy_vm(&vm.object).await
            }
        }
    }

    async fn template(&self, template: &str) -> Result<ManagedObject> {
        let mut found = self.vcenter.find_templates(template).await?;
        match (found.pop(), found.len()) {
            (Some(only), 0) => Ok(only),
            (None, _) => Err(Error::TemplateNotFound(template.into())),
            (Some(_), others) => Err(Error::TemplateAmbiguous { template: template.into(), count: others + 1 }),
        }
    }
}

/// Returns true if an operation failed because the state of vCenter differs from the plan.
fn is_outdated(error: &vsphere::Error) -> bool {
    use vsphere::Error as E;
    matches!(
        error,
        E::DuplicateName { .. }
            | E::NotFound { .. }
            | E::InvalidPowerState { .. }
            | E::TaskInProgress
            | E::StillRunning { .. }
    )
}
