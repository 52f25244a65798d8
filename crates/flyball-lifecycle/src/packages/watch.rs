//! Watches of PackageManifests.
//!
//! Packages change when the content of a catalog does. After each such change, a watch compares the packages that it
//! has sent with those that exist. A version counts the changes: a watch from another one than the current is expired,
//! and the client lists again. Discovery has no verb `watch`, as in OLM. See
//! <https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes>.

use super::api::{PackageServer, Query, RESOURCE, SelectedPackages, Selection, status};
use super::manifest::{GROUP, VERSION};
use bytes::Bytes;
use flyball_core::{Status, status::Reason};
use futures_util::stream::unfold;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Method, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::pin;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout_at};

/// Duration of a watch without `timeoutSeconds`, and the longest one.
const MAX_DURATION: Duration = Duration::from_secs(30 * 60);
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

/// A watch of the packages that a request selects.
struct Watch {
    server: PackageServer,
    selection: Selection,
    /// True if objects are sent as rows of tables.
    table: Option<super::table::Include>,
    /// The packages that the client knows.
    sent: SelectedPackages,
    /// Events that are not sent yet.
    events: VecDeque<Bytes>,
    /// The last change that was compared.
    version: u64,
    end: Instant,
    _permit: OwnedSemaphorePermit,
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
        let permit = server.watches().try_acquire_owned().map_err(|_| too_many())?;
        let version = server.version();
        let current = version.to_string();
        let sent = match query.text("resourceVersion") {
            // The client knows nothing: everything is new.
            "" | "0" => SelectedPackages::default(),
            known if known == current => server.selected(&selection),
            known => {
                let text = format!("too old resource version: {known} ({current})");
                return Err(Status::expired(text));
            }
        };
        let seconds = query.text("timeoutSeconds").parse().map(Duration::from_secs).ok().filter(|time| !time.is_zero());
        let end = Instant::now() + seconds.unwrap_or(MAX_DURATION).min(MAX_DURATION);
        let (server, events) = (server.clone(), VecDeque::new());
        let mut watch = Self { server, selection, table, sent, events, version, end, _permit: permit };
        watch.compare();
        Ok(watch)
    }

    /// Adds the events of what has changed.
    fn compare(&mut self) {
        let now = self.server.selected(&self.selection);
        for (key, object) in &now {
            match self.sent.get(key) {
                Some(known) if known == object => {}
                known => self.add(if known.is_some() { "MODIFIED" } else { "ADDED" }, object.clone()),
            }
        }
        let gone: Vec<Value> =
            self.sent.iter().filter(|(key, _)| !now.contains_key(*key)).map(|(_, object)| object.clone()).collect();
        gone.into_iter().for_each(|object| self.add("DELETED", object));
        self.sent = now;
    }

    fn add(&mut self, kind: &str, object: Value) {
        let object = match self.table {
            Some(include) => self.server.table(&[object], include),
            None => super::api::with_type(object),
        };
        self.events.push_back(Bytes::from(format!("{}\n", json!({"type": kind, "object": object}))));
    }

    /// Waits for the next event; `None` at the end of the watch.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            let changed = self.server.changed();
            let mut notified = pin!(changed.notified());
            notified.as_mut().enable();
            let version = self.server.version();
            if version == self.version {
                timeout_at(self.end, notified).await.ok()?;
                continue;
            }
            self.version = version;
            self.compare();
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
