//! Watch: streams of events of objects.
//!
//! A watch buffers no events. It stores the revision of the last sent event, and continues in the storage's window
//! after each write to the table. So a slow client is cheap; one that falls behind the window gets a 410 and must list
//! again. The transport handles sent events that a client does not read. See
//! <https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes>.

mod events;
mod readers;
mod views;

pub(crate) use readers::Readers;

use crate::bounds::{Flow, Offload};
use crate::connection::RequestConnection;
use crate::encoder::ResponseEncoder;
use crate::registry::{Registry, Selection, parse_version};
use crate::request::accept::{Encoding, View, not_acceptable};
use crate::request::options::ListOptions;
use crate::response::{self, Body, status_value};
use crate::storage::{self, Entry, Event, PendingEntries, Revision, WriteNotifier};
use crate::table;
use crate::webhook;
use bytes::Bytes;
use events::EventWriter;
use flyball_core::Status;
use http::Response;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Maximum number of events that are read at once.
const EVENT_BATCH: usize = 500;

/// Interval of the bookmarks of a watch.
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(60);

/// Time before the end of a watch at which it gets its last bookmark.
const LAST_BOOKMARK_LEAD: Duration = Duration::from_secs(2);

/// Interval between events of a connection, in which changes are batched: separate events would cost client and server
/// more than the writes.
const BATCH_INTERVAL: Duration = Duration::from_millis(1);

/// Timeout of the conversion of an object.
const CONVERSION_TIMEOUT: Duration = Duration::from_secs(60);

/// Minimum duration of a watch without a timeout of the client; the maximum is twice as long.
const MIN_TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// Returns true if a watch begins with the current objects, and not with the events since a version.
pub(crate) fn sends_state(options: &ListOptions) -> bool {
    let version = || parse_version(&options.resource_version).ok().flatten().unwrap_or(0);
    options.initial_events.unwrap_or_else(|| version() == 0)
}

/// Responds to a watch, with the memory for the objects that it begins with. The offload is for decoding objects.
pub(crate) async fn respond(
    registry: &Arc<Registry>,
    readers: &Arc<Readers>,
    encoder: ResponseEncoder,
    namespace: Option<&str>,
    (options, state): (&ListOptions, PendingEntries),
    (flow, connection, offload): (&Flow, Option<RequestConnection>, Option<Offload>),
) -> Result<Response<Body>, Status> {
    if encoder.form.encoding == Encoding::Yaml || encoder.form.view == View::MetadataList {
        return Err(not_acceptable(encoder.resource.offered()));
    }
    let selection = Selection::new(&encoder.resource, &options.labels, &options.fields)?;
    let version = parse_version(&options.resource_version).map_err(|why| Status::new(500, None, why))?;
    let initial = options.initial_events == Some(true);
    let awaited = version.filter(|version| initial && *version > registry.store.revision());
    let position = match version {
        _ if sends_state(options) => {
            let snapshot = registry.store.list(&encoder.resource.table, namespace);
            state.fill(snapshot.entries);
            snapshot.revision
        }
        Some(version) if version > 0 => version,
        _ => registry.store.revision(),
    };
    let now = Instant::now();
    let timeout = match options.timeout_seconds {
        Some(seconds) => Duration::from_secs(seconds),
        None => MIN_TIMEOUT + MIN_TIMEOUT.mul_f64(registry.rng.fraction()),
    };
    let watch = Watch {
        notifier: registry.store.notifier(&encoder.resource.table),
        namespace: namespace.map(str::to_owned),
        selection,
        awaited,
        position,
        state,
        initial_end: initial && options.bookmarks,
        bookmarks: options.bookmarks.then(|| now + BOOKMARK_INTERVAL),
        last_bookmark: (options.bookmarks && timeout > LAST_BOOKMARK_LEAD).then(|| now + timeout - LAST_BOOKMARK_LEAD),
        end: now + timeout,
        done: false,
        is_selected: false,
        has_read: false,
        pace: connection.is_some().then_some(now),
        flow: flow.clone(),
        registry: registry.clone(),
        readers: readers.clone(),
        events: EventWriter::new(encoder, readers.views.clone(), offload),
    };
    Ok(response::new(200, "application/json", Body::stream(Readers::read(watch, connection))))
}

/// A watch under way.
struct Watch {
    registry: Arc<Registry>,
    readers: Arc<Readers>,
    /// The events that are not sent yet.
    events: EventWriter,
    notifier: Arc<WriteNotifier>,
    namespace: Option<String>,
    selection: Selection,
    /// The revision that the state to begin with must reach first.
    awaited: Option<Revision>,
    /// The revision up to which events have been sent.
    position: Revision,
    /// The part of the state to begin with that is not sent yet.
    state: PendingEntries,
    /// True if a bookmark marks the end of the initial state.
    initial_end: bool,
    /// Time of the next bookmark.
    bookmarks: Option<Instant>,
    /// Time of the last bookmark.
    last_bookmark: Option<Instant>,
    end: Instant,
    done: bool,
    /// True if the state contains only selected objects.
    is_selected: bool,
    /// True if the window has been read: a watch that begins before the window is not slow.
    has_read: bool,
    /// End of the interval in which it batches changes, over a connection.
    pace: Option<Instant>,
    /// The flow that is charged for conversions.
    flow: Flow,
}

impl Watch {
    /// Waits for the next frames; `None` is the end.
    async fn next(&mut self) -> Option<Bytes> {
        if self.done {
            return None;
        }
        match self.initial_events().await {
            Some(result) => result,
            None => self.later_events().await,
        }
    }

    /// Returns the next frames of the initial state, or the end of the watch; `None` after the last frames.
    async fn initial_events(&mut self) -> Option<Option<Bytes>> {
        if let Some(revision) = self.awaited.take() {
            if let Err(status) = self.registry.wait_for(revision).await {
                return Some(self.fail(&status).await);
            }
            let snapshot = self.registry.store.list(&self.events.encoder.resource.table, self.namespace.as_deref());
            self.position = snapshot.revision;
            self.state.fill(snapshot.entries);
        }
        if !std::mem::replace(&mut self.is_selected, true) {
            self.state.retain(|entry| self.selection.matches(entry));
        }
        while let Some(entry) = self.state.pop() {
            match self.convert(entry, true).await {
                Ok(entry) => {
                    let revision = entry.revision;
                    self.events.push("ADDED", entry, revision);
                }
                Err(status) => return Some(self.fail(&status).await),
            }
            if self.events.is_full()
                && let Some(result) = self.encode_events().await
            {
                return Some(result);
            }
        }
        if std::mem::take(&mut self.initial_end) {
            self.bookmark(true);
        }
        self.encode_events().await
    }

    /// Waits for the next changes or bookmark.
    async fn later_events(&mut self) -> Option<Bytes> {
        loop {
            let notifier = self.notifier.clone();
            let written = notifier.notified(self.pace.is_some());
            let mut written = std::pin::pin!(written);
            // Subscribes before it reads the window, so that no write is missed.
            written.as_mut().enable();
            if let Some(pace) = self.pace.filter(|pace| Instant::now() < *pace && self.is_behind()) {
                tokio::time::sleep_until(pace).await;
            }
            if !self.read_window().await || !self.is_served() {
                self.done = true;
            }
            if let Some(result) = self.encode_events().await {
                return result;
            }
            let due =
                [self.bookmarks, self.last_bookmark].into_iter().flatten().chain([self.end]).min().unwrap_or(self.end);
            tokio::select! {
                biased;
                () = written => {}
                () = tokio::time::sleep_until(due) => {
                    if due >= self.end {
                        self.done = true;
                        return None;
                    }
                    self.bookmark(false);
                    let passed = |at: &Option<Instant>| at.is_some_and(|at| at <= due);
                    if passed(&self.last_bookmark) {
                        self.last_bookmark = None;
                    }
                    if passed(&self.bookmarks) {
                        self.bookmarks = Some(due + BOOKMARK_INTERVAL);
                    }
                    if let Some(result) = self.encode_events().await {
                        return result;
                    }
                }
            }
        }
    }

    /// Returns the result of this step: events, or the end of the watch; `None` if there is none yet.
    async fn encode_events(&mut self) -> Option<Option<Bytes>> {
        let encoded = self.events.encode().await;
        self.done |= encoded.is_err();
        let frames = encoded.ok().flatten();
        (frames.is_some() || self.done).then_some(frames)
    }

    /// Ends the watch with an error.
    async fn fail(&mut self, status: &Status) -> Option<Bytes> {
        self.events.write("ERROR", &status_value(status));
        self.done = true;
        self.encode_events().await.flatten()
    }

    /// Converts one object at a time, so that a watch holds no more. Its user is charged for the response.
    async fn convert(&mut self, entry: Arc<Entry>, cached: bool) -> Result<Arc<Entry>, Status> {
        let (codec, resource) = (&self.registry.codec, &*self.events.encoder.resource);
        if !resource.converts() || entry.schema == resource.schema_number {
            return Ok(entry);
        }
        let converted = async {
            if cached { codec.convert_cached(resource, entry).await } else { codec.convert(resource, entry).await }
        };
        webhook::within(CONVERSION_TIMEOUT, &self.flow, converted).await
    }

    /// Returns true if there was a write since, to this or another table.
    fn is_behind(&self) -> bool {
        self.registry.store.revision() > self.position
    }

    /// Sends the events since the last one; returns true if the watch continues.
    async fn read_window(&mut self) -> bool {
        let registry = self.registry.clone();
        loop {
            match registry.store.events_after(&self.events.encoder.resource.table, self.position, EVENT_BATCH) {
                Ok((events, latest)) => {
                    self.has_read = true;
                    for event in &events {
                        if let Some((ty, entry)) = self.event_type(event) {
                            match self.convert(entry.clone(), false).await {
                                Ok(entry) => self.events.push(ty, entry, event.revision),
                                Err(status) => {
                                    self.events.write("ERROR", &status_value(&status));
                                    return false;
                                }
                            }
                        }
                        self.position = event.revision;
                        if self.events.is_full() {
                            return true;
                        }
                    }
                    match latest {
                        Some(latest) => {
                            self.position = self.position.max(latest);
                            if !self.events.is_empty() {
                                self.pace = self.pace.map(|_| Instant::now() + BATCH_INTERVAL);
                            }
                            return true;
                        }
                        None if !self.events.is_empty() => {
                            // The rest follows when this much has been sent.
                            return true;
                        }
                        None => {}
                    }
                }
                Err(storage::Error::Compacted { requested, oldest }) => {
                    if self.has_read {
                        self.readers.count_terminated(&self.events.encoder.resource.table);
                    }
                    let status = Status::expired(format!("too old resource version: {requested} ({oldest})"));
                    self.events.write("ERROR", &status_value(&status));
                    return false;
                }
                Err(_) => return true,
            }
        }
    }

    /// Returns the type of an event for the selection: an object that starts to match is added, one that no longer
    /// matches is deleted.
    fn event_type<'e>(&self, event: &'e Event) -> Option<(&'static str, &'e Arc<Entry>)> {
        if self.namespace.is_some() && event.after.key.namespace() != self.namespace.as_deref() {
            return None;
        }
        let before = event.before.as_ref().filter(|entry| self.selection.matches(entry));
        let after = (!event.removed && self.selection.matches(&event.after)).then_some(&event.after);
        match (before, after) {
            (None, Some(entry)) => Some(("ADDED", entry)),
            (Some(_), Some(entry)) => Some(("MODIFIED", entry)),
            (Some(_), None) if event.removed => Some(("DELETED", &event.after)),
            // The object no longer matches: the event has its last matching state, at the revision of the change.
            (Some(entry), None) => Some(("DELETED", entry)),
            (None, None) => None,
        }
    }

    /// Sends the position of the watch.
    fn bookmark(&mut self, initial_end: bool) {
        let resource = &self.events.encoder.resource;
        let mut object = resource.empty.clone();
        object.set_kind(&resource.kind);
        let metadata = object.metadata_mut();
        metadata.clear();
        metadata.insert("resourceVersion".into(), self.position.to_string().into());
        if initial_end {
            metadata.insert("annotations".into(), json!({"k8s.io/initial-events-end": "true"}));
        }
        let value = match self.events.encoder.form.view {
            View::Whole => object.into(),
            View::Metadata | View::MetadataList => table::metadata_only(&object),
            View::Table => {
                let row = table::row(resource, &object, self.events.encoder.include, &self.events.encoder.clock);
                table::table(json!({"resourceVersion": object.resource_version()}), Value::Null, vec![row])
            }
        };
        self.events.write("BOOKMARK", &self.events.encoder.form.versioned(value));
    }

    /// Returns true if the resource is still served: its CRD may have been deleted.
    fn is_served(&self) -> bool {
        let kind = &self.events.encoder.resource.kind;
        let found = self.registry.catalog.get().get(&kind.group, &kind.version, &self.events.encoder.resource.plural);
        found.is_some_and(|found| found.is_served())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Options, Server, User};
    use flyball_core::Clock;
    use flyball_core::time::Timestamp;
    use futures_util::FutureExt;
    use http::{Method, Request};
    use http_body_util::{BodyExt, Full};

    const MAPS: &str = "/api/v1/namespaces/default/configmaps";
    const JSON: &str = "application/json";
    const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";
    const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

    /// Sends a request, over a connection if a view is given.
    async fn send(server: &Server, view: Option<&str>, method: Method, path: &str, body: &Value) -> Body {
        let mut request = Request::new(Full::new(Bytes::from(body.to_string())));
        (*request.method_mut(), *request.uri_mut()) = (method, path.parse().unwrap());
        request.headers_mut().insert("content-type", "application/json".parse().unwrap());
        request.extensions_mut().insert(User::admin());
        if let Some(view) = view {
            request.headers_mut().insert("accept", view.parse().unwrap());
            request.extensions_mut().insert(RequestConnection::default());
        }
        let response = server.handle(request).await;
        assert!(response.status().is_success(), "{}", response.status());
        response.into_body()
    }

    /// Writes this many objects, and returns the number of events in the next frame and its latency.
    async fn read_events(server: &Server, watch: &mut Body, names: &[&str]) -> (usize, Duration) {
        for name in names {
            let object = json!({"metadata": {"name": name}});
            send(server, None, Method::POST, MAPS, &object).await;
        }
        let start = Instant::now();
        let frame = watch.frame().await.unwrap().unwrap().into_data().unwrap();
        (frame.iter().filter(|byte| **byte == b'\n').count(), start.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn close_events_are_sent_together_over_a_connection() {
        let server = Server::new(Options::simulated(Clock::system(), 1));
        let path = "/api/v1/configmaps?watch=1";
        let mut watch = send(&server, Some(JSON), Method::GET, path, &Value::Null).await;
        assert_eq!(read_events(&server, &mut watch, &["a"]).await, (1, Duration::ZERO));
        let (events, waited) = read_events(&server, &mut watch, &["b", "c"]).await;
        assert!(events == 2 && (BATCH_INTERVAL..2 * BATCH_INTERVAL).contains(&waited), "{events} {waited:?}");
        tokio::time::sleep(2 * BATCH_INTERVAL).await;
        assert_eq!(read_events(&server, &mut watch, &["d"]).await, (1, Duration::ZERO));
        // In process nothing is saved by that.
        let mut watch = send(&server, None, Method::GET, path, &Value::Null).await;
        assert_eq!(read_events(&server, &mut watch, &[]).await, (4, Duration::ZERO));
        assert_eq!(read_events(&server, &mut watch, &["e"]).await, (1, Duration::ZERO));
    }

    fn next(watch: &mut Body) -> Option<Bytes> {
        let frame = watch.frame().now_or_never()?;
        Some(frame.unwrap().unwrap().into_data().unwrap())
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn large_objects_are_decoded_once_for_each_view_on_other_threads() {
        let server = Server::new(Options::simulated(Clock::new(|| Timestamp::UNIX_EPOCH), 1));
        let flow = Flow::of("other", true, true);
        let threads = server.shared().threads.of(&flow);
        let all = || threads.clone().wait(flow.clone(), threads.limit());
        let map = |n: usize| json!({"metadata": {"name": "m", "labels": {"n": n.to_string()}}, "data": {"a": "a".repeat(100_000)}});
        let created = send(&server, None, Method::POST, MAPS, &map(0)).await.collect().await.unwrap().to_bytes();
        let created: Value = serde_json::from_slice(&created).unwrap();
        let since = created["metadata"]["resourceVersion"].as_str().unwrap();
        let since = format!("{MAPS}?watch=1&resourceVersion={since}");
        let state = format!("{MAPS}?watch=1");
        let watch = |path: &str, view: &'static str| {
            let (server, path) = (server.clone(), path.to_owned());
            async move { send(&server, Some(view), Method::GET, &path, &Value::Null).await }
        };
        let taken = all().await;
        assert!(next(&mut watch(&state, JSON).await).is_some(), "stored objects are copied");
        for view in [TABLE, METADATA] {
            assert!(next(&mut watch(&state, view).await).is_none(), "{view}: others compute");
        }
        let mut watches = Vec::new();
        for n in 0..100 {
            watches.push(watch(&since, [TABLE, METADATA][n % 2]).await);
        }
        send(&server, None, Method::PUT, &format!("{MAPS}/m"), &map(1)).await;
        assert!(watches[..2].iter_mut().all(|watch| next(watch).is_none()), "others compute");
        drop(taken);
        let mut events = Vec::new();
        for watch in &mut watches[..2] {
            events.push(watch.frame().await.unwrap().unwrap().into_data().unwrap());
        }
        let _taken = all().await;
        for (n, watch) in watches.iter_mut().enumerate().skip(2) {
            assert_eq!(next(watch).as_ref(), Some(&events[n % 2]), "{n}: it is encoded already");
        }
    }

    #[tokio::test]
    async fn encoded_events_keep_their_place() {
        let server = Server::new(Options::simulated(Clock::system(), 1));
        let long = "a".repeat(100_000);
        let mut since = Vec::new();
        for name in ["a", "b", "c", "d", "e"] {
            let object = json!({"metadata": {"name": name, "annotations": {"long": long}}});
            let created = send(&server, None, Method::POST, MAPS, &object).await.collect().await.unwrap().to_bytes();
            let created: Value = serde_json::from_slice(&created).unwrap();
            since.push(created["metadata"]["resourceVersion"].as_str().unwrap().to_owned());
        }
        let watch = async |since: &str| {
            let path = format!("{MAPS}?watch=1&resourceVersion={since}");
            send(&server, Some(METADATA), Method::GET, &path, &Value::Null).await
        };
        // It encodes the third and later ones.
        let mut later = watch(&since[1]).await;
        while next(&mut later).is_some() {}
        let (mut all, mut names) = (watch(&since[0]).await, String::new());
        let mut most = 0;
        while let Some(frames) = next(&mut all) {
            let text = str::from_utf8(&frames).unwrap();
            let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            most = most.max(events.len());
            names.extend(events.iter().map(|event| event["object"]["metadata"]["name"].as_str().unwrap()));
        }
        assert_eq!((&*names, most), ("bcde", 2), "it pauses when enough is encoded");
    }
}
