//! Persistent connections to an API server.
//!
//! hyper implements the protocol, and kube's configuration provides certificates and credentials. The layers of kube's
//! client (a queue, a task and a dozen services, which each request passes twice) would cost up to a tenth of a small
//! write. Here a request uses an idle connection or opens one, and the connection becomes idle again at the end of the
//! response's body.

mod credentials;
#[cfg(test)]
mod tests;

use super::pool::{ConnectLimiter, Connection, IdleConnections, PooledBody};
use super::service::{HttpService, ResponseBody};
use crate::proxy::{Connector, Proxies};
use credentials::Credentials;
use futures_util::TryFutureExt;
use futures_util::future::BoxFuture;
use http::header::HOST;
use http::uri::PathAndQuery;
use http::{HeaderValue, Request, Response, StatusCode, Uri};
use hyper::client::conn::http1;
use kube::client::{Body, ConfigExt};
use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::time::{Instant, timeout, timeout_at};
use tower::{BoxError, Layer, Service, ServiceExt, service_fn};

/// Timeout of the TCP connection, which the server's kernel accepts even under load. Without it, a connection started
/// during an outage would still be pending after the server is back.
const TCP_TIMEOUT: Duration = Duration::from_secs(5);
/// Time that a request waits for a permit to connect. Then it connects without a permit, since other attempts may be
/// stuck.
const CONNECT_PERMIT_TIMEOUT: Duration = Duration::from_millis(100);

/// The connection failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot connect to {url}")]
struct ConnectError {
    url: Uri,
    source: BoxError,
}

/// A function that opens connections.
type Connect = dyn Fn() -> BoxFuture<'static, Result<Connection, BoxError>> + Send + Sync;

/// A client for one API server.
pub(super) struct Transport {
    url: Uri,
    host: HeaderValue,
    connect: Box<Connect>,
    limiter: ConnectLimiter,
    idle: Arc<IdleConnections>,
}

impl Transport {
    /// Creates a client for the API server of a configuration, authenticated as its user.
    pub(super) fn sender(config: &kube::Config) -> kube::Result<Arc<dyn HttpService>> {
        let transport = Arc::new(Self::new(config)?);
        let sender: Arc<dyn HttpService> = match config.auth_layer()? {
            None => transport,
            Some(auth) => {
                let service = service_fn(move |request| {
                    let transport = transport.clone();
                    async move { transport.exchange(request).await }
                });
                Arc::new(HeaderService(auth.layer(service)))
            }
        };
        if !has_headers(config) {
            return Ok(sender);
        }
        let service = service_fn(move |request| {
            let sender = sender.clone();
            async move { sender.send(request).await.map_err(BoxError::from) }
        });
        Ok(Arc::new(HeaderService(config.extra_headers_layer()?.layer(service))))
    }

    fn new(config: &kube::Config) -> kube::Result<Self> {
        let url = config.cluster_url.clone();
        let host = url.authority().map(|authority| authority.as_str()).unwrap_or_default();
        let host = HeaderValue::from_str(host).map_err(|error| kube::Error::HttpError(error.into()))?;
        let credentials = Credentials::new(config).map_err(kube::Error::Service)?;
        let connect = move || credentials.connect()();
        Ok(Self { url, host, connect: Box::new(connect), limiter: ConnectLimiter::default(), idle: Arc::default() })
    }

    #[expect(clippy::manual_async_fn, reason = "an async fn would store the request twice")]
    fn exchange(
        &self,
        mut request: Request<Body>,
    ) -> impl Future<Output = Result<Response<ResponseBody>, BoxError>> + Send {
        async move {
            let (prefix, uri) = (self.url.path().trim_end_matches('/'), request.uri());
            if !prefix.is_empty() || uri.authority().is_some() {
                let path = uri.path_and_query().map_or("/", PathAndQuery::as_str);
                *request.uri_mut() = format!("{prefix}{path}").parse()?;
            }
            request.headers_mut().insert(HOST, self.host.clone());
            loop {
                let (mut connection, is_reused) = self.connection().await?;
                let response = {
                    let mut response = pin!(connection.sender.try_send_request(request));
                    poll_fn(|cx| {
                        connection.drive(cx);
                        response.as_mut().poll(cx)
                    })
                    .await
                };
                match response {
                    Ok(response) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
                        // From now on, a task polls the connection until both ends close it.
                        connection.work.map(tokio::spawn);
                        return Ok(response.map(|body| ResponseBody::Pooled(PooledBody::upgraded(body))));
                    }
                    Ok(response) => {
                        return Ok(
                            response.map(|body| ResponseBody::Pooled(PooledBody::new(body, connection, &self.idle)))
                        );
                    }
                    Err(mut error) => match error.take_message() {
                        // The server closed the connection while it was idle, and received no part of the request.
                        Some(unsent) if is_reused => request = unsent,
                        _ => return Err(error.into_error().into()),
                    },
                }
            }
        }
    }

    /// Returns a connection, and true if it was used before.
    ///
    /// A request that needs a new connection waits for a permit to connect; often a connection becomes idle before
    /// that.
    async fn connection(&self) -> Result<(Connection, bool), BoxError> {
        let deadline = Instant::now() + CONNECT_PERMIT_TIMEOUT;
        loop {
            let freed = self.idle.freed.notified();
            if let Some(idle) = poll_fn(|cx| Poll::Ready(self.idle.pop(cx))).await {
                return Ok((idle, true));
            }
            let permit = timeout_at(deadline, self.limiter.permits.acquire());
            tokio::select! {
                biased;
                () = freed => {}
                // The permit is held until the connection is established.
                _permit = permit => {
                    let connection = (self.connect)().await;
                    let connection = connection.map_err(|source| ConnectError { url: self.url.clone(), source })?;
                    self.limiter.connected();
                    return Ok((connection, false));
                }
            }
        }
    }
}

impl HttpService for Transport {
    fn send(&self, request: Request<Body>) -> BoxFuture<'_, kube::Result<Response<ResponseBody>>> {
        Box::pin(self.exchange(request).map_err(kube::Error::Service))
    }
}

/// Returns true if a configuration adds headers to each request, as impersonation does.
fn has_headers(config: &kube::Config) -> bool {
    let auth = &config.auth_info;
    !config.headers.is_empty()
        || auth.impersonate.is_some()
        || auth.impersonate_uid.is_some()
        || auth.impersonate_groups.is_some()
        || auth.impersonate_user_extra.is_some()
}

/// A service that adds headers to each request: a token, a password, or the user to impersonate.
struct HeaderService<S>(S);

impl<S> HttpService for HeaderService<S>
where
    S: Service<Request<Body>, Response = Response<ResponseBody>, Error = BoxError> + Clone + Send + Sync + 'static,
    S::Future: Send,
{
    fn send(&self, request: Request<Body>) -> BoxFuture<'_, kube::Result<Response<ResponseBody>>> {
        let sent = self.0.clone().oneshot(request);
        Box::pin(async move { sent.await.map_err(kube::Error::Service) })
    }
}

/// Returns the function that opens connections for a configuration.
fn connector(config: &kube::Config) -> kube::Result<Arc<Connect>> {
    let tcp = Connector::new(Proxies::of_config(config)).connect_timeout(TCP_TIMEOUT);
    let tls = config.rustls_https_connector_with_connector(tcp)?;
    let (url, connect_timeout) = (config.cluster_url.clone(), config.connect_timeout.unwrap_or(Duration::MAX));
    Ok(Arc::new(move || {
        let connected = tls.clone().oneshot(url.clone());
        Box::pin(async move {
            let (sender, work) = http1::handshake(timeout(connect_timeout, connected).await??).await?;
            Ok(Connection { sender, work: Some(Box::pin(work.with_upgrades())) })
        })
    }))
}
