//! Issuing of certificates, and their validity.

use flyball_core::time::{SignedDuration, Timestamp};
use flyball_tls::{Authority, IssueError, Purpose, Validity};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

/// Validity of a certificate.
pub(super) const LIFETIME: SignedDuration = SignedDuration::from_hours(365 * 24);
/// The age at which an identity is replaced.
const RENEWAL_AGE: SignedDuration = SignedDuration::from_secs(LIFETIME.as_secs() / 3 * 2);

/// An authority that has signed one certificate, and whose key was discarded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// The authority's certificate in PEM.
    pub(super) authority: String,
    /// The serving certificate in PEM.
    pub(crate) certificate: String,
    /// Its key in PEM.
    pub(crate) key: String,
}

impl Identity {
    /// Creates a certificate authority and a serving certificate for these names and addresses.
    pub(crate) fn make(operator: &str, names: &[String], now: Timestamp) -> Result<Self, IssueError> {
        let validity = Validity::new(now, LIFETIME);
        // The time distinguishes authorities.
        let authority = Authority::new(&format!("{operator} webhooks {}", now.as_second()), validity)?;
        let issued = authority.issue(operator, Purpose::Server(names), validity)?;
        Ok(Self { authority: authority.certificate().to_owned(), certificate: issued.certificate, key: issued.key })
    }

    /// Returns the time of its creation, `None` if it cannot be parsed.
    pub(super) fn created_at(&self) -> Option<Timestamp> {
        Some(validity(&self.certificate)?.from + Validity::BACKDATED)
    }

    /// Returns true if it is due for replacement at this time.
    pub(crate) fn is_old(&self, now: Timestamp) -> bool {
        self.created_at().is_none_or(|made| now.duration_since(made) >= RENEWAL_AGE)
    }

    /// Returns true if it can be parsed and is valid at this time, as far as the time is known.
    pub(super) fn is_good(&self, now: ReferenceTime) -> bool {
        let is_good = |validity: Validity| match now {
            ReferenceTime::Server(now) => validity.contains(now),
            ReferenceTime::Own(now) => now <= validity.until,
        };
        [&self.certificate, &self.authority].into_iter().all(|pem| validity(pem).is_some_and(is_good))
    }
}

/// The time for judging certificates.
#[derive(Clone, Copy, Debug)]
pub(super) enum ReferenceTime {
    /// The time of the API server, shared by all replicas.
    Server(Timestamp),
    /// The time of this replica. A certificate that is not valid yet is kept: the replica that created it has another
    /// clock, and a replacement would have the same problem.
    Own(Timestamp),
}

impl ReferenceTime {
    pub(super) fn time(self) -> Timestamp {
        match self {
            Self::Server(time) | Self::Own(time) => time,
        }
    }
}

/// Returns the validity of the first certificate of a PEM text.
pub(super) fn validity(pem: &str) -> Option<Validity> {
    flyball_tls::validity(&CertificateDer::from_pem_slice(pem.as_bytes()).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn certificate_validity_is_read_from_its_dates() {
        for now in ["2026-11-21T08:00:00Z", "2049-06-01T00:00:00Z", "2050-01-02T00:00:00Z"] {
            let identity = Identity::make("op", &["localhost".into(), "127.0.0.1".into()], at(now)).unwrap();
            assert_eq!(identity.created_at(), Some(at(now)), "{now}");
            let is_good = |after: SignedDuration| identity.is_good(ReferenceTime::Server(at(now) + after));
            assert!(is_good(SignedDuration::ZERO) && !is_good(LIFETIME) && !is_good(-Validity::BACKDATED * 2));
            let is_good = |after: SignedDuration| identity.is_good(ReferenceTime::Own(at(now) + after));
            assert!(!is_good(LIFETIME) && is_good(-Validity::BACKDATED * 2), "either clock may be wrong");
        }
    }

    #[test]
    fn invalid_certificate_has_no_validity() {
        let pem = |body: &str| format!("-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n");
        for text in ["", "no PEM", &pem(""), &pem("MIIB"), &pem("MA=="), &pem("MIT/////")] {
            assert_eq!(validity(text), None, "{text}");
        }
    }
}
