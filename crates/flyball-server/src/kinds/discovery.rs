//! Kinds of `discovery.k8s.io`.

kinds! {
    mod endpoint_slice;
}

const GROUP: &str = "discovery.k8s.io";
