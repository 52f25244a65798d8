//! The client of the registry API.

use super::REGISTRY;
use super::frame::{Frames, GrpcError, decode, encode, memory_of};
use super::messages::{
    Bundle, GetBundleInChannelRequest, GetBundleRequest, GetPackageRequest, HealthCheckRequest, HealthCheckResponse,
    ListBundlesRequest, ListPackageRequest, Package, PackageName, ServingStatus,
};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, TE, USER_AGENT};
use http::{Request, Uri};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use prost::Message;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio::time::timeout;

/// Timeout of a TCP connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of the next part of a response.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval of pings on a silent connection, and the timeout of their responses.
const PING_INTERVAL: Duration = Duration::from_secs(20);
const PING_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of messages of a response.
const MAX_MESSAGES: usize = 200_000;
/// Maximum memory of all messages of a connection, in bytes. Registries may be those of users.
const MAX_CONNECTION_BYTES: usize = 512 << 20;
/// Unread bytes of a response that the server may send.
const WINDOW_BYTES: u32 = 4 << 20;

/// A registry that cannot be queried, or that failed.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// The address is invalid.
    #[error("{address:?} is not an address such as catalog.olm.svc:50051")]
    Address {
        /// The address.
        address: String,
    },
    /// There is no connection.
    #[error("cannot connect to the catalog at {address}: {why}")]
    Connect {
        /// The address.
        address: String,
        /// The reason.
        why: String,
    },
    /// The connection that the content was loaded with is gone.
    #[error("the connection to the catalog at {address} is closed")]
    Closed {
        /// The address.
        address: String,
    },
    /// The other side does not speak gRPC.
    #[error("{address} is not a catalog: {why}")]
    Protocol {
        /// The address.
        address: String,
        /// The reason.
        why: String,
    },
    /// A call failed.
    #[error("{method} of the catalog at {address} failed: {source}")]
    Call {
        /// The address.
        address: String,
        /// The method.
        method: String,
        /// The status.
        source: GrpcError,
    },
    /// The responses are too large.
    #[error(
        "{method} of the catalog at {address}: it returns more than {MAX_MESSAGES} messages, or together more than \
         {} MiB",
        MAX_CONNECTION_BYTES >> 20
    )]
    TooLarge {
        /// The address.
        address: String,
        /// The method.
        method: String,
    },
}

/// A connection to a registry. It is closed when it is dropped.
#[derive(Debug)]
pub struct Connection {
    address: String,
    sender: SendRequest<Full<Bytes>>,
    task: AbortHandle,
    /// The memory of all messages.
    used: usize,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Connection {
    /// Connects to a registry: `host:port`, with or without a scheme of gRPC.
    ///
    /// # Errors
    ///
    /// If nothing listens there, or it does not speak HTTP/2.
    pub async fn open(address: &str) -> Result<Self, ConnectionError> {
        let target = ["dns:///", "passthrough:///", "http://"].iter().find_map(|prefix| address.strip_prefix(prefix));
        let target = target.unwrap_or(address);
        let authority = target.parse::<http::uri::Authority>().ok().filter(|authority| authority.port().is_some());
        let authority = authority.ok_or_else(|| ConnectionError::Address { address: address.to_owned() })?;
        let failed = |why: String| ConnectionError::Connect { address: address.to_owned(), why };
        let stream = timeout(CONNECT_TIMEOUT, TcpStream::connect(authority.as_str())).await;
        let stream = stream.map_err(|_| failed("no answer".into()))?.map_err(|error| failed(error.to_string()))?;
        let _ = stream.set_nodelay(true);
        let handshake = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .initial_stream_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES)
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT)
            .handshake(TokioIo::new(stream));
        let (sender, connection) = timeout(CONNECT_TIMEOUT, handshake)
            .await
            .map_err(|_| failed("no answer".into()))?
            .map_err(|error| failed(error.to_string()))?;
        let task = tokio::spawn(async move { drop(connection.await) }).abort_handle();
        Ok(Self { address: authority.to_string(), sender, task, used: 0 })
    }

    /// Returns the names of all packages.
    ///
    /// # Errors
    ///
    /// If the call fails.
    pub async fn list_packages(&mut self) -> Result<Vec<String>, ConnectionError> {
        let packages: Vec<PackageName> = self.stream("ListPackages", &ListPackageRequest {}).await?;
        Ok(packages.into_iter().map(|package| package.name).collect())
    }

    /// Returns a package.
    ///
    /// # Errors
    ///
    /// If the call fails.
    pub async fn get_package(&mut self, name: &str) -> Result<Package, ConnectionError> {
        self.unary("GetPackage", &GetPackageRequest { name: name.to_owned() }).await
    }

    /// Returns the bundles of all channels, without the objects of bundles with an image.
    ///
    /// # Errors
    ///
    /// If the call fails.
    pub async fn list_bundles(&mut self) -> Result<Vec<Bundle>, ConnectionError> {
        self.stream("ListBundles", &ListBundlesRequest {}).await
    }

    /// Returns a bundle in a channel.
    ///
    /// # Errors
    ///
    /// If the call fails.
    pub async fn get_bundle(&mut self, package: &str, channel: &str, name: &str) -> Result<Bundle, ConnectionError> {
        let (pkg_name, channel_name, csv_name) = (package.to_owned(), channel.to_owned(), name.to_owned());
        self.unary("GetBundle", &GetBundleRequest { pkg_name, channel_name, csv_name }).await
    }

    /// Returns the newest bundle of a channel.
    ///
    /// # Errors
    ///
    /// If the call fails.
    pub async fn get_bundle_for_channel(&mut self, package: &str, channel: &str) -> Result<Bundle, ConnectionError> {
        let (pkg_name, channel_name) = (package.to_owned(), channel.to_owned());
        self.unary("GetBundleForChannel", &GetBundleInChannelRequest { pkg_name, channel_name }).await
    }

    /// Returns true if the registry is healthy.
    ///
    /// # Errors
    ///
    /// If the call fails.
    pub async fn is_healthy(&mut self) -> Result<bool, ConnectionError> {
        let request = HealthCheckRequest { service: String::new() };
        let responses: Vec<HealthCheckResponse> = self.call("grpc.health.v1.Health", "Check", &request).await?;
        Ok(responses.iter().any(|response| response.status == i32::from(ServingStatus::Serving)))
    }

    /// Calls a method of the registry that returns one message.
    ///
    /// # Errors
    ///
    /// If the call fails.
    pub async fn unary<T: Message + Default>(
        &mut self,
        method: &str,
        request: &impl Message,
    ) -> Result<T, ConnectionError> {
        let mut messages = self.call(REGISTRY, method, request).await?;
        match messages.len() {
            1 => Ok(messages.remove(0)),
            count => Err(self.protocol(format!("{method} returned {count} messages, expected one"))),
        }
    }

    /// Calls a method of the registry that returns many messages.
    ///
    /// # Errors
    ///
    /// If the call fails.
    pub async fn stream<T: Message + Default>(
        &mut self,
        method: &str,
        request: &impl Message,
    ) -> Result<Vec<T>, ConnectionError> {
        self.call(REGISTRY, method, request).await
    }

    /// Records that the messages so far are not used any more.
    pub(crate) fn release(&mut self) {
        self.used = 0;
    }

    /// Adds to the memory of all messages.
    ///
    /// # Errors
    ///
    /// If they take too much.
    pub(crate) fn charge(&mut self, method: &str, bytes: usize) -> Result<(), ConnectionError> {
        self.used = self.used.saturating_add(bytes);
        if self.used > MAX_CONNECTION_BYTES { Err(self.too_large(method)) } else { Ok(()) }
    }

    fn too_large(&self, method: &str) -> ConnectionError {
        ConnectionError::TooLarge { address: self.address.clone(), method: method.to_owned() }
    }

    fn protocol(&self, why: String) -> ConnectionError {
        ConnectionError::Protocol { address: self.address.clone(), why }
    }

    async fn call<T: Message + Default>(
        &mut self,
        service: &str,
        method: &str,
        request: &impl Message,
    ) -> Result<Vec<T>, ConnectionError> {
        let uri: Uri = format!("http://{}/{service}/{method}", self.address)
            .parse()
            .map_err(|_| ConnectionError::Address { address: self.address.clone() })?;
        let request = Request::post(uri)
            .header(CONTENT_TYPE, "application/grpc")
            .header(TE, "trailers")
            .header(USER_AGENT, concat!("flyball/", env!("CARGO_PKG_VERSION")))
            .body(Full::new(encode(request)))
            .map_err(|error| self.protocol(error.to_string()))?;
        let failed = |source: GrpcError, address: &str| ConnectionError::Call {
            address: address.to_owned(),
            method: method.to_owned(),
            source,
        };
        let stalled = |address: &str| ConnectionError::Connect { address: address.to_owned(), why: "no answer".into() };
        let response = timeout(STALL_TIMEOUT, self.sender.send_request(request)).await;
        let response =
            response.map_err(|_| stalled(&self.address))?.map_err(|error| self.protocol(error.to_string()))?;
        if !response.status().is_success() {
            return Err(self.protocol(format!("it responds with {}", response.status())));
        }
        if let Some(Err(source)) = GrpcError::of(response.headers()) {
            return Err(failed(source, &self.address));
        }
        let mut status = GrpcError::of(response.headers());
        let (mut body, mut frames, mut messages) = (response.into_body(), Frames::default(), Vec::new());
        while let Some(frame) = timeout(STALL_TIMEOUT, body.frame()).await.map_err(|_| stalled(&self.address))? {
            let frame = frame.map_err(|error| self.protocol(error.to_string()))?;
            if let Some(trailers) = frame.trailers_ref() {
                status = GrpcError::of(trailers);
            }
            let Some(data) = frame.data_ref() else { continue };
            frames.push(data);
            while let Some(message) = frames.next().map_err(|source| failed(source, &self.address))? {
                self.charge(method, size_of::<T>() + memory_of(&message))?;
                if messages.len() >= MAX_MESSAGES {
                    return Err(self.too_large(method));
                }
                messages.push(decode(&message).map_err(|source| failed(source, &self.address))?);
            }
        }
        match status {
            Some(Ok(())) if !frames.is_partial() => Ok(messages),
            Some(Err(source)) => Err(failed(source, &self.address)),
            _ => Err(self.protocol(format!("the response of {method} is incomplete"))),
        }
    }
}
