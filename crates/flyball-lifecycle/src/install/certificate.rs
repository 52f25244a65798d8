//! Serving certificates of webhooks and aggregated API servers.

use super::owner::{managed, owner_reference};
use super::service::{secret_name, service_name};
use crate::api::{ClusterServiceVersion, labels};
use base64::{Engine, prelude::BASE64_STANDARD};
use flyball_core::time::{SignedDuration, Timestamp};
use flyball_tls::{Authority, IssueError, Purpose, Validity};
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use ring::digest::{SHA256, digest};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Value, json};
use std::fmt::Write;

/// Lifetime of certificates after they are issued.
const LIFETIME: SignedDuration = SignedDuration::from_hours(2 * 365 * 24);
/// Time before their end at which they are replaced.
const RENEWAL: SignedDuration = SignedDuration::from_hours(24);
/// Key of the authority's certificate in the Secret.
const AUTHORITY_KEY: &str = "olmCAKey";

/// A serving certificate, and the authority that signed it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct ServingCertificate {
    authority: String,
    certificate: String,
    key: String,
}

impl ServingCertificate {
    /// Issues a certificate for the Service of a Deployment, signed by a new authority whose key is discarded.
    pub(crate) fn issue(deployment: &str, namespace: &str, now: Timestamp) -> Result<Self, IssueError> {
        let validity = Validity::new(now, LIFETIME + Validity::BACKDATED);
        let service = service_name(deployment);
        // The time distinguishes authorities.
        let authority = Authority::new(&format!("{service} {}", now.as_second()), validity)?;
        let hosts = ["", ".svc", ".svc.cluster.local"].map(|suffix| format!("{service}.{namespace}{suffix}"));
        let issued = authority.issue(&hosts[0], Purpose::Server(&hosts), validity)?;
        let authority = authority.certificate().to_owned();
        Ok(Self { authority, certificate: issued.certificate, key: issued.key })
    }

    /// Reads a certificate from its Secret; `None` if it is incomplete.
    pub(crate) fn of(secret: &Secret) -> Option<Self> {
        let text = |key: &str| String::from_utf8(secret.data.as_ref()?.get(key)?.0.clone()).ok();
        Some(Self { authority: text(AUTHORITY_KEY)?, certificate: text("tls.crt")?, key: text("tls.key")? })
    }

    /// Returns the Secret of the certificate.
    pub(crate) fn secret(&self, csv: &ClusterServiceVersion, deployment: &str) -> Value {
        let secret = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "kubernetes.io/tls",
            "metadata": {
                "name": secret_name(deployment),
                "namespace": csv.namespace(),
                "annotations": {labels::CA_HASH: self.authority_hash()},
                "ownerReferences": [owner_reference(csv)],
            },
            "data": {
                AUTHORITY_KEY: BASE64_STANDARD.encode(&self.authority),
                "tls.crt": BASE64_STANDARD.encode(&self.certificate),
                "tls.key": BASE64_STANDARD.encode(&self.key),
            },
        });
        managed(secret, csv)
    }

    /// Returns the certificate of the authority, in PEM and base64, for `caBundle`.
    pub(crate) fn authority_bundle(&self) -> String {
        BASE64_STANDARD.encode(&self.authority)
    }

    /// Returns the hash of the authority's certificate: its change restarts the pods.
    pub(crate) fn authority_hash(&self) -> String {
        let mut text = String::new();
        for byte in digest(&SHA256, self.authority.as_bytes()).as_ref() {
            write!(text, "{byte:02x}").expect("writing to a string cannot fail");
        }
        text
    }

    /// Returns the time at which the certificate is replaced; `None` if it is invalid.
    pub(crate) fn renewal(&self) -> Option<Timestamp> {
        let until = |pem: &str| {
            let der = CertificateDer::from_pem_slice(pem.as_bytes()).ok()?;
            flyball_tls::validity(&der).map(|validity| validity.until)
        };
        let end = until(&self.authority)?.min(until(&self.certificate)?);
        end.checked_sub(RENEWAL).ok()
    }

    /// Returns true if the certificate has to be replaced at this time.
    pub(crate) fn is_due(&self, now: Timestamp) -> bool {
        self.renewal().is_none_or(|renewal| now >= renewal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_are_replaced_a_day_before_their_end() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let certificate = ServingCertificate::issue("hooked", "demo", now).unwrap();
        assert_eq!(certificate.renewal(), Some(now + LIFETIME - RENEWAL));
        assert!(!certificate.is_due(now));
        assert!(certificate.is_due(now + LIFETIME - RENEWAL));
        let broken = ServingCertificate { certificate: "no".into(), ..certificate.clone() };
        assert!(broken.is_due(now));
        assert_eq!(certificate.authority_hash().len(), 64);
    }

    #[test]
    fn secret_contains_the_certificate() {
        let csv: ClusterServiceVersion =
            serde_json::from_value(json!({"metadata": {"name": "a", "namespace": "demo", "uid": "u"}})).unwrap();
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let certificate = ServingCertificate::issue("hooked", "demo", now).unwrap();
        let secret: Secret = serde_json::from_value(certificate.secret(&csv, "hooked")).unwrap();
        assert_eq!(secret.name_any(), "hooked-service-cert");
        assert!(ServingCertificate::of(&secret) == Some(certificate));
        assert!(ServingCertificate::of(&Secret::default()).is_none());
    }
}
