//! Watches of PackageManifests.
//!
//! Packages change when the content of a catalog does. After each such change, a watch compares the packages that it
//! has sent with those that exist. A version counts the changes: a watch from another one than the current is expired,
//! and the client lists again. Packages and version are read under one lock, so that no change is lost between them.
//! A client that takes no event for 30 seconds loses its watch; one that waits for the next change keeps it.
//! Discovery has no verb `watch`, as in OLM. See
//! <https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes>.

use super::api::{PackageServer, Query, SelectedPackages, Selection, shown_in, status, with_type};
use super::manifest::{GROUP, PackageManifest, RESOURCE, VERSION};
use super::open_watches::OpenWatch;
use crate::connections::WRITE_TIMEOUT;
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
use tokio::sync::mpsc;
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
            if Instant::now() >= self.end {
                return None;
            }
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

    /// Sends events until the end of the watch. A client that takes none of them loses its watch, and with it its
    /// place: it cannot keep others out.
    async fn send(mut self, frames: mpsc::Sender<Bytes>) {
        loop {
            let event = tokio::select! {
                biased;
                // The client has disconnected.
                () = frames.closed() => return,
                event = self.next() => event,
            };
            let Some(event) = event else { return };
            match timeout_at(self.end.min(Instant::now() + WRITE_TIMEOUT), frames.send(event)).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return,
                Err(_) if Instant::now() >= self.end => return,
                Err(_) => {
                    tracing::debug!("a client of PackageManifests takes no events: its watch is closed");
                    return;
                }
            }
        }
    }

    /// Starts to send events.
    fn into_body(self) -> Body {
        let (frames, events) = mpsc::channel(1);
        tokio::spawn(self.send(frames));
        let events = unfold(events, async |mut events| {
            let event = events.recv().await?;
            Some((Ok(Frame::data(event)), events))
        });
        BodyExt::boxed_unsync(StreamBody::new(events))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::CatalogKey;
    use crate::content::{Blobs, Content};
    use crate::packages::CatalogSummary;
    use flyball_core::Clock;
    use tokio::time::sleep;

    /// Sets the packages of a server, of which each has a description.
    fn set(server: &PackageServer, packages: usize, description: &str) {
        let bundle = |name: &str| {
            let csv = json!({
                "apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion",
                "metadata": {"name": format!("{name}.v1")}, "spec": {"version": "1.0.0", "displayName": description},
            });
            let data = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, csv.to_string());
            let property = |kind: &str, value: serde_json::Value| json!({"type": kind, "value": value});
            json!([
                property("olm.package", json!({"packageName": name, "version": "1.0.0"})),
                property("olm.bundle.object", json!({"data": data})),
            ])
        };
        let mut blobs = Blobs::default();
        for number in 0..packages {
            let name = format!("p{number}");
            let entries = json!([{"name": format!("{name}.v1")}]);
            let documents = [
                json!({"schema": "olm.package", "name": name, "defaultChannel": "a"}),
                json!({"schema": "olm.channel", "package": name, "name": "a", "entries": entries}),
                json!({"schema": "olm.bundle", "package": name, "name": format!("{name}.v1"), "image": "x/y:1",
                    "properties": bundle(&name)}),
            ];
            let text: Vec<String> = documents.iter().map(ToString::to_string).collect();
            blobs.add(&format!("{name}.yaml"), text.join("\n---\n").as_bytes()).unwrap();
        }
        let summary = CatalogSummary {
            key: CatalogKey { namespace: "olm".to_owned(), name: "demo".to_owned() },
            display_name: String::new(),
            publisher: String::new(),
            labels: std::collections::BTreeMap::new(),
            created: String::new(),
        };
        server.insert(&summary, &Content::new(blobs));
    }

    /// Begins a watch from the current version, or from none.
    fn begin(server: &PackageServer, user: &str, is_current: bool) -> Response<Body> {
        let version = if is_current { server.version().to_string() } else { String::new() };
        let uri = format!("/apis/{GROUP}/{VERSION}/namespaces/a/{RESOURCE}?watch=true&resourceVersion={version}");
        respond(server, &Request::get(uri).header(USER, user).body(()).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn client_that_takes_no_events_loses_its_place() {
        let server = PackageServer::new("olm", Clock::system());
        set(&server, 5, "first");
        let stalled: Vec<_> = (0..100).map(|n| begin(&server, &format!("user-{}", n / 10), false)).collect();
        assert!(stalled.iter().all(|response| response.status() == 200));
        assert_eq!(begin(&server, "victim", true).status(), 429);
        sleep(WRITE_TIMEOUT + Duration::from_secs(1)).await;
        let mut reading = begin(&server, "victim", true);
        assert_eq!(reading.status(), 200);
        // A client that waits for the next change keeps its watch.
        sleep(10 * WRITE_TIMEOUT).await;
        set(&server, 5, "second");
        let event = reading.body_mut().frame().await.unwrap().unwrap().into_data().unwrap();
        assert!(String::from_utf8_lossy(&event).contains("second"));
        drop(reading);
        sleep(Duration::from_secs(1)).await;
        assert!(server.watches().is_empty(), "a client that disconnects frees its place");
        drop(stalled);
    }

    #[tokio::test(start_paused = true)]
    async fn slow_clients_get_all_events() {
        let server = PackageServer::new("olm", Clock::system());
        set(&server, 5, "first");
        let mut slow = begin(&server, "slow", false);
        for _ in 0..5 {
            sleep(WRITE_TIMEOUT - Duration::from_secs(1)).await;
            assert!(slow.body_mut().frame().await.unwrap().unwrap().is_data());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn slow_clients_lose_their_watches_after_thirty_minutes() {
        let server = PackageServer::new("olm", Clock::system());
        set(&server, 100, "first");
        let began = Instant::now();
        let mut slow = begin(&server, "slow", false);
        let reader = tokio::spawn(async move {
            let mut events = 0;
            while slow.body_mut().frame().await.is_some() {
                events += 1;
                sleep(WRITE_TIMEOUT - Duration::from_secs(1)).await;
            }
            events
        });
        sleep(MAX_DURATION - Duration::from_secs(1)).await;
        assert!(!server.watches().is_empty());
        sleep(Duration::from_secs(2)).await;
        assert!(server.watches().is_empty(), "{:?}", began.elapsed());
        assert!((60..70).contains(&reader.await.unwrap()));
    }
}
