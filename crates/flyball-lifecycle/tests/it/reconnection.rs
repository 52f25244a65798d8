//! The connection to a registry that is gone for some time.

use crate::behavior::catalog::{ADDRESS, Server};
use flyball_cluster::testing::Test;
use flyball_lifecycle::api::CatalogSource;
use flyball_lifecycle::{Settings, operator};
use k8s_openapi::api::core::v1::Namespace;
use serde_json::json;
use std::sync::Arc;
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

/// Starts the manager with a CatalogSource, and waits until it is connected.
async fn connected(server: &Server) -> Test {
    let server = server.clone();
    let make = move || {
        let settings = Settings::new(Arc::new(server.clone()));
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
