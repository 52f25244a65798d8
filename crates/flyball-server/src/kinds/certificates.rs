//! Kinds of `certificates.k8s.io`.

kinds! {
    mod certificate_signing_request;
}

pub(crate) use certificate_signing_request::{KIND as CERTIFICATE_SIGNING_REQUEST, requested_groups};

const GROUP: &str = "certificates.k8s.io";
