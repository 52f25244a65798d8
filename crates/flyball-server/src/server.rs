//! The server: assembles all components.
//!
//! `dispatch` is its function from request to response. Only `serve` imports this module, which passes the components
//! their dependencies on each other here.

mod action_body;
mod actions;
mod call;
mod containers;
mod deletion;
mod dispatch;
mod list;
mod objects;
mod offloading;
mod state;
mod stored;
mod upload;

pub use state::Snapshot;
pub use stored::{StoredChange, StoredObject};

use crate::aggregation::{Aggregation, Forwarder, OfflineForwarder};
use crate::auth::{Authenticator, Authorizer, Issuer, PolicyImage};
use crate::bounds::{Bounds, SharedBounds};
use crate::catalog::{Catalog, CurrentCatalog};
use crate::codec::Codec;
use crate::data_dir::{DataDir, DataDirError};
use crate::definitions::Definitions;
use crate::dial::Dialer;
use crate::metrics::Requests;
use crate::openapi::Documents;
use crate::registry::Registry;
use crate::storage::{Limits, Recording, RecordingError, Store};
use crate::watch::Readers;
use crate::webhook::{Caller, OfflineCaller, Webhooks};
use flyball_core::{Clock, Rng};
use std::path::Path;
use std::sync::Arc;

/// The configuration of a server.
pub struct Options {
    /// The clock.
    pub clock: Clock,
    /// Source of randomness for UIDs, generated names and other values that are not secret.
    pub rng: Rng,
    /// The secret from which the keys of tokens are derived.
    pub secret: [u8; 32],
    /// Sends requests to webhooks.
    pub webhooks: Arc<dyn Caller>,
    /// Sends requests to aggregated API servers.
    pub aggregated: Arc<dyn Forwarder>,
    /// Limits of connections, requests and memory.
    pub bounds: Bounds,
}

impl Options {
    /// Uses the system clock and the operating system's randomness.
    ///
    /// # Errors
    ///
    /// Fails if the operating system's randomness is not available.
    pub fn system() -> std::io::Result<Self> {
        let mut secret = [0; 32];
        let filled = ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut secret);
        filled.map_err(|_| std::io::Error::other("the operating system provides no randomness"))?;
        let dialer = Arc::new(Dialer::default());
        let (webhooks, aggregated) = (dialer.clone(), dialer);
        let (clock, rng, bounds) = (Clock::system(), Rng::from_os(), Bounds::default());
        Ok(Self { clock, rng, secret, webhooks, aggregated, bounds })
    }

    /// Derives all randomness from a seed: the same requests have the same responses, tokens included.
    pub fn simulated(clock: Clock, seed: u64) -> Self {
        let rng = Rng::from_seed(seed);
        let keys = rng.fork("keys");
        let mut secret = [0; 32];
        secret.chunks_mut(8).for_each(|chunk| chunk.copy_from_slice(&keys.next().to_le_bytes()));
        let (webhooks, aggregated) = (Arc::new(OfflineCaller), Arc::new(OfflineForwarder));
        Self { clock, rng, secret, webhooks, aggregated, bounds: Bounds::default() }
    }
}

/// The embedded API server.
///
/// A server is a value: it receives requests through [`Server::handle`], as a tower service, or over TLS through
/// [`serve`](crate::serve). Clones share the server.
#[derive(Clone)]
pub struct Server(Arc<Components>);

/// The components of a server.
struct Components {
    registry: Arc<Registry>,
    aggregation: Aggregation,
    definitions: Definitions,
    authenticator: Authenticator,
    authorizer: Arc<Authorizer>,
    openapi: Documents,
    readers: Arc<Readers>,
    bounds: Bounds,
    shared: SharedBounds,
    requests: Requests,
    /// Requests of non-administrators that were rejected with 403.
    forbidden: Requests,
    /// Successful requests of service accounts outside of the system's namespace.
    permitted: Requests,
}

impl Components {
    /// Assembles the components over a store. CRDs are not read.
    fn new(
        store: Store,
        catalog: Arc<Catalog>,
        issuer: Arc<Issuer>,
        policy: PolicyImage,
        options: Options,
    ) -> Arc<Self> {
        let Options { clock, rng, secret: _, webhooks, aggregated, bounds } = options;
        let store = Arc::new(store);
        let catalog = Arc::new(CurrentCatalog::new(catalog));
        let aggregation = Aggregation::new(aggregated, store.clone(), &bounds);
        let webhooks = Arc::new(Webhooks::new(webhooks, store.clone(), rng.clone(), &bounds));
        let codec = Arc::new(Codec::new(catalog.clone(), webhooks.clone()));
        let authorizer = Arc::new(Authorizer::new(policy, store.clone()));
        let authenticator = Authenticator::new(issuer, authorizer.clone(), store.clone(), clock.clone(), rng.clone());
        let registry = Registry::new(store, catalog, codec, authorizer.clone(), &webhooks, (clock, rng));
        Arc::new(Self {
            definitions: Definitions::new(registry.clone()),
            registry,
            aggregation,
            authenticator,
            authorizer,
            openapi: Documents::default(),
            readers: Arc::default(),
            shared: SharedBounds::new(&bounds),
            bounds,
            requests: Requests::default(),
            forbidden: Requests::default(),
            permitted: Requests::default(),
        })
    }
}

impl Server {
    /// Creates a server with the objects of every new cluster: namespaces and default roles.
    ///
    /// Its objects are only in memory.
    pub fn new(options: Options) -> Self {
        let issuer = Arc::new(Issuer::new(&options.secret));
        let store = Store::new(Limits::of(&options.bounds));
        let server = Components::new(store, Catalog::built_in().into(), issuer, PolicyImage::default(), options);
        server.registry.seed();
        Self(server)
    }

    /// Opens the server of a data directory, which stores all of its objects.
    ///
    /// A write is visible and acknowledged once it is on disk. Resource versions continue after the last one; earlier
    /// events are lost, so watches and lists from earlier versions are rejected with 410. Tokens are signed with the
    /// keys of the directory instead of [`Options::secret`], which initializes a new directory. Requests that write
    /// must be handled on a tokio runtime.
    ///
    /// # Errors
    ///
    /// If the directory is damaged or cannot be written.
    pub fn open(options: Options, directory: DataDir) -> Result<Self, DataDirError> {
        Ok(Self(state::open(options, directory)?))
    }

    /// Creates a server with the objects, resource versions and revision of a recording as of one of its revisions.
    ///
    /// It is in memory only. As after a restart, watches and lists from earlier versions are rejected with 410. Tokens
    /// are signed with [`Options::secret`]: those of the recorded server are not valid.
    ///
    /// # Errors
    ///
    /// If the revision is not recorded, or the recording is damaged or has invalid entries.
    #[doc(alias = "time travel")]
    pub fn replay(options: Options, recording: &Recording, revision: u64) -> Result<Self, RecordingError> {
        Ok(Self(state::replay(options, recording, revision)?))
    }

    /// Records all objects, and all further writes with their origin, in a new file, which only its owner can read.
    ///
    /// The recording ends with [`Server::close`]. It ends earlier, with a warning in the log, when the next write would
    /// exceed `limit` bytes, or the disk is full or too slow: the server continues.
    ///
    /// # Errors
    ///
    /// If the file exists or cannot be written, the objects exceed the limit, or the server is recorded already.
    pub fn record(&self, path: &Path, limit: u64) -> Result<(), RecordingError> {
        self.0.registry.store.record(path, limit)
    }

    /// Ends the recording, if there is one, and releases the data directory, if there is one, with all acknowledged
    /// writes. Then further writes are rejected.
    ///
    /// Dropping the last clone of the server does the same, but clients may hold clones for longer.
    pub fn close(&self) {
        self.0.registry.store.close();
    }

    /// Issues the token of a service account (namespace, name and UID), for the secret that will contain it.
    ///
    /// It is valid while the secret contains it and the account exists. See
    /// <https://kubernetes.io/docs/concepts/configuration/secret/#serviceaccount-token-secrets>.
    pub fn token_in_secret(&self, account: (&str, &str, &str), secret: &str) -> String {
        self.0.authenticator.issuer().issue_in_secret(account, secret)
    }

    /// Returns the number of watches that were closed because their clients read too slowly.
    pub fn slow_watches(&self) -> u64 {
        self.0.readers.terminated().values().sum()
    }

    pub(crate) fn bounds(&self) -> &Bounds {
        &self.0.bounds
    }

    /// Returns the bytes of past states that unfinished lists keep in memory.
    pub(crate) fn past_bytes(&self) -> usize {
        self.0.registry.store.past_bytes()
    }

    pub(crate) fn shared(&self) -> &SharedBounds {
        &self.0.shared
    }

    /// Returns the number of objects of a resource, regardless of permissions; for fixtures and measurements.
    pub fn count(&self, group: &str, resource: &str) -> usize {
        self.0.registry.store.count(&flyball_core::GroupResource::new(group, resource))
    }
}
