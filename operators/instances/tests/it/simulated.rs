//! The simulated cloud as an external system of the explorer: each call is a site at which faults are injected.

use flyball_explore::{CallError, Explorer, External, ExternalContext, Port, external};
use instances::cloud::simulator::Simulator;
use instances::cloud::{Cloud, Error, Firewall, Machine, MachineRequest, Network, Result, Task, TaskState};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

/// Adds a sample to an explorer or a test.
macro_rules! sample {
    ($kind:literal) => {
        include_str!(concat!("../../config/samples/compute_v1alpha1_", $kind, ".yaml"))
    };
}
pub(crate) use sample;

/// A simulated cloud.
#[derive(Default)]
pub(crate) struct SimulatedCloud {
    simulator: Simulator,
    /// The key of a task is only known after the response to its request.
    forgets_keys: bool,
    tasks: Mutex<BTreeMap<String, String>>,
    requests: AtomicU32,
}

impl SimulatedCloud {
    pub(crate) fn new(_: &ExternalContext) -> Self {
        Self::default()
    }

    /// Creates a cloud whose tasks are identified by their responses, as if the key was not stored before the request.
    pub(crate) fn without_keys(_: &ExternalContext) -> Self {
        Self { forgets_keys: true, ..Self::default() }
    }
}

/// Returns the explorer of the operator with a simulated cloud.
pub(crate) fn explorer(cloud: impl Fn(&ExternalContext) -> SimulatedCloud + Send + Sync + 'static) -> Explorer {
    let operator = || instances::operator(|| Ok::<_, Infallible>(external::<SimulatedCloud>()));
    Explorer::of(operator).external(cloud).nodes(0)
}

impl External for SimulatedCloud {
    fn objects(&self) -> BTreeMap<String, Value> {
        let machines = self.simulator.machines_by_owner().into_iter().map(|(owner, machines)| {
            let describe = |known: &instances::cloud::simulator::SimulatedMachine| {
                let machine = &known.machine;
                json!({
                    "state": machine.state.to_string(), "reboots": known.reboots, "disks": known.disks,
                    "privateIp": machine.private_ip, "publicIp": machine.public_ip,
                    "firewall": machine.firewall.is_some(),
                })
            };
            (format!("machines/{owner}"), machines.iter().map(describe).collect::<Value>())
        });
        let networks = self.simulator.networks().into_values();
        let networks = networks.map(|Network { owner, cidr }| (format!("networks/{owner}"), json!(cidr)));
        let firewalls = self.simulator.firewalls().into_values();
        let firewalls =
            firewalls.map(|Firewall { owner, rules }| (format!("firewalls/{owner}"), json!(format!("{rules:?}"))));
        machines.chain(networks).chain(firewalls).collect()
    }
}

/// Calls the simulator through the port of external systems.
async fn call<T>(name: String, call: impl Future<Output = Result<T>>) -> Result<T> {
    let failed = |error: CallError| Err(Error::Unavailable(error.into()));
    Port::call(name, call).await.unwrap_or_else(failed)
}

impl Cloud for SimulatedCloud {
    async fn network(&self, id: &str) -> Result<Option<Network>> {
        call("network".into(), self.simulator.network(id)).await
    }

    async fn put_network(&self, id: &str, network: &Network) -> Result<()> {
        call(format!("put_network/{}", network.owner), self.simulator.put_network(id, network)).await
    }

    async fn delete_network(&self, id: &str) -> Result<()> {
        call("delete_network".into(), self.simulator.delete_network(id)).await
    }

    async fn firewall(&self, id: &str) -> Result<Option<Firewall>> {
        call("firewall".into(), self.simulator.firewall(id)).await
    }

    async fn put_firewall(&self, id: &str, firewall: &Firewall) -> Result<()> {
        call(format!("put_firewall/{}", firewall.owner), self.simulator.put_firewall(id, firewall)).await
    }

    async fn delete_firewall(&self, id: &str) -> Result<()> {
        call("delete_firewall".into(), self.simulator.delete_firewall(id)).await
    }

    async fn machines(&self) -> Result<Vec<Machine>> {
        // Polls are not counted: their number depends on the duration of a run.
        self.simulator.machines().await
    }

    async fn find_machine(&self, key: &str) -> Result<Option<Machine>> {
        call("find_machine".into(), self.simulator.find_machine(key)).await
    }

    async fn create_machine(&self, key: &str, request: &MachineRequest) -> Result<Machine> {
        call(format!("create_machine/{}", request.owner), self.simulator.create_machine(key, request)).await
    }

    async fn delete_machine(&self, id: &str) -> Result<()> {
        call("delete_machine".into(), self.simulator.delete_machine(id)).await
    }

    async fn set_power(&self, id: &str, on: bool) -> Result<()> {
        call("set_power".into(), self.simulator.set_power(id, on)).await
    }

    async fn set_firewall(&self, id: &str, firewall: Option<&str>) -> Result<()> {
        call("set_firewall".into(), self.simulator.set_firewall(id, firewall)).await
    }

    async fn set_address(&self, id: &str, address: Option<&str>) -> Result<()> {
        call("set_address".into(), self.simulator.set_address(id, address)).await
    }

    async fn release_address(&self, address: &str) -> Result<()> {
        call(format!("release_address/{address}"), self.simulator.release_address(address)).await
    }

    async fn run_task(&self, key: &str, machine: &str, task: Task) -> Result<TaskState> {
        let known = self.tasks.lock().unwrap().get(key).cloned();
        let fresh = || match self.forgets_keys {
            true => format!("{key} {}", self.requests.fetch_add(1, Ordering::Relaxed)),
            false => key.to_owned(),
        };
        let used = known.unwrap_or_else(fresh);
        let name = format!("run_task/{task:?}");
        let state = call(name, self.simulator.run_task(&used, machine, task)).await?;
        self.tasks.lock().unwrap().insert(key.to_owned(), used);
        Ok(state)
    }
}
