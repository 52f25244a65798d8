//! Configurations of TLS clients and servers.

use crate::Identity;
use crate::verifier::Verifier;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::sync::Arc;

/// Error of certificates that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A certificate or key cannot be read.
    #[error("cannot read a certificate or its key")]
    Read(#[from] pem::Error),
    /// A certificate or key is not supported, or they do not belong together.
    #[error("cannot use a certificate or its key")]
    Use(#[from] rustls::Error),
    /// Clients cannot be verified by an authority.
    #[error("cannot verify clients")]
    Verify(#[from] VerifierBuilderError),
}

/// The servers that a client trusts.
#[derive(Clone, Copy, Debug)]
pub enum Trust<'a> {
    /// Those that the machine trusts; `SSL_CERT_FILE` and `SSL_CERT_DIR` replace its certificates.
    System,
    /// Those with a certificate in this bundle in PEM, or by an authority in it. Other text is ignored.
    Bundle(&'a [u8]),
    /// Any that holds the key of the certificate that it presents.
    Any,
}

/// Returns the cryptography that all of TLS uses.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// Returns the configuration of a client without a certificate.
///
/// # Errors
///
/// Fails if no version of TLS is supported.
pub fn client_config(trust: Trust<'_>) -> Result<ClientConfig, rustls::Error> {
    let provider = provider();
    let verifier = match trust {
        Trust::System => Verifier::new(rustls_native_certs::load_native_certs().certs, &provider),
        Trust::Bundle(bundle) => {
            Verifier::new(CertificateDer::pem_slice_iter(bundle).filter_map(Result::ok).collect(), &provider)
        }
        Trust::Any => Verifier::any(&provider),
    };
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(config.dangerous().with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth())
}

/// Returns the configuration of a server. Clients may present a certificate if there is an authority, in PEM, that they
/// are verified by.
///
/// # Errors
///
/// Fails if a certificate or key cannot be used.
pub fn server_config(identity: &Identity, clients: Option<&str>) -> Result<ServerConfig, ConfigError> {
    let provider = provider();
    let config = ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions()?;
    let config = match clients {
        None => config.with_no_client_auth(),
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            roots.add(CertificateDer::from_pem_slice(authority.as_bytes())?)?;
            let clients = WebPkiClientVerifier::builder_with_provider(roots.into(), provider).allow_unauthenticated();
            config.with_client_cert_verifier(clients.build()?)
        }
    };
    let certificate = CertificateDer::from_pem_slice(identity.certificate.as_bytes())?;
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes())?;
    Ok(config.with_single_cert(vec![certificate], key)?)
}
