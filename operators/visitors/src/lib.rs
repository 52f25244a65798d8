//! The operator of the visitors site, which counts who comes by.
//!
//! A [`VisitorsApp`](api::visitorsapp_v1::VisitorsApp) stands for a MySQL database with its password, a backend of as
//! many pods as it says, and a frontend under its title. They come in this order, each when the one before it is ready,
//! and go with it.
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
