//! The server behind TLS.

mod patient;

use crate::auth::User;
use crate::server::Server;
use crate::watch::Broken;
use futures_util::FutureExt;
use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use patient::Patient;
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use x509_parser::prelude::{FromDer, X509Certificate};

/// How long a client may take to shake hands, and then to send the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// How long requests under way may take once the server stops; watches are cut off.
const DRAIN: Duration = Duration::from_secs(1);

/// How often slow readers are looked for.
const LOOK: Duration = Duration::from_secs(1);

/// After how long a silent connection is asked whether anybody is there, and how long the answer may take.
const PING: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(20));

/// The most requests that one connection may have under way: a controller has a watch for each kind.
const MAX_STREAMS: u32 = 1000;

/// Serves on a listener until `stop` is done.
///
/// A client is known by a certificate that `tls` trusts, by a token, or not at all.
pub async fn serve(server: Server, listener: TcpListener, tls: Arc<ServerConfig>, stop: impl Future<Output = ()>) {
    let acceptor = TlsAcceptor::from(tls);
    let connections = GracefulShutdown::new();
    let mut stop = std::pin::pin!(stop);
    let mut look = tokio::time::interval(LOOK);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let accepted = tokio::select! {
            biased;
            () = &mut stop => break,
            _ = look.tick() => {
                server.cut_off_slow_watches();
                continue;
            }
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => spawn(server.clone(), acceptor.clone(), stream, connections.watcher()),
            Err(error) => {
                // The process is out of file descriptors, most likely: others must close theirs first.
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
    drop(listener);
    let _ = tokio::time::timeout(DRAIN, connections.shutdown()).await;
}

/// Sees to a connection. As it is no `async fn`, all that one takes is compiled here, for speed, and not in the crates that serve.
fn spawn(server: Server, acceptor: TlsAcceptor, stream: TcpStream, watcher: Watcher) {
    tokio::spawn(connection(server, acceptor, stream, watcher).boxed());
}

async fn connection(server: Server, acceptor: TlsAcceptor, stream: TcpStream, watcher: Watcher) {
    let _ = stream.set_nodelay(true);
    let stream = match tokio::time::timeout(HEAD_TIMEOUT, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(%error, "a client did not shake hands"),
        Err(_) => return tracing::debug!("a client did not shake hands in time"),
    };
    let user = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first()).and_then(user_of);
    let broken = Broken::default();
    let stream = Patient::new(stream, server.bounds().slow_watch, broken.clone());
    let service = service_fn(move |mut request: Request<Incoming>| {
        let server = server.clone();
        request.extensions_mut().insert(broken.clone());
        if let Some(user) = &user {
            request.extensions_mut().insert(user.clone());
        }
        async move { Ok::<_, std::convert::Infallible>(server.handle(request).await) }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
    builder.http2().timer(TokioTimer::new()).max_concurrent_streams(MAX_STREAMS).adaptive_window(true);
    builder.http2().keep_alive_interval(PING.0).keep_alive_timeout(PING.1);
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    if let Err(error) = watcher.watch(connection.into_owned()).await {
        tracing::debug!(error = &*error, "a connection ended early");
    }
}

/// Takes the user from a certificate that was verified: the name is its common name, the groups its organizations.
fn user_of(certificate: &CertificateDer<'_>) -> Option<User> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let subject = certificate.subject();
    let name = subject.iter_common_name().next()?.as_str().ok()?;
    let groups: Vec<&str> = subject.iter_organization().filter_map(|group| group.as_str().ok()).collect();
    Some(User::new(name, &groups))
}
