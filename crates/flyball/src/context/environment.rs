//! What all controllers of an operator share.

use super::ApplyMetrics;
use super::drawn_names::DrawnNames;
use super::normalization::Rephrased;
use crate::cache::{Caches, Entry, Selection, Store};
use crate::client::{Gate, RequestMetrics, RetryingClient};
use crate::error::Error;
use crate::events::Recorder;
use crate::kind::Kind;
use crate::latch::Latch;
use crate::watcher;
use flyball_core::{Clock, ObjectKey, Rng};
use http::Request;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What all controllers of an operator share.
#[derive(Clone)]
pub(crate) struct Environment {
    /// The operator's name, which it signs events with.
    pub(crate) name: Arc<str>,
    /// Whom the API server takes for the one who sets fields.
    pub(crate) manager: Arc<str>,
    pub(crate) client: RetryingClient,
    /// What the client asks before it writes, if only a leader may.
    pub(crate) gate: Option<Arc<Gate>>,
    /// Opens when work may begin.
    pub(crate) leads: Arc<Latch>,
    pub(crate) caches: Arc<Caches>,
    pub(crate) clock: Clock,
    pub(crate) rng: Rng,
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) requests: RequestMetrics,
    pub(crate) applies: ApplyMetrics,
    pub(crate) rephrased: Arc<Mutex<Rephrased>>,
    pub(crate) drawn_names: Arc<DrawnNames>,
    /// Who is told of errors.
    pub(crate) on_error: Arc<[Arc<OnError>]>,
    /// Who is told of objects that do not fail any more.
    pub(crate) on_settled: Arc<[Arc<OnSettled>]>,
}

/// Is told of an error with the controller and the object.
pub(crate) type OnError = dyn Fn(&str, &ObjectKey, &Error) + Send + Sync;

/// Is told of an object that does not fail, with its controller.
pub(crate) type OnSettled = dyn Fn(&str, &ObjectKey) + Send + Sync;

impl Environment {
    /// Returns the same for a controller that acts through a client of its own.
    pub(crate) fn acting_as(&self, client: kube::Client, controller: &str) -> Self {
        let client =
            RetryingClient::new(client.into(), self.requests.clone(), &self.rng.fork(controller), self.gate.clone());
        Self { client, ..self.clone() }
    }

    /// Asks the API server for an object, `None` if there is none.
    pub(crate) async fn fetch(&self, kind: &Kind, key: &ObjectKey) -> kube::Result<Option<Arc<Entry>>> {
        let path = kind.object_path(key).map_err(|error| kube::Error::Service(error.into()))?;
        match self.client.exchange(request(path)?).await {
            Ok(body) => self.parse(&body).map(Some),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Asks the API server for an object that a cache should hold, `None` if there is none.
    pub(crate) async fn fetch_selected(&self, store: &Store, key: &ObjectKey) -> kube::Result<Option<Arc<Entry>>> {
        let selection = &store.portion().selection;
        if selection.is_empty() {
            return self.fetch(store.kind(), key).await;
        }
        let found = self.fetch_list(store.kind(), key.namespace(), &selection.and_named(key.name())).await?;
        Ok(found.into_iter().next().map(|(_, entry)| entry))
    }

    /// Asks the API server for the objects of one namespace, or all.
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

    /// Returns what became of values that the API server stores in other words.
    pub(crate) fn rephrased(&self) -> MutexGuard<'_, Rephrased> {
        self.rephrased.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads what a write made of an object, which the cache is going to show.
    pub(crate) fn answered(&self, store: &Store, key: &ObjectKey, body: Vec<u8>) -> kube::Result<Arc<Entry>> {
        let entry = self.parse(&body)?;
        store.expect(body, key, &entry);
        Ok(entry)
    }

    /// Reads an object that the API server answered with.
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
