//! The secret in which the replicas of an operator share their certificates, and its next state.
//!
//! Pure: time and the secret are arguments. The order that avoids failed calls: a new authority is published; an hour
//! later, when all replicas and API servers have read it, its certificate is served; the old authority stays
//! published until no replica uses it.
//!
//! Replicas agree although their clocks differ: they check certificates by the API server's time, from the `Date`
//! header of its responses, and write the secret under its resource version, so that of two concurrent writers one
//! starts again from the other's result. Without a `Date` header, a replica uses its own clock: it never replaces a
//! certificate because it is not valid yet, and certificates are valid from a day before they are issued, so clocks
//! may differ by a day.
//!
//! Invariant: no replica replaces a certificate that is valid by the API server's time before two thirds of its
//! lifetime.

use super::certificate::{Identity, ReferenceTime, validity};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flyball_core::time::SignedDuration;
use flyball_tls::IssueError;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Time between the publication of a new authority and its first use.
const AUTHORITY_OVERLAP: SignedDuration = SignedDuration::from_hours(1);
/// Annotation with the names of the certificate, so that replicas with different names do not overwrite each other's.
const NAMES_ANNOTATION: &str = "flyball.dev/webhook-names";

/// The contents of the secret.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CertificateSecret {
    /// The identity that is served.
    pub(super) current: Option<Identity>,
    /// The identity that is served next.
    next: Option<Identity>,
    /// The authority of the identity that was served before.
    last: Option<String>,
    names: BTreeSet<String>,
}

impl CertificateSecret {
    /// Parses a secret; missing or incomplete parts are created again.
    pub(super) fn read(secret: &Value) -> Self {
        let text = |key: String| {
            let bytes = STANDARD.decode(secret["data"][key].as_str()?).ok()?;
            String::from_utf8(bytes).ok()
        };
        let identity = |prefix: &str| {
            let text = |key: &str| text(format!("{prefix}{key}"));
            Some(Identity { authority: text("ca.crt")?, certificate: text("tls.crt")?, key: text("tls.key")? })
        };
        let names = secret["metadata"]["annotations"][NAMES_ANNOTATION].as_str().unwrap_or_default();
        Self {
            current: identity(""),
            next: identity("next."),
            last: text("last.ca.crt".into()),
            names: names.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect(),
        }
    }

    /// Encodes it as a secret.
    pub(super) fn write(&self, secret: &mut Value) {
        let mut data = json!({});
        let mut put = |key: String, text: &str| data[key] = STANDARD.encode(text).into();
        for (prefix, identity) in [("", &self.current), ("next.", &self.next)] {
            if let Some(Identity { authority, certificate, key }) = identity {
                put(format!("{prefix}ca.crt"), authority);
                put(format!("{prefix}tls.crt"), certificate);
                put(format!("{prefix}tls.key"), key);
            }
        }
        if let Some(last) = &self.last {
            put("last.ca.crt".into(), last);
        }
        secret["data"] = data;
        let names: Vec<&str> = self.names.iter().map(String::as_str).collect();
        secret["metadata"]["annotations"][NAMES_ANNOTATION] = names.join(",").into();
    }

    /// Returns all trusted authorities.
    pub(super) fn bundle(&self) -> String {
        let identities = [&self.next, &self.current].into_iter().flatten().map(|identity| identity.authority.as_str());
        identities.chain(self.last.as_deref()).collect()
    }

    /// Executes the step that is due, and returns true if there was one. `known` is set if all clients trust the
    /// whole bundle.
    pub(super) fn step(
        &mut self,
        operator: &str,
        names: &[String],
        now: ReferenceTime,
        known: bool,
    ) -> Result<bool, IssueError> {
        let before = self.clone();
        let time = now.time();
        let age = |identity: &Identity| {
            identity.created_at().map_or(SignedDuration::MAX, |created| time.duration_since(created))
        };
        let covered = names.iter().all(|name| self.names.contains(name));
        self.names.extend(names.iter().cloned());
        let make = |names: &BTreeSet<String>| {
            let names: Vec<String> = names.iter().cloned().collect();
            Identity::make(operator, &names, time)
        };
        self.last.take_if(|last| validity(last).is_none_or(|validity| validity.until <= time));
        self.next.take_if(|next| !covered || !next.is_good(now));
        match &mut self.current {
            Some(current) if covered && current.is_good(now) => {
                let due = self.next.take_if(|next| known && age(next) >= AUTHORITY_OVERLAP);
                if let Some(next) = due {
                    self.last = Some(std::mem::replace(current, next).authority);
                } else if self.next.is_none() && current.is_old(time) {
                    self.next = Some(make(&self.names)?);
                }
            }
            // Calls fail in the current state, so an immediate replacement loses nothing.
            current => {
                self.last = current.take().filter(|current| current.is_good(now)).map(|current| current.authority);
                *current = Some(make(&self.names)?);
            }
        }
        Ok(*self != before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flyball_core::time::Timestamp;

    fn at(hours: i64) -> ReferenceTime {
        ReferenceTime::Server("2026-11-21T08:00:00Z".parse::<Timestamp>().unwrap() + SignedDuration::from_hours(hours))
    }

    fn step(secret: &mut CertificateSecret, hours: i64, known: bool) -> bool {
        secret.step("op", &["localhost".into()], at(hours), known).unwrap()
    }

    fn authority(secret: &CertificateSecret) -> String {
        secret.current.clone().unwrap().authority
    }

    #[test]
    fn new_authority_is_published_before_it_signs() {
        let mut secret = CertificateSecret::default();
        assert!(step(&mut secret, 0, false));
        let first = authority(&secret);
        assert!(!step(&mut secret, 240 * 24, true), "it is valid for months");
        let old = 244 * 24;
        assert!(step(&mut secret, old, true));
        assert_eq!(authority(&secret), first);
        assert!(secret.bundle().contains(&first) && secret.bundle().len() > first.len(), "the next one is published");
        assert!(!step(&mut secret, old, true) && !step(&mut secret, old + 2, false), "not all clients trust it yet");
        assert!(step(&mut secret, old + 2, true));
        let second = authority(&secret);
        assert!(second != first && secret.bundle() == format!("{second}{first}"));
        assert!(!step(&mut secret, old + 3, true));
        assert!(step(&mut secret, 365 * 24, true));
        assert_eq!(secret.bundle(), second, "authorities without use are removed");
    }

    #[test]
    fn unusable_certificate_is_replaced() {
        let mut secret = CertificateSecret::default();
        step(&mut secret, 0, false);
        let first = authority(&secret);
        assert!(secret.step("op", &["other".into()], at(1), true).unwrap(), "it lacks a name");
        assert!(authority(&secret) != first && secret.bundle().contains(&first));
        assert!(!step(&mut secret, 1, true), "it has both names");
        assert!(step(&mut secret, 400 * 24, true), "it has expired");
        assert_eq!(secret.bundle(), authority(&secret));
        secret.current = Some(Identity { certificate: "torn".into(), ..secret.current.unwrap() });
        assert!(step(&mut secret, 400 * 24, true));
    }

    #[test]
    fn certificate_from_the_future_is_replaced_only_by_server_time() {
        let mut secret = CertificateSecret::default();
        step(&mut secret, 48, false);
        let (first, ReferenceTime::Server(behind)) = (authority(&secret), at(0)) else { unreachable!("as above") };
        assert!(!secret.step("op", &["localhost".into()], ReferenceTime::Own(behind), false).unwrap());
        assert_eq!(authority(&secret), first);
        assert!(step(&mut secret, 0, false), "calls with it would fail");
        assert_ne!(authority(&secret), first);
    }

    #[test]
    fn secret_round_trips() {
        let mut stored = CertificateSecret::default();
        for hours in [0, 244 * 24, 244 * 24 + 2, 244 * 48] {
            step(&mut stored, hours, true);
            let mut object = json!({"metadata": {"name": "a"}});
            stored.write(&mut object);
            assert_eq!(CertificateSecret::read(&object), stored);
        }
        assert_eq!(CertificateSecret::read(&json!({"data": {"tls.crt": "no base64"}})), CertificateSecret::default());
    }
}
