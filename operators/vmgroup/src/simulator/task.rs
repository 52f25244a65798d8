use super::inventory::{Inventory, Machine};
use super::response::Problem;
use crate::vsphere::ManagedObject;
use std::collections::BTreeMap;
use std::time::Duration;

/// Durations of the tasks of a simulated vCenter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskTimes {
    /// Cloning a machine.
    pub clone: Duration,
    /// Powering on or off.
    pub power: Duration,
    /// Destroying a machine or a folder.
    pub destroy: Duration,
}

impl Default for TaskTimes {
    fn default() -> Self {
        Self { clone: Duration::from_secs(20), power: Duration::from_secs(3), destroy: Duration::from_secs(5) }
    }
}

/// Maximum number of finished tasks that are kept.
const MEMORY: usize = 1000;

/// Effect of a task on its entity.
#[derive(Clone, Debug)]
pub(super) enum Effect {
    Clone { folder: ManagedObject, name: String, machine: Machine },
    Power { on: bool },
    Destroy,
}

#[derive(Debug)]
pub(super) struct Task {
    pub(super) object: ManagedObject,
    pub(super) entity: ManagedObject,
    pub(super) effect: Effect,
    pub(super) started: Duration,
    pub(super) due: Duration,
    /// `None` while the task runs.
    pub(super) outcome: Option<Result<Option<ManagedObject>, Problem>>,
}

/// Tasks of an inventory.
#[derive(Debug)]
pub(super) struct Tasks {
    times: TaskTimes,
    last: u64,
    tasks: BTreeMap<u64, Task>,
    next_fails: Option<&'static str>,
    peak: usize,
}

impl Tasks {
    pub(super) fn new(times: TaskTimes) -> Self {
        Self { times, last: 0, tasks: BTreeMap::new(), next_fails: None, peak: 0 }
    }

    /// Starts a task. An invalid task fails immediately.
    pub(super) fn start(
        &mut self,
        inventory: &Inventory,
        now: Duration,
        entity: &ManagedObject,
        effect: Effect,
    ) -> Result<ManagedObject, Problem> {
        inventory.get(entity)?;
        let checked = self.check_no_conflict(entity, &effect).and_then(|()| effect.check(inventory, entity));
        let failed = checked.err().or_else(|| self.next_fails.take().map(Problem::Named));
        let time = match effect {
            Effect::Clone { .. } => self.times.clone,
            Effect::Power { .. } => self.times.power,
            Effect::Destroy => self.times.destroy,
        };
        self.last += 1;
        let object = ManagedObject::new("Task", &format!("task-{}", self.last));
        let (entity, due) = (entity.clone(), now + time);
        let task = Task { object: object.clone(), entity, effect, started: now, due, outcome: failed.map(Err) };
        self.tasks.insert(self.last, task);
        self.peak = self.peak.max(self.running().count());
        Ok(object)
    }

    /// Ends tasks that are due, in order.
    pub(super) fn advance(&mut self, inventory: &mut Inventory, now: Duration) {
        let mut due: Vec<&mut Task> =
            self.tasks.values_mut().filter(|task| task.outcome.is_none() && task.due <= now).collect();
        due.sort_by_key(|task| task.due);
        for task in due {
            task.outcome = Some(task.effect.apply(inventory, &task.entity));
        }
        while self.tasks.len() > MEMORY
            && let Some(finished) = self.tasks.iter().find(|(_, task)| task.outcome.is_some()).map(|(n, _)| *n)
        {
            self.tasks.remove(&finished);
        }
    }

    /// Sets or clears the fault of the next task.
    pub(super) fn fail_next(&mut self, fault: Option<&'static str>) {
        self.next_fails = fault;
    }

    pub(super) fn peak(&self) -> usize {
        self.peak
    }

    pub(super) fn get(&self, object: &ManagedObject) -> Result<&Task, Problem> {
        let task = self.tasks.values().find(|task| &task.object == object);
        task.ok_or_else(|| Problem::NotFound(object.clone()))
    }

    fn running(&self) -> impl Iterator<Item = &Task> {
        self.tasks.values().filter(|task| task.outcome.is_none())
    }

    /// Fails if another task conflicts. Clones of one machine conflict only if they have the same name.
    fn check_no_conflict(&self, entity: &ManagedObject, effect: &Effect) -> Result<(), Problem> {
        for task in self.running() {
            match (&task.effect, effect) {
                (Effect::Clone { folder, name, .. }, Effect::Clone { folder: f, name: n, .. })
                    if (folder, name) == (f, n) =>
                {
                    return Err(Problem::DuplicateName { name: name.clone(), object: None });
                }
                (Effect::Clone { .. }, Effect::Clone { .. }) => {}
                _ if &task.entity == entity => return Err(Problem::TaskInProgress(task.object.clone())),
                _ => {}
            }
        }
        Ok(())
    }
}

impl Effect {
    pub(super) fn description(&self) -> &'static str {
        match self {
            Self::Clone { .. } => "VirtualMachine.clone",
            Self::Power { on: true } => "VirtualMachine.powerOn",
            Self::Power { on: false } => "VirtualMachine.powerOff",
            Self::Destroy => "ManagedEntity.destroy",
        }
    }

    fn check(&self, inventory: &Inventory, entity: &ManagedObject) -> Result<(), Problem> {
        inventory.get(entity)?;
        match self {
            Self::Clone { folder, name, .. } => inventory.check_free(folder, name),
            Self::Power { on } => inventory.check_not_powered(entity, *on),
            Self::Destroy => inventory.check_not_powered(entity, true),
        }
    }

    fn apply(&self, inventory: &mut Inventory, entity: &ManagedObject) -> Result<Option<ManagedObject>, Problem> {
        self.check(inventory, entity)?;
        match self {
            Self::Clone { folder, name, machine } => inventory.create_vm(folder, name, machine.clone()).map(Some),
            Self::Power { on } => {
                inventory.set_power(entity, *on);
                Ok(None)
            }
            Self::Destroy => {
                inventory.remove(entity);
                Ok(None)
            }
        }
    }
}
