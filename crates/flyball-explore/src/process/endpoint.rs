//! The endpoint of a process: an HTTP server on the loopback interface whose requests cross the ports.
//!
//! Each start of the process has an endpoint and a token of its own, so that nothing that an earlier process left
//! behind reaches the control plane.

use super::Activity;
use crate::port::{Connection, PortBody, full};
use crate::site::OPERATOR_NAMESPACE;
use flyball::listener;
use flyball_core::{Status, hex};
use http::header::AUTHORIZATION;
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use ring::rand::{SecureRandom, SystemRandom};
use serde_json::{Value, json};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use tokio::net::{TcpListener, TcpStream};

/// Number of random bytes of a token.
const TOKEN_BYTES: usize = 24;
/// Maximum number of connections. An operator that opens one per request and object stays below it.
const MAX_CONNECTIONS: usize = 1024;

/// An API server for one start of a process.
pub(crate) struct Endpoint {
    listener: TcpListener,
    address: SocketAddr,
    gate: Gate,
}

/// The part of an endpoint that its connections share.
#[derive(Clone)]
struct Gate {
    token: Arc<str>,
    connection: Connection,
    activity: Arc<Activity>,
}

impl Endpoint {
    /// Listens on a free port.
    pub(crate) async fn bind(connection: Connection, activity: Arc<Activity>) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let mut token = [0; TOKEN_BYTES];
        let filled = SystemRandom::new().fill(&mut token);
        filled.map_err(|_| io::Error::other("the operating system provides no randomness"))?;
        let gate = Gate { token: hex::encode(&token).into(), connection, activity };
        Ok(Self { listener, address, gate })
    }

    /// Returns the kubeconfig of the process.
    pub(crate) fn kubeconfig(&self) -> Value {
        let (name, user) = ("explore", "operator");
        json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": {"server": format!("http://{}", self.address)}}],
            "users": [{"name": user, "user": {"token": &*self.gate.token}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": user, "namespace": OPERATOR_NAMESPACE}}],
            "current-context": name,
        })
    }

    /// Serves until the future is dropped, which closes all connections.
    pub(crate) async fn serve(self) {
        let Self { listener, gate, .. } = self;
        listener::accept(listener, MAX_CONNECTIONS, |stream| serve_connection(gate.clone(), stream)).await;
    }
}

async fn serve_connection(gate: Gate, stream: TcpStream) {
    let respond = service_fn(move |request| {
        let gate = gate.clone();
        async move { gate.respond(request).await }
    });
    // A fault closes the connection, which is an error here.
    let _ = auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), respond).await;
}

impl Gate {
    async fn respond(&self, mut request: Request<Incoming>) -> io::Result<Response<PortBody>> {
        let token = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
        if token != Some(&*self.token) {
            return Ok(unauthorized());
        }
        // The server would look for the account of the token.
        request.headers_mut().remove(AUTHORIZATION);
        self.activity.record(format!("{} {}", request.method(), request.uri().path()));
        self.connection.send(request).await
    }
}

fn unauthorized() -> Response<PortBody> {
    let status = Status::unauthorized();
    let body = serde_json::to_vec(&status).unwrap_or_default();
    let mut response = Response::new(full(body.into()));
    *response.status_mut() = StatusCode::UNAUTHORIZED;
    response
}
