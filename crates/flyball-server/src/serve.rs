//! The server behind TLS.

mod connections;
mod heads;
mod outgoing;
mod pacer;
mod past_states;
mod streams;
mod write_timeout;

use crate::auth::{CREDENTIAL_ID, User};
use crate::connection::{Peer, RequestConnection};
use crate::response;
use crate::server::Server;
use connections::Connections;
use flyball_core::hex;
use futures_util::FutureExt;
use heads::{ConnectionHeads, Heads};
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use outgoing::ConnectionBody;
use pacer::Pacer;
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use streams::Streams;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_rustls::TlsAcceptor;
use write_timeout::WriteTimeout;
use x509_parser::prelude::{FromDer, X509Certificate};

/// Timeout of a client's first request, including the handshake, and of the head of each later one.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// Timeout of requests in flight once the server stops; watches are closed.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// Interval of the search for slow readers.
const SLOW_READER_INTERVAL: Duration = Duration::from_secs(1);

/// Divisor of the timeout of a slow reader whose user exceeds the bound of unread bytes.
const PRESSURE_DIVISOR: u32 = 6;

/// Interval of pings on a silent connection, and the timeout of their responses.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// Maximum number of concurrent requests of an HTTP/2 connection, as in kube-apiserver. Clients open another
/// connection beyond it.
const MAX_STREAMS: u32 = 100;

/// Maximum size of a request's head over HTTP/1.
const MAX_HEAD_BYTES: usize = 64 << 10;

/// Maximum number of unread bytes of a request's body, and of all bodies of a connection, over HTTP/2.
const STREAM_WINDOW_BYTES: u32 = 64 << 10;
const CONNECTION_WINDOW_BYTES: u32 = 1 << 20;

/// Maximum number of bytes of a response that wait in HTTP/2 for the client's window.
const MAX_SEND_BUFFER_BYTES: usize = 64 << 10;

/// Serves on a listener until `stop` is done.
///
/// A client authenticates by a certificate that `tls` trusts or by a token, or is anonymous.
pub async fn serve(server: Server, listener: TcpListener, tls: Arc<ServerConfig>, stop: impl Future<Output = ()>) {
    let acceptor = TlsAcceptor::from(tls);
    let shutdown = GracefulShutdown::new();
    let connections = Arc::new(Connections::new(server.bounds().connections));
    let heads = Heads::new(server.bounds().head_bytes);
    let mut stop = std::pin::pin!(stop);
    let mut slow_reader_checks = tokio::time::interval(SLOW_READER_INTERVAL);
    slow_reader_checks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let accepted = tokio::select! {
            biased;
            () = &mut stop => break,
            _ = slow_reader_checks.tick() => {
                close_slow(&server, &connections);
                continue;
            }
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                let session = Session {
                    server: server.clone(),
                    connections: connections.clone(),
                    peer: connections.accept(),
                    heads: ConnectionHeads::new(heads.clone()),
                };
                spawn(session, acceptor.clone(), stream, shutdown.watcher());
            }
            Err(error) => {
                // The process is out of file descriptors, most likely: others must close theirs first.
                tracing::warn!(%error, "failed to accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
    drop(listener);
    let _ = tokio::time::timeout(DRAIN_TIMEOUT, shutdown.shutdown()).await;
}

/// Closes responses whose clients do not read, and those that keep too many past states in memory.
fn close_slow(server: &Server, connections: &Connections) {
    let timeout = server.bounds().slow_client_timeout;
    let requests = connections.requests();
    past_states::close_excess(&requests, server.past_bytes().saturating_sub(server.bounds().past_bytes));
    for request in requests {
        let exceeds_share = request.flow().is_some_and(|flow| server.shared().unsent.of(flow).exceeds_share(flow));
        request.close_if_slow(if exceeds_share { timeout / PRESSURE_DIVISOR } else { timeout });
    }
}

/// A served connection.
#[derive(Clone)]
struct Session {
    server: Server,
    connections: Arc<Connections>,
    peer: Arc<Peer>,
    heads: Arc<ConnectionHeads>,
}

/// Serves a connection in a task. The future is boxed, so that it is compiled in this crate, which is optimized.
fn spawn(session: Session, acceptor: TlsAcceptor, stream: TcpStream, watcher: Watcher) {
    let peer = session.peer.clone();
    let served = async move {
        tokio::select! {
            biased;
            () = peer.closed.wait() => {}
            () = connection(session, acceptor, stream, watcher) => {}
        }
    };
    tokio::spawn(served.boxed());
}

async fn connection(session: Session, acceptor: TlsAcceptor, stream: TcpStream, watcher: Watcher) {
    let deadline = Instant::now() + HEAD_TIMEOUT;
    let _ = stream.set_nodelay(true);
    let stream = match timeout_at(deadline, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(%error, "TLS handshake failed"),
        Err(_) => return tracing::debug!("TLS handshake timed out"),
    };
    let user = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first()).and_then(user_of).map(Arc::new);
    let peer = session.peer.clone();
    let stream = WriteTimeout::new(stream, session.server.bounds().slow_client_timeout, peer.clone());
    let pacer = Arc::new(Pacer::default());
    let service = service_fn(move |request: Request<Incoming>| {
        let (session, user, pacer) = (session.clone(), user.clone(), pacer.clone());
        let (head, body) = request.into_parts();
        let counted = session.heads.try_count(heads::size(&head));
        // Without room, the head is freed here: a task may not run for a while.
        let admitted = counted.map(|counted| (counted, Request::from_parts(head, body)));
        // The box is freed when the response begins: a stream of HTTP/2 keeps its future until the body ends. The
        // future of the response is created in its turn, as a client may send a hundred requests at once.
        Box::pin(async move {
            let Some((mut counted, request)) = admitted else { return session.reject() };
            pacer.turn().await;
            if !counted.begin() {
                return session.reject();
            }
            let response = Box::pin(session.respond(request, user)).await;
            drop(counted);
            Ok(response)
        })
    });
    // The rates of SETTINGS, PRIORITY and WINDOW_UPDATE frames are not limited: hyper and h2 have no option for it.
    // These frames take no memory, since h2 answers one at a time, and a connection yields to others after some reads.
    // One without a request is closed after a few seconds.
    let mut builder = auto::Builder::new(Streams);
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(MAX_HEAD_BYTES);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_send_buf_size(MAX_SEND_BUFFER_BYTES);
    builder
        .http2()
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES);
    builder.http2().keep_alive_interval(PING_INTERVAL).keep_alive_timeout(PING_TIMEOUT);
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    let asked_nothing = async {
        sleep_until(deadline).await;
        if peer.has_requested() {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        biased;
        ended = watcher.watch(connection.into_owned()) => {
            if let Err(error) = ended {
                tracing::debug!(error = &*error, "a connection ended early");
            }
        }
        () = asked_nothing => tracing::debug!("connection closed: no request received"),
    }
}

impl Session {
    /// Responds to a request.
    async fn respond(self, mut request: Request<Incoming>, user: Option<Arc<User>>) -> Response<ConnectionBody> {
        let connection = self.request_connection();
        request.extensions_mut().insert(connection.clone());
        user.map(|user| request.extensions_mut().insert(User::clone(&user)));
        let response = self.server.handle(request).await;
        response.map(|body| ConnectionBody::new(body, connection, self.server.shared()))
    }

    /// Rejects a request that exceeds the memory limit: over HTTP/2 by resetting its stream, which frees all of its
    /// memory.
    fn reject(self) -> Result<Response<ConnectionBody>, h2::Error> {
        if streams::current().is_some() {
            return Err(h2::Reason::REFUSED_STREAM.into());
        }
        let connection = self.request_connection();
        Ok(response::too_many_requests().map(|body| ConnectionBody::new(body, connection, self.server.shared())))
    }

    fn request_connection(&self) -> RequestConnection {
        // Over HTTP/1 closing a response closes the connection.
        let connection = match streams::current() {
            Some(stream) => RequestConnection::new(self.peer.clone(), stream),
            None => RequestConnection::of_connection(self.peer.clone()),
        };
        self.connections.note(&connection);
        connection
    }
}

/// Returns the user of a verified certificate: its common name is the name, its organizations are the groups.
fn user_of(certificate: &CertificateDer<'_>) -> Option<User> {
    let digest = ring::digest::digest(&ring::digest::SHA256, certificate);
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let subject = certificate.subject();
    let name = subject.iter_common_name().next()?.as_str().ok()?;
    let groups: Vec<&str> = subject.iter_organization().filter_map(|group| group.as_str().ok()).collect();
    let mut user = User::new(name, &groups);
    let id = format!("X509SHA256={}", hex::encode(digest.as_ref()));
    user.extra.insert(CREDENTIAL_ID.into(), vec![id]);
    Some(user)
}
