//! HTTP requests to services of the cluster, each over a connection of its own.
//!
//! The address of a host is checked before the connection, so DNS names cannot lead to other machines. Invariant:
//! time, size and redirects of an exchange are bounded, and a redirect never leaves the host.

use crate::services::{Resolver, is_forbidden};
use flyball_tls::{Trust, client_config};
use http::header::{CONNECTION, HOST, LOCATION, USER_AGENT};
use http::{HeaderMap, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

/// Size limit of the body of a response.
pub(super) const MAX_RESPONSE_BYTES: usize = 1 << 20;
/// Limit of redirects, as in Ansible.
const MAX_REDIRECTS: usize = 10;
/// The user agent of Ansible.
const AGENT: &str = "ansible-httpget";

/// A request.
pub(super) struct Call {
    pub(super) url: Uri,
    pub(super) method: Method,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    pub(super) timeout: Duration,
    pub(super) verifies: bool,
    pub(super) follows: bool,
    pub(super) resolver: Option<Resolver>,
}

/// A response.
pub(super) struct Response {
    pub(super) url: Uri,
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    pub(super) is_redirected: bool,
}

impl Call {
    /// Sends the request, and follows redirects within the host.
    pub(super) async fn send(&self) -> Result<Response, String> {
        let exchange = tokio::time::timeout(self.timeout, self.follow_redirects());
        exchange.await.map_err(|_| format!("timed out after {} s", self.timeout.as_secs_f64()))?
    }

    async fn follow_redirects(&self) -> Result<Response, String> {
        let address = self.address().await?;
        let mut url = self.url.clone();
        for redirects in 0..=MAX_REDIRECTS {
            let mut response = self.exchange(&url, address).await?;
            response.is_redirected = redirects > 0;
            let is_safe = self.follows && matches!(self.method, Method::GET | Method::HEAD);
            match redirect(&url, &response).filter(|_| is_safe) {
                Some(next) => url = next,
                None => return Ok(response),
            }
        }
        Err(format!("more than {MAX_REDIRECTS} redirects"))
    }

    async fn address(&self) -> Result<SocketAddr, String> {
        let host = self.url.host().unwrap_or_default();
        if let Some(address) = self.resolver.as_ref().and_then(|Resolver(resolve)| resolve(host)) {
            return Ok(address);
        }
        let found = lookup_host((host, port(&self.url))).await;
        let found: Vec<_> = found.map_err(|error| format!("cannot resolve {host}: {error}"))?.collect();
        match found.iter().find(|address| !is_forbidden(address.ip())) {
            Some(address) => Ok(*address),
            None if found.is_empty() => Err(format!("{host} has no address")),
            None => Err(format!("the address {} of {host} is not that of a service", found[0].ip())),
        }
    }

    async fn exchange(&self, url: &Uri, address: SocketAddr) -> Result<Response, String> {
        let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
        if !is_https(url) {
            return self.exchange_over(stream, url).await;
        }
        let trust = if self.verifies { Trust::System } else { Trust::Any };
        let tls = client_config(trust).map_err(|error| error.to_string())?;
        let name =
            ServerName::try_from(url.host().unwrap_or_default().to_owned()).map_err(|error| error.to_string())?;
        let stream = TlsConnector::from(Arc::new(tls)).connect(name, stream).await;
        self.exchange_over(stream.map_err(|error| error.to_string())?, url).await
    }

    async fn exchange_over(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        url: &Uri,
    ) -> Result<Response, String> {
        let problem = |error: hyper::Error| error.to_string();
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(problem)?;
        let path = url.path_and_query().map_or("/", |path| path.as_str());
        let authority = url.authority().map(ToString::to_string).unwrap_or_default();
        let mut request = Request::new(Full::new(self.body.clone()));
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = path.parse().map_err(|_| format!("invalid path {path}"))?;
        *request.headers_mut() = self.headers.clone();
        let own = [(HOST, &*authority), (CONNECTION, "close")];
        for (name, value) in own {
            request.headers_mut().insert(name, value.parse().map_err(|_| format!("invalid host {authority}"))?);
        }
        request.headers_mut().entry(USER_AGENT).or_insert(http::HeaderValue::from_static(AGENT));
        let exchange = async {
            let (head, body) = sender.send_request(request).await.map_err(problem)?.into_parts();
            let body = Limited::new(body, MAX_RESPONSE_BYTES).collect().await.map_err(|error| {
                format!("cannot read the response, which may have up to {MAX_RESPONSE_BYTES} bytes: {error}")
            })?;
            Ok(Response {
                url: url.clone(),
                status: head.status,
                headers: head.headers,
                body: body.to_bytes(),
                is_redirected: false,
            })
        };
        // The connection is driven with the exchange, and closed if the exchange is dropped.
        let driven = async {
            let _ = connection.await;
            std::future::pending().await
        };
        tokio::select! {
            biased;
            result = exchange => result,
            never = driven => never,
        }
    }
}

fn is_https(url: &Uri) -> bool {
    url.scheme_str() == Some("https")
}

fn port(url: &Uri) -> u16 {
    url.port_u16().unwrap_or(if is_https(url) { 443 } else { 80 })
}

/// Returns the target of a redirect within the same host.
fn redirect(url: &Uri, response: &Response) -> Option<Uri> {
    if !matches!(response.status.as_u16(), 301 | 302 | 303 | 307 | 308) {
        return None;
    }
    let location = response.headers.get(LOCATION)?.to_str().ok()?;
    let location = location.split('#').next().unwrap_or_default();
    // Relative to the host; `//` begins another host.
    if location.starts_with('/') && !location.starts_with("//") {
        return format!("{}://{}{location}", url.scheme_str()?, url.authority()?).parse().ok();
    }
    let target: Uri = location.parse().ok()?;
    let origin = |url: &Uri| Some((url.scheme_str()?.to_owned(), url.host()?.to_owned(), port(url)));
    let has_user = target.authority().is_some_and(|authority| authority.as_str().contains('@'));
    (!has_user && origin(&target).is_some() && origin(&target) == origin(url)).then_some(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_stay_on_the_host() {
        let check = |location: &str, expected: Option<&str>| {
            let headers = [(LOCATION, location.parse().unwrap())].into_iter().collect();
            let url: Uri = "http://api.b.svc:80/a?b=c".parse().unwrap();
            let response = Response {
                url: url.clone(),
                status: StatusCode::FOUND,
                headers,
                body: Bytes::new(),
                is_redirected: false,
            };
            assert_eq!(redirect(&url, &response).map(|url| url.to_string()).as_deref(), expected, "{location}");
        };
        check("/b?x=y#z", Some("http://api.b.svc:80/b?x=y"));
        check("http://api.b.svc/b", Some("http://api.b.svc/b"));
        for elsewhere in [
            "//evil.example.com/b",
            "http://api.c.svc/b",
            "https://api.b.svc/b",
            "http://api.b.svc:8080/b",
            "http://x@api.b.svc/b",
            "b",
            "file:///etc/passwd",
            "",
        ] {
            check(elsewhere, None);
        }
    }
}
