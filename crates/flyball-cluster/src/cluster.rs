//! The server and its controllers together.

use crate::Metrics;
use crate::controllers::{self, Controllers};
use flyball_core::{Clock, Rng};
use flyball_server::{Options, Server, User};
use http::Request;
use tower::ServiceExt;

/// A control plane.
///
/// Clones are the same cluster. It holds its objects in memory and ends with its last clone.
#[derive(Clone)]
pub struct Cluster {
    server: Server,
    clock: Clock,
    rng: Rng,
    certificate: Option<String>,
    metrics: Metrics,
}

impl Cluster {
    /// Makes a cluster that holds what every cluster holds from the start.
    pub fn new(options: Options) -> Self {
        let (clock, rng) = (options.clock.clone(), options.rng.fork("controllers"));
        Self { server: Server::new(options), clock, rng, certificate: None, metrics: Metrics::default() }
    }

    /// Has this certificate, in PEM, published in every namespace, so that pods know the server by it.
    pub fn with_certificate(mut self, pem: impl Into<String>) -> Self {
        self.certificate = Some(pem.into());
        self
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    pub(crate) fn certificate(&self) -> Option<&str> {
        self.certificate.as_deref()
    }

    /// Returns what is taken for measured in the cluster.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Returns the API server.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Makes a client that the API server takes for `user`, in process.
    pub fn client(&self, user: User) -> kube::Client {
        let user = move |mut request: Request<kube::client::Body>| {
            request.extensions_mut().insert(user.clone());
            request
        };
        kube::Client::new(self.server.clone().map_request(user), "default")
    }

    /// Makes a client that may do everything.
    pub fn admin(&self) -> kube::Client {
        self.client(User::new("kubernetes-admin", &["system:masters"]))
    }

    /// Runs controllers for ever; dropping the future ends them at once.
    pub async fn run(&self, controllers: &Controllers) {
        controllers::run(self, controllers, &self.clock, &self.rng).await;
    }
}
