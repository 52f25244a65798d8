//! A TLS handshake with the operator's own listener, in the same way as the API server: with the name of the service
//! and the published authority.
//!
//! No request is sent: only the certificate is verified, at a given time. A handshake that a busy listener drops does
//! not affect the trust in the certificate; [`ProbeError`] distinguishes it.

use flyball_core::time::Timestamp;
use rustls::RootCertStore;
use rustls::client::ClientConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::time_provider::TimeProvider;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Timeout of a connection and its handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// Error of a TLS handshake.
#[derive(Debug, thiserror::Error)]
pub(super) enum ProbeError {
    /// The certificate is not trusted, or the bundle cannot be used.
    #[error("{0}")]
    Untrusted(String),
    /// There was no handshake.
    #[error("no response from the listener: {0}")]
    Unreachable(io::Error),
}

/// A fixed time.
#[derive(Debug)]
struct FixedTime(UnixTime);

impl TimeProvider for FixedTime {
    fn current_time(&self) -> Option<UnixTime> {
        Some(self.0)
    }
}

/// Performs a handshake with the listener at an address, with a server name and the authorities of a bundle in PEM.
pub(super) async fn handshake(address: SocketAddr, name: &str, bundle: &str, now: Timestamp) -> Result<(), ProbeError> {
    connect(address, name, bundle, now).await.map(drop)
}

/// Connects as [`handshake`] does, and keeps the connection.
pub(super) async fn connect(
    address: SocketAddr,
    name: &str,
    bundle: &str,
    now: Timestamp,
) -> Result<TlsStream<TcpStream>, ProbeError> {
    let untrusted = |error: &dyn std::error::Error| ProbeError::Untrusted(error.to_string());
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
        let authority = authority.map_err(|error| untrusted(&error))?;
        roots.add(authority).map_err(|error| untrusted(&error))?;
    }
    let seconds = Duration::from_secs(now.as_second().try_into().unwrap_or_default());
    let at = Arc::new(FixedTime(UnixTime::since_unix_epoch(seconds)));
    let config = ClientConfig::builder_with_details(Arc::new(ring::default_provider()), at)
        .with_safe_default_protocol_versions()
        .map_err(|error| untrusted(&error))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(name.to_owned()).map_err(|error| untrusted(&error))?;
    let shake = async {
        let stream = TcpStream::connect(dialed(address)).await?;
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    };
    let shaken = timeout(HANDSHAKE_TIMEOUT, shake).await.unwrap_or_else(|late| Err(late.into()));
    shaken.map_err(|error| match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(error @ rustls::Error::InvalidCertificate(_)) => untrusted(error),
        _ => ProbeError::Unreachable(error),
    })
}

/// Returns the address to dial a listener that listens on all addresses.
fn dialed(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

#[cfg(test)]
mod tests {
    use super::super::Webhooks;
    use super::super::certificate::Identity;
    use super::super::listener::{ServingCertificate, serve};
    use super::*;
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn certificate_is_verified_by_name_authority_and_time() {
        let now: Timestamp = "2026-11-21T08:00:00Z".parse().unwrap();
        let [ours, other] = [(); 2].map(|()| Identity::make("op", &["op-webhook.ns.svc".into()], now).unwrap());
        let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = Arc::<ServingCertificate>::default();
        serving.set(&ours.certificate, &ours.key).unwrap();
        let serves = tokio::spawn(serve(listener, Webhooks::new(&[], Arc::default()), serving));
        let shake = async |name: &str, bundle: &str, now: Timestamp| match handshake(address, name, bundle, now).await {
            Ok(()) => "trusted".to_owned(),
            Err(failure) => failure.to_string(),
        };
        let (name, both) = ("op-webhook.ns.svc", format!("{}{}", other.authority, ours.authority));
        assert_eq!(shake(name, &both, now).await, "trusted");
        for (name, bundle, time, why) in [
            (name, &other.authority, now, "BadSignature"),
            (name, &String::new(), now, "UnknownIssuer"),
            (name, &both, "2028-01-01T00:00:00Z".parse().unwrap(), "expired"),
            ("other.ns.svc", &both, now, "not valid for name"),
            ("no name", &both, now, "invalid dns name"),
        ] {
            let result = shake(name, bundle, time).await;
            assert!(result.contains(why), "{result}");
        }
        serves.abort();
        assert!(serves.await.is_err());
        assert!(shake(name, &both, now).await.contains("no response"));
    }
}
