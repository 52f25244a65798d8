//! HTTP proxies: which connections use one, and how.
//!
//! The rules are those of Go's `httpproxy` package, and so of kubectl and client-go: `HTTPS_PROXY`, `HTTP_PROXY`,
//! `ALL_PROXY` and `NO_PROXY`, in upper or lower case; loopback addresses are always connected to directly. The
//! `proxy-url` of a kubeconfig overrides the environment and applies to every address. This module is independent of
//! requests and of the API server: all connections use a `CONNECT` tunnel, so that TLS ends at the server and never
//! at the proxy.

mod exclusions;
#[cfg(test)]
mod tests;
mod tunnel;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use exclusions::Exclusions;
use futures_util::future::{BoxFuture, ready};
use futures_util::{FutureExt, TryFutureExt};
use http::HeaderValue;
use http::uri::{Scheme, Uri};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::TcpStream;
use tower::{BoxError, Service};
use tunnel::Target;

/// Environment variables with the proxy of `https` addresses; the first non-empty one is used.
const HTTPS_VARIABLES: [&str; 4] = ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];
/// The same for `http` addresses.
const HTTP_VARIABLES: [&str; 4] = ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"];
/// Environment variables with the addresses that use no proxy.
const EXCLUSION_VARIABLES: [&str; 2] = ["NO_PROXY", "no_proxy"];

/// Idle time before TCP keepalive probes, and their interval: a peer that restarted ends the connection at the first
/// probe.
const KEEPALIVE_PERIOD: Duration = Duration::from_secs(5);
/// Keepalive probes without an answer after which a connection is closed.
const KEEPALIVE_PROBES: u32 = 3;

/// An invalid proxy setting.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{source_name}: invalid proxy {proxy:?}: {problem}: use a URL such as http://proxy.example.com:3128")]
pub struct ProxyError {
    source_name: String,
    proxy: String,
    problem: &'static str,
}

/// A connection through a proxy failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot connect to {target} through the proxy {proxy} of {source_name}")]
struct TunnelError {
    target: Target,
    proxy: String,
    source_name: String,
    source: BoxError,
}

/// A proxy.
#[derive(Clone, Debug)]
struct Proxy {
    url: Uri,
    /// The variable or the field that sets it.
    source_name: String,
    authorization: Option<HeaderValue>,
}

/// The proxies to use, by address.
#[derive(Clone, Debug, Default)]
pub struct Proxies {
    https: Option<Result<Proxy, ProxyError>>,
    http: Option<Result<Proxy, ProxyError>>,
    exclusions: Exclusions,
}

impl Proxies {
    /// Reads the environment variables of this process.
    pub fn from_env() -> Self {
        Self::from_variables(|name| std::env::var(name).ok())
    }

    /// Reads environment variables through `variable`.
    pub fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Self {
        let first = |names: &[&'static str]| {
            let found = |name: &&'static str| Some((*name, variable(name).filter(|value| !value.trim().is_empty())?));
            names.iter().find_map(found)
        };
        // In a CGI program HTTP_PROXY is a header of the request, controlled by the client.
        let is_cgi = first(&["REQUEST_METHOD"]).is_some();
        let http = if is_cgi { first(&HTTP_VARIABLES[1..]) } else { first(&HTTP_VARIABLES) };
        let parse = |(name, value): (&'static str, String)| Proxy::parse(name, &value);
        Self {
            https: first(&HTTPS_VARIABLES).map(parse),
            http: http.map(parse),
            exclusions: first(&EXCLUSION_VARIABLES).map(|(_, list)| Exclusions::parse(&list)).unwrap_or_default(),
        }
    }

    /// Returns the proxies for the API server of a configuration: the `proxy-url` of its kubeconfig, or those of the
    /// environment.
    pub fn of_config(config: &kube::Config) -> Self {
        // kube treats HTTPS_PROXY like the proxy of the kubeconfig.
        let from_env = |proxy: &Uri| {
            let parsed = |name| std::env::var(name).ok().and_then(|value| value.parse::<Uri>().ok());
            ["HTTPS_PROXY", "https_proxy"].into_iter().any(|name| parsed(name).is_some_and(|value| value == *proxy))
        };
        match config.proxy_url.as_ref().filter(|proxy| !from_env(proxy)) {
            Some(proxy) => {
                let proxy = Proxy::parse("the kubeconfig's proxy-url", &proxy.to_string());
                Self { https: Some(proxy.clone()), http: Some(proxy), exclusions: Exclusions::none() }
            }
            None => Self::from_env(),
        }
    }

    /// Returns the proxy of an address, `None` for a direct connection.
    fn of(&self, address: &Uri) -> Result<Option<&Proxy>, ProxyError> {
        let is_https = address.scheme() == Some(&Scheme::HTTPS);
        let proxy = if is_https { &self.https } else { &self.http };
        let port = address.port_u16().unwrap_or(if is_https { 443 } else { 80 });
        match (proxy, address.host()) {
            (Some(proxy), Some(host)) if !self.exclusions.contain(host, port) => {
                proxy.as_ref().map(Some).map_err(Clone::clone)
            }
            _ => Ok(None),
        }
    }

    /// Returns true if connections to an address use no proxy. With an invalid proxy, none is direct.
    pub fn is_direct(&self, address: &Uri) -> bool {
        matches!(self.of(address), Ok(None))
    }
}

impl Proxy {
    fn parse(source_name: &str, text: &str) -> Result<Self, ProxyError> {
        let text = text.trim();
        let (scheme, rest) = text.split_once("://").unwrap_or(("http", text));
        let (user, host) = rest.rsplit_once('@').map_or((None, rest), |(user, host)| (Some(user), host));
        // The password is never shown, even in errors.
        let proxy = format!("{scheme}://{host}");
        let error = |problem| ProxyError { source_name: source_name.into(), proxy: proxy.clone(), problem };
        if !scheme.eq_ignore_ascii_case("http") {
            return Err(error("only plain HTTP proxies are supported"));
        }
        let url: Uri = proxy
            .parse()
            .ok()
            .filter(|url: &Uri| url.host().is_some_and(|host| !host.is_empty()))
            .ok_or_else(|| error("not a URL"))?;
        let authorization = user.map(|user| {
            let user = if user.contains(':') { percent_decoded(user) } else { percent_decoded(&format!("{user}:")) };
            let mut value = HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(user)))
                .expect("base64 is valid in a header");
            value.set_sensitive(true);
            value
        });
        Ok(Self { url, source_name: source_name.to_owned(), authorization })
    }
}

impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.url.authority().map_or(Ok(()), |authority| f.write_str(authority.as_str()))
    }
}

/// Decodes percent-encoding such as `%40`; invalid sequences are kept.
pub(crate) fn percent_decoded(text: &str) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let digit = |at: usize| after.get(at).and_then(|digit| char::from(*digit).to_digit(16));
        match (first, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => {
                decoded.push((high * 16 + low) as u8);
                rest = &after[2..];
            }
            _ => {
                decoded.push(first);
                rest = after;
            }
        }
    }
    decoded
}

/// Creates TCP connections, directly or through a proxy. TLS is layered on top.
#[derive(Clone, Debug)]
pub struct Connector {
    tcp: HttpConnector,
    proxies: Arc<Proxies>,
}

impl Connector {
    /// Creates a connector that uses these proxies.
    pub fn new(proxies: Proxies) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        // A watch may be silent for minutes: only keepalive probes detect that its peer is gone without closing the
        // connection.
        tcp.set_keepalive(Some(KEEPALIVE_PERIOD));
        tcp.set_keepalive_interval(Some(KEEPALIVE_PERIOD));
        tcp.set_keepalive_retries(Some(KEEPALIVE_PROBES));
        // The same for data that is not acknowledged, when no probes are sent.
        #[cfg(target_os = "linux")]
        tcp.set_tcp_user_timeout(Some(KEEPALIVE_PERIOD * (KEEPALIVE_PROBES + 1)));
        Self { tcp, proxies: Arc::new(proxies) }
    }

    /// Sets the timeout of TCP connections.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.tcp.set_connect_timeout(Some(timeout));
        self
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<TcpStream>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<TokioIo<TcpStream>, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.tcp.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, address: Uri) -> Self::Future {
        let proxy = match self.proxies.of(&address) {
            Err(error) => return ready(Err(error.into())).boxed(),
            Ok(None) => return self.tcp.call(address).map(|made| made.map_err(Into::into)).boxed(),
            Ok(Some(proxy)) => proxy,
        };
        let Proxy { url, source_name, authorization } = proxy.clone();
        let (proxy, target) = (proxy.to_string(), Target::of(&address));
        let connected = self.tcp.call(url).map_err(BoxError::from);
        async move {
            let opened = match connected.await {
                Ok(stream) => tunnel::open(stream, &target, authorization).await.map_err(BoxError::from),
                Err(error) => Err(error),
            };
            opened.map_err(|source| TunnelError { target, proxy, source_name, source }.into())
        }
        .boxed()
    }
}
