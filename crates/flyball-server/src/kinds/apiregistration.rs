//! Kinds of `apiregistration.k8s.io`.

kinds! {
    mod api_service;
}

pub(crate) use api_service::KIND as API_SERVICE;

const GROUP: &str = "apiregistration.k8s.io";
