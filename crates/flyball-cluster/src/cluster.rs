//! The server and its controllers together.

use crate::controllers::{self, Controllers};
use crate::node::{Program, Rule, Rules, Simulated};
use flyball_core::{Clock, Rng};
use flyball_server::{Options, Server, User};
use http::Request;
use std::sync::Arc;
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
    rules: Rules,
    program: Option<Arc<dyn Program>>,
}

impl Cluster {
    /// Makes a cluster that holds what every cluster holds from the start.
    pub fn new(options: Options) -> Self {
        let (clock, rng) = (options.clock.clone(), options.rng.fork("controllers"));
        Self { server: Server::new(options), clock, rng, certificate: None, rules: Rules::default(), program: None }
    }

    /// Has this certificate, in PEM, published in every namespace, so that pods know the server by it.
    pub fn with_certificate(mut self, pem: impl Into<String>) -> Self {
        self.certificate = Some(pem.into());
        self
    }

    /// Has the containers on simulated nodes do what these rules say, the first of those that say something about one.
    pub fn with_rules(mut self, rules: impl IntoIterator<Item = Rule>) -> Self {
        self.rules = rules.into_iter().collect();
        self
    }

    /// Has the containers on simulated nodes run in this program, and not in [`Simulated`].
    pub fn with_program(mut self, program: Arc<dyn Program>) -> Self {
        self.program = Some(program);
        self
    }

    /// Returns what the containers of pods run in.
    pub(crate) fn program(&self, rng: &Rng) -> Arc<dyn Program> {
        let simulated = || Arc::new(Simulated::new(self.rules.clone(), &rng.fork("programs")));
        self.program.clone().unwrap_or_else(|| simulated())
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    pub(crate) fn certificate(&self) -> Option<&str> {
        self.certificate.as_deref()
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
