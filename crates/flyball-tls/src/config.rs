//! TLS configurations of clients and servers.

use crate::Identity;
use crate::verifier::Verifier;
use rustls::client::WantsClientCert;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::{ClientConfig, ConfigBuilder, RootCertStore, ServerConfig};
use std::sync::Arc;

/// An error of a certificate, a key or a TLS configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A certificate or key cannot be parsed.
    #[error("cannot read a certificate or its key")]
    Read(#[from] pem::Error),
    /// A certificate or key is not supported, or the key does not match the certificate.
    #[error("cannot use a certificate or its key")]
    Use(#[from] rustls::Error),
    /// The CA for client certificates is invalid.
    #[error("cannot verify clients")]
    Verify(#[from] VerifierBuilderError),
}

/// The servers that a client trusts.
#[derive(Clone, Copy, Debug)]
pub enum Trust<'a> {
    /// The trusted CAs of the machine, or those of `SSL_CERT_FILE` and `SSL_CERT_DIR`.
    System,
    /// The certificates and CAs of this PEM bundle. Other text in it is ignored.
    Bundle(&'a [u8]),
    /// Any server that has the key of its certificate.
    Any,
}

/// Returns the cryptography provider for TLS.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// Returns the TLS configuration of a client without a certificate.
///
/// # Errors
///
/// Fails if no TLS version is supported.
pub fn client_config(trust: Trust<'_>) -> Result<ClientConfig, rustls::Error> {
    Ok(verifying(trust)?.with_no_client_auth())
}

/// Returns the TLS configuration of a client that presents a certificate if the server asks for one.
///
/// # Errors
///
/// Fails if no TLS version is supported, or if the certificate or key cannot be used.
pub fn identified_client_config(trust: Trust<'_>, identity: &Identity) -> Result<ClientConfig, ConfigError> {
    let certificate = CertificateDer::from_pem_slice(identity.certificate.as_bytes())?;
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes())?;
    Ok(verifying(trust)?.with_client_auth_cert(vec![certificate], key)?)
}

fn verifying(trust: Trust<'_>) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, rustls::Error> {
    let provider = provider();
    let verifier = match trust {
        Trust::System => Verifier::new(rustls_native_certs::load_native_certs().certs, &provider),
        Trust::Bundle(bundle) => {
            Verifier::new(CertificateDer::pem_slice_iter(bundle).filter_map(Result::ok).collect(), &provider)
        }
        Trust::Any => Verifier::any(&provider),
    };
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(config.dangerous().with_custom_certificate_verifier(Arc::new(verifier)))
}

/// Returns the TLS configuration of a server. If there is a CA, in PEM, clients may present a certificate that it
/// verifies.
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
