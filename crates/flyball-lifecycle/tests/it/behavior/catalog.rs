//! The recorded catalog, which a test serves without a socket.

use flyball::Operator;
use flyball_lifecycle::content::{Blobs, Content, PackageBundle};
use flyball_lifecycle::grpc::ConnectionError;
use flyball_lifecycle::manifests::Manifests;
use flyball_lifecycle::packages::PackageServer;
use flyball_lifecycle::source::{CatalogClient, Loaded, Location, SourceError, read_folder};
use flyball_lifecycle::{Settings, operator};
use futures_util::future::BoxFuture;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The address of the catalog in the recordings.
pub(crate) const ADDRESS: &str = "<catalog-address>";

/// The server of the catalog.
#[derive(Clone)]
pub(crate) struct Server {
    content: Arc<Content>,
    is_running: Arc<AtomicBool>,
    /// True if the server was restarted since the last check.
    was_restarted: Arc<AtomicBool>,
    loads: Arc<AtomicUsize>,
    /// True if each connection is closed before the next check.
    is_flaky: Arc<AtomicBool>,
    /// True if it has another content after each restart.
    is_restless: Arc<AtomicBool>,
}

impl Default for Server {
    fn default() -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/behavior/catalog/fbc");
        Self::of(Content::new(Blobs::parse(&read_folder(&folder).unwrap()).unwrap()))
    }
}

impl Server {
    /// Serves another content.
    pub(crate) fn of(content: Content) -> Self {
        Self {
            content: Arc::new(content),
            is_running: Arc::new(AtomicBool::new(true)),
            was_restarted: Arc::default(),
            loads: Arc::default(),
            is_flaky: Arc::default(),
            is_restless: Arc::default(),
        }
    }

    /// Closes each connection before the next check, and has another content each time if it is restless.
    pub(crate) fn close_connections(&self, is_restless: bool) {
        self.is_flaky.store(true, Ordering::Relaxed);
        self.is_restless.store(is_restless, Ordering::Relaxed);
    }

    pub(crate) fn set_running(&self, runs: bool) {
        self.is_running.store(runs, Ordering::Relaxed);
    }

    /// Closes the connections.
    pub(crate) fn restart(&self) {
        self.was_restarted.store(true, Ordering::Relaxed);
    }

    pub(crate) fn loads(&self) -> usize {
        self.loads.load(Ordering::Relaxed)
    }
}

impl Server {
    fn reach(&self, location: &Location) -> Result<(), SourceError> {
        let Location::Grpc { address, .. } = location else { panic!("the recordings have no {location}") };
        if address == ADDRESS && self.is_running.load(Ordering::Relaxed) {
            return Ok(());
        }
        let why = "Connection refused (os error 111)".to_owned();
        Err(ConnectionError::Connect { address: address.clone(), why }.into())
    }
}

impl CatalogClient for Server {
    fn load<'c>(
        &'c self,
        location: &'c Location,
        _: Option<&'c str>,
    ) -> BoxFuture<'c, Result<Option<Loaded>, SourceError>> {
        Box::pin(async move {
            self.reach(location)?;
            self.loads.fetch_add(1, Ordering::Relaxed);
            Ok(Some(Loaded { content: self.content.clone(), revision: "recorded".to_owned() }))
        })
    }

    fn check<'c>(&'c self, location: &'c Location) -> BoxFuture<'c, Result<(), SourceError>> {
        Box::pin(async move {
            self.reach(location)?;
            let (address, why) = (ADDRESS.to_owned(), "connection closed".to_owned());
            let was_restarted = self.was_restarted.swap(false, Ordering::Relaxed);
            match was_restarted || self.is_flaky.load(Ordering::Relaxed) {
                true => Err(ConnectionError::Protocol { address, why }.into()),
                false => Ok(()),
            }
        })
    }

    fn is_unchanged<'c>(&'c self, location: &'c Location, _: &'c str) -> BoxFuture<'c, Result<bool, SourceError>> {
        Box::pin(async move {
            self.reach(location)?;
            Ok(self.is_flaky.load(Ordering::Relaxed) && !self.is_restless.load(Ordering::Relaxed))
        })
    }

    fn manifests<'c>(
        &'c self,
        bundle: &'c PackageBundle,
        _: &'c [String],
    ) -> BoxFuture<'c, Result<Manifests, SourceError>> {
        Box::pin(async move {
            let manifests = bundle.manifests().unwrap_or_else(|| panic!("the bundle {} has no image", bundle.name()));
            let bundle = bundle.name().to_owned();
            manifests.map_err(|source| SourceError::Manifests { bundle, source })
        })
    }
}

/// Creates the manager.
pub(crate) fn manager(server: &Server, packages: &PackageServer) -> Operator {
    operator(&Settings { packages: Some(packages.clone()), ..Settings::new(Arc::new(server.clone())) })
}
