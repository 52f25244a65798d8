//! The operator that manages groups of virtual machines in vCenter.
//!
//! A [`VmGroup`](resource::VmGroup) asks for a number of equal machines. They are cloned from a template into a folder
//! of the group's own, run as long as the group is there, and go with it.
//!
//! | Module | Job |
//! |---|---|
//! | [`resource`] | the custom resource |
//! | [`operator`] | from `VmGroup` objects to groups and back to their status |
//! | [`converge`] | a group as it should be and as it is: what to do next |
//! | [`vsphere`] | what is needed of vCenter, and a client for it |
//! | [`simulator`] | a vCenter without a vCenter, for tests and demonstrations |
//!
//! Only `resource` and `operator` know Kubernetes, only `vsphere` and `simulator` know HTTP.

pub mod converge;
pub mod operator;
pub mod resource;
pub mod simulator;
pub mod vsphere;
