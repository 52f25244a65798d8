//! The vCenter calls that the operator needs, and their client.
//!
//! [`Vcenter`] is the interface: folders, templates and virtual machines, in about ten calls. [`Client`] implements it
//! with vCenter's VI/JSON API (<https://developer.broadcom.com/xapis/virtual-infrastructure-json-api/latest>), which
//! exists since 8.0 U1. This module depends neither on Kubernetes nor on groups.

mod client;
mod credentials;
mod error;
mod session;
mod transport;
mod wire;

pub use client::{Client, Site, Timing};
pub use credentials::{Credentials, MissingVariables};
pub use error::{Error, Result};
pub use session::InvalidHost;
pub use transport::{Transport, https};
pub use wire::ManagedObject;

use std::future::Future;

/// The part of vCenter's API that the operator uses.
///
/// Calls that start a task return when the task has ended. Each call may be repeated: after an error, the call may have
/// been executed although the response was lost.
pub trait Vcenter: Send + Sync {
    /// Finds the folder of a group.
    fn find_folder(&self, name: &str) -> impl Future<Output = Result<Option<ManagedObject>>> + Send;

    /// Creates the folder of a group, or returns the existing one.
    fn create_folder(&self, name: &str) -> impl Future<Output = Result<ManagedObject>> + Send;

    /// Destroys a folder **and all of its contents**.
    fn destroy_folder(&self, folder: &ManagedObject) -> impl Future<Output = Result<()>> + Send;

    /// Reads the contents of a folder.
    fn contents(&self, folder: &ManagedObject) -> impl Future<Output = Result<Contents>> + Send;

    /// Finds the candidates for a group's template: all machines with this name, or the machine at this path.
    fn find_templates(&self, template: &str) -> impl Future<Output = Result<Vec<ManagedObject>>> + Send;

    /// Clones a machine and powers the clone on.
    fn clone_vm(&self, template: &ManagedObject, spec: &CloneSpec<'_>) -> impl Future<Output = Result<()>> + Send;

    /// Powers a machine on.
    fn power_on(&self, vm: &ManagedObject) -> impl Future<Output = Result<()>> + Send;

    /// Powers a machine off, without a guest shutdown.
    fn power_off(&self, vm: &ManagedObject) -> impl Future<Output = Result<()>> + Send;

    /// Destroys a powered-off machine, including its disks.
    fn destroy_vm(&self, vm: &ManagedObject) -> impl Future<Output = Result<()>> + Send;
}

/// Contents of a folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// Virtual machines.
    pub vms: Vec<Vm>,
    /// Number of other objects, such as folders.
    pub others: usize,
}

/// A virtual machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vm {
    /// Its identity in vCenter.
    pub object: ManagedObject,
    /// Its name, unique in its folder.
    pub name: String,
    /// True if it is powered on.
    pub powered_on: bool,
}

/// Specification of a clone.
#[derive(Clone, Copy, Debug)]
pub struct CloneSpec<'a> {
    /// Destination folder.
    pub folder: &'a ManagedObject,
    /// Its name.
    pub name: &'a str,
    /// Its size.
    pub hardware: Hardware,
}

/// Hardware of a virtual machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hardware {
    /// Number of virtual CPUs.
    pub cpus: i32,
    /// Memory in MiB.
    pub memory_mib: i64,
}
