//! Watches of PackageManifests.
//!
//! Packages change when the content of a catalog does. After each such change, a watch compares the packages that it
//! has sent with those that exist. A version counts the changes: a watch from another one than the current is expired,
//! and the client lists again. Packages and version are read under one lock, so that no change is lost between them.
//! Discovery has no verb `watch`, as in OLM. See
//! <https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes>.

use super::api::{PackageServer, Query, SelectedPackages, Selection, shown_in, status, with_type};
use super::manifest::{GROUP, PackageManifest, RESOURCE, VERSION};
use super::open_watches::OpenWatch;
use bytes::Bytes;
use flyball_core::{Status, status::Reason};
use futures_util::stream::unfold;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Method, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use serde_json::json;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Duration of a watch without `timeoutSeconds`, and the longest one.
const MAX_DURATION: Duration = Duration::from_secs(30 * 60);
/// The header with the user of a request, which the API server sets.
const USER: &str = "x-remote-user";
/// Seconds after which a client should try again if there are too many watches.
const RETRY_SECONDS: u32 = 5;

/// The body of a response, which may be a stream of events.
pub(super) type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Answers a request, also for a watch. The caller has authorized it.
pub(super) fn respond<B>(server: &PackageServer, request: &Request<B>) -> Response<Body> {
    match watched(server, request) {
        None => server.handle(request).map(|body| Full::new(body).boxed_unsync()),
        Some(Err(refusal)) => status(&refusal).map(|body| Full::new(body).boxed_unsync()),
        Some(Ok(watch)) => {
            let mut response = Response::new(watch.into_body());
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            response
        }
    }
}

/// Returns the watch that a request begins, or its refusal; `None` for other requests.
fn watched<B>(server: &PackageServer, request: &Request<B>) -> Option<Result<Watch, Status>> {
    let query = Query::read(request.uri().query().unwrap_or_default());
    let parts: Vec<&str> = request.uri().path().trim_matches('/').split('/').collect();
    if *request.method() != Method::GET || !query.flag("watch") {
        return None;
    }
    let namespace = match parts[..] {
        ["apis", GROUP, VERSION, RESOURCE] => None,
        ["apis", GROUP, VERSION, "namespaces", namespace, RESOURCE] => Some(namespace),
        _ => return None,
    };
    Some(
        Selection::read(namespace, &query)
            .and_then(|selection| Watch::new(server, selection, &query, request.headers())),
    )
}

/// An event that is not sent yet.
struct Event {
    kind: &'static str,
    /// The namespace that the package is shown in.
    namespace: String,
    manifest: Arc<PackageManifest>,
    version: u64,
}

/// A watch of the packages that a request selects. It shares their manifests with the server.
struct Watch {
    server: PackageServer,
    selection: Selection,
    /// True if objects are sent as rows of tables.
    table: Option<super::table::Include>,
    /// The packages that the client knows.
    sent: SelectedPackages,
    events: VecDeque<Event>,
    /// The last change that was compared.
    version: u64,
    end: Instant,
    _open: OpenWatch,
}

impl Watch {
    /// Creates a watch; or the refusal of it.
    fn new(server: &PackageServer, selection: Selection, query: &Query, headers: &HeaderMap) -> Result<Self, Status> {
        if query.flag("sendInitialEvents") {
            let text = "sendInitialEvents is not supported: list, and watch from the version of the list";
            return Err(Status::new(422, Reason::Invalid, text));
        }
        let table = server.table_of(query, headers)?;
        let too_many = || Status::too_many_requests("too many watches of PackageManifests", RETRY_SECONDS);
        let user = headers.get(USER).and_then(|user| user.to_str().ok()).unwrap_or_default();
        let open = server.watches().open(user).ok_or_else(too_many)?;
        let (version, selected) = server.selected(&selection);
        let current = version.to_string();
        let sent = match query.text("resourceVersion") {
            // The client knows nothing: everything is new.
            "" | "0" => SelectedPackages::default(),
            known if known == current => selected.clone(),
            known => {
                let text = format!("too old resource version: {known} ({current})");
                return Err(Status::expired(text));
            }
        };
        let seconds = query.text("timeoutSeconds").parse().map(Duration::from_secs).ok().filter(|time| !time.is_zero());
        let end = Instant::now() + seconds.unwrap_or(MAX_DURATION).min(MAX_DURATION);
        let (server, events) = (server.clone(), VecDeque::new());
        let mut watch = Self { server, selection, table, sent, events, version, end, _open: open };
        watch.compare(version, selected);
        Ok(watch)
    }

    /// Adds the events between the packages that were sent and those of a version. Only the last event has this
    /// version: a client whose watch ends before it has to list again.
    fn compare(&mut self, version: u64, now: SelectedPackages) {
        let before = version.saturating_sub(1);
        let event = |kind: &'static str, namespace: &String, manifest: &Arc<PackageManifest>| Event {
            kind,
            namespace: namespace.clone(),
            manifest: manifest.clone(),
            version: before,
        };
        let sent_before = self.events.len();
        for (key, manifest) in &now {
            match self.sent.get(key) {
                Some(known) if Arc::ptr_eq(known, manifest) || known.object == manifest.object => {}
                Some(_) => self.events.push_back(event("MODIFIED", &key.0, manifest)),
                None => self.events.push_back(event("ADDED", &key.0, manifest)),
            }
        }
        let gone = self.sent.iter().filter(|(key, _)| !now.contains_key(*key));
        self.events.extend(gone.map(|(key, manifest)| event("DELETED", &key.0, manifest)));
        if let Some(last) = self.events.iter_mut().skip(sent_before).last() {
            last.version = version;
        }
        (self.sent, self.version) = (now, version);
    }

    /// Encodes an event. Clients continue a watch from the version of the last object.
    fn encode(&self, Event { kind, namespace, manifest, version }: &Event) -> Bytes {
        let object = shown_in(manifest, namespace, *version);
        let object = match self.table {
            Some(include) => self.server.table(&[object], include, *version),
            None => with_type(object),
        };
        Bytes::from(format!("{}\n", json!({"type": kind, "object": object})))
    }

    /// Waits for the next event; `None` at the end of the watch.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(self.encode(&event));
            }
            let changed = self.server.changed();
            let mut notified = pin!(changed.notified());
            notified.as_mut().enable();
            if self.server.version() == self.version {
                timeout_at(self.end, notified).await.ok()?;
                continue;
            }
            let (version, now) = self.server.selected(&self.selection);
            self.compare(version, now);
        }
    }

    fn into_body(self) -> Body {
        let events = unfold(self, async |mut watch| {
            let event = watch.next().await?;
            Some((Ok(Frame::data(event)), watch))
        });
        BodyExt::boxed_unsync(StreamBody::new(events))
    }
}
