//! The state of a simulated cloud. Times are those since its start.

use super::address;
use crate::cloud::{Error, Firewall, Machine, MachineRequest, MachineState, Network, Result, Task, TaskState};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A machine, and what happened to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimulatedMachine {
    /// The machine.
    pub machine: Machine,
    /// Identity of its network.
    pub network: String,
    /// Number of reboots so far.
    pub reboots: u32,
    /// Number of disks so far.
    pub disks: u32,
    /// The state that follows the current one, at this time.
    next: Option<(Duration, MachineState)>,
}

/// A task, and the time at which it ends.
struct StartedTask {
    machine: String,
    ends: Duration,
}

#[derive(Default)]
pub(super) struct State {
    now: Duration,
    pub(super) networks: BTreeMap<String, Network>,
    pub(super) firewalls: BTreeMap<String, Firewall>,
    /// The machines by identity.
    machines: BTreeMap<String, SimulatedMachine>,
    /// The identities of machines by the keys of their creation, also of deleted ones.
    keys: BTreeMap<String, String>,
    tasks: BTreeMap<String, StartedTask>,
}

impl State {
    /// Sets the time, and carries out the changes that are due.
    pub(super) fn advance(&mut self, now: Duration) {
        self.now = now;
        for machine in self.machines.values_mut() {
            if let Some((_, state)) = machine.next.take_if(|(at, _)| *at <= now) {
                machine.machine.state = state;
            }
        }
    }

    pub(super) fn machines(&self) -> Vec<Machine> {
        self.machines.values().map(|machine| machine.machine.clone()).collect()
    }

    pub(super) fn machines_by_owner(&self) -> BTreeMap<String, Vec<SimulatedMachine>> {
        let mut all: BTreeMap<String, Vec<SimulatedMachine>> = BTreeMap::new();
        for machine in self.machines.values() {
            all.entry(machine.machine.owner.clone()).or_default().push(machine.clone());
        }
        all
    }

    pub(super) fn find(&self, key: &str) -> Option<Machine> {
        self.machines.get(self.keys.get(key)?).map(|machine| machine.machine.clone())
    }

    pub(super) fn create(&mut self, key: &str, request: &MachineRequest, built: Duration) -> Result<Machine> {
        if self.keys.contains_key(key) {
            return self.find(key).ok_or_else(|| Error::Gone(key.to_owned()));
        }
        let rejected = |kind: &str, id: &str| Error::Rejected(format!("there is no {kind} {id}"));
        let MachineRequest { network, firewall, .. } = request;
        let cidr = &self.networks.get(network).ok_or_else(|| rejected("network", network))?.cidr;
        if let Some(firewall) = firewall.as_ref().filter(|id| !self.firewalls.contains_key(*id)) {
            return Err(rejected("firewall", firewall));
        }
        let inside = self.machines.values().filter(|machine| machine.network == *network);
        let used: BTreeSet<&str> = inside.map(|machine| &*machine.machine.private_ip).collect();
        let full = || Error::Rejected(format!("network {network} has no free address"));
        let private_ip = address::free(cidr, &used).ok_or_else(full)?;
        let machine = Machine {
            id: format!("vm-{key}"),
            owner: request.owner.clone(),
            state: MachineState::Building,
            firewall: firewall.clone(),
            private_ip,
            public_ip: None,
            disk: format!("disk-{key}-1"),
        };
        self.keys.insert(key.to_owned(), machine.id.clone());
        let simulated = SimulatedMachine {
            machine: machine.clone(),
            network: network.clone(),
            reboots: 0,
            disks: 1,
            next: Some((built, MachineState::Running)),
        };
        self.machines.insert(machine.id.clone(), simulated);
        Ok(machine)
    }

    pub(super) fn delete(&mut self, id: &str) {
        self.machines.remove(id);
    }

    fn machine(&mut self, id: &str) -> Result<&mut SimulatedMachine> {
        self.machines.get_mut(id).ok_or_else(|| Error::NotFound(id.to_owned()))
    }

    /// Fails if a machine uses an object.
    pub(super) fn check_unused(&self, kind: &str, id: &str, uses: impl Fn(&SimulatedMachine) -> bool) -> Result<()> {
        let user = self.machines.values().find(|machine| uses(machine));
        let used = |user: &SimulatedMachine| {
            Err(Error::InUse { object: format!("{kind} {id}"), machine: user.machine.id.clone() })
        };
        user.map_or(Ok(()), used)
    }

    pub(super) fn set_power(&mut self, id: &str, on: bool) -> Result<()> {
        let machine = self.machine(id)?;
        if machine.machine.state.is_busy() {
            return Err(Error::WrongState { id: id.to_owned(), state: machine.machine.state });
        }
        machine.machine.state = if on { MachineState::Running } else { MachineState::Stopped };
        Ok(())
    }

    pub(super) fn set_firewall(&mut self, id: &str, firewall: Option<&str>) -> Result<()> {
        if let Some(firewall) = firewall.filter(|firewall| !self.firewalls.contains_key(*firewall)) {
            return Err(Error::Rejected(format!("there is no firewall {firewall}")));
        }
        let machine = self.machine(id)?;
        machine.machine.firewall = firewall.map(str::to_owned);
        Ok(())
    }

    pub(super) fn set_address(&mut self, id: &str, address: Option<&str>) -> Result<()> {
        if let Some(address) = address {
            self.check_unused("address", address, |machine| {
                machine.machine.id != id && machine.machine.public_ip.as_deref() == Some(address)
            })?;
        }
        self.machine(id)?.machine.public_ip = address.map(str::to_owned);
        Ok(())
    }

    pub(super) fn release_address(&mut self, address: &str) {
        for machine in self.machines.values_mut() {
            machine.machine.public_ip.take_if(|known| known == address);
        }
    }

    pub(super) fn run_task(&mut self, key: &str, id: &str, task: Task, ends: Duration) -> Result<TaskState> {
        if let Some(known) = self.tasks.get(key) {
            return Ok(self.task_state(known));
        }
        let machine = self.machine(id)?;
        let state = machine.machine.state;
        let (during, is_allowed) = match task {
            Task::Reboot => (MachineState::Rebooting, state == MachineState::Running),
            Task::Rebuild => (MachineState::Rebuilding, !state.is_busy()),
        };
        if !is_allowed {
            return Err(Error::WrongState { id: id.to_owned(), state });
        }
        machine.machine.state = during;
        machine.next = Some((ends, state));
        match task {
            Task::Reboot => machine.reboots += 1,
            Task::Rebuild => {
                machine.disks += 1;
                machine.machine.disk = format!("disk-{}-{}", id.trim_start_matches("vm-"), machine.disks);
            }
        }
        self.tasks.insert(key.to_owned(), StartedTask { machine: id.to_owned(), ends });
        Ok(TaskState::Running)
    }

    fn task_state(&self, task: &StartedTask) -> TaskState {
        match self.now < task.ends {
            false => TaskState::Succeeded,
            true if self.machines.contains_key(&task.machine) => TaskState::Running,
            true => TaskState::Failed(format!("machine {} was deleted", task.machine)),
        }
    }

    pub(super) fn power_off(&mut self, owner: &str) -> bool {
        let mut of_owner = self.machines.values_mut().filter(|machine| machine.machine.owner == owner).peekable();
        let exists = of_owner.peek().is_some();
        of_owner.for_each(|machine| (machine.machine.state, machine.next) = (MachineState::Stopped, None));
        exists
    }

    pub(super) fn remove(&mut self, owner: &str) -> bool {
        let before = self.machines.len();
        self.machines.retain(|_, machine| machine.machine.owner != owner);
        self.machines.len() < before
    }
}
