//! Tunnels through HTTP proxies, by the method `CONNECT`; see RFC 9110, section 9.3.6.

use http::header::{HOST, PROXY_AUTHORIZATION};
use http::uri::{Scheme, Uri};
use http::{HeaderValue, Request, StatusCode};
use http_body_util::Empty;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::upgrade::{self, Parts};
use hyper_util::rt::TokioIo;
use std::fmt;
use std::pin::pin;
use tokio::net::TcpStream;

/// The target of a tunnel, with its port.
#[derive(Clone, Debug)]
pub(super) struct Target(String);

/// A tunnel was not established.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// The proxy refused the request.
    #[error("it answered {}: {}", status_line(*status), remedy(*status))]
    Refused { status: StatusCode },
    /// The proxy sent data of the target before any was requested, which no supported protocol does.
    #[error("it sent unexpected data")]
    UnexpectedData,
    #[error("invalid address")]
    Address(#[from] http::Error),
    #[error("no answer")]
    Exchange(#[from] hyper::Error),
}

fn status_line(status: StatusCode) -> String {
    status
        .canonical_reason()
        .map_or_else(|| status.as_u16().to_string(), |reason| format!("{} {reason}", status.as_u16()))
}

fn remedy(status: StatusCode) -> &'static str {
    match status {
        StatusCode::PROXY_AUTHENTICATION_REQUIRED => {
            "set user and password in its URL, such as http://user:password@proxy.example.com:3128"
        }
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => {
            "check the address, or add the host to NO_PROXY if the proxy cannot reach it"
        }
        _ => "have the proxy allow the address, or add the host to NO_PROXY if it needs no proxy",
    }
}

impl Target {
    /// Returns the target of an address, with the port of its scheme if it has none.
    pub(super) fn of(address: &Uri) -> Self {
        let port = if address.scheme() == Some(&Scheme::HTTP) { 80 } else { 443 };
        Self(format!("{}:{}", address.host().unwrap_or_default(), address.port_u16().unwrap_or(port)))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Opens a tunnel on a connection to a proxy.
pub(super) async fn open(
    proxy: TokioIo<TcpStream>,
    target: &Target,
    authorization: Option<HeaderValue>,
) -> Result<TokioIo<TcpStream>, Error> {
    // Some proxies do not support header names in lower case.
    let mut http = http1::Builder::new();
    let (mut sender, connection) = http.title_case_headers(true).handshake(proxy).await?;
    let mut request = Request::connect(target.0.as_str()).header(HOST, target.0.as_str());
    if let Some(authorization) = authorization {
        request = request.header(PROXY_AUTHORIZATION, authorization);
    }
    let request = request.body(Empty::<Bytes>::new())?;
    let exchange = async move {
        let response = sender.send_request(request).await?;
        let status = response.status();
        if status.is_success() { Ok(upgrade::on(response).await?) } else { Err(Error::Refused { status }) }
    };
    // The connection is driven until it becomes a tunnel, or the exchange fails.
    let mut exchange = pin!(exchange);
    let upgraded = tokio::select! {
        biased;
        upgraded = &mut exchange => upgraded,
        _ = connection.with_upgrades() => exchange.await,
    };
    let parts = upgraded?.downcast::<TokioIo<TcpStream>>();
    let Parts { io, read_buf, .. } = parts.expect("it is the stream of the connection");
    if read_buf.is_empty() { Ok(io) } else { Err(Error::UnexpectedData) }
}
