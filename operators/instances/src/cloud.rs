//! The calls of a cloud that the operator needs, and a simulator.
//!
//! Each call may be repeated: after an error, it may have been carried out although its response was lost. Requests
//! that must not be carried out twice have an idempotency key, which the cloud stores with the result, forever.
//!
//! This module does not depend on Kubernetes.

pub mod simulator;

use std::fmt;
use std::future::Future;

/// The part of a cloud's API that the operator uses.
pub trait Cloud: Send + Sync + 'static {
    /// Returns a network by the identity that its creator chose.
    fn network(&self, id: &str) -> impl Future<Output = Result<Option<Network>>> + Send;

    /// Creates a network, unless it exists.
    fn put_network(&self, id: &str, network: &Network) -> impl Future<Output = Result<()>> + Send;

    /// Deletes a network, if it exists. Fails with [`Error::InUse`] while machines use it.
    fn delete_network(&self, id: &str) -> impl Future<Output = Result<()>> + Send;

    /// Returns a firewall by the identity that its creator chose.
    fn firewall(&self, id: &str) -> impl Future<Output = Result<Option<Firewall>>> + Send;

    /// Creates a firewall, or replaces its rules.
    fn put_firewall(&self, id: &str, firewall: &Firewall) -> impl Future<Output = Result<()>> + Send;

    /// Deletes a firewall, if it exists. Fails with [`Error::InUse`] while machines use it.
    fn delete_firewall(&self, id: &str) -> impl Future<Output = Result<()>> + Send;

    /// Returns all machines.
    fn machines(&self) -> impl Future<Output = Result<Vec<Machine>>> + Send;

    /// Returns the machine that was created with a key, if it still exists.
    fn find_machine(&self, key: &str) -> impl Future<Output = Result<Option<Machine>>> + Send;

    /// Creates a machine. With the key of an earlier request, it returns that machine, or [`Error::Gone`] if it no
    /// longer exists.
    fn create_machine(&self, key: &str, request: &MachineRequest) -> impl Future<Output = Result<Machine>> + Send;

    /// Deletes a machine with its disk, if it exists.
    fn delete_machine(&self, id: &str) -> impl Future<Output = Result<()>> + Send;

    /// Powers a machine on or off.
    fn set_power(&self, id: &str, on: bool) -> impl Future<Output = Result<()>> + Send;

    /// Sets the firewall of a machine; without one, all incoming connections are rejected.
    fn set_firewall(&self, id: &str, firewall: Option<&str>) -> impl Future<Output = Result<()>> + Send;

    /// Sets or removes the public address of a machine. Fails with [`Error::InUse`] if another machine has it.
    fn set_address(&self, id: &str, address: Option<&str>) -> impl Future<Output = Result<()>> + Send;

    /// Removes a public address from the machine that has it, if there is one.
    fn release_address(&self, address: &str) -> impl Future<Output = Result<()>> + Send;

    /// Starts a task on a machine, and returns its state. With the key of an earlier request, it starts nothing, and
    /// returns the state of that task.
    fn run_task(&self, key: &str, machine: &str, task: Task) -> impl Future<Output = Result<TaskState>> + Send;
}

/// A private network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Network {
    /// Label for people: namespace and name of the object.
    pub owner: String,
    /// Range of the addresses.
    pub cidr: String,
}

/// A firewall.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Firewall {
    /// Label for people: namespace and name of the object.
    pub owner: String,
    /// Allowed connections.
    pub rules: Vec<Rule>,
}

/// Connections that a firewall allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// `TCP`, `UDP` or `ICMP`.
    pub protocol: &'static str,
    /// Port, for TCP and UDP.
    pub port: Option<u16>,
    /// Range of the source addresses.
    pub source: String,
}

/// Specification of a new machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineRequest {
    /// Namespace and name of the object.
    pub owner: String,
    /// Size.
    pub size: String,
    /// Image of its disk.
    pub image: String,
    /// Identity of its network.
    pub network: String,
    /// Identity of its firewall.
    pub firewall: Option<String>,
}

/// A virtual machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Its identity in the cloud.
    pub id: String,
    /// Namespace and name of the object that it belongs to.
    pub owner: String,
    /// Its state.
    pub state: MachineState,
    /// Identity of its firewall.
    pub firewall: Option<String>,
    /// Address in its network.
    pub private_ip: String,
    /// Public address.
    pub public_ip: Option<String>,
    /// Identity of its disk.
    pub disk: String,
}

/// State of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MachineState {
    /// The machine is being created.
    Building,
    /// The machine runs.
    Running,
    /// The machine is powered off.
    Stopped,
    /// The machine is being rebooted.
    Rebooting,
    /// The disk of the machine is being replaced.
    Rebuilding,
}

impl MachineState {
    /// Returns true if the state ends without another call.
    pub fn is_busy(self) -> bool {
        matches!(self, Self::Building | Self::Rebooting | Self::Rebuilding)
    }
}

impl fmt::Display for MachineState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// A task on a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Restarts a running machine.
    Reboot,
    /// Replaces the disk by a new one from the image. Addresses and power state are kept.
    Rebuild,
}

/// State of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskState {
    /// The task is in progress.
    Running,
    /// The task has ended.
    Succeeded,
    /// The task has failed, for this reason.
    Failed(String),
}

/// An error of any type.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Result of a call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Error of a call.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The cloud cannot be reached, or its response was lost.
    #[error("the cloud is unavailable")]
    Unavailable(#[source] BoxError),
    /// The machine does not exist.
    #[error("machine {0} does not exist")]
    NotFound(String),
    /// The machine that was created with this key no longer exists.
    #[error("the machine that was created with key {0} no longer exists")]
    Gone(String),
    /// The machine is in a state that does not allow the call.
    #[error("machine {id} is {state}")]
    WrongState {
        /// The machine.
        id: String,
        /// Its state.
        state: MachineState,
    },
    /// A machine uses the network, the firewall or the address.
    #[error("{object} is in use by machine {machine}")]
    InUse {
        /// The network, the firewall or the address.
        object: String,
        /// The machine.
        machine: String,
    },
    /// The cloud rejects the request, until it is changed.
    #[error("{0}")]
    Rejected(String),
}
