//! How an API server is reached: over connections of our own, or by a client that others made.

use super::transport::{Leased, Transport};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use http_body::{Frame, SizeHint};
use kube::client::Body;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tower::{BoxError, service_fn};

/// A way to an API server.
#[derive(Clone)]
pub(crate) struct Link {
    /// What carries requests there.
    pub(super) sender: Arc<dyn Sends>,
    /// Where objects are looked for that nobody says a namespace of.
    pub(crate) namespace: String,
}

impl Link {
    /// Prepares the way to the API server of a configuration.
    pub(crate) fn to(config: kube::Config) -> kube::Result<Self> {
        Ok(Self { sender: Transport::sender(&config)?, namespace: config.default_namespace })
    }

    /// Returns it as what others know.
    pub(crate) fn kube(self) -> kube::Client {
        let sender = self.sender;
        let service = service_fn(move |request| {
            let sender = sender.clone();
            async move { sender.send(request).await }
        });
        kube::Client::new(service, self.namespace)
    }
}

/// Makes kube's client for a configuration, with the [proxy](crate::proxy) that the kubeconfig or the environment names.
///
/// kube's own looks at `HTTPS_PROXY` for every address, whatever `NO_PROXY` says, and never reads certificates again. This one makes
/// connections as [`Operator::run`](crate::Operator::run) does: certificate files that are replaced are read for the next connection.
///
/// # Errors
///
/// When the configuration is of no use, as of its certificates.
///
/// ```no_run
/// # async fn client() -> Result<flyball::Client, Box<dyn std::error::Error>> {
/// let client = flyball::connect(kube::Config::infer().await?)?;
/// # Ok(client) }
/// ```
#[doc(alias = "try_default")]
pub fn connect(config: kube::Config) -> kube::Result<kube::Client> {
    Ok(Link::to(config)?.kube())
}

impl From<kube::Client> for Link {
    fn from(client: kube::Client) -> Self {
        Self { namespace: client.default_namespace().to_owned(), sender: Arc::new(client) }
    }
}

/// Whatever sends a request, and gives the answer as soon as it begins.
pub(crate) trait Sends: Send + Sync + 'static {
    /// Sends a request.
    fn send(&self, request: Request<Body>) -> BoxFuture<'_, kube::Result<Response<Received>>>;
}

impl Sends for kube::Client {
    fn send(&self, request: Request<Body>) -> BoxFuture<'_, kube::Result<Response<Received>>> {
        Box::pin(async move { Ok(Self::send(self, request).await?.map(Received::Kube)) })
    }
}

/// The body of an answer.
pub(crate) enum Received {
    /// Over a connection of our own.
    Own(Leased),
    /// By kube's client.
    Kube(Body),
}

impl http_body::Body for Received {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.get_mut() {
            Self::Own(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
            Self::Kube(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Own(body) => body.is_end_stream(),
            Self::Kube(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Own(body) => body.size_hint(),
            Self::Kube(body) => body.size_hint(),
        }
    }
}
