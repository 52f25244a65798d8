//! The operator {{name}}.
//!
//! `flyball create` adds lines above the comments that begin with `+flyball`, and leaves everything else alone.

pub mod api {
    //! The custom resources: a module for each version of a kind.

    // +flyball:api
}

pub mod controllers {
    //! What brings the world in line with the resources: a module for each kind.

    // +flyball:controllers
}

pub mod webhooks {
    //! What is asked before resources are stored, or shown in another version: a module for each kind.

    // +flyball:webhooks
}

use flyball::Operator;

/// Makes the operator of all its parts.
pub fn operator() -> Operator {
    Operator::new(env!("CARGO_PKG_NAME"))
        .version(env!("CARGO_PKG_VERSION"))
    // +flyball:operator
}
