//! HTTP to servers other than the API server: registries, collectors, external systems.
//!
//! One client for operators and the command line. It speaks HTTP/1.1, keeps idle connections, and follows no redirect.
//! Callers implement timeouts and retries. Requests to an API server use [`Context`](crate::Context).

use crate::proxy::{Connector, Proxies};
use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::rt::TokioExecutor;
use std::error::Error;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;
use tower::BoxError;

pub use flyball_tls::Trust;

/// Timeout of a TCP connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Returns true if a request to this address cannot be read by others on its way, and no other host can receive it: it
/// is over `https`, whose certificate a [`Client`] verifies, or to this machine. Only such a request should contain a
/// token.
pub fn is_confidential(address: &Uri) -> bool {
    let host = address.host().unwrap_or_default();
    let ip = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    let is_local = host.eq_ignore_ascii_case("localhost") || ip.is_ok_and(|ip| ip.is_loopback());
    match address.scheme_str() {
        Some("https") => true,
        Some("http") => is_local,
        _ => false,
    }
}

/// The error of a connection, whose message is its cause: the request was not sent.
#[derive(Debug)]
struct ConnectError(legacy::Error);

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.source() {
            Some(cause) => fmt::Display::fmt(cause, f),
            None => fmt::Display::fmt(&self.0, f),
        }
    }
}

impl Error for ConnectError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}

/// An HTTP client. Clones share their connections.
#[derive(Clone, Debug)]
pub struct Client(legacy::Client<HttpsConnector<Connector>, Full<Bytes>>);

impl Client {
    /// Creates a client that trusts these servers, and connects through these proxies.
    ///
    /// # Errors
    ///
    /// Fails if no version of TLS is supported.
    pub fn new(trust: Trust<'_>, proxies: Proxies) -> Result<Self, BoxError> {
        let https = HttpsConnectorBuilder::new()
            .with_tls_config(flyball_tls::client_config(trust)?)
            .https_or_http()
            .enable_http1()
            .wrap_connector(Connector::new(proxies).connect_timeout(CONNECT_TIMEOUT));
        Ok(Self(legacy::Client::builder(TokioExecutor::new()).build(https)))
    }

    /// Sends a request, and returns the response as soon as its head has arrived.
    ///
    /// # Errors
    ///
    /// Fails if there is no response. A response with an error status is not a failure.
    pub async fn send(&self, request: Request<Bytes>) -> Result<Response<Incoming>, BoxError> {
        let response = self.0.request(request.map(Full::new)).await;
        response.map_err(|error| if error.is_connect() { ConnectError(error).into() } else { error.into() })
    }

    /// Sends a request, and returns the response with its body.
    ///
    /// # Errors
    ///
    /// Fails if there is no response, or if its body has more bytes than this.
    pub async fn fetch(&self, request: Request<Bytes>, max_bytes: usize) -> Result<Response<Bytes>, BoxError> {
        let (head, body) = self.send(request).await?.into_parts();
        Ok(Response::from_parts(head, Limited::new(body, max_bytes).collect().await?.to_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_for_https_and_this_machine() {
        let is = |text: &str| is_confidential(&text.parse().expect("an address"));
        for confidential in ["https://op.shop:8443", "http://127.0.0.1:8080/a", "http://[::1]:80", "http://localhost:1"]
        {
            assert!(is(confidential), "{confidential}");
        }
        let others =
            ["http://op.shop:8080", "http://127.0.0.1.example.com", "http://localhost.evil", "http://10.0.0.1"];
        for other in others.into_iter().chain(["http://127.0.0.1@evil.example/", "/path", "ftp://localhost"]) {
            assert!(!is(other), "{other}");
        }
    }
}
