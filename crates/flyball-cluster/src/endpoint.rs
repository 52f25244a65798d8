//! A cluster behind TLS, for clients in other processes.

use crate::Cluster;
use flyball_core::Clock;
use flyball_server::pki::{self, Authority, Identity};
use serde_json::Value;
use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use tokio::net::TcpListener;

/// The names by which clients reach the server, as far as TLS is concerned.
const NAMES: [&str; 5] = ["127.0.0.1", "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"];

/// A port of this machine's loopback interface, with certificates made for it.
pub struct Endpoint {
    listener: TcpListener,
    address: SocketAddr,
    authority: Authority,
    server: Identity,
    admin: Identity,
}

/// Why there is no endpoint.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// The port cannot be listened on.
    #[error("cannot listen on port {port} of 127.0.0.1")]
    Listen {
        /// The port.
        port: u16,
        /// Why not.
        source: std::io::Error,
    },
    /// The certificates cannot be made.
    #[error("cannot make certificates")]
    Certificates(#[from] pki::Error),
}

impl Endpoint {
    /// Listens on a port, 0 for any free one, and makes an authority, a server certificate and one for an administrator.
    ///
    /// # Errors
    ///
    /// When the port is in use, or the operating system has no randomness to give.
    pub async fn bind(port: u16, clock: &Clock) -> Result<Self, EndpointError> {
        let listen = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await;
        let listener = listen.map_err(|source| EndpointError::Listen { port, source })?;
        let address = listener.local_addr().map_err(|source| EndpointError::Listen { port, source })?;
        let authority = Authority::new(clock)?;
        let server = authority.server(&NAMES)?;
        let admin = authority.client("kubernetes-admin", Some("system:masters"))?;
        Ok(Self { listener, address, authority, server, admin })
    }

    /// Returns the URL of the server.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Writes a kubeconfig whose one context, of this name, leads an administrator here.
    pub fn kubeconfig(&self, name: &str) -> Value {
        self.authority.kubeconfig(name, &self.url(), &self.admin)
    }

    /// Returns the certificate in PEM by which clients know the server.
    pub fn certificate(&self) -> String {
        self.authority.certificate()
    }

    /// Serves a cluster until `stop` completes.
    ///
    /// # Errors
    ///
    /// When the certificates are of no use to TLS.
    pub async fn serve(self, cluster: &Cluster, stop: impl Future<Output = ()>) -> Result<(), EndpointError> {
        let tls = self.authority.tls(&self.server)?;
        flyball_server::serve(cluster.server().clone(), self.listener, tls, stop).await;
        Ok(())
    }
}
