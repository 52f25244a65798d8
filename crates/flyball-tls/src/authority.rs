//! Certificate authorities.

use crate::Validity;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, Error, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose,
};
use std::fmt;

/// A certificate and its key, both in PEM.
#[derive(Clone)]
pub struct Identity {
    /// The certificate.
    pub certificate: String,
    /// Its private key.
    pub key: String,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

/// The kind of peer that a certificate identifies.
#[derive(Clone, Copy, Debug)]
pub enum Purpose<'a> {
    /// A server with these names and addresses.
    Server(&'a [String]),
    /// A client, optionally in a group, which is the organization of its name.
    Client(Option<&'a str>),
}

/// A certificate authority.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

impl Authority {
    /// Creates a certificate authority with a new key.
    ///
    /// # Errors
    ///
    /// Fails if the operating system provides no randomness.
    pub fn new(name: &str, validity: Validity) -> Result<Self, Error> {
        let (mut params, key) = (authority(name), KeyPair::generate()?);
        validity.limit(&mut params);
        let certificate = params.self_signed(&key)?.pem();
        Ok(Self { issuer: Issuer::new(params, key), certificate })
    }

    /// Restores a certificate authority with this name from its certificate and key in PEM.
    ///
    /// # Errors
    ///
    /// Fails if the key cannot be read.
    pub fn from_pem(name: &str, certificate: String, key: &str) -> Result<Self, Error> {
        Ok(Self { issuer: Issuer::new(authority(name), KeyPair::from_pem(key)?), certificate })
    }

    /// Returns the CA certificate in PEM, which peers trust.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// Returns the private key in PEM.
    pub fn key(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// Issues a certificate with a new key.
    ///
    /// # Errors
    ///
    /// Fails if a server name is invalid, or if the operating system provides no randomness.
    pub fn issue(&self, name: &str, purpose: Purpose<'_>, validity: Validity) -> Result<Identity, Error> {
        let (names, group, usage) = match purpose {
            Purpose::Server(names) => (names.to_vec(), None, ExtendedKeyUsagePurpose::ServerAuth),
            Purpose::Client(group) => (Vec::new(), group, ExtendedKeyUsagePurpose::ClientAuth),
        };
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name = named(name, group);
        params.extended_key_usages = vec![usage];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        // Required by Python's strict verification.
        params.use_authority_key_identifier_extension = true;
        validity.limit(&mut params);
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(Identity { certificate: certificate.pem(), key: key.serialize_pem() })
    }
}

fn authority(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = named(name, None);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    params
}

fn named(name: &str, group: Option<&str>) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    if let Some(group) = group {
        names.push(DnType::OrganizationName, group);
    }
    names.push(DnType::CommonName, name);
    names
}
