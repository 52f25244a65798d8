//! Watch: what happens to objects, as it happens.
//!
//! A watch holds no events. It remembers the revision up to which it has told, and reads on in the storage's window
//! whenever the bell of the table rings; so a slow client costs next to nothing, one that falls behind the window is
//! told with a 410 to list anew. What it was told last and has not read is the transport's to look after. See
//! <https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes>.

mod readers;

pub(crate) use readers::Readers;

use crate::link::Link;
use crate::registry::{Selection, parse_version};
use crate::request::accept::{Encoding, View, not_acceptable};
use crate::request::options::ListOptions;
use crate::response::{Body, answer as respond, status_value};
use crate::server::Presenter;
use crate::storage::{self, Bell, Entry, Event, Revision};
use crate::table;
use bytes::{BufMut, Bytes, BytesMut};
use flyball_core::Status;
use http::Response;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How many events are told at once.
const BATCH: usize = 500;

/// After how many bytes there is a break, until they are sent.
const FILL: usize = 32 << 10;

/// How often a watch that wants bookmarks gets one.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);

/// How long before its end a watch gets a last bookmark.
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);

/// How long the changes that a connection is to be told of are gathered, from when it was told last: of each write by
/// itself, telling would cost both ends more than the write.
const PACE: Duration = Duration::from_millis(1);

/// The shortest time after which a watch ends if the client does not say; the longest is twice that.
const MIN_TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// How an object begins of which only the metadata is shown.
const METADATA_HEAD: &[u8] = br#"{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata","metadata":"#;

/// Answers a watch.
pub(crate) async fn answer(
    show: Presenter,
    namespace: Option<&str>,
    options: &ListOptions,
    connection: Option<Link>,
) -> Result<Response<Body>, Status> {
    if show.form.encoding == Encoding::Yaml || show.form.view == View::MetadataList {
        return Err(not_acceptable(show.resource.offered()));
    }
    let selection = Selection::new(&show.resource, &options.labels, &options.fields)?;
    let version = parse_version(&options.resource_version).map_err(|why| Status::new(500, None, why))?;
    let initial = options.initial_events == Some(true);
    let inner = show.inner.clone();
    let from_state = initial || options.initial_events.is_none() && version.unwrap_or(0) == 0;
    let awaited = version.filter(|version| initial && *version > inner.store.revision());
    let (told, state) = match version {
        Some(version) if !from_state && version > 0 => (version, Vec::new()),
        _ => {
            let snapshot = inner.store.list(&show.resource.table, namespace);
            let state = if from_state { snapshot.entries } else { Vec::new() };
            (snapshot.revision, state)
        }
    };
    let now = Instant::now();
    let timeout = match options.timeout_seconds {
        Some(seconds) => Duration::from_secs(seconds),
        None => MIN_TIMEOUT + MIN_TIMEOUT.mul_f64(inner.rng.fraction()),
    };
    let watch = Watch {
        bell: inner.store.bell(&show.resource.table),
        namespace: namespace.map(str::to_owned),
        selection,
        awaited,
        told,
        state,
        initial_end: initial && options.bookmarks,
        bookmarks: options.bookmarks.then(|| now + BOOKMARK_EVERY),
        last_bookmark: (options.bookmarks && timeout > BOOKMARK_BEFORE_END)
            .then(|| now + timeout - BOOKMARK_BEFORE_END),
        end: now + timeout,
        headings_told: false,
        done: false,
        is_shown: false,
        has_read: false,
        pace: connection.is_some().then_some(now),
        show,
    };
    Ok(respond(200, "application/json", Body::stream(Readers::read(watch, connection))))
}

/// A watch under way.
struct Watch {
    show: Presenter,
    bell: Arc<Bell>,
    namespace: Option<String>,
    selection: Selection,
    /// The revision that the state to begin with must reach first.
    awaited: Option<Revision>,
    /// Every event up to this revision has been told.
    told: Revision,
    /// The state to begin with, not yet told.
    state: Vec<Arc<Entry>>,
    /// Whether a bookmark says that the state has been told.
    initial_end: bool,
    /// When the next bookmark is due.
    bookmarks: Option<Instant>,
    /// When the last one is.
    last_bookmark: Option<Instant>,
    end: Instant,
    headings_told: bool,
    done: bool,
    /// Whether the state is as the resource shows it.
    is_shown: bool,
    /// Whether the window has been read: who begins too far back is not slow.
    has_read: bool,
    /// Until when it gathers changes, over a connection.
    pace: Option<Instant>,
}

impl Watch {
    /// Waits for what is to be told next; `None` is the end.
    async fn next(&mut self) -> Option<Bytes> {
        if self.done {
            return None;
        }
        let mut out = BytesMut::new();
        if let Some(revision) = self.awaited.take() {
            if let Err(status) = self.show.inner.wait_for(revision).await {
                write(&mut out, "ERROR", &status_value(&status));
                self.done = true;
                return Some(out.freeze());
            }
            let snapshot = self.show.inner.store.list(&self.show.resource.table, self.namespace.as_deref());
            (self.told, self.state) = (snapshot.revision, snapshot.entries);
        }
        if !std::mem::replace(&mut self.is_shown, true) {
            let mut state = std::mem::take(&mut self.state);
            state.retain(|entry| self.selection.matches(entry));
            match self.show.inner.shown(&self.show.resource, state).await {
                Ok(state) => self.state = state,
                Err(status) => {
                    write(&mut out, "ERROR", &status_value(&status));
                    self.done = true;
                    return Some(out.freeze());
                }
            }
            // They are taken from the end.
            self.state.reverse();
        }
        while let Some(entry) = self.state.pop() {
            self.frame(&mut out, "ADDED", &entry, entry.revision);
            if out.len() >= FILL {
                return Some(out.freeze());
            }
        }
        if std::mem::take(&mut self.initial_end) {
            self.bookmark(&mut out, true);
        }
        if !out.is_empty() {
            return Some(out.freeze());
        }
        loop {
            let bell = self.bell.clone();
            let rung = bell.heard(self.pace.is_some());
            let mut rung = std::pin::pin!(rung);
            // Listening begins before looking, so that nothing is missed in between.
            rung.as_mut().enable();
            if let Some(pace) = self.pace.filter(|pace| Instant::now() < *pace && self.is_behind()) {
                tokio::time::sleep_until(pace).await;
            }
            if !self.read_on(&mut out).await || !self.is_served() {
                self.done = true;
            }
            if !out.is_empty() {
                return Some(out.freeze());
            }
            if self.done {
                return None;
            }
            let due =
                [self.bookmarks, self.last_bookmark].into_iter().flatten().chain([self.end]).min().unwrap_or(self.end);
            tokio::select! {
                biased;
                () = rung => {}
                () = tokio::time::sleep_until(due) => {
                    if due >= self.end {
                        self.done = true;
                        return None;
                    }
                    self.bookmark(&mut out, false);
                    let passed = |at: &Option<Instant>| at.is_some_and(|at| at <= due);
                    if passed(&self.last_bookmark) {
                        self.last_bookmark = None;
                    }
                    if passed(&self.bookmarks) {
                        self.bookmarks = Some(due + BOOKMARK_EVERY);
                    }
                    return Some(out.freeze());
                }
            }
        }
    }

    /// Tells whether anything has happened since, here or in another table.
    fn is_behind(&self) -> bool {
        self.show.inner.store.revision() > self.told
    }

    /// Tells what has happened since; tells whether the watch goes on.
    async fn read_on(&mut self, out: &mut BytesMut) -> bool {
        let inner = self.show.inner.clone();
        loop {
            match inner.store.events_after(&self.show.resource.table, self.told, BATCH) {
                Ok((events, latest)) => {
                    self.has_read = true;
                    for event in &events {
                        if let Some((ty, entry)) = self.told_of(event) {
                            match inner.shown_one(&self.show.resource, entry.clone()).await {
                                Ok(entry) => self.frame(out, ty, &entry, event.revision),
                                Err(status) => {
                                    write(out, "ERROR", &status_value(&status));
                                    return false;
                                }
                            }
                        }
                        self.told = event.revision;
                        if out.len() >= FILL {
                            return true;
                        }
                    }
                    match latest {
                        Some(latest) => {
                            self.told = self.told.max(latest);
                            if !out.is_empty() {
                                self.pace = self.pace.map(|_| Instant::now() + PACE);
                            }
                            return true;
                        }
                        None if !out.is_empty() => {
                            // The rest follows when this much has been sent.
                            return true;
                        }
                        None => {}
                    }
                }
                Err(storage::Error::Compacted { asked, oldest }) => {
                    if self.has_read {
                        inner.readers.count_cut_off(&self.show.resource.table);
                    }
                    let status = Status::expired(format!("too old resource version: {asked} ({oldest})"));
                    write(out, "ERROR", &status_value(&status));
                    return false;
                }
                Err(_) => return true,
            }
        }
    }

    /// Tells an event in the words of the selection: what comes to match is added, what ceases to is deleted.
    fn told_of<'e>(&self, event: &'e Event) -> Option<(&'static str, &'e Arc<Entry>)> {
        if self.namespace.is_some() && event.after.key.namespace() != self.namespace.as_deref() {
            return None;
        }
        let before = event.before.as_ref().filter(|entry| self.selection.matches(entry));
        let after = (!event.removed && self.selection.matches(&event.after)).then_some(&event.after);
        match (before, after) {
            (None, Some(entry)) => Some(("ADDED", entry)),
            (Some(_), Some(entry)) => Some(("MODIFIED", entry)),
            (Some(_), None) if event.removed => Some(("DELETED", &event.after)),
            // The object lives on out of sight: its last state in sight, at the revision of the change.
            (Some(entry), None) => Some(("DELETED", entry)),
            (None, None) => None,
        }
    }

    fn frame(&mut self, out: &mut BytesMut, ty: &str, entry: &Entry, revision: Revision) {
        let (resource, form) = (&self.show.resource, self.show.form);
        // What is told as it was written down is not decoded.
        let as_written = entry.revision == revision && entry.schema == resource.schema_number && !form.beta;
        let pieces = match form.view {
            View::Whole if as_written => Some([&*resource.head, &entry.body[1..], b""]),
            View::Metadata | View::MetadataList if as_written => Some([METADATA_HEAD, entry.metadata(), b"}"]),
            _ => None,
        };
        if let Some(pieces) = pieces {
            out.reserve(pieces.iter().map(|piece| piece.len()).sum::<usize>() + 32);
            out.put_slice(b"{\"type\":\"");
            out.put_slice(ty.as_bytes());
            out.put_slice(b"\",\"object\":");
            pieces.iter().for_each(|piece| out.put_slice(piece));
            out.put_slice(b"}\n");
            return;
        }
        let Ok(mut object) = self.show.inner.object(resource, entry) else { return };
        object.metadata_mut().insert("resourceVersion".into(), revision.to_string().into());
        let value = match self.show.form.view {
            View::Metadata | View::MetadataList => table::metadata_only(&object),
            View::Table => {
                let headings = if std::mem::replace(&mut self.headings_told, true) {
                    Value::Null
                } else {
                    table::headings(resource)
                };
                let row = table::row(resource, &object, self.show.include, &self.show.inner.clock);
                table::table(json!({"resourceVersion": object.resource_version()}), headings, vec![row])
            }
            View::Whole => object.into(),
        };
        write(out, ty, &self.show.form.versioned(value));
    }

    /// Tells how far the watch has come.
    fn bookmark(&mut self, out: &mut BytesMut, initial_end: bool) {
        let resource = &self.show.resource;
        let mut object = resource.empty.clone();
        object.set_kind(&resource.kind);
        let metadata = object.metadata_mut();
        metadata.clear();
        metadata.insert("resourceVersion".into(), self.told.to_string().into());
        if initial_end {
            metadata.insert("annotations".into(), json!({"k8s.io/initial-events-end": "true"}));
        }
        let value = match self.show.form.view {
            View::Whole => object.into(),
            View::Metadata | View::MetadataList => table::metadata_only(&object),
            View::Table => {
                let row = table::row(resource, &object, self.show.include, &self.show.inner.clock);
                table::table(json!({"resourceVersion": object.resource_version()}), Value::Null, vec![row])
            }
        };
        write(out, "BOOKMARK", &self.show.form.versioned(value));
    }

    /// Tells whether the resource is still there: a CRD may be gone.
    fn is_served(&self) -> bool {
        let kind = &self.show.resource.kind;
        let found = self.show.inner.catalog().get(&kind.group, &kind.version, &self.show.resource.plural);
        found.is_some_and(|found| found.is_served())
    }
}

fn write(out: &mut BytesMut, ty: &str, object: &Value) {
    out.put_slice(json!({"type": ty, "object": object}).to_string().as_bytes());
    out.put_u8(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Options, Server, User};
    use flyball_core::Clock;
    use http::{Method, Request};
    use http_body_util::{BodyExt, Full};

    async fn ask(server: &Server, connection: Option<Link>, method: Method, path: &str, body: &Value) -> Body {
        let mut request = Request::new(Full::new(Bytes::from(body.to_string())));
        (*request.method_mut(), *request.uri_mut()) = (method, path.parse().unwrap());
        request.headers_mut().insert("content-type", "application/json".parse().unwrap());
        request.extensions_mut().insert(User::admin());
        connection.map(|connection| request.extensions_mut().insert(connection));
        let response = server.handle(request).await;
        assert!(response.status().is_success(), "{}", response.status());
        response.into_body()
    }

    /// Writes so many, and returns how many the next frame tells of and how long it took.
    async fn told(server: &Server, watch: &mut Body, names: &[&str]) -> (usize, Duration) {
        for name in names {
            let object = json!({"metadata": {"name": name}});
            ask(server, None, Method::POST, "/api/v1/namespaces/default/configmaps", &object).await;
        }
        let begun = Instant::now();
        let frame = watch.frame().await.unwrap().unwrap().into_data().unwrap();
        (frame.iter().filter(|byte| **byte == b'\n').count(), begun.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_told_together_of_what_comes_close_together() {
        let server = Server::new(Options::simulated(Clock::system(), 1));
        let path = "/api/v1/configmaps?watch=1";
        let mut watch = ask(&server, Some(Link::default()), Method::GET, path, &Value::Null).await;
        assert_eq!(told(&server, &mut watch, &["a"]).await, (1, Duration::ZERO));
        let (events, waited) = told(&server, &mut watch, &["b", "c"]).await;
        assert!(events == 2 && (PACE..2 * PACE).contains(&waited), "{events} {waited:?}");
        tokio::time::sleep(2 * PACE).await;
        assert_eq!(told(&server, &mut watch, &["d"]).await, (1, Duration::ZERO));
        // In process nothing is saved by that.
        let mut watch = ask(&server, None, Method::GET, path, &Value::Null).await;
        assert_eq!(told(&server, &mut watch, &[]).await, (4, Duration::ZERO));
        assert_eq!(told(&server, &mut watch, &["e"]).await, (1, Duration::ZERO));
    }
}
