//! The server as a function from request to response; assembles all components.
//!
//! No other module but `serve` imports it. A component gets here what it needs of another.

mod action_body;
mod actions;
mod apart;
mod call;
mod containers;
mod dispatch;
mod objects;
mod state;
mod upload;

pub use state::Snapshot;

use crate::auth::{Authenticator, Authorizer, Issuer, Rbac};
use crate::bounds::{Bounds, Shared};
use crate::catalog::{Catalog, CurrentCatalog};
use crate::codec::Codec;
use crate::data_dir::{DataDir, DataDirError};
use crate::definitions::Definitions;
use crate::dial::Dialer;
use crate::metrics::Requests;
use crate::openapi::Documents;
use crate::registry::Registry;
use crate::response::Body;
use crate::storage::{Limits, Store};
use crate::watch::Readers;
use crate::webhook::{Caller, Unreachable, Webhooks};
use bytes::Bytes;
use flyball_core::{Clock, Rng};
use http::{Request, Response};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// The configuration of a server.
pub struct Options {
    /// Tells the time.
    pub clock: Clock,
    /// Makes UIDs, generated names and whatever else is random but not secret.
    pub rng: Rng,
    /// The secret that keys for tokens are made from.
    pub secret: [u8; 32],
    /// Brings requests to webhooks.
    pub webhooks: Arc<dyn Caller>,
    /// Bounds of what the server takes on.
    pub bounds: Bounds,
}

impl Options {
    /// Takes the time from the machine's clock and all else from the operating system's randomness.
    ///
    /// # Errors
    ///
    /// Fails if the operating system has no randomness to give.
    pub fn system() -> std::io::Result<Self> {
        let mut secret = [0; 32];
        let filled = ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut secret);
        filled.map_err(|_| std::io::Error::other("the operating system has no randomness to give"))?;
        let webhooks = Arc::new(Dialer::default());
        Ok(Self { clock: Clock::system(), rng: Rng::from_os(), secret, webhooks, bounds: Bounds::default() })
    }

    /// Repeats from a seed: the same requests bring the same answers, tokens included.
    pub fn simulated(clock: Clock, seed: u64) -> Self {
        let rng = Rng::from_seed(seed);
        let keys = rng.fork("keys");
        let mut secret = [0; 32];
        secret.chunks_mut(8).for_each(|chunk| chunk.copy_from_slice(&keys.next().to_le_bytes()));
        Self { clock, rng, secret, webhooks: Arc::new(Unreachable), bounds: Bounds::default() }
    }
}

/// The embedded API server.
///
/// A server is a value: requests go in by [`Server::handle`], as a tower service, or over TLS through
/// [`serve`](crate::serve). Clones are the same server.
#[derive(Clone)]
pub struct Server(Arc<Components>);

/// The components of a server.
struct Components {
    registry: Arc<Registry>,
    definitions: Definitions,
    authenticator: Authenticator,
    authorizer: Arc<Authorizer>,
    openapi: Documents,
    readers: Arc<Readers>,
    bounds: Bounds,
    shared: Shared,
    requests: Requests,
    /// Those of others than administrators that were answered with 403.
    forbidden: Requests,
}

impl Components {
    /// Assembles the components over a store. CRDs are not read.
    fn new(store: Store, catalog: Arc<Catalog>, issuer: Arc<Issuer>, rbac: Rbac, options: Options) -> Arc<Self> {
        let Options { clock, rng, secret: _, webhooks, bounds } = options;
        let store = Arc::new(store);
        let catalog = Arc::new(CurrentCatalog::new(catalog));
        let webhooks = Arc::new(Webhooks::new(webhooks, store.clone(), rng.clone()));
        let codec = Arc::new(Codec::new(catalog.clone(), webhooks.clone()));
        let authorizer = Arc::new(Authorizer::new(rbac, store.clone()));
        let authenticator = Authenticator::new(issuer, authorizer.clone(), store.clone(), clock.clone(), rng.clone());
        let registry = Registry::new(store, catalog, codec, authorizer.clone(), &webhooks, (clock, rng));
        Arc::new(Self {
            definitions: Definitions::new(registry.clone()),
            registry,
            authenticator,
            authorizer,
            openapi: Documents::default(),
            readers: Arc::default(),
            shared: Shared::new(&bounds),
            bounds,
            requests: Requests::default(),
            forbidden: Requests::default(),
        })
    }
}

impl Server {
    /// Makes a server that holds what every cluster holds: its namespaces and the default roles.
    ///
    /// Its objects are in memory alone and go with it.
    pub fn new(options: Options) -> Self {
        let issuer = Arc::new(Issuer::new(&options.secret));
        let store = Store::new(Limits::of(&options.bounds));
        let server = Components::new(store, Catalog::built_in().into(), issuer, Rbac::default(), options);
        server.registry.seed();
        Self(server)
    }

    /// Goes on with what a data directory holds, and keeps all that is written there.
    ///
    /// A write is answered once it is on disk, and shown to nobody before. Resource versions go on from the last one;
    /// what happened before is forgotten, so that watches and lists from earlier versions are answered with 410. The keys
    /// that tokens are signed with are the directory's, in place of [`Options::secret`], which a new directory takes over.
    /// Requests that write must be handled on a tokio runtime.
    ///
    /// # Errors
    ///
    /// When the directory is damaged or cannot be written to.
    pub fn open(options: Options, directory: DataDir) -> Result<Self, DataDirError> {
        Ok(Self(state::open(options, directory)?))
    }

    /// Lets the data directory go, if there is one, with all that was acknowledged in it. From then on writes are refused.
    ///
    /// The same happens when the last clone of the server is dropped; but clients hold clones for a while longer.
    pub fn close(&self) {
        self.0.registry.store.close();
    }

    /// Answers a request.
    ///
    /// A [`User`](crate::User) among the request's extensions is taken for who sends it, unless a token says otherwise:
    /// the caller answers for that. Without either the request is anonymous.
    pub async fn handle<B>(&self, request: Request<B>) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send,
        B::Error: std::fmt::Display,
    {
        dispatch::handle(&self.0, request).await
    }

    /// Makes the token of a service account, known by namespace, name and UID, for the secret that is to hold it.
    ///
    /// It is good as long as the secret holds it and the account is there. See
    /// <https://kubernetes.io/docs/concepts/configuration/secret/#serviceaccount-token-secrets>.
    pub fn token_in_secret(&self, account: (&str, &str, &str), secret: &str) -> String {
        self.0.authenticator.issuer().issue_in_secret(account, secret)
    }

    /// Returns how many watches were cut off because they read too slowly.
    pub fn slow_watches(&self) -> u64 {
        self.0.readers.cut_off().values().sum()
    }

    pub(crate) fn bounds(&self) -> &Bounds {
        &self.0.bounds
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.0.shared
    }

    /// Returns how many objects a resource has, whoever may see them; for fixtures and figures.
    pub fn count(&self, group: &str, resource: &str) -> usize {
        self.0.registry.store.count(&flyball_core::GroupResource::new(group, resource))
    }
}

impl<B> tower_service::Service<Request<B>> for Server
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: std::fmt::Display,
{
    type Response = Response<Body>;
    type Error = std::convert::Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let server = self.clone();
        Box::pin(async move { Ok(server.handle(request).await) })
    }
}
