//! Tests of convergence and of the client with the simulated vCenter, on one thread and with paused time.

mod client;
mod converge;
mod crash;
mod exploration;
mod faults;

use std::time::Duration;
use vmgroup::converge::{Error, Group, Groups, Progress};
use vmgroup::simulator::{Options, SimulatedVm, Simulator, TaskTimes};
use vmgroup::vsphere::{Client, Hardware, Site, Timing, Transport};

/// Number of passes after which a test fails. Even random faults need fewer.
const MAX_PASSES: usize = 400;

fn group(replicas: usize) -> Group {
    Group {
        namespace: "default".into(),
        name: "vg-1".into(),
        uid: "7a4c5ad4-7f1f-4f3e-9a5e-0c8f4c0a7a11".into(),
        replicas,
        template: "vm-operator-template".into(),
        hardware: Hardware { cpus: 1, memory_mib: 1024 },
    }
}

fn client(transport: Transport) -> Client {
    Client::new(Simulator::credentials(), Site::default(), Timing::default(), transport).expect("the host is valid")
}

/// Options for short tasks: these tests spend most of their time on polling tasks.
fn options() -> Options {
    let [clone, power, destroy] = [3, 1, 1].map(Duration::from_secs);
    Options { tasks: TaskTimes { clone, power, destroy }, ..Options::default() }
}

fn world() -> (Simulator, Groups<Client>) {
    let simulator = Simulator::new(options());
    let groups = Groups::new(client(simulator.transport()), 3);
    (simulator, groups)
}

#[derive(Clone, Copy, PartialEq)]
enum Goal {
    Present,
    Absent,
}

/// Runs one pass, like a reconcile of the operator; returns true if the goal is reached.
async fn pass(groups: &Groups<Client>, group: &Group, goal: Goal) -> Result<bool, Error> {
    let mut plan = match goal {
        Goal::Present => groups.plan(group).await?,
        Goal::Absent => groups.plan_teardown(group).await?,
    };
    if plan.is_done() {
        return Ok(true);
    }
    if let Some(obstacle) = plan.obstacle.take() {
        return Err(obstacle);
    }
    if groups.carry_out(&plan).await? == Progress::Awaited {
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    Ok(false)
}

/// Runs passes until the goal is reached, also after errors; returns the errors.
async fn settle(groups: &Groups<Client>, group: &Group, goal: Goal) -> Vec<Error> {
    let mut errors = Vec::new();
    for _ in 0..MAX_PASSES {
        match pass(groups, group, goal).await {
            Ok(true) => return errors,
            Ok(false) => {}
            Err(error) => {
                errors.push(error);
                tokio::time::sleep(Duration::from_secs(5)).await;
            }
        }
    }
    panic!("the goal is not reached after {MAX_PASSES} passes: {errors:?}");
}

/// Returns the state of machines without values that depend on the run.
fn names(simulator: &Simulator) -> Vec<String> {
    let mut names: Vec<String> = simulator.vms().into_iter().map(|vm| vm.name).collect();
    names.sort();
    names
}

fn sorted(simulator: &Simulator) -> Vec<SimulatedVm> {
    let mut vms = simulator.vms();
    vms.sort();
    vms
}
