//! The operator that manages groups of virtual machines in vCenter.
//!
//! A [`VmGroup`](api::vmgroup_v1alpha1::VmGroup) specifies a number of equal machines. They are cloned from a template
//! into a folder of the group, run as long as the group exists, and are deleted with the group.
//!
//! | Module | Content |
//! |---|---|
//! | [`api`] | the custom resource |
//! | [`controllers`] | reconciles `VmGroup` objects, and updates their status |
//! | [`converge`] | the desired and the actual state of a group, and the next steps |
//! | [`vsphere`] | the required part of vCenter's API, and a client for it |
//! | [`simulator`] | a simulated vCenter, for tests and demonstrations |
//!
//! Only `api` and `controllers` depend on Kubernetes, only `vsphere` and `simulator` on HTTP.
//!
//! `flyball create` inserts lines above the comments that begin with `+flyball`. It changes nothing else.

pub mod api {
    //! Custom resources: one module for each version of a kind.

    pub mod vmgroup_v1alpha1;
    // +flyball:api
}

pub mod controllers {
    //! Controllers: one module for each kind.

    pub mod vmgroup;
    // +flyball:controllers
}

pub mod webhooks {
    //! Admission and conversion webhooks: one module for each kind.

    // +flyball:webhooks
}

pub mod converge;
pub mod simulator;
pub mod vsphere;

use controllers::vmgroup::VmGroupReconciler;
use flyball::{Controller, Operator};
use kube::CustomResourceExt;
use vsphere::Vcenter;

/// Name of the operator: its field manager, and the reporter of its events.
pub const NAME: &str = "vm-operator";

/// Returns the operator with all of its CRDs, controllers and webhooks.
pub fn operator<V: Vcenter + 'static>(groups: Controller<VmGroupReconciler<V>>) -> Operator {
    Operator::new(NAME).crd(api::vmgroup_v1alpha1::VmGroup::crd()).controller(groups)
    // +flyball:operator
}
