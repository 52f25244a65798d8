//! `memcached`: a Kubernetes operator.
//!
//! `flyball create` inserts lines above the comments that begin with `+flyball`. It changes nothing else.

pub mod api {
    //! Custom resources: one module for each version of a kind.

    pub mod memcached_v1alpha1;
    // +flyball:api
}

pub mod controllers {
    //! Controllers: one module for each kind.

    pub mod memcached;
    // +flyball:controllers
}

pub mod webhooks {
    //! Admission and conversion webhooks: one module for each kind.

    // +flyball:webhooks
}

use flyball::{Cache, Operator};
use k8s_openapi::api::core::v1::Pod;
use kube::CustomResourceExt;

/// Returns the operator with all of its CRDs, controllers and webhooks.
pub fn operator() -> Operator {
    Operator::new(env!("CARGO_PKG_NAME"))
        .version(env!("CARGO_PKG_VERSION"))
        .crd(api::memcached_v1alpha1::Memcached::crd())
        .controller(controllers::memcached::controller())
        .cache(Cache::<Pod>::new().labels(controllers::memcached::SELECTOR))
    // +flyball:operator
}
