//! Certificates: the server's own authority, its serving certificate and those of its clients.
//!
//! The clock is the caller's; keys come from the operating system. See
//! <https://kubernetes.io/docs/setup/best-practices/certificates/>.

use crate::data_dir::{DataDir, DataDirError};
use flyball_core::Clock;
use flyball_core::time::SignedDuration;
use flyball_tls::{ConfigError, IssueError, Purpose, Validity};
use rustls::ServerConfig;
use serde_json::{Value, json};
use std::sync::Arc;

pub use flyball_tls::Identity;

/// Validity of the certificates of the authority and the server, whose keys never leave the machine.
const LIFETIME: SignedDuration = SignedDuration::from_hours(10 * 365 * 24);
/// Validity of a client's certificate.
const CLIENT_LIFETIME: SignedDuration = SignedDuration::from_hours(365 * 24);
/// Name of the authority.
const NAME: &str = "flyball-ca";

/// The error of creating a certificate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A key or a certificate could not be created.
    #[error("failed to create certificates")]
    Make(#[from] IssueError),
    /// A certificate or key cannot be used.
    #[error("failed to load certificates")]
    Use(#[from] ConfigError),
    /// The files cannot be written or read.
    #[error(transparent)]
    Kept(#[from] DataDirError),
}

/// An authority that signs certificates.
pub struct Authority {
    authority: flyball_tls::Authority,
    clock: Clock,
}

impl Authority {
    /// Creates an authority.
    ///
    /// # Errors
    ///
    /// Fails if the operating system provides no randomness.
    pub fn new(clock: &Clock) -> Result<Self, Error> {
        let authority = flyball_tls::Authority::new(NAME, Validity::new(clock.now(), LIFETIME))?;
        Ok(Self { authority, clock: clock.clone() })
    }

    /// Returns the authority of a data directory; a new one if there is none yet.
    ///
    /// # Errors
    ///
    /// Fails if the stored authority is invalid, or a new one cannot be stored.
    pub fn load_or_create(directory: &DataDir, clock: &Clock) -> Result<Self, Error> {
        const NAMES: [&str; 2] = ["ca.key", "ca.crt"];
        let text = |name: &str| -> Result<Option<String>, Error> {
            let damaged = |_| DataDirError::Damaged { path: directory.path().join(name), at: 0 };
            Ok(directory.load(name)?.map(String::from_utf8).transpose().map_err(damaged)?)
        };
        // The certificate is written last: without it, the key is not in use.
        if let (Some(key), Some(certificate)) = (text(NAMES[0])?, text(NAMES[1])?) {
            let authority = flyball_tls::Authority::from_pem(NAME, certificate, &key)?;
            return Ok(Self { authority, clock: clock.clone() });
        }
        let new = Self::new(clock)?;
        directory.save(NAMES[0], new.authority.key().as_bytes())?;
        directory.save(NAMES[1], new.authority.certificate().as_bytes())?;
        Ok(new)
    }

    /// Returns the authority's own certificate in PEM, which clients trust.
    pub fn certificate(&self) -> String {
        self.authority.certificate().to_owned()
    }

    /// Issues the certificate of a server with these names and addresses.
    ///
    /// # Errors
    ///
    /// Fails if a name is invalid, or if the operating system provides no randomness.
    pub fn server(&self, names: &[&str]) -> Result<Identity, Error> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let validity = Validity::new(self.clock.now(), LIFETIME);
        Ok(self.authority.issue("kube-apiserver", Purpose::Server(&names), validity)?)
    }

    /// Issues the certificate of a client with this name and group. It is valid for a year, and cannot be revoked.
    ///
    /// # Errors
    ///
    /// Fails if the operating system provides no randomness.
    pub fn client(&self, name: &str, group: Option<&str>) -> Result<Identity, Error> {
        let validity = Validity::new(self.clock.now(), CLIENT_LIFETIME);
        Ok(self.authority.issue(name, Purpose::Client(group), validity)?)
    }

    /// Creates the TLS configuration of a server that authenticates clients by certificates of this authority.
    ///
    /// # Errors
    ///
    /// Fails if the identity was not issued by this authority.
    pub fn tls(&self, identity: &Identity) -> Result<Arc<ServerConfig>, Error> {
        let mut config = flyball_tls::server_config(identity, Some(self.authority.certificate()))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }

    /// Returns a kubeconfig with one context, for a client of a server.
    pub fn kubeconfig(&self, name: &str, url: &str, client: &Identity) -> Value {
        use base64::Engine;
        let encode = |pem: &str| base64::engine::general_purpose::STANDARD.encode(pem);
        json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": {"server": url, "certificate-authority-data": encode(&self.certificate())}}],
            "users": [{"name": name, "user": {
                "client-certificate-data": encode(&client.certificate), "client-key-data": encode(&client.key),
            }}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
            "current-context": name,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flyball_core::time::Timestamp;
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;

    #[test]
    fn client_certificates_are_valid_for_a_year() {
        // The 29th of February 2028.
        let clock = Clock::new(|| Timestamp::from_second(1_835_395_200).unwrap());
        let authority = Authority::new(&clock).unwrap();
        let days = |identity: &str| {
            let der = CertificateDer::from_pem_slice(identity.as_bytes()).unwrap();
            let validity = flyball_tls::validity(&der).unwrap();
            assert!(validity.contains(clock.now()));
            validity.until.duration_since(clock.now()).as_hours() / 24
        };
        let client = days(&authority.client("ann", None).unwrap().certificate);
        assert!((360..=366).contains(&client), "{client}");
        assert!(days(&authority.server(&["localhost"]).unwrap().certificate) > 3000);
        assert!(days(&authority.certificate()) > 3000);
    }
}
