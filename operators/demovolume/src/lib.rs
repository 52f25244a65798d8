//! The operator that creates a claim for each [`DemoVolume`](api::demovolume_v1::DemoVolume).
//!
//! `flyball create` inserts lines above the comments that begin with `+flyball`. It changes nothing else.

pub mod api {
    //! Custom resources: one module for each version of a kind.

    pub mod demovolume_v1;
    // +flyball:api
}

pub mod controllers {
    //! Controllers: one module for each kind.

    pub mod demovolume;
    // +flyball:controllers
}

pub mod webhooks {
    //! Admission and conversion webhooks: one module for each kind.

    // +flyball:webhooks
}

use flyball::Operator;
use kube::CustomResourceExt;

/// Name of the operator: its field manager, and the reporter of its events.
pub const NAME: &str = "demovolume-operator";

/// Returns the operator with all of its CRDs, controllers and webhooks.
pub fn operator() -> Operator {
    Operator::new(NAME)
        .version(env!("CARGO_PKG_VERSION"))
        .crd(api::demovolume_v1::DemoVolume::crd())
        .controller(controllers::demovolume::controller())
    // +flyball:operator
}
