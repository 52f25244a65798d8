//! A cluster behind TLS, for clients in other processes.

use crate::Cluster;
use flyball_core::Clock;
use flyball_server::pki::{self, Authority, Identity};
use flyball_server::{DataDir, DataDirError, Dialer, Options};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use kube::{Api, core::ObjectMeta};
use serde_json::{Value, json};
use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use tokio::net::TcpListener;

/// The names in the server's certificate.
const NAMES: [&str; 5] = ["127.0.0.1", "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"];

/// The name in the certificate that the server presents to aggregated API servers.
const FRONT_PROXY: &str = "front-proxy-client";
/// The ConfigMap by which aggregated API servers recognize the server.
const AUTHENTICATION: (&str, &str) = ("kube-system", "extension-apiserver-authentication");
/// The manager of its fields.
const FIELD_MANAGER: &str = "kube-apiserver";

/// A TLS endpoint of the control plane on the loopback interface.
pub struct Endpoint {
    listener: TcpListener,
    address: SocketAddr,
    authority: Authority,
    /// Issues the certificate for aggregated API servers, and no other.
    front_proxy: Authority,
    proxy: Identity,
    server: Identity,
    admin: Identity,
}

/// The error of creating an endpoint.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// The port cannot be listened on.
    #[error("cannot listen on port {port} of 127.0.0.1")]
    Listen {
        /// The port.
        port: u16,
        /// The cause.
        source: std::io::Error,
    },
    /// The endpoint in the data directory cannot be read.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// The certificates cannot be created.
    #[error("cannot create certificates")]
    Certificates(#[from] pki::Error),
    /// The certificates cannot be published.
    #[error("cannot publish certificates in ConfigMap kube-system/extension-apiserver-authentication")]
    Publish(#[source] Box<kube::Error>),
}

/// Name of the file with the last port.
const PORT: &str = "port";

/// Returns the last port of a cluster, 0 if there is none.
fn last_port(directory: &DataDir) -> Result<u16, DataDirError> {
    let Some(text) = directory.load(PORT)? else { return Ok(0) };
    let port = str::from_utf8(&text).ok().and_then(|text| text.trim().parse().ok());
    port.ok_or_else(|| DataDirError::Damaged { path: directory.path().join(PORT), at: 0 })
}

async fn listen(port: u16) -> Result<(TcpListener, SocketAddr), EndpointError> {
    let bind = async {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    };
    bind.await.map_err(|source| EndpointError::Listen { port, source })
}

impl Endpoint {
    /// Listens on a port, 0 for any free one, and creates an authority, a server certificate and one for an
    /// administrator.
    ///
    /// # Errors
    ///
    /// If the port is in use, or the operating system provides no randomness.
    pub async fn bind(port: u16, clock: &Clock) -> Result<Self, EndpointError> {
        let (listener, address) = listen(port).await?;
        Self::new(listener, address, Authority::new(clock)?, clock)
    }

    /// Listens on the last port of a data directory's cluster, with the same authority, so that kubeconfigs remain
    /// valid.
    ///
    /// A port other than 0 replaces the last one, and is stored.
    ///
    /// # Errors
    ///
    /// If the port is in use, or the directory cannot be read or written.
    pub async fn bind_stored(port: u16, clock: &Clock, directory: &DataDir) -> Result<Self, EndpointError> {
        let authority = Authority::load_or_create(directory, clock)?;
        let last = last_port(directory)?;
        let (listener, address) = listen(if port == 0 { last } else { port }).await?;
        if address.port() != last {
            directory.save(PORT, format!("{}\n", address.port()).as_bytes())?;
        }
        Self::new(listener, address, authority, clock)
    }

    fn new(
        listener: TcpListener,
        address: SocketAddr,
        authority: Authority,
        clock: &Clock,
    ) -> Result<Self, EndpointError> {
        let server = authority.server(&NAMES)?;
        let admin = authority.client("kubernetes-admin", Some("system:masters"))?;
        let front_proxy = Authority::new(clock)?;
        let proxy = front_proxy.client(FRONT_PROXY, None)?;
        Ok(Self { listener, address, authority, front_proxy, proxy, server, admin })
    }

    /// Enables the server of these options to reach aggregated API servers: it presents a certificate that
    /// [`Endpoint::serve`] publishes.
    #[must_use]
    pub fn aggregating(&self, options: Options) -> Options {
        Options { aggregated: Arc::new(Dialer::default().with_identity(self.proxy.clone())), ..options }
    }

    /// Publishes the authorities of the certificates of clients, as kube-apiserver does.
    async fn publish(&self, cluster: &Cluster) -> kube::Result<()> {
        let (namespace, name) = AUTHENTICATION;
        let prefixes = |prefix: &str| json!([prefix]).to_string();
        let data = [
            ("client-ca-file", self.authority.certificate()),
            ("requestheader-allowed-names", json!([FRONT_PROXY]).to_string()),
            ("requestheader-client-ca-file", self.front_proxy.certificate()),
            ("requestheader-extra-headers-prefix", prefixes("X-Remote-Extra-")),
            ("requestheader-group-headers", prefixes("X-Remote-Group")),
            ("requestheader-uid-headers", prefixes("X-Remote-Uid")),
            ("requestheader-username-headers", prefixes("X-Remote-User")),
        ];
        let map = ConfigMap {
            metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
            data: Some(data.map(|(key, value)| (key.to_owned(), value)).into()),
            ..ConfigMap::default()
        };
        let maps: Api<ConfigMap> = Api::namespaced(cluster.admin(), namespace);
        maps.patch(name, &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(map)).await.map(drop)
    }

    /// Returns the URL of the server.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Creates a kubeconfig for an administrator, with one context of this name.
    pub fn kubeconfig(&self, name: &str) -> Value {
        self.authority.kubeconfig(name, &self.url(), &self.admin)
    }

    /// Returns the certificate of the server's authority in PEM.
    pub fn certificate(&self) -> String {
        self.authority.certificate()
    }

    /// Serves a cluster until `stop` completes.
    ///
    /// # Errors
    ///
    /// If TLS rejects the certificates, or they cannot be published.
    pub async fn serve(self, cluster: &Cluster, stop: impl Future<Output = ()>) -> Result<(), EndpointError> {
        let tls = self.authority.tls(&self.server)?;
        self.publish(cluster).await.map_err(|error| EndpointError::Publish(Box::new(error)))?;
        flyball_server::serve(cluster.server().clone(), self.listener, tls, stop).await;
        Ok(())
    }
}
