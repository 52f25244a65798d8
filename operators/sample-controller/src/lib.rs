//! `sample-controller`: a Kubernetes operator.
//!
//! `flyball create` inserts lines above the comments that begin with `+flyball`. It changes nothing else.

pub mod api {
    //! Custom resources: one module for each version of a kind.

    pub mod foo_v1alpha1;
    // +flyball:api
}

pub mod controllers {
    //! Controllers: one module for each kind.

    pub mod foo;
    // +flyball:controllers
}

pub mod webhooks {
    //! Admission and conversion webhooks: one module for each kind.

    // +flyball:webhooks
}

use flyball::Operator;
use kube::CustomResourceExt;

/// Returns the operator with all of its CRDs, controllers and webhooks.
pub fn operator() -> Operator {
    Operator::new(env!("CARGO_PKG_NAME"))
        .version(env!("CARGO_PKG_VERSION"))
        .crd(api::foo_v1alpha1::Foo::crd())
        .controller(controllers::foo::controller())
    // +flyball:operator
}
