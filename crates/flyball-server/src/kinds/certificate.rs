//! Requests for certificates.

use super::Part;
use super::field::Field;
use super::rules::text;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flyball_core::Object;
use flyball_core::field::FieldError;

type Errors = Vec<FieldError>;

const USAGES: &[&str] = &[
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

pub(super) fn signing_request(object: &Object, _: Option<&Object>, part: Part) -> Errors {
    if part != Part::Whole {
        return Errors::new();
    }
    let root = Field::root(object);
    let spec = root.at("spec");
    let request = spec.at("request");
    let mut errors = Errors::new();
    let pem = STANDARD.decode(request.text()).unwrap_or_default();
    if !pem.windows(BEGIN.len()).any(|window| window == BEGIN) {
        errors.push(request.invalid("PEM block type must be CERTIFICATE REQUEST"));
    }
    let usages = spec.at("usages");
    errors.extend(usages.must_be_set());
    errors.extend(usages.items().filter_map(|usage| usage.must_be_in(USAGES)));
    for (i, usage) in usages.items().enumerate() {
        if usages.list()[..i].contains(usage.value()) {
            errors.push(usage.duplicate());
        }
    }
    let signer = spec.at("signerName");
    if signer.text() == "kubernetes.io/legacy-unknown" {
        errors.push(signer.invalid("the legacy signerName is not allowed via this API version"));
    } else {
        errors.extend(text::signer_name(&signer));
    }
    let seconds = spec.at("expirationSeconds");
    if seconds.is_set() && seconds.int() < 600 {
        errors.push(seconds.invalid("may not specify a duration less than 600 seconds (10 minutes)"));
    }
    errors
}

const BEGIN: &[u8] = b"-----BEGIN CERTIFICATE REQUEST-----";
