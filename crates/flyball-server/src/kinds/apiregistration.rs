//! Kinds of `apiregistration.k8s.io`.

kinds! {
    mod api_service;
}

const GROUP: &str = "apiregistration.k8s.io";
