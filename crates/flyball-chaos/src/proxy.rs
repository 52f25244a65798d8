//! A proxy between an operator that runs as a process, and the API server: its requests meet the faults of a
//! [`Network`].
//!
//! It listens on the loopback interface without TLS, and forwards with the connection of this program. So it responds
//! only to requests with its random token, which the private kubeconfig of the operator contains.

use crate::network::{Network, Reaction, status};
use bytes::Bytes;
use flyball_core::hex;
use http::header::{AUTHORIZATION, CONNECTION, CONTENT_TYPE, HOST, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::Client;
use kube::client::Body;
use ring::rand::{SecureRandom, SystemRandom};
use serde_json::{Value, json};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::sleep;

/// Number of random bytes of a token.
const TOKEN_BYTES: usize = 24;
/// Maximum size of the body of a request; the API server accepts 3 MiB.
const MAX_BODY: usize = 8 << 20;
/// Maximum number of connections.
const MAX_CONNECTIONS: usize = 256;
/// Pause after a failed accept.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// A proxy on a free port.
pub struct Proxy {
    listener: TcpListener,
    address: SocketAddr,
    gate: Gate,
}

impl std::fmt::Debug for Proxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Proxy").field("address", &self.address).finish_non_exhaustive()
    }
}

/// The part that connections share.
#[derive(Clone)]
struct Gate {
    token: Arc<str>,
    client: Client,
    network: Network,
}

impl Proxy {
    /// Listens on a free port of the loopback interface. The client forwards the requests.
    ///
    /// # Errors
    ///
    /// If no port is free, or the operating system provides no randomness.
    pub async fn bind(client: Client, network: Network) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let mut token = [0; TOKEN_BYTES];
        let filled = SystemRandom::new().fill(&mut token);
        filled.map_err(|_| io::Error::other("the operating system provides no randomness"))?;
        Ok(Self { listener, address, gate: Gate { token: hex::encode(&token).into(), client, network } })
    }

    /// Returns the kubeconfig of the operator.
    pub fn kubeconfig(&self, namespace: &str) -> Value {
        let (name, user) = ("chaos", "operator");
        json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": {"server": format!("http://{}", self.address)}}],
            "users": [{"name": user, "user": {"token": &*self.gate.token}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": user, "namespace": namespace}}],
            "current-context": name,
        })
    }

    /// Serves until the future is dropped, which closes all connections.
    pub async fn serve(self) {
        let mut connections = JoinSet::new();
        let network = self.gate.network.clone();
        let mut cuts = std::pin::pin!(network.run());
        loop {
            tokio::select! {
                stream = accept(&self.listener), if connections.len() < MAX_CONNECTIONS => {
                    connections.spawn(serve_connection(self.gate.clone(), stream));
                }
                Some(_) = connections.join_next() => {}
                () = cuts.as_mut() => {}
            }
        }
    }
}

/// Waits for the next connection. Pauses after failures: the process is out of file descriptors, most likely.
async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(_) => sleep(ACCEPT_BACKOFF).await,
        }
    }
}

async fn serve_connection(gate: Gate, stream: TcpStream) {
    // Without it, small responses are late.
    let _ = stream.set_nodelay(true);
    let network = gate.network.clone();
    let respond = service_fn(move |request| {
        let gate = gate.clone();
        async move { gate.respond(request).await }
    });
    tokio::select! {
        // A fault closes the connection, which is an error here.
        _ = http1::Builder::new().serve_connection(TokioIo::new(stream), respond) => {}
        () = network.cut() => {}
    }
}

impl Gate {
    async fn respond(&self, request: Request<Incoming>) -> io::Result<Response<Body>> {
        let token = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
        if token != Some(&*self.token) {
            return Ok(rejection(401));
        }
        let is_write = ![Method::GET, Method::HEAD, Method::OPTIONS].contains(request.method());
        match self.network.react(is_write) {
            Reaction::Forward => self.forward(request).await,
            Reaction::Delay(delay) => {
                sleep(delay).await;
                self.forward(request).await
            }
            Reaction::Reject(code) => Ok(rejection(code)),
            Reaction::LoseResponse => {
                self.forward(request).await?;
                Err(io::Error::other("the response is lost"))
            }
            Reaction::Hang => std::future::pending().await,
        }
    }

    async fn forward(&self, request: Request<Incoming>) -> io::Result<Response<Body>> {
        let (mut head, body) = request.into_parts();
        head.headers.remove(AUTHORIZATION);
        head.headers.remove(HOST);
        remove_connection_headers(&mut head.headers);
        let body = Limited::new(body, MAX_BODY).collect().await.map_err(io::Error::other)?;
        let request = Request::from_parts(head, Body::from(body.to_bytes()));
        let mut response = self.client.send(request).await.map_err(io::Error::other)?;
        remove_connection_headers(response.headers_mut());
        Ok(response)
    }
}

/// Removes headers of the connection, which is another one behind the proxy.
fn remove_connection_headers(headers: &mut HeaderMap) {
    [CONNECTION, TRANSFER_ENCODING, UPGRADE].iter().for_each(|name| drop(headers.remove(name)));
}

fn rejection(code: u16) -> Response<Body> {
    let body = serde_json::to_vec(&status(code)).unwrap_or_default();
    let mut response = Response::new(Body::from(Bytes::from(body)));
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
mod tests;
