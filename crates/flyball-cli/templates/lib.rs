//! `{{name}}`: a Kubernetes operator.
//!
//! `flyball create` inserts lines above the comments that begin with `+flyball`. It changes nothing else.

pub mod api {
    //! Custom resources: one module for each version of a kind.

    // +flyball:api
}

pub mod controllers {
    //! Controllers: one module for each kind.

    // +flyball:controllers
}

pub mod webhooks {
    //! Admission and conversion webhooks: one module for each kind.

    // +flyball:webhooks
}

use flyball::Operator;

/// Returns the operator with all of its CRDs, controllers and webhooks.
pub fn operator() -> Operator {
    Operator::new(env!("CARGO_PKG_NAME"))
        .version(env!("CARGO_PKG_VERSION"))
    // +flyball:operator
}
