//! Kinds of `certificates.k8s.io`.

use crate::kinds::kind::{Kind, Subresource as Sub};
use crate::kinds::{certificate, printers};

const GROUP: &str = "certificates.k8s.io";

pub(super) const KINDS: &[Kind] = &[Kind::new(GROUP, "v1", "CertificateSigningRequest", "certificatesigningrequests")
    .printed(printers::configuration::signing_request)
    .prepare(certificate::prepare)
    .validate(certificate::signing_request)
    .short(&["csr"])
    .cluster()
    .subresources(&[Sub::APPROVAL, Sub::STATUS])
    .paths(&["spec.signerName"])];
