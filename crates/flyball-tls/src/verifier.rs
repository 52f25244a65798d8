//! Verification of server certificates.

use crate::validity;
use flyball_core::time::Timestamp;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use std::sync::Arc;

/// Verifies like Go: a trusted certificate is accepted as a server certificate, even if it is a CA certificate.
#[derive(Debug)]
pub(crate) struct Verifier {
    trusted: TrustedCertificates,
    algorithms: WebPkiSupportedAlgorithms,
}

#[derive(Debug)]
enum TrustedCertificates {
    Any,
    Certificates {
        all: Vec<CertificateDer<'static>>,
        /// The verifier of certificate chains; `None` if there is no trust anchor.
        chains: Option<Arc<WebPkiServerVerifier>>,
    },
}

impl Verifier {
    /// Trusts these certificates and certificates signed by them.
    pub(crate) fn new(all: Vec<CertificateDer<'static>>, provider: &Arc<CryptoProvider>) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(all.iter().cloned());
        let chains = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build().ok();
        let trusted = TrustedCertificates::Certificates { all, chains };
        Self { trusted, algorithms: provider.signature_verification_algorithms }
    }

    /// Trusts any certificate; the server must still prove that it has the private key.
    pub(crate) fn any(provider: &CryptoProvider) -> Self {
        Self { trusted: TrustedCertificates::Any, algorithms: provider.signature_verification_algorithms }
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let TrustedCertificates::Certificates { all, chains } = &self.trusted else {
            return Ok(ServerCertVerified::assertion());
        };
        if all.iter().any(|trusted| trusted.as_ref() == certificate.as_ref()) {
            check_time(certificate, now)?;
            rustls::client::verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
            return Ok(ServerCertVerified::assertion());
        }
        match chains {
            Some(chains) => chains.verify_server_cert(certificate, intermediates, name, ocsp, now),
            None => Err(Error::InvalidCertificate(CertificateError::UnknownIssuer)),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// Rejects a certificate that is not valid now.
fn check_time(certificate: &CertificateDer<'_>, now: UnixTime) -> Result<(), Error> {
    let invalid = || Error::InvalidCertificate(CertificateError::BadEncoding);
    let now = i64::try_from(now.as_secs()).ok().and_then(|now| Timestamp::from_second(now).ok()).ok_or_else(invalid)?;
    let validity = validity(certificate).ok_or_else(invalid)?;
    if now < validity.from {
        return Err(Error::InvalidCertificate(CertificateError::NotValidYet));
    }
    if now > validity.until {
        return Err(Error::InvalidCertificate(CertificateError::Expired));
    }
    Ok(())
}
