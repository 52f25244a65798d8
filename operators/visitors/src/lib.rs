//! The operator of a website that counts its visitors.
//!
//! A [`VisitorsApp`](api::visitorsapp_v1::VisitorsApp) owns a MySQL database with its password, a backend with the
//! specified number of pods, and a frontend with its title. They are created in this order, each when the previous one
//! is ready, and deleted with it.
//!
//! `flyball create` inserts lines above the comments that begin with `+flyball`. It changes nothing else.

pub mod api {
    //! Custom resources: one module for each version of a kind.

    pub mod visitorsapp_v1;
    // +flyball:api
}

pub mod controllers {
    //! Controllers: one module for each kind.

    pub mod visitorsapp;
    // +flyball:controllers
}

pub mod webhooks {
    //! Admission and conversion webhooks: one module for each kind.

    // +flyball:webhooks
}

use controllers::visitorsapp::{self, random_password};
use flyball::Operator;
use kube::CustomResourceExt;

/// Name of the operator: its field manager, and the reporter of its events.
pub const NAME: &str = "visitors-operator";

/// Returns the operator with all of its CRDs, controllers and webhooks.
pub fn operator() -> Operator {
    Operator::new(NAME)
        .version(env!("CARGO_PKG_VERSION"))
        .crd(api::visitorsapp_v1::VisitorsApp::crd())
        .controller(visitorsapp::controller(random_password))
    // +flyball:operator
}
