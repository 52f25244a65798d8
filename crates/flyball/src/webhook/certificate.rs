//! Issuing of certificates, and their validity.

use flyball_core::time::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, date_time_ymd,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::time::Duration;

/// Validity of a certificate.
pub(super) const LIFETIME: SignedDuration = SignedDuration::from_hours(365 * 24);
/// The age at which an identity gets a successor.
const RENEWAL_AGE: SignedDuration = SignedDuration::from_secs(LIFETIME.as_secs() / 3 * 2);
/// Certificates are good from this time before they are made, as clocks differ.
const BACKDATED: SignedDuration = SignedDuration::from_hours(24);

/// An authority that has signed one certificate and lost its key since.
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
    /// Makes an authority and a serving certificate for these names and addresses.
    pub(crate) fn make(operator: &str, names: &[String], now: Timestamp) -> Result<Self, rcgen::Error> {
        let mut params = CertificateParams::default();
        // The time tells authorities apart.
        params.distinguished_name = named(&format!("{operator} webhooks {}", now.as_second()));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        good_from(&mut params, now);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name = named(operator);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        good_from(&mut params, now);
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &issuer)?;
        Ok(Self { authority: issuer.pem(), certificate: certificate.pem(), key: key.serialize_pem() })
    }

    /// Returns when it was made, `None` if that cannot be read.
    pub(super) fn made(&self) -> Option<Timestamp> {
        Some(validity(&self.certificate)?.0 + BACKDATED)
    }

    /// Returns true if it should have a successor at this time.
    pub(crate) fn is_old(&self, now: Timestamp) -> bool {
        self.made().is_none_or(|made| now.duration_since(made) >= RENEWAL_AGE)
    }

    /// Returns true if it can be read and is good at this time, for all that is known of the time.
    pub(super) fn is_good(&self, now: Now) -> bool {
        let is_good = |(from, to)| match now {
            Now::Server(now) => from <= now && now < to,
            Now::Own(now) => now < to,
        };
        [&self.certificate, &self.authority].into_iter().all(|pem| validity(pem).is_some_and(is_good))
    }
}

/// The time by which certificates are judged.
#[derive(Clone, Copy, Debug)]
pub(super) enum Now {
    /// That of the API server, which all replicas share.
    Server(Timestamp),
    /// That of this replica. A certificate that is not good yet is kept: the replica that made it has another clock,
    /// and a successor would be no better by that one.
    Own(Timestamp),
}

impl Now {
    pub(super) fn time(self) -> Timestamp {
        match self {
            Self::Server(time) | Self::Own(time) => time,
        }
    }
}

fn named(name: &str) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    names.push(DnType::CommonName, name);
    names
}

fn good_from(params: &mut CertificateParams, now: Timestamp) {
    let from = now - BACKDATED;
    let since_1970 = |time: Timestamp| Duration::from_secs(time.as_second().try_into().unwrap_or_default());
    params.not_before = date_time_ymd(1970, 1, 1) + since_1970(from);
    params.not_after = date_time_ymd(1970, 1, 1) + since_1970(from + LIFETIME);
}

/// Returns from when to when the first certificate of a PEM text is good.
pub(super) fn validity(pem: &str) -> Option<(Timestamp, Timestamp)> {
    let der = CertificateDer::from_pem_slice(pem.as_bytes()).ok()?;
    // Certificate and tbsCertificate are sequences that begin; then come version (tagged, may be left out), serial
    // number, algorithm and issuer, see RFC 5280, 4.1.
    let (_, certificate, _) = element(&der)?;
    let (_, mut rest, _) = element(certificate)?;
    if rest.first() == Some(&0xa0) {
        rest = element(rest)?.2;
    }
    for _ in 0..3 {
        rest = element(rest)?.2;
    }
    let (_, validity, _) = element(rest)?;
    let (from_tag, from, rest) = element(validity)?;
    let (to_tag, to, _) = element(rest)?;
    Some((time(from_tag, from)?, time(to_tag, to)?))
}

/// Reads one element of DER: its tag, its content, and what follows it.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[tag, first], rest) = der.split_first_chunk()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x84 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(first - 0x80))?;
            (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
        }
        // Length 0x80 has no place in DER, and nothing here is that long.
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

/// Reads a UTCTime, whose years are from 1950 to 2049, or a GeneralizedTime.
fn time(tag: u8, text: &[u8]) -> Option<Timestamp> {
    let text = std::str::from_utf8(text).ok().filter(|text| text.is_ascii())?;
    let full = match (tag, text.len()) {
        (0x17, 13) => format!("{}{text}", if text < "5" { "20" } else { "19" }),
        (0x18, 15) => text.to_owned(),
        _ => return None,
    };
    let (date, clock) = full.strip_suffix('Z')?.split_at(8);
    format!("{}-{}-{}T{}:{}:{}Z", &date[..4], &date[4..6], &date[6..], &clock[..2], &clock[2..4], &clock[4..])
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn a_certificate_tells_how_long_it_is_good() {
        for now in ["2026-11-21T08:00:00Z", "2049-06-01T00:00:00Z", "2050-01-02T00:00:00Z"] {
            let made = Identity::make("op", &["localhost".into(), "127.0.0.1".into()], at(now)).unwrap();
            assert_eq!(made.made(), Some(at(now)), "{now}");
            let is_good = |after: SignedDuration| made.is_good(Now::Server(at(now) + after));
            assert!(is_good(SignedDuration::ZERO) && !is_good(LIFETIME) && !is_good(-BACKDATED * 2));
            let is_good = |after: SignedDuration| made.is_good(Now::Own(at(now) + after));
            assert!(!is_good(LIFETIME) && is_good(-BACKDATED * 2), "who knows whose clock is wrong");
        }
    }

    #[test]
    fn what_is_no_certificate_has_no_validity() {
        let pem = |body: &str| format!("-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n");
        for text in ["", "no PEM", &pem(""), &pem("MIIB"), &pem("MA=="), &pem("MIT/////")] {
            assert_eq!(validity(text), None, "{text}");
        }
        let whole = Identity::make("op", &[], at("2026-11-21T08:00:00Z")).unwrap().certificate;
        let der = CertificateDer::from_pem_slice(whole.as_bytes()).unwrap();
        for cut in 0..der.len() {
            // Nothing but that it returns.
            let _ = element(&der[..cut]).and_then(|(_, content, _)| element(content));
        }
    }
}
