//! The operator that creates all objects of an application from one custom resource.
//!
//! A [`MyApp`](api::myapp_v1alpha1::MyApp) owns four `Deployment`s, the `Service` of the first of them, the
//! `ServiceAccount` of their pods and the `PersistentVolumeClaim` with the data of the last one. All of them are
//! deleted with it.
//!
//! `flyball create` inserts lines above the comments that begin with `+flyball`. It changes nothing else.

pub mod api {
    //! Custom resources: one module for each version of a kind.

    pub mod myapp_v1alpha1;
    // +flyball:api
}

pub mod controllers {
    //! Controllers: one module for each kind.

    pub mod myapp;
    // +flyball:controllers
}

pub mod webhooks {
    //! Admission and conversion webhooks: one module for each kind.

    // +flyball:webhooks
}

use flyball::Operator;
use kube::CustomResourceExt;

/// Name of the operator: its field manager, and the reporter of its events.
pub const NAME: &str = "myapp-operator";

/// Returns the operator with all of its CRDs, controllers and webhooks.
pub fn operator() -> Operator {
    Operator::new(NAME)
        .version(env!("CARGO_PKG_VERSION"))
        .crd(api::myapp_v1alpha1::MyApp::crd())
        .controller(controllers::myapp::controller())
        .policy(controllers::myapp::policy())
    // +flyball:operator
}
