//! The operator memcached.
//!
//! `flyball create` adds lines above the comments that begin with `+flyball`, and leaves everything else alone.

pub mod api {
    //! The custom resources: a module for each version of a kind.

    pub mod memcached_v1alpha1;
    // +flyball:api
}

pub mod controllers {
    //! What brings the world in line with the resources: a module for each kind.

    pub mod memcached;
    // +flyball:controllers
}

pub mod webhooks {
    //! What is asked before resources are stored, or shown in another version: a module for each kind.

    // +flyball:webhooks
}

use flyball::{Cache, Operator};
use k8s_openapi::api::core::v1::Pod;
use kube::CustomResourceExt;

/// Makes the operator of all its parts.
pub fn operator() -> Operator {
    Operator::new(env!("CARGO_PKG_NAME"))
        .version(env!("CARGO_PKG_VERSION"))
        .crd(api::memcached_v1alpha1::Memcached::crd())
        .controller(controllers::memcached::controller())
        .cache(Cache::<Pod>::new().labels(controllers::memcached::SELECTOR))
    // +flyball:operator
}
