//! Certificate signing requests, their approval, and the certificate.

use super::GROUP;
use crate::kinds::field::{Errors, Field};
use crate::kinds::fill::Fields;
use crate::kinds::kind::Kind;
use crate::kinds::printer::{self, Heading, NONE, Row, View};
use crate::kinds::rules::{pem, text};
use crate::kinds::subresource::{Part, Subresource as Sub};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flyball_core::{Clock, Object};
use serde_json::Value;
use std::collections::{BTreeSet, HashSet};
use x509_parser::prelude::{FromDer, X509Certificate, X509CertificationRequest};

pub(crate) static KIND: Kind = Kind::new(GROUP, "v1", "CertificateSigningRequest", "certificatesigningrequests")
    .printed(COLUMNS, row)
    .prepare(prepare)
    .validate(validate)
    .short(&["csr"])
    .cluster()
    .subresources(&[Sub::APPROVAL, Sub::STATUS])
    .paths(&["spec.signerName"]);

const COLUMNS: &[Heading] = &[
    Heading::NAME,
    Heading::AGE,
    Heading::text(
        "SignerName",
        "Requested signer for the request. It is a qualified name in the form: `scope-hostname.io/name`. If empty, \
         it will be defaulted:\n 1. If it's a kubelet client certificate, it is assigned\n    \
         \"kubernetes.io/kube-apiserver-client-kubelet\".\n 2. If it's a kubelet serving certificate, it is \
         assigned\n    \"kubernetes.io/kubelet-serving\".\n 3. Otherwise, it is assigned \
         \"kubernetes.io/legacy-unknown\".\nDistribution of trust for signers happens out of band. You can select on \
         this field using `spec.signerName`.",
    ),
    Heading::text("Requestor", "Base64-encoded PKCS#10 CSR data"),
    Heading::text(
        "RequestedDuration",
        "expirationSeconds is the requested duration of validity of the issued certificate. The certificate signer \
         may issue a certificate with a different validity duration so a client must check the delta between the \
         notBefore and and notAfter fields in the issued certificate to determine the actual duration.\n\nThe v1.22+ \
         in-tree implementations of the well-known Kubernetes signers will honor this field as long as the requested \
         duration is not greater than the maximum duration they will honor per the --cluster-signing-duration CLI \
         flag to the Kubernetes controller manager.\n\nCertificate signers may not honor this field for various \
         reasons:\n\n  1. Old signer that is unaware of the field (such as the in-tree\n     implementations prior \
         to v1.22)\n  2. Signer whose configured maximum is shorter than the requested duration\n  3. Signer whose \
         configured minimum is longer than the requested duration\n\nThe minimum valid value for expirationSeconds \
         is 600, i.e. 10 minutes.",
    ),
    Heading::text("Condition", "Conditions applied to the request, such as approval or denial."),
];

fn validate(object: &Object, old: Option<&Object>, part: Part) -> Errors {
    if let Some(old) = old.filter(|_| part != Part::Whole) {
        return verdict(object, old, part);
    }
    let root = Field::root(object);
    let spec = root.at("spec");
    let request = spec.at("request");
    let mut errors = Errors::new();
    let pem = STANDARD.decode(request.text()).unwrap_or_default();
    errors.extend(wrong_request(&pem).map(|why| request.invalid(why)));
    let usages = spec.at("usages");
    errors.extend(usages.must_be_set());
    errors.extend(usages.items().filter_map(|usage| usage.must_be_in(USAGES)));
    let mut seen = HashSet::new();
    for usage in usages.items() {
        if !seen.insert(usage.value()) {
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

const APPROVED: &str = "Approved";

const DENIED: &str = "Denied";

const FAILED: &str = "Failed";

fn conditions<'a>(request: &'a Object, kind: &str) -> Vec<&'a Value> {
    let all = request.at(&["status", "conditions"]).and_then(Value::as_array).into_iter().flatten();
    all.filter(|condition| condition["type"] == kind).collect()
}

/// Resets fields that a write must not change: the spec; approvals may change only conditions, and signing preserves
/// approval conditions.
fn prepare(request: &mut Object, old: Option<&Object>, part: Part, clock: &Clock) {
    let Some(old) = old else { return };
    if part != Part::Status {
        request.keep("spec", old);
    }
    match part {
        Part::Approval => {
            date_conditions(request, old, clock);
            let entries = request.at(&["status", "conditions"]).cloned();
            request.keep("status", old);
            match entries {
                Some(entries) => request.inner_or_new("status").set("conditions", entries),
                None => drop(request.inner_or_new("status").remove("conditions")),
            }
        }
        Part::Status => {
            for kind in [APPROVED, DENIED] {
                let verdicts: Vec<Value> = conditions(old, kind).into_iter().cloned().collect();
                if conditions(request, kind).len() == verdicts.len() {
                    let entries = request.inner_or_new("status").each("conditions");
                    entries
                        .filter(|condition| condition.text("type") == kind)
                        .zip(verdicts)
                        .for_each(|(entry, verdict)| entry.clone_from(verdict.as_object().unwrap_or(&entry.clone())));
                }
            }
            date_conditions(request, old, clock);
        }
        _ => {}
    }
}

/// Sets the update and transition times of conditions.
fn date_conditions(request: &mut Object, old: &Object, clock: &Clock) {
    for condition in request.inner_or_new("status").each("conditions") {
        condition.fill("lastUpdateTime", clock.now_rfc3339());
        let same = |known: &&Value| known["status"] == condition["status"] && known["lastTransitionTime"].is_string();
        let since = conditions(old, condition.text("type")).into_iter().find(same);
        let since = since.map_or_else(|| clock.now_rfc3339().into(), |known| known["lastTransitionTime"].clone());
        condition.fill("lastTransitionTime", since);
    }
}

/// Validates an approval, a denial or a signature.
fn verdict(request: &Object, old: &Object, part: Part) -> Errors {
    let root = Field::root(request);
    let status = root.at("status");
    let entries = status.at("conditions");
    let mut errors = Errors::new();
    let mut seen: BTreeSet<String> = BTreeSet::new();
    for condition in entries.items() {
        let (kind, state) = (condition.at("type"), condition.at("status"));
        errors.extend(kind.must_be_set());
        let verdict = [APPROVED, DENIED, FAILED].contains(&kind.text());
        errors.extend(state.must_be_one_of(if verdict { &["True"] } else { &["False", "True", "Unknown"] }));
        let other = [(APPROVED, DENIED), (DENIED, APPROVED)].into_iter().find(|(this, _)| *this == kind.text());
        if other.is_some_and(|(_, other)| seen.contains(other)) {
            errors.push(entries.invalid_as(kind.text(), "Approved and Denied conditions are mutually exclusive"));
        }
        if !seen.insert(kind.text().to_owned()) {
            errors.push(kind.duplicate());
        }
    }
    let certificate = status.at("certificate");
    let pem = |object: &Object| {
        let text = object.at(&["status", "certificate"]).and_then(Value::as_str).unwrap_or_default();
        wrong_certificate(&STANDARD.decode(text).unwrap_or_default())
    };
    // Unchanged values that were stored before this rule are valid.
    if let (Some(why), None) = (pem(request), pem(old)) {
        errors.push(certificate.invalid(why));
    }
    for kind in [APPROVED, DENIED, FAILED] {
        let (now, before) = (conditions(request, kind), conditions(old, kind));
        if now.len() < before.len() {
            errors.push(entries.forbidden(format!("updates may not remove a condition of type \"{kind}\"")));
        } else if now.len() > before.len() && part == Part::Status && kind != FAILED {
            errors.push(entries.forbidden(format!("updates may not add a condition of type \"{kind}\"")));
        }
    }
    let before = old.at(&["status", "certificate"]);
    if before.is_some_and(|before| before != certificate.value()) {
        errors.push(certificate.forbidden("updates may not modify existing certificate content"));
    }
    errors
}

/// Returns the error of a PEM request; only the first block is parsed.
fn wrong_request(text: &[u8]) -> Option<String> {
    let Some(block) = pem::blocks(text).next().filter(|block| block.label == "CERTIFICATE REQUEST") else {
        return Some("PEM block type must be CERTIFICATE REQUEST".into());
    };
    match X509CertificationRequest::from_der(&block.content) {
        Ok(([], _)) => None,
        Ok(_) => Some("asn1: syntax error: trailing data".into()),
        Err(_) => Some(wrong_der(&block.content)),
    }
}

/// Returns the groups of the requested certificate: the organizations of its subject.
pub(crate) fn requested_groups(object: &Object) -> Vec<String> {
    let request = object.at(&["spec", "request"]).and_then(Value::as_str).unwrap_or_default();
    let pem = STANDARD.decode(request).unwrap_or_default();
    let Some(block) = pem::blocks(&pem).next() else { return Vec::new() };
    let Ok((_, request)) = X509CertificationRequest::from_der(&block.content) else { return Vec::new() };
    let subject = &request.certification_request_info.subject;
    subject.iter_organization().filter_map(|group| group.as_str().ok()).map(str::to_owned).collect()
}

/// Returns Go's error for bytes that are not a signing request. It parses only the outermost layer.
fn wrong_der(bytes: &[u8]) -> String {
    const SEQUENCE: u8 = 0x30;
    match bytes {
        [] => "asn1: syntax error: sequence truncated",
        [SEQUENCE, ..] => "asn1: syntax error: data truncated",
        _ => "asn1: structure error: tags don't match",
    }
    .into()
}

/// Returns the error of issued certificates in PEM. The certificate may be absent.
fn wrong_certificate(text: &[u8]) -> Option<String> {
    if text.is_empty() {
        return None;
    }
    let mut count = 0;
    for block in pem::blocks(text) {
        if block.label != "CERTIFICATE" {
            let label = flyball_core::field::go_quote(&block.label);
            return Some(format!("only CERTIFICATE PEM blocks are allowed, found {label}"));
        }
        if block.has_headers {
            return Some("no PEM block headers are permitted".into());
        }
        let mut rest = &block.content[..];
        if rest.is_empty() {
            return Some("found CERTIFICATE PEM block containing 0 certificates".into());
        }
        while !rest.is_empty() {
            match X509Certificate::from_der(rest) {
                Ok((after, _)) => rest = after,
                Err(_) => return Some("x509: malformed certificate".into()),
            }
        }
        count += 1;
    }
    (count == 0).then(|| "must contain at least one CERTIFICATE PEM block".into())
}

fn row(view: &View<'_>) -> Row {
    let conditions: Vec<&str> =
        view.list("status.conditions").iter().map(|condition| printer::text(condition, "type")).collect();
    let has = |condition: &str| conditions.contains(&condition);
    let mut status = if has("Denied") {
        "Denied"
    } else if has("Approved") {
        "Approved"
    } else {
        "Pending"
    }
    .to_owned();
    if has("Failed") {
        status += ",Failed";
    }
    if !view.text("status.certificate").is_empty() {
        status += ",Issued";
    }
    let seconds = view.at("spec.expirationSeconds").as_i64();
    let duration = seconds
        .map(|seconds| flyball_core::time::human_duration(flyball_core::time::SignedDuration::from_secs(seconds)));
    Row::from([
        view.name(),
        view.age(),
        view.text_or("spec.signerName", NONE),
        view.text("spec.username").into(),
        duration.unwrap_or_else(|| NONE.into()).into(),
        status.into(),
    ])
}
