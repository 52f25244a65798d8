//! Lists and watches every kind with the rights of the user, and keeps the [`Store`] current.
//!
//! One task per kind. A kind that the user may not list is tried again later; a kind that cannot be watched is listed
//! at intervals. Changes of definitions cause a discovery, so that new kinds appear at once. Of Secrets, only metadata
//! is requested.

use crate::kind::{Discover, Kind};
use crate::secret::hide_values;
use crate::store::{Store, WatchFailure};
use crate::summary::{Summary, items, text};
use flyball::error_chain;
use flyball_core::Clock;
use flyball_core::time::rfc3339_micro;
use futures_util::TryStreamExt;
use http::Request;
use http::header::ACCEPT;
use kube::Client;
use kube::core::WatchEvent;
use serde_json::Value;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Number of objects of one page of a list.
const PAGE: usize = 500;
/// Interval of discovery, for kinds whose definitions the user may not watch.
const DISCOVERY_INTERVAL: Duration = Duration::from_secs(30);
/// Delay of a discovery after a change of a definition, which may be one of many, and is served a little later.
const DISCOVERY_DELAY: Duration = Duration::from_millis(500);
/// Interval of lists of kinds that cannot be watched, and of kinds that the user may not list.
const POLL_INTERVAL: Duration = Duration::from_secs(60);
/// Minimum and maximum delay after a failure.
const BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// The server ends a watch after this time.
const WATCH_SECONDS: u32 = 290;
/// A watch without a bookmark or an event for this time counts as broken.
const WATCH_TIMEOUT: Duration = Duration::from_secs(300);
/// Concurrent lists, so that a large cluster is not asked for everything at once.
const MAX_LISTS: usize = 8;

/// The connection of a watch.
#[derive(Clone)]
pub(crate) struct Watcher {
    pub(crate) client: Client,
    pub(crate) store: Arc<Store>,
    pub(crate) clock: Clock,
    /// The only namespace whose objects are listed; empty for all.
    pub(crate) namespace: String,
    pub(crate) lists: Arc<Semaphore>,
    /// Notified of changes of definitions.
    pub(crate) definitions: Arc<Notify>,
}

impl Watcher {
    pub(crate) fn new(client: Client, store: Arc<Store>, clock: Clock, namespace: String) -> Self {
        let lists = Arc::new(Semaphore::new(MAX_LISTS));
        Self { client, store, clock, namespace, lists, definitions: Arc::default() }
    }

    /// Watches all kinds, also those that are added later. Never returns.
    pub(crate) async fn run(self, discover: &dyn Discover) {
        let (mut tasks, definitions) = (JoinSet::new(), self.definitions.clone());
        loop {
            let mut changed = pin!(definitions.notified());
            // Registered before the discovery, so that no change is missed.
            changed.as_mut().enable();
            match discover.kinds().await {
                Ok(kinds) => {
                    for kind in kinds.into_iter().filter(|kind| !kind.is_unwatched()) {
                        if let Some((index, true)) = self.store.add_kind(&kind) {
                            tasks.spawn(self.clone().watch_kind(index, kind));
                        }
                    }
                }
                Err(error) => tracing::warn!(error, "cannot discover the kinds of the cluster"),
            }
            if timeout(DISCOVERY_INTERVAL, changed).await.is_ok() {
                sleep(DISCOVERY_DELAY).await;
            }
        }
    }

    async fn watch_kind(self, index: usize, kind: Kind) {
        let mut backoff = BACKOFF.0;
        loop {
            let error = match self.list(index, &kind).await {
                Ok(version) => {
                    backoff = BACKOFF.0;
                    self.watch_from(index, &kind, version).await
                }
                Err(error) => error,
            };
            let code = match &error {
                kube::Error::Api(status) => status.code,
                _ => 0,
            };
            let delay = match code {
                410 => Duration::ZERO,
                401 | 403 => POLL_INTERVAL,
                // The kind has no `watch`, or its definition was deleted.
                404 | 405 => {
                    if code == 404 {
                        self.store.replace(index, Vec::new(), &self.now());
                    }
                    POLL_INTERVAL
                }
                _ => backoff,
            };
            if !matches!(code, 404 | 405 | 410) {
                let failure = match &error {
                    _ if matches!(code, 401 | 403) => WatchFailure::Denied,
                    _ if is_disconnected(&error) => WatchFailure::Disconnected,
                    _ => WatchFailure::Other,
                };
                self.store.fail(index, &error_chain(&error), failure, &self.now());
            }
            backoff = (backoff * 2).min(BACKOFF.1);
            if code == 404 {
                // A definition of the same name may be created again.
                let _ = timeout(delay, self.definitions.notified()).await;
                sleep(DISCOVERY_DELAY).await;
            } else {
                sleep(delay).await;
            }
        }
    }

    /// Lists all objects page by page, and returns the resource version of the list.
    async fn list(&self, index: usize, kind: &Kind) -> kube::Result<String> {
        // The semaphore is never closed.
        let _permit = self.lists.acquire().await.ok();
        let (mut objects, mut next) = (Vec::new(), String::new());
        loop {
            let path = format!("{}?limit={PAGE}{next}", kind.path(&self.namespace, None));
            let list: Value = self.client.request(request(&path, kind, true)?).await?;
            let now = self.clock.now();
            objects.extend(items(&list["items"]).map(|object| Summary::of(index, object, now)));
            let token = text(&list["metadata"]["continue"]);
            if token.is_empty() {
                self.store.replace(index, objects, &self.now());
                if kind.is_definition() {
                    self.definitions.notify_waiters();
                }
                return Ok(text(&list["metadata"]["resourceVersion"]).to_owned());
            }
            let token: String = url::form_urlencoded::byte_serialize(token.as_bytes()).collect();
            next = format!("&continue={token}");
        }
    }

    /// Watches until a failure; the end of a response is continued.
    async fn watch_from(&self, index: usize, kind: &Kind, mut version: String) -> kube::Error {
        loop {
            match self.watch_once(index, kind, &mut version).await {
                Ok(()) => {}
                Err(error) => return error,
            }
        }
    }

    async fn watch_once(&self, index: usize, kind: &Kind, version: &mut String) -> kube::Result<()> {
        let query = "watch=true&allowWatchBookmarks=true";
        let path = format!(
            "{}?{query}&timeoutSeconds={WATCH_SECONDS}&resourceVersion={version}",
            kind.path(&self.namespace, None)
        );
        let mut events = pin!(self.client.request_events::<Value>(request(&path, kind, false)?).await?);
        let mut received = false;
        while let Ok(event) = timeout(WATCH_TIMEOUT, events.try_next()).await {
            let Some(event) = event? else { break };
            received = true;
            if kind.is_definition() && !matches!(event, WatchEvent::Bookmark(_)) {
                self.definitions.notify_waiters();
            }
            match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    text(&object["metadata"]["resourceVersion"]).clone_into(version);
                    self.store.put(Summary::of(index, &object, self.clock.now()), &self.now());
                }
                WatchEvent::Deleted(object) => {
                    text(&object["metadata"]["resourceVersion"]).clone_into(version);
                    let id = Summary::of(index, &object, self.clock.now()).id;
                    self.store.remove(index, &id, &self.now());
                }
                WatchEvent::Bookmark(bookmark) => {
                    version.clone_from(&bookmark.metadata.resource_version);
                    self.store.touch(index, &self.now());
                }
                WatchEvent::Error(status) => return Err(kube::Error::Api(status)),
            }
        }
        if !received {
            // A server that ends each watch at once is not asked in a loop.
            sleep(BACKOFF.0).await;
        }
        Ok(())
    }

    fn now(&self) -> String {
        rfc3339_micro(self.clock.now())
    }
}

/// Returns true for failures of the connection, which the API server did not respond to.
fn is_disconnected(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Service(_) | kube::Error::HyperError(_) | kube::Error::ReadEvents(_))
}

/// Builds a GET request. Of Secrets, only metadata is requested.
fn request(path: &str, kind: &Kind, is_list: bool) -> kube::Result<Request<Vec<u8>>> {
    let accept = match (kind.is_secret(), is_list) {
        (true, true) => "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
        (true, false) => "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
        (false, _) => "application/json",
    };
    Request::get(path).header(ACCEPT, accept).body(Vec::new()).map_err(kube::Error::HttpError)
}

/// Reads one object; of Secrets, only metadata without copies of their values.
pub(crate) async fn read(client: &Client, kind: &Kind, namespace: &str, name: &str) -> kube::Result<Value> {
    let mut object = client.request(request(&kind.path(namespace, Some(name)), kind, false)?).await?;
    if kind.is_secret() {
        hide_values(&mut object);
    }
    Ok(object)
}
