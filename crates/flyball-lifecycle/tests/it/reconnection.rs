//! The connection to a registry that is gone for some time.

use crate::behavior::catalog::{ADDRESS, Server};
use flyball_cluster::testing::Test;
use flyball_lifecycle::api::CatalogSource;
use flyball_lifecycle::content::PackageBundle;
use flyball_lifecycle::grpc::ConnectionError;
use flyball_lifecycle::manifests::Manifests;
use flyball_lifecycle::source::{CatalogClient, Loaded, Location, SourceError};
use flyball_lifecycle::{Settings, operator};
use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1::Namespace;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::{Instant, sleep};

async fn state(test: &Test) -> String {
    let source = test.api::<CatalogSource>().get("demo").await.unwrap();
    source.status.connection_state.map(|state| state.last_observed_state).unwrap_or_default()
}

/// Returns the time until the connection has a state.
async fn until(test: &Test, expected: &str) -> Duration {
    let began = Instant::now();
    test.eventually(&format!("the connection is {expected}"), async || state(test).await == expected).await;
    began.elapsed()
}

/// A server that is silent while it does not run: packets to it are lost.
struct SilentServer {
    server: Server,
    /// True if it lists its packages, but not its bundles.
    is_incomplete: AtomicBool,
}

/// Delay of a failure to connect to it.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

impl SilentServer {
    fn new(server: &Server) -> Self {
        Self { server: server.clone(), is_incomplete: AtomicBool::default() }
    }

    async fn delayed<T>(response: BoxFuture<'_, Result<T, SourceError>>) -> Result<T, SourceError> {
        let response = response.await;
        if response.is_err() {
            sleep(CONNECT_TIMEOUT).await;
        }
        response
    }
}

impl CatalogClient for SilentServer {
    fn load<'c>(
        &'c self,
        location: &'c Location,
        known: Option<&'c str>,
    ) -> BoxFuture<'c, Result<Option<Loaded>, SourceError>> {
        if self.is_incomplete.load(Ordering::Relaxed) {
            let (address, method) = (ADDRESS.to_owned(), "ListBundles".to_owned());
            return Box::pin(async { Err(ConnectionError::TooLarge { address, method }.into()) });
        }
        Box::pin(Self::delayed(self.server.load(location, known)))
    }

    fn check<'c>(&'c self, location: &'c Location) -> BoxFuture<'c, Result<(), SourceError>> {
        Box::pin(Self::delayed(self.server.check(location)))
    }

    fn is_unchanged<'c>(&'c self, location: &'c Location, known: &'c str) -> BoxFuture<'c, Result<bool, SourceError>> {
        Box::pin(Self::delayed(self.server.is_unchanged(location, known)))
    }

    fn manifests<'c>(
        &'c self,
        bundle: &'c PackageBundle,
        secrets: &'c [String],
    ) -> BoxFuture<'c, Result<Manifests, SourceError>> {
        self.server.manifests(bundle, secrets)
    }
}

/// Starts the manager with a CatalogSource, and waits until it is connected.
async fn connected(server: &Server) -> Test {
    connected_by(Arc::new(server.clone())).await
}

async fn connected_by(client: Arc<dyn CatalogClient>) -> Test {
    let make = move || {
        let settings = Settings::new(client.clone());
        operator(&Settings { global_namespace: "test".to_owned(), ..settings })
    };
    let test = Test::of(make).allows_changes_of::<Namespace>().start().await;
    // The interval is that of the content, not that of the connection.
    let spec = json!({
        "sourceType": "grpc", "address": ADDRESS, "updateStrategy": {"registryPoll": {"interval": "45m"}},
    });
    let source = json!({
        "apiVersion": "operators.coreos.com/v1alpha1", "kind": "CatalogSource", "metadata": {"name": "demo"},
        "spec": spec,
    });
    test.apply(&source.to_string()).await;
    until(&test, "READY").await;
    test
}

#[tokio::test(start_paused = true)]
async fn restarted_registry_is_loaded_again_within_seconds() {
    let server = Server::default();
    let test = connected(&server).await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(server.loads(), 1, "checks are enough");
    server.restart();
    let began = Instant::now();
    test.eventually("the content is loaded", async || server.loads() == 2).await;
    assert!(began.elapsed() <= Duration::from_secs(11), "{:?}", began.elapsed());
    until(&test, "READY").await;
}

#[tokio::test(start_paused = true)]
async fn registry_that_comes_back_is_connected_within_seconds() {
    let server = Server::default();
    let test = connected(&server).await;
    server.set_running(false);
    let noticed = until(&test, "TRANSIENT_FAILURE").await;
    assert!(noticed <= Duration::from_secs(11), "{noticed:?}");
    sleep(Duration::from_secs(3600)).await;
    server.set_running(true);
    let connected = until(&test, "READY").await;
    assert!(connected <= Duration::from_secs(11), "{connected:?}");
}

#[tokio::test(start_paused = true)]
async fn silent_registry_that_comes_back_is_connected_within_seconds() {
    let server = Server::default();
    let test = connected_by(Arc::new(SilentServer::new(&server))).await;
    server.set_running(false);
    let noticed = until(&test, "TRANSIENT_FAILURE").await;
    assert!(noticed <= Duration::from_secs(11) + 2 * CONNECT_TIMEOUT, "{noticed:?}");
    for silence in [0, 10, 3600] {
        server.set_running(false);
        sleep(Duration::from_secs(silence)).await;
        server.set_running(true);
        // An attempt that began before, and the delay after it.
        let connected = until(&test, "READY").await;
        assert!(connected <= Duration::from_secs(11) + 2 * CONNECT_TIMEOUT, "{connected:?} after {silence} s");
    }
}

#[tokio::test(start_paused = true)]
async fn failure_of_a_later_load_is_reported() {
    let client = Arc::new(SilentServer::new(&Server::default()));
    let test = connected_by(client.clone()).await;
    client.is_incomplete.store(true, Ordering::Relaxed);
    let noticed = until(&test, "TRANSIENT_FAILURE").await;
    assert!(noticed <= Duration::from_secs(311), "{noticed:?}");
    let source = test.api::<CatalogSource>().get("demo").await.unwrap();
    assert!(source.status.message.contains("ListBundles"), "{:?}", source.status);
    client.is_incomplete.store(false, Ordering::Relaxed);
    let connected = until(&test, "READY").await;
    assert!(connected <= Duration::from_secs(11), "{connected:?}");
}

#[tokio::test(start_paused = true)]
async fn change_soon_after_a_load_is_loaded_after_a_minute() {
    let server = Server::default();
    let test = connected(&server).await;
    let began = Instant::now();
    sleep(Duration::from_secs(20)).await;
    server.restart();
    sleep(Duration::from_secs(35)).await;
    assert_eq!(server.loads(), 1, "it was loaded less than a minute ago");
    test.eventually("the content is loaded", async || server.loads() == 2).await;
    let elapsed = began.elapsed().as_secs();
    assert!((58..=70).contains(&elapsed), "{elapsed} s");
    sleep(Duration::from_secs(120)).await;
    assert_eq!(server.loads(), 2, "the change is loaded once");
}

#[tokio::test(start_paused = true)]
async fn registry_that_closes_its_connections_is_loaded_as_often_as_another() {
    let server = Server::default();
    let test = connected(&server).await;
    server.close_connections(false);
    sleep(Duration::from_secs(60 * 60)).await;
    // One load in five minutes is due anyway.
    assert!((11..=13).contains(&server.loads()), "{}", server.loads());
    until(&test, "READY").await;
}

#[tokio::test(start_paused = true)]
async fn registry_with_another_content_in_each_connection_is_loaded_once_a_minute_at_most() {
    let server = Server::default();
    let test = connected(&server).await;
    server.close_connections(true);
    sleep(Duration::from_secs(60 * 60)).await;
    assert!((30..=61).contains(&server.loads()), "{}", server.loads());
    until(&test, "READY").await;
}
