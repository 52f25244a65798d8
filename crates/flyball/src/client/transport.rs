//! Connections to an API server, over which request after request is sent.
//!
//! hyper speaks the protocol, and kube's configuration knows who is who. What kube's client has between the two (a queue, a
//! task and a dozen layers, which each request passes twice) costs as much as a tenth of what a small write takes altogether.
//! Here a request takes a connection that waits, or makes one, and the end of the answer's body lets it wait again.
//! In between the connection is seen to by whoever waits for the answer.

mod credentials;
#[cfg(test)]
mod tests;

use super::link::{Received, Sends};
use crate::proxy::{Connector, Proxies};
use bytes::Bytes;
use credentials::Credentials;
use futures_util::TryFutureExt;
use futures_util::future::BoxFuture;
use http::header::HOST;
use http::uri::PathAndQuery;
use http::{HeaderValue, Request, Response, StatusCode, Uri};
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use kube::client::{Body, ConfigExt};
use std::future::{Future as _, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore};
use tokio::time::{Instant, timeout, timeout_at};
use tower::{BoxError, Layer, Service, ServiceExt, service_fn};

/// How long a connection waits for the next request: less than the 90 s after which kube-apiserver closes it.
const LONGEST_IDLE: Duration = Duration::from_secs(60);
/// So many connections wait at most.
const MOST_IDLE: usize = 64;
/// So many connections are made at once at most: for so many rustls keeps what lets a TLS session be resumed.
const MOST_TURNS: usize = 8;
/// How long the server's machine may take to accept a connection: it does so however busy it is. One that is away and
/// comes back is not to be waited for by a connection that was begun before.
const TCP_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a request waits for its turn to make a connection. Then it makes one beside others, which may never come.
const PATIENCE: Duration = Duration::from_millis(100);

/// No connection was made.
#[derive(Debug, thiserror::Error)]
#[error("cannot connect to {url}")]
struct Unreachable {
    url: Uri,
    source: BoxError,
}

/// Makes connections.
type Connect = dyn Fn() -> BoxFuture<'static, Result<Connection, BoxError>> + Send + Sync;

/// Sends requests to one API server.
pub(super) struct Transport {
    url: Uri,
    host: HeaderValue,
    connect: Box<Connect>,
    turns: Turns,
    idle: Arc<Idle>,
}

impl Transport {
    /// Makes what sends requests to the API server of a configuration, in the name of its user.
    pub(super) fn sender(config: &kube::Config) -> kube::Result<Arc<dyn Sends>> {
        let transport = Arc::new(Self::new(config)?);
        let sender: Arc<dyn Sends> = match config.auth_layer()? {
            None => transport,
            Some(auth) => {
                let service = service_fn(move |request| {
                    let transport = transport.clone();
                    async move { transport.exchange(request).await }
                });
                Arc::new(Wrapped(auth.layer(service)))
            }
        };
        if !has_headers(config) {
            return Ok(sender);
        }
        let service = service_fn(move |request| {
            let sender = sender.clone();
            async move { sender.send(request).await.map_err(BoxError::from) }
        });
        Ok(Arc::new(Wrapped(config.extra_headers_layer()?.layer(service))))
    }

    fn new(config: &kube::Config) -> kube::Result<Self> {
        let url = config.cluster_url.clone();
        let host = url.authority().map(|authority| authority.as_str()).unwrap_or_default();
        let host = HeaderValue::from_str(host).map_err(|error| kube::Error::HttpError(error.into()))?;
        let credentials = Credentials::new(config).map_err(kube::Error::Service)?;
        let connect = move || credentials.connect()();
        Ok(Self { url, host, connect: Box::new(connect), turns: Turns::default(), idle: Arc::default() })
    }

    #[expect(clippy::manual_async_fn, reason = "an async fn keeps room for the request twice")]
    fn exchange(
        &self,
        mut request: Request<Body>,
    ) -> impl Future<Output = Result<Response<Received>, BoxError>> + Send {
        async move {
            let (prefix, uri) = (self.url.path().trim_end_matches('/'), request.uri());
            if !prefix.is_empty() || uri.authority().is_some() {
                let path = uri.path_and_query().map_or("/", PathAndQuery::as_str);
                *request.uri_mut() = format!("{prefix}{path}").parse()?;
            }
            request.headers_mut().insert(HOST, self.host.clone());
            loop {
                let (mut connection, has_waited) = self.connection().await?;
                let answer = {
                    let mut answer = pin!(connection.sender.try_send_request(request));
                    poll_fn(|cx| {
                        connection.drive(cx);
                        answer.as_mut().poll(cx)
                    })
                    .await
                };
                match answer {
                    Ok(answer) if answer.status() == StatusCode::SWITCHING_PROTOCOLS => {
                        // What becomes of it is between its two ends.
                        connection.work.map(tokio::spawn);
                        return Ok(answer.map(|body| Received::Own(Leased { body, lease: None })));
                    }
                    Ok(answer) => {
                        return Ok(answer.map(|body| Received::Own(Leased::new(body, connection, &self.idle))));
                    }
                    Err(mut error) => match error.take_message() {
                        // The server closed it while it waited, and saw nothing of the request.
                        Some(unsent) if has_waited => request = unsent,
                        _ => return Err(error.into_error().into()),
                    },
                }
            }
        }
    }

    /// Returns a connection, and whether it has waited.
    ///
    /// It may wait for its turn to make one: often one is free before that.
    async fn connection(&self) -> Result<(Connection, bool), BoxError> {
        let patience = Instant::now() + PATIENCE;
        loop {
            let freed = self.idle.freed.notified();
            if let Some(waiting) = poll_fn(|cx| Poll::Ready(self.idle.take(cx))).await {
                return Ok((waiting, true));
            }
            let turn = timeout_at(patience, self.turns.free.acquire());
            tokio::select! {
                biased;
                () = freed => {}
                // Held until the connection is there.
                _turn = turn => {
                    let made = (self.connect)().await;
                    let made = made.map_err(|source| Unreachable { url: self.url.clone(), source })?;
                    self.turns.one_more();
                    return Ok((made, false));
                }
            }
        }
    }
}

/// Whose turn it is to make a connection. First that is one request's; each connection that was made lets one more be made at once,
/// since what it brings along lets others resume its TLS session, at a third of the cost.
struct Turns {
    free: Semaphore,
    all: AtomicUsize,
}

impl Default for Turns {
    fn default() -> Self {
        Self { free: Semaphore::new(1), all: AtomicUsize::new(1) }
    }
}

impl Turns {
    /// A connection was made.
    fn one_more(&self) {
        if self.all.fetch_update(Relaxed, Relaxed, |all| (all < MOST_TURNS).then_some(all + 1)).is_ok() {
            self.free.add_permits(1);
        }
    }
}

impl Sends for Transport {
    fn send(&self, request: Request<Body>) -> BoxFuture<'_, kube::Result<Response<Received>>> {
        Box::pin(self.exchange(request).map_err(kube::Error::Service))
    }
}

/// Tells whether a configuration adds headers of its own to each request, as impersonation does.
fn has_headers(config: &kube::Config) -> bool {
    let auth = &config.auth_info;
    !config.headers.is_empty()
        || auth.impersonate.is_some()
        || auth.impersonate_uid.is_some()
        || auth.impersonate_groups.is_some()
        || auth.impersonate_user_extra.is_some()
}

/// What adds headers to each request: a token, a password, or whom to impersonate.
struct Wrapped<S>(S);

impl<S> Sends for Wrapped<S>
where
    S: Service<Request<Body>, Response = Response<Received>, Error = BoxError> + Clone + Send + Sync + 'static,
    S::Future: Send,
{
    fn send(&self, request: Request<Body>) -> BoxFuture<'_, kube::Result<Response<Received>>> {
        let sent = self.0.clone().oneshot(request);
        Box::pin(async move { sent.await.map_err(kube::Error::Service) })
    }
}

/// Makes what makes connections by a configuration.
fn connect_by(config: &kube::Config) -> kube::Result<Arc<Connect>> {
    let tcp = Connector::new(Proxies::of_config(config)).connect_timeout(TCP_TIMEOUT);
    let connector = config.rustls_https_connector_with_connector(tcp)?;
    let (to, patience) = (config.cluster_url.clone(), config.connect_timeout.unwrap_or(Duration::MAX));
    Ok(Arc::new(move || {
        let connected = connector.clone().oneshot(to.clone());
        Box::pin(async move {
            let (sender, work) = http1::handshake(timeout(patience, connected).await??).await?;
            Ok(Connection { sender, work: Some(Box::pin(work.with_upgrades())) })
        })
    }))
}

/// A connection, which has no task of its own: whoever waits for what comes over it sees to it. So an answer is read where it is
/// wanted, and a request is on its way at once: with a task in between, all tasks that had answers would come first.
struct Connection {
    sender: SendRequest<Body>,
    /// All that there is to do for the connection; nothing once it is closed.
    work: Option<BoxFuture<'static, hyper::Result<()>>>,
}

impl Connection {
    /// Sends what there is to send, and receives what has come.
    fn drive(&mut self, cx: &mut Context<'_>) {
        // An error reaches whoever waits for an answer.
        if self.work.as_mut().is_some_and(|work| work.as_mut().poll(cx).is_ready()) {
            self.work = None;
        }
    }

    /// Tells whether a request can be sent, as far as is known.
    fn is_ready(&mut self, cx: &mut Context<'_>) -> bool {
        self.drive(cx);
        self.work.is_some() && self.sender.is_ready()
    }
}

/// Connections that wait for the next request.
#[derive(Default)]
struct Idle {
    waiting: Mutex<Vec<(Connection, Instant)>>,
    /// Tells those who wait for a connection of another one that waits.
    freed: Notify,
}

impl Idle {
    /// Takes the one that has waited least, and is the least likely to be closed.
    fn take(&self, cx: &mut Context<'_>) -> Option<Connection> {
        let now = Instant::now();
        loop {
            let (mut connection, _) = self.of_late(now).pop()?;
            if connection.is_ready(cx) {
                return Some(connection);
            }
        }
    }

    fn put(&self, connection: Connection) {
        let now = Instant::now();
        let mut waiting = self.of_late(now);
        if waiting.len() < MOST_IDLE {
            waiting.push((connection, now));
            self.freed.notify_one();
        }
    }

    /// Returns those that have not waited for too long, in the order in which they began to wait.
    fn of_late(&self, now: Instant) -> MutexGuard<'_, Vec<(Connection, Instant)>> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let late = waiting.partition_point(|(_, since)| now.duration_since(*since) > LONGEST_IDLE);
        waiting.drain(..late);
        waiting
    }
}

/// The body of an answer, with the connection that it comes over: at its end that waits for the next request, and if the body
/// is dropped before, it is closed.
pub(crate) struct Leased {
    body: Incoming,
    lease: Option<(Connection, Arc<Idle>)>,
}

impl Leased {
    fn new(body: Incoming, connection: Connection, idle: &Arc<Idle>) -> Self {
        let mut leased = Self { body, lease: Some((connection, idle.clone())) };
        if leased.body.is_end_stream() {
            leased.end();
        }
        leased
    }

    fn end(&mut self) {
        if let Some((connection, idle)) = self.lease.take() {
            idle.put(connection);
        }
    }
}

impl http_body::Body for Leased {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let leased = self.get_mut();
        let mut frame = Pin::new(&mut leased.body).poll_frame(cx);
        if frame.is_pending()
            && let Some((connection, _)) = &mut leased.lease
        {
            connection.drive(cx);
            frame = Pin::new(&mut leased.body).poll_frame(cx);
        }
        let frame = ready!(frame);
        if frame.is_none() || matches!(frame, Some(Ok(_)) if leased.body.is_end_stream()) {
            leased.end();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
