//! The server as a whole: a function from request to response, and what it works with.

mod actions;
mod apart;
mod containers;
mod dispatch;
mod objects;
mod reply;
mod sent;
mod state;
mod upload;

pub(crate) use apart::Turns;
pub(crate) use reply::Presenter;
pub use state::Snapshot;

use crate::admission::Admission;
use crate::auth::{Issuer, LastModes, Rbac};
use crate::bounds::{Bounds, Shared};
use crate::custom::Definitions;
use crate::data_dir::{DataDir, DataDirError};
use crate::dial::Dialer;
use crate::metrics::Requests;
use crate::openapi::Documents;
use crate::registry::{Catalog, Resource};
use crate::response::Body;
use crate::storage::{Entry, Limits, Store};
use crate::watch::Readers;
use crate::webhook::{Caller, Unreachable};
use bytes::Bytes;
use flyball_core::{Clock, Rng};
use http::{Request, Response};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, RwLock, Weak};
use std::task::{Context, Poll};

/// What a server is made with.
pub struct Options {
    /// Tells the time.
    pub clock: Clock,
    /// Makes UIDs, generated names and whatever else is random but not secret.
    pub rng: Rng,
    /// The secret that keys for tokens are made from.
    pub secret: [u8; 32],
    /// Brings requests to webhooks.
    pub webhooks: Arc<dyn Caller>,
    /// How much the server takes on.
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
pub struct Server(Arc<Inner>);

/// What requests work with.
pub(crate) struct Inner {
    pub(crate) store: Store,
    catalog: RwLock<Arc<Catalog>>,
    openapi: Documents,
    pub(crate) clock: Clock,
    pub(crate) rng: Rng,
    pub(crate) issuer: Arc<Issuer>,
    pub(crate) rbac: Rbac,
    pub(crate) impersonations: LastModes,
    pub(crate) admission: Admission,
    pub(crate) webhooks: Arc<dyn Caller>,
    /// Held from looking for a free address or port until the service that has it is stored.
    services: tokio::sync::Mutex<()>,
    /// The server itself, for what outlives a call.
    pub(crate) me: Weak<Inner>,
    pub(crate) definitions: Definitions,
    /// Whether a CRD was written, or the last object of one that is going.
    definitions_moved: AtomicBool,
    pub(crate) bounds: Bounds,
    pub(crate) shared: Shared,
    pub(crate) readers: Readers,
    pub(crate) requests: Requests,
    /// Those of others than administrators that were answered with 403.
    pub(crate) forbidden: Requests,
}

impl Server {
    /// Makes a server that holds what every cluster holds: its namespaces and the default roles.
    ///
    /// Its objects are in memory alone and go with it.
    pub fn new(options: Options) -> Self {
        let issuer = Arc::new(Issuer::new(&options.secret));
        let inner = Inner::of(Store::new(Limits::of(&options.bounds)), issuer, Rbac::default(), options);
        inner.seed();
        Self(inner)
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
        self.0.store.close();
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
        self.0.issuer.issue_in_secret(account, secret)
    }

    /// Tells how many watches were cut off because they read too slowly.
    pub fn slow_watches(&self) -> u64 {
        self.0.readers.cut_off().values().sum()
    }

    pub(crate) fn bounds(&self) -> &Bounds {
        &self.0.bounds
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.0.shared
    }

    /// Tells how many objects a resource has, whoever may see them; for fixtures and figures.
    pub fn count(&self, group: &str, resource: &str) -> usize {
        self.0.store.count(&flyball_core::GroupResource::new(group, resource))
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

impl Inner {
    /// Makes what serves a store; CRDs are not looked at.
    fn of(store: Store, issuer: Arc<Issuer>, rbac: Rbac, options: Options) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            store,
            catalog: RwLock::new(Arc::new(Catalog::built_in())),
            openapi: Documents::default(),
            issuer,
            clock: options.clock,
            rng: options.rng,
            rbac,
            impersonations: LastModes::default(),
            admission: Admission::default(),
            webhooks: options.webhooks,
            services: tokio::sync::Mutex::default(),
            me: me.clone(),
            definitions: Definitions::default(),
            definitions_moved: AtomicBool::new(false),
            shared: Shared::new(&options.bounds),
            bounds: options.bounds,
            readers: Readers::default(),
            requests: Requests::default(),
            forbidden: Requests::default(),
        })
    }

    /// Returns what is served now.
    pub(crate) fn catalog(&self) -> Arc<Catalog> {
        self.catalog.read().expect("nothing panics while it holds the catalog").clone()
    }

    /// Serves something else from now on; watches of what is gone find out.
    pub(crate) fn put_catalog(&self, catalog: Catalog) {
        let catalog = Arc::new(catalog);
        let before = std::mem::replace(
            &mut *self.catalog.write().expect("nothing panics while it holds the catalog"),
            catalog.clone(),
        );
        let is_same = |resource: &Resource| {
            let now = catalog.get(&resource.kind.group, &resource.kind.version, &resource.plural);
            now.is_some_and(|now| std::ptr::eq(&*now, resource))
        };
        for resource in before.resources().filter(|resource| resource.custom().is_some() && !is_same(resource)) {
            self.store.bell(&resource.table).ring();
        }
    }

    /// Waits for its turn to write a resource whose objects are given what no two may have.
    pub(crate) async fn turn(&self, resource: &Resource) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        let allocates = resource.table.group.is_empty() && &*resource.table.resource == "services";
        if allocates { Some(self.services.lock().await) } else { None }
    }

    /// Notes what follows from a write.
    pub(crate) fn written(&self, resource: &Resource, _entry: &Entry) {
        if resource.table == crate::custom::table() {
            self.definitions_moved.store(true, Ordering::Release);
        }
        self.refresh_policy(resource);
    }

    /// Reads a role or a binding that was written before the write is answered, on the thread of that request.
    fn refresh_policy(&self, resource: &Resource) {
        if crate::auth::is_policy(&resource.table) {
            self.rbac.refresh(&self.store);
        }
    }

    /// Notes what follows from a removal.
    pub(crate) fn removed(&self, resource: &Resource, _entry: &Entry) {
        let last_of_definition = resource.custom().is_some_and(|custom| custom.terminating);
        if last_of_definition || resource.table == crate::custom::table() {
            self.definitions_moved.store(true, Ordering::Release);
        }
        self.refresh_policy(resource);
    }

    /// Carries out what follows from writes to CRDs.
    pub(crate) async fn settle(&self) {
        while self.definitions_moved.swap(false, Ordering::AcqRel) {
            self.sync_definitions().await;
        }
    }
}
