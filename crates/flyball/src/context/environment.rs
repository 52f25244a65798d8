//! The state that all controllers of an operator share.

use super::ApplyMetrics;
use super::generated_names::GeneratedNames;
use super::normalization::NormalizationCache;
use crate::cache::{Caches, Entry, Selection, Store};
use crate::client::{Agent, Gate, RequestMetrics, RetryingClient};
use crate::error::Error;
use crate::events::Recorder;
use crate::kind::Kind;
use crate::latch::Latch;
use crate::watcher;
use flyball_core::{Clock, ObjectKey, Rng};
use http::Request;
use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;
use std::fmt;
use std::sync::Arc;

/// The state that all controllers of an operator share.
#[derive(Clone)]
pub(crate) struct Environment {
    /// The operator's name, the reporting controller of its events.
    pub(crate) name: Arc<str>,
    /// The field manager.
    pub(crate) manager: Arc<str>,
    pub(crate) client: RetryingClient,
    /// The gate of writes, if only a leader may write.
    pub(crate) gate: Option<Arc<Gate>>,
    /// Opens when this replica may start its work.
    pub(crate) leads: Arc<Latch>,
    pub(crate) caches: Arc<Caches>,
    pub(crate) clock: Clock,
    /// True if long computations run on other threads than those of the runtime.
    pub(crate) has_threads: bool,
    pub(crate) rng: Rng,
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) requests: RequestMetrics,
    pub(crate) agent: Agent,
    pub(crate) applies: ApplyMetrics,
    pub(crate) normalizations: Arc<Mutex<NormalizationCache>>,
    pub(crate) generated_names: Arc<GeneratedNames>,
    /// Hooks for errors.
    pub(crate) on_error: Arc<[Arc<OnError>]>,
    /// Hooks for reconciles without a failure to retry.
    pub(crate) on_success: Arc<[Arc<OnSuccess>]>,
}

/// A hook that gets the controller, the object and an error.
pub(crate) type OnError = dyn Fn(&str, &ObjectKey, &Error) + Send + Sync;

/// A hook that gets the controller and a settled object.
pub(crate) type OnSuccess = dyn Fn(&str, &ObjectKey) + Send + Sync;

impl Environment {
    /// Returns the environment of a controller with its own client.
    pub(crate) fn acting_as(&self, client: kube::Client, controller: &str) -> Self {
        let (requests, rng, gate) = (self.requests.clone(), self.rng.fork(controller), self.gate.clone());
        let client = RetryingClient::new(client.into(), requests, &rng, gate, self.agent.clone());
        Self { client, ..self.clone() }
    }

    /// Gets an object from the API server, `None` if it does not exist.
    pub(crate) async fn fetch(&self, kind: &Kind, key: &ObjectKey) -> kube::Result<Option<Arc<Entry>>> {
        let path = kind.object_path(key).map_err(|error| kube::Error::Service(error.into()))?;
        match self.client.exchange(request(path)?).await {
            Ok(body) => self.parse(&body).map(Some),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Gets the managed fields of an object, which caches do not keep.
    pub(super) async fn fetch_managed_fields(&self, kind: &Kind, key: &ObjectKey) -> kube::Result<Value> {
        let path = kind.object_path(key).map_err(|error| kube::Error::Service(error.into()))?;
        let body = self.client.exchange(request(path)?).await?;
        let mut object: Value = serde_json::from_slice(&body).map_err(kube::Error::SerdeError)?;
        Ok(object["metadata"]["managedFields"].take())
    }

    /// Gets an object that a cache selects from the API server, `None` if it does not exist.
    pub(crate) async fn fetch_selected(&self, store: &Store, key: &ObjectKey) -> kube::Result<Option<Arc<Entry>>> {
        let selection = &store.cached_part().selection;
        if selection.is_empty() {
            return self.fetch(store.kind(), key).await;
        }
        let found = self.fetch_list(store.kind(), key.namespace(), &selection.and_named(key.name())).await?;
        Ok(found.into_iter().next().map(|(_, entry)| entry))
    }

    /// Lists the objects of one namespace, or of all, from the API server.
    pub(crate) async fn fetch_list(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        selection: &Selection,
    ) -> kube::Result<Vec<(ObjectKey, Arc<Entry>)>> {
        kind.check(namespace).map_err(|error| kube::Error::Service(error.into()))?;
        let (path, query) = (kind.path(namespace), selection.query());
        let uri = query.strip_prefix('&').map_or_else(|| path.clone(), |query| format!("{path}?{query}"));
        let body = self.client.exchange(request(uri)?).await?;
        watcher::items(&body, &self.manager)
    }

    /// Returns the values that the API server normalizes.
    pub(crate) fn normalizations(&self) -> MutexGuard<'_, NormalizationCache> {
        self.normalizations.lock()
    }

    /// Parses the response to a write, and stores it for the cache.
    pub(crate) fn store_response(&self, store: &Store, key: &ObjectKey, body: Vec<u8>) -> kube::Result<Arc<Entry>> {
        let entry = self.parse(&body)?;
        store.expect(body, key, &entry);
        Ok(entry)
    }

    /// Parses an object that the API server returned.
    pub(crate) fn parse(&self, object: &[u8]) -> kube::Result<Arc<Entry>> {
        let (_, entry) = Entry::parse(object, &self.manager).map_err(|error| kube::Error::Service(error.into()))?;
        Ok(Arc::new(entry))
    }
}

fn request(path: String) -> kube::Result<Request<Vec<u8>>> {
    Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Environment").field("name", &self.name).finish_non_exhaustive()
    }
}
