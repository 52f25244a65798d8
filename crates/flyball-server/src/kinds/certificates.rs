//! Kinds of `certificates.k8s.io`.

mod certificate_signing_request;

pub(crate) use certificate_signing_request::{KIND as CERTIFICATE_SIGNING_REQUEST, requested_groups};

use crate::kinds::kind::Kind;

const GROUP: &str = "certificates.k8s.io";

/// The kinds of the group, in the order of discovery.
pub(super) static KINDS: &[&Kind] = &[&certificate_signing_request::KIND];
