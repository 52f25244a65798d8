//! Validity periods of certificates.

use flyball_core::time::{SignedDuration, Timestamp};
use rcgen::{CertificateParams, date_time_ymd};
use std::time::Duration;

/// The validity period of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// Start of the period.
    pub from: Timestamp,
    /// End of the period.
    pub until: Timestamp,
}

impl Validity {
    /// From 1970 to the end of 9999, for certificates that are used until their process ends.
    pub const UNLIMITED: Self = Self { from: Timestamp::UNIX_EPOCH, until: Timestamp::constant(253_402_128_000, 0) };
    /// Time by which certificates are backdated, because clocks differ.
    pub const BACKDATED: SignedDuration = SignedDuration::from_hours(24);

    /// Returns the validity period of a new certificate, which begins a day earlier.
    pub fn new(now: Timestamp, lifetime: SignedDuration) -> Self {
        let from = now.saturating_sub(Self::BACKDATED).unwrap_or(Timestamp::UNIX_EPOCH);
        Self { from, until: from.saturating_add(lifetime).unwrap_or(Timestamp::UNIX_EPOCH) }
    }

    /// Returns true if a certificate is valid at this time.
    pub fn contains(&self, now: Timestamp) -> bool {
        self.from <= now && now <= self.until
    }

    pub(crate) fn limit(self, params: &mut CertificateParams) {
        let since_1970 = |time: Timestamp| Duration::from_secs(time.as_second().try_into().unwrap_or_default());
        params.not_before = date_time_ymd(1970, 1, 1) + since_1970(self.from);
        params.not_after = date_time_ymd(1970, 1, 1) + since_1970(self.until);
    }
}

/// Parses the validity period of a certificate in DER; `None` if the certificate is malformed.
pub fn validity(der: &[u8]) -> Option<Validity> {
    // A Certificate and its tbsCertificate are sequences. The tbsCertificate begins with the version (tagged,
    // optional), serial number, algorithm and issuer, see RFC 5280, 4.1.
    let (_, certificate, _) = element(der)?;
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
    Some(Validity { from: time(from_tag, from)?, until: time(to_tag, to)? })
}

/// Parses one DER element: returns its tag, its content and the rest of the input.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[tag, first], rest) = der.split_first_chunk()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x84 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(first - 0x80))?;
            (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
        }
        // Length 0x80 is invalid in DER, and these elements are shorter.
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

/// Parses a UTCTime, with years from 1950 to 2049, or a GeneralizedTime.
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
    use crate::{Authority, Purpose};
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;

    #[test]
    fn validity_is_read_back_from_an_issued_certificate() {
        let days = SignedDuration::from_hours(30 * 24);
        let dates = ["1970-01-01T00:00:00Z", "2026-11-21T08:00:00Z", "2049-12-20T00:00:00Z", "2050-01-02T00:00:00Z"];
        let limited = dates.map(|now| Validity::new(now.parse().unwrap(), days));
        for expected in limited.into_iter().chain([Validity::UNLIMITED]) {
            let authority = Authority::new("a", expected).unwrap();
            let issued = authority.issue("b", Purpose::Server(&["localhost".into()]), expected).unwrap();
            for pem in [authority.certificate(), &issued.certificate] {
                let der = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
                let read = validity(&der).unwrap();
                let from = expected.from.max(Timestamp::UNIX_EPOCH);
                assert_eq!(read, Validity { from, ..expected });
                assert!(read.contains(read.from) && read.contains(read.until));
                assert!(!read.contains(read.until + SignedDuration::from_secs(1)));
                assert_eq!(validity(&der[..60]), None);
                for end in 0..der.len() {
                    // The calls must not panic; their results are irrelevant.
                    let _ = validity(&der[..end]);
                    let _ = element(&der[..end]).and_then(|(_, content, _)| element(content));
                }
            }
        }
    }
}
