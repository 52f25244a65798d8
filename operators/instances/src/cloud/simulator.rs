//! A simulated cloud.
//!
//! Its state is plain data in `state`, with the time as an argument. Times are those of tokio: with paused time, runs
//! are deterministic, since identities follow from keys, maps are sorted, and due changes happen at the next call.

mod address;
mod state;

use super::{Cloud, Error, Firewall, Machine, MachineRequest, Network, Result, Task, TaskState};
use parking_lot::{Mutex, MutexGuard};
use state::State;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

pub use state::SimulatedMachine;

/// Settings of a simulated cloud.
#[derive(Clone, Debug)]
pub struct Options {
    /// Time in which a machine is built.
    pub build: Duration,
    /// Time of a reboot.
    pub reboot: Duration,
    /// Time in which a disk is replaced.
    pub rebuild: Duration,
    /// Names of the sizes.
    pub sizes: Vec<String>,
    /// Names of the images.
    pub images: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        let [build, reboot, rebuild] = [20, 5, 15].map(Duration::from_secs);
        let sizes = ["small", "medium", "large"].map(str::to_owned).into();
        Self { build, reboot, rebuild, sizes, images: ["debian-13", "ubuntu-26.04"].map(str::to_owned).into() }
    }
}

/// A simulated cloud, without machines at first.
pub struct Simulator {
    options: Options,
    started: Instant,
    state: Mutex<State>,
}

impl Default for Simulator {
    fn default() -> Self {
        Self::new(Options::default())
    }
}

impl Simulator {
    /// Creates a cloud.
    pub fn new(options: Options) -> Self {
        Self { options, started: Instant::now(), state: Mutex::default() }
    }

    /// Returns the state after all changes that are due.
    fn state(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock();
        state.advance(self.started.elapsed());
        state
    }

    /// Returns the time at which a task ends that starts now.
    fn end(&self, time: Duration) -> Duration {
        self.started.elapsed() + time
    }

    /// Returns the machines, by their owner. A correct operator has one for each.
    pub fn machines_by_owner(&self) -> BTreeMap<String, Vec<SimulatedMachine>> {
        self.state().machines_by_owner()
    }

    /// Returns the networks, by their identity.
    pub fn networks(&self) -> BTreeMap<String, Network> {
        self.state().networks.clone()
    }

    /// Returns the firewalls, by their identity.
    pub fn firewalls(&self) -> BTreeMap<String, Firewall> {
        self.state().firewalls.clone()
    }

    /// Powers off the machines of an owner, independently of the operator; returns true if there are any.
    pub fn power_off(&self, owner: &str) -> bool {
        self.state().power_off(owner)
    }

    /// Removes the machines of an owner, independently of the operator; returns true if there are any.
    pub fn remove(&self, owner: &str) -> bool {
        self.state().remove(owner)
    }
}

impl Cloud for Simulator {
    async fn network(&self, id: &str) -> Result<Option<Network>> {
        Ok(self.state().networks.get(id).cloned())
    }

    async fn put_network(&self, id: &str, network: &Network) -> Result<()> {
        if address::parse_range(&network.cidr).is_none() {
            return Err(Error::Rejected(format!("{:?} is not a range of addresses", network.cidr)));
        }
        self.state().networks.entry(id.to_owned()).or_insert_with(|| network.clone());
        Ok(())
    }

    async fn delete_network(&self, id: &str) -> Result<()> {
        let mut state = self.state();
        state.check_unused("network", id, |machine| machine.network == id)?;
        state.networks.remove(id);
        Ok(())
    }

    async fn firewall(&self, id: &str) -> Result<Option<Firewall>> {
        Ok(self.state().firewalls.get(id).cloned())
    }

    async fn put_firewall(&self, id: &str, firewall: &Firewall) -> Result<()> {
        self.state().firewalls.insert(id.to_owned(), firewall.clone());
        Ok(())
    }

    async fn delete_firewall(&self, id: &str) -> Result<()> {
        let mut state = self.state();
        state.check_unused("firewall", id, |machine| machine.machine.firewall.as_deref() == Some(id))?;
        state.firewalls.remove(id);
        Ok(())
    }

    async fn machines(&self) -> Result<Vec<Machine>> {
        Ok(self.state().machines())
    }

    async fn find_machine(&self, key: &str) -> Result<Option<Machine>> {
        Ok(self.state().find(key))
    }

    async fn create_machine(&self, key: &str, request: &MachineRequest) -> Result<Machine> {
        let MachineRequest { size, image, .. } = request;
        if !self.options.sizes.contains(size) {
            return Err(Error::Rejected(format!("there is no size {size:?}; use {}", self.options.sizes.join(", "))));
        }
        if !self.options.images.contains(image) {
            return Err(Error::Rejected(format!(
                "there is no image {image:?}; use {}",
                self.options.images.join(", ")
            )));
        }
        self.state().create(key, request, self.end(self.options.build))
    }

    async fn delete_machine(&self, id: &str) -> Result<()> {
        self.state().delete(id);
        Ok(())
    }

    async fn set_power(&self, id: &str, on: bool) -> Result<()> {
        self.state().set_power(id, on)
    }

    async fn set_firewall(&self, id: &str, firewall: Option<&str>) -> Result<()> {
        self.state().set_firewall(id, firewall)
    }

    async fn set_address(&self, id: &str, address: Option<&str>) -> Result<()> {
        self.state().set_address(id, address)
    }

    async fn release_address(&self, address: &str) -> Result<()> {
        self.state().release_address(address);
        Ok(())
    }

    async fn run_task(&self, key: &str, machine: &str, task: Task) -> Result<TaskState> {
        let time = match task {
            Task::Reboot => self.options.reboot,
            Task::Rebuild => self.options.rebuild,
        };
        self.state().run_task(key, machine, task, self.end(time))
    }
}
