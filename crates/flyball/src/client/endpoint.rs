//! The API server and its client: our own transport, or a client of the caller.

use super::service::HttpService;
use super::transport::Transport;
use std::sync::Arc;
use tower::service_fn;

/// An API server, and the sender of requests to it.
#[derive(Clone)]
pub(crate) struct Endpoint {
    pub(super) sender: Arc<dyn HttpService>,
    /// The default namespace.
    pub(crate) namespace: String,
}

impl Endpoint {
    /// Creates an endpoint for the API server of a configuration.
    pub(crate) fn new(config: kube::Config) -> kube::Result<Self> {
        Ok(Self { sender: Transport::sender(&config)?, namespace: config.default_namespace })
    }

    /// Returns a kube client for this endpoint.
    pub(crate) fn kube(self) -> kube::Client {
        let sender = self.sender;
        let service = service_fn(move |request| {
            let sender = sender.clone();
            async move { sender.send(request).await }
        });
        kube::Client::new(service, self.namespace)
    }
}

/// Creates kube's client for a configuration, with the [proxy](crate::proxy) of the kubeconfig or the environment.
///
/// kube's own constructor uses `HTTPS_PROXY` for every address, even if `NO_PROXY` excludes it, and reads certificate
/// files once. This one connects as [`Operator::run_at`](crate::Operator::run_at) does: `NO_PROXY` is used, and
/// changed certificate files are read again for the next connection.
///
/// # Errors
///
/// Returns an error when the configuration is invalid, for example because of its certificates.
///
/// ```no_run
/// # async fn client() -> Result<flyball::Client, Box<dyn std::error::Error>> {
/// let client = flyball::connect(kube::Config::infer().await?)?;
/// # Ok(client) }
/// ```
#[doc(alias = "try_default")]
#[doc(alias = "try_from")]
pub fn connect(config: kube::Config) -> kube::Result<kube::Client> {
    Ok(Endpoint::new(config)?.kube())
}

impl From<kube::Client> for Endpoint {
    fn from(client: kube::Client) -> Self {
        Self { namespace: client.default_namespace().to_owned(), sender: Arc::new(client) }
    }
}
