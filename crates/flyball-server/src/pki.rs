//! Certificates: an authority of the server's own, its serving certificate and those of its clients.
//!
//! The clock is the caller's; keys come from the operating system. See
//! <https://kubernetes.io/docs/setup/best-practices/certificates/>.

use crate::data_dir::{DataDir, DataDirError};
use flyball_core::Clock;
use flyball_core::time::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use serde_json::{Value, json};
use std::sync::Arc;

/// For how many years the authority and the server are good, whose keys stay where they were made.
const YEARS: i32 = 10;

/// For how many years a client is.
const CLIENT_YEARS: i32 = 1;

/// Why no certificate could be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A key or a certificate could not be made.
    #[error("certificates could not be made")]
    Make(#[from] rcgen::Error),
    /// A certificate or key cannot be used.
    #[error("certificates could not be used")]
    Use(#[from] rustls::Error),
    /// A certificate or key cannot be read.
    #[error("certificates could not be read")]
    Read(#[from] rustls::pki_types::pem::Error),
    /// They cannot be kept, or what was kept cannot be read.
    #[error(transparent)]
    Kept(#[from] DataDirError),
    /// There is nothing to verify clients with.
    #[error("clients cannot be verified")]
    Verify(#[from] rustls::server::VerifierBuilderError),
}

/// A certificate and its key, both in PEM.
#[derive(Clone)]
pub struct Identity {
    /// The certificate.
    pub certificate: String,
    /// Its private key.
    pub key: String,
}

/// An authority that signs certificates.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Its own certificate, in PEM.
    certificate: String,
    clock: Clock,
}

fn named(name: &str, group: Option<&str>) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    if let Some(group) = group {
        names.push(DnType::OrganizationName, group);
    }
    names.push(DnType::CommonName, name);
    names
}

impl Authority {
    /// Makes an authority.
    ///
    /// # Errors
    ///
    /// Fails if the operating system has no randomness to give.
    pub fn new(clock: &Clock) -> Result<Self, Error> {
        let (params, key) = (own_params(clock), KeyPair::generate()?);
        let certificate = params.self_signed(&key)?.pem();
        Ok(Self { issuer: Issuer::new(params, key), certificate, clock: clock.clone() })
    }

    /// Returns the authority whose key and certificate a data directory holds; a new one if there is none yet.
    ///
    /// # Errors
    ///
    /// Fails if what the directory holds is no authority, or if it takes none.
    pub fn kept(directory: &DataDir, clock: &Clock) -> Result<Self, Error> {
        const NAMES: [&str; 2] = ["ca.key", "ca.crt"];
        let text = |name: &str| -> Result<Option<String>, Error> {
            let damaged = |_| DataDirError::Damaged { path: directory.path().join(name), at: 0 };
            Ok(directory.load(name)?.map(String::from_utf8).transpose().map_err(damaged)?)
        };
        // The certificate is written last: without it nobody has seen the key.
        if let (Some(key), Some(certificate)) = (text(NAMES[0])?, text(NAMES[1])?) {
            let issuer = Issuer::new(own_params(clock), KeyPair::from_pem(&key)?);
            return Ok(Self { issuer, certificate, clock: clock.clone() });
        }
        let new = Self::new(clock)?;
        directory.save(NAMES[0], new.issuer.key().serialize_pem().as_bytes())?;
        directory.save(NAMES[1], new.certificate.as_bytes())?;
        Ok(new)
    }

    /// Returns the authority's own certificate in PEM, which clients trust.
    pub fn certificate(&self) -> String {
        self.certificate.clone()
    }

    /// Makes the certificate of a server that is reached by these names and addresses.
    ///
    /// # Errors
    ///
    /// Fails if a name is none, or if the operating system has no randomness to give.
    pub fn server(&self, names: &[&str]) -> Result<Identity, Error> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name = named("kube-apiserver", None);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        good_for(&mut params, &self.clock, YEARS);
        self.sign(params)
    }

    /// Makes the certificate of a client, whose name and group the server takes it for. It is good for a year: nothing
    /// takes it back before.
    ///
    /// # Errors
    ///
    /// Fails if the operating system has no randomness to give.
    pub fn client(&self, name: &str, group: Option<&str>) -> Result<Identity, Error> {
        let mut params = CertificateParams::default();
        params.distinguished_name = named(name, group);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        good_for(&mut params, &self.clock, CLIENT_YEARS);
        self.sign(params)
    }

    fn sign(&self, mut params: CertificateParams) -> Result<Identity, Error> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(Identity { certificate: certificate.pem(), key: key.serialize_pem() })
    }

    /// Makes the TLS configuration of a server that knows clients by certificates of this authority.
    ///
    /// # Errors
    ///
    /// Fails if the identity is not of this authority.
    pub fn tls(&self, identity: &Identity) -> Result<Arc<ServerConfig>, Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.certificate.as_bytes())?)?;
        let clients = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone())
            .allow_unauthenticated()
            .build()?;
        let certificate = CertificateDer::from_pem_slice(identity.certificate.as_bytes())?;
        let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes())?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(clients)
            .with_single_cert(vec![certificate], key)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }

    /// Writes a kubeconfig with one context, which leads a client to a server.
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

/// Returns the contents of the authority's certificate.
fn own_params(clock: &Clock) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = named("flyball-ca", None);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    good_for(&mut params, clock, YEARS);
    params
}

/// Certificates are good from the day before, whatever the clocks of others say, for so many years.
fn good_for(params: &mut CertificateParams, clock: &Clock, years: i32) {
    const DAY: i64 = 24 * 60 * 60;
    let now = clock.now().as_second();
    let date = Timestamp::from_second(now - DAY).unwrap_or_default().strftime("%Y %m %d").to_string();
    let mut parts = date.split(' ').filter_map(|part| part.parse::<i32>().ok());
    let mut part = || parts.next().unwrap_or(1);
    // Every month has a day 28.
    let (year, month, day) = (part(), u8::try_from(part()).unwrap_or(1), u8::try_from(part()).unwrap_or(1).min(28));
    params.not_before = date_time_ymd(year, month, day);
    params.not_after = date_time_ymd(year + years, month, day);
}

#[cfg(test)]
mod tests {
    use super::*;
    use x509_parser::prelude::{FromDer, X509Certificate};

    #[test]
    fn a_client_is_known_for_a_year() {
        // The 29th of February 2028.
        let clock = Clock::new(|| Timestamp::from_second(1_835_395_200).unwrap());
        let authority = Authority::new(&clock).unwrap();
        let days = |identity: &str| {
            let der = CertificateDer::from_pem_slice(identity.as_bytes()).unwrap();
            let (_, certificate) = X509Certificate::from_der(&der).unwrap();
            let validity = certificate.validity();
            let now = 1_835_395_200;
            assert!(validity.not_before.timestamp() < now);
            (validity.not_after.timestamp() - now) / (24 * 60 * 60)
        };
        let client = days(&authority.client("ann", None).unwrap().certificate);
        assert!((360..=366).contains(&client), "{client}");
        assert!(days(&authority.server(&["localhost"]).unwrap().certificate) > 3000);
        assert!(days(&authority.certificate()) > 3000);
    }
}
