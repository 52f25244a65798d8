//! Follows one kind in one scope: lists it, watches it, and recovers from whatever ends the watch.
//!
//! Takes the bytes that the API server sends and gives [`Delta`](crate::cache::Delta)s to the cache; it knows nothing of types,
//! controllers or queues. What to do next is decided by the [`Session`], a state machine without I/O; this file sends
//! its requests and keeps its waits. The API server's side is told at
//! <https://kubernetes.io/docs/reference/using-api/api-concepts/>.
//!
//! Each watch stands alone: one that fails, because its kind is not allowed, or its connection is broken, waits and tries again
//! without end, while the others go on. A kind that is not installed is a state of the watch as well: it has no objects, until
//! it is installed.

mod follow;
mod frame;
mod session;
#[cfg(test)]
mod tests;

pub use follow::{Seen, follow, follow_objects};

use crate::cache::{Delta, Entry, Kept, Writer};
use crate::client::{self, OwnPace, Received, Sends};
use crate::operator::metrics::WatchMetrics;
use bytes::Bytes;
use flyball_core::{ObjectKey, Rng};
use frame::{Lines, List};
use http_body_util::BodyExt;
use kube::client::Body;
use kube::core::Status;
use session::{Answer, End, Request, Session, Step};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep, timeout};

/// Asks for the metadata of objects; a server that cannot give it sends the whole.
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,\
                        application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// One running watch.
pub(crate) struct Watcher {
    client: Box<dyn Sends>,
    writer: Writer,
    session: Session,
    metrics: WatchMetrics,
    /// What the answers are to be made of.
    accept: &'static str,
}

impl Watcher {
    /// Prepares the watch that fills a store; of all managed fields it keeps those of `manager`.
    pub(crate) fn new(client: impl Sends, writer: Writer, manager: Arc<str>, rng: &Rng, metrics: WatchMetrics) -> Self {
        let store = writer.store();
        let accept = if store.portion().kept == Kept::Metadata { METADATA } else { "application/json" };
        let session = Session::new(store, manager, rng.fork("watch"));
        Self { client: Box::new(client), writer, session, metrics, accept }
    }

    /// Watches for ever.
    pub(crate) async fn run(mut self) {
        loop {
            if self.session.begins_list() {
                self.writer.apply(Delta::Restart);
                self.metrics.lists.inc();
            }
            let request = self.session.request();
            let wait = match self.send(&request).await {
                Ok(body) => match request.answer {
                    Answer::List => self.list(Chunks::new(body, request.silence)).await,
                    Answer::Events => self.watch(Chunks::new(body, request.silence)).await,
                },
                Err(wait) => wait,
            };
            if let Some(trouble) = self.session.trouble() {
                let store = self.writer.store();
                store.set_trouble(Some(trouble));
                let (kind, namespace) = (store.kind(), store.namespace());
                match (self.session.is_absent(), store.is_absent()) {
                    (false, _) => tracing::warn!(%kind, namespace, ?wait, "watch failed: {trouble}"),
                    (true, false) => tracing::warn!(%kind, namespace, "not installed, waiting for it: {trouble}"),
                    (true, true) => tracing::debug!(%kind, namespace, ?wait, "still not installed"),
                }
                if self.session.is_absent() {
                    self.writer.apply(Delta::Absent);
                }
            }
            sleep(wait).await;
        }
    }

    /// Sends a request; gives the body of the answer, or how long to wait before the next one.
    async fn send(&mut self, request: &Request) -> Result<Received, Duration> {
        let get = http::Request::get(&request.uri).header(http::header::ACCEPT, self.accept);
        let get = get.extension(OwnPace).body(Body::empty());
        let get = get.expect("paths of kinds and numbers make a valid request");
        let answer = match timeout(request.silence, self.client.send(get)).await {
            Err(_) => Err(End::Silent),
            Ok(Err(error)) => Err(End::Unreachable(client::chain(&error))),
            Ok(Ok(answer)) => Ok(answer),
        };
        match answer {
            Err(end) => Err(self.session.ended(end, Duration::ZERO)),
            Ok(answer) if answer.status().is_success() => {
                self.session.accepted();
                self.writer.store().set_trouble(None);
                Ok(answer.into_body())
            }
            Ok(answer) => {
                let status = timeout(request.silence, client::refusal(answer)).await;
                let status = status.unwrap_or_else(|_| Status::failure("the answer broke off", "").with_code(504));
                Err(self.session.refused(&status))
            }
        }
    }

    /// Takes in a list, or a page of it; gives how long to wait before the next request.
    async fn list(&mut self, mut chunks: Chunks) -> Duration {
        let mut list = List::default();
        let end = loop {
            let chunk = match chunks.next().await {
                Ok(chunk) => chunk,
                Err(end) => break end,
            };
            let (writer, session, metrics) = (&mut self.writer, &mut self.session, &self.metrics);
            if let Err(error) = list.push(&chunk, |item| take(session.item(item), writer, metrics)) {
                break End::Broken(error.to_string());
            }
        };
        let end = match (end, list.finish()) {
            (End::Closed, Ok(page)) => {
                take(self.session.page(page), &mut self.writer, &self.metrics);
                return Duration::ZERO;
            }
            (End::Closed, Err(error)) => End::Broken(error.to_string()),
            (end, _) => end,
        };
        self.session.ended(end, Duration::ZERO)
    }

    /// Takes in events; gives how long to wait before the next request.
    async fn watch(&mut self, mut chunks: Chunks) -> Duration {
        let began = Instant::now();
        let mut lines = Lines::default();
        let end = loop {
            let chunk = match chunks.next().await {
                Ok(chunk) => chunk,
                Err(end) => break end,
            };
            let (writer, session, metrics) = (&mut self.writer, &mut self.session, &self.metrics);
            let mut stop = None;
            let pushed = lines.push(&chunk, |line| {
                if stop.is_some() || line.is_empty() {
                    return;
                }
                match session.line(line) {
                    Step::Stop(wait) => stop = Some(wait),
                    step => take(step, writer, metrics),
                }
            });
            if let Some(wait) = stop {
                return wait;
            }
            if let Err(error) = pushed {
                break End::Broken(error.to_string());
            }
        };
        self.session.ended(end, began.elapsed())
    }
}

/// An answer that comes in chunk by chunk, until nothing comes for too long.
struct Chunks {
    body: Received,
    silence: Duration,
    last: Instant,
    /// Rings at some time at which the silence may have become too long: setting it anew for each chunk would cost more
    /// than reading the chunk.
    alarm: Pin<Box<Sleep>>,
}

impl Chunks {
    fn new(body: Received, silence: Duration) -> Self {
        Self { body, silence, last: Instant::now(), alarm: Box::pin(sleep(silence)) }
    }

    async fn next(&mut self) -> Result<Bytes, End> {
        loop {
            tokio::select! {
                biased;
                frame = self.body.frame() => {
                    self.last = Instant::now();
                    return match frame {
                        None => Err(End::Closed),
                        Some(Err(error)) => Err(End::Broken(client::chain(&*error))),
                        Some(Ok(frame)) => Ok(frame.into_data().unwrap_or_default()),
                    };
                }
                () = &mut self.alarm => match self.last + self.silence {
                    due if due <= Instant::now() => return Err(End::Silent),
                    due => self.alarm.as_mut().reset(due),
                }
            }
        }
    }
}

/// Carries one step out.
fn take(step: Step, writer: &mut Writer, metrics: &WatchMetrics) {
    match step {
        Step::Apply(delta) => {
            metrics.events.inc();
            writer.apply(delta);
        }
        Step::Lost(error) => {
            metrics.lost.inc();
            tracing::warn!(kind = %writer.store().kind(), error, "an object of the watch could not be read, passed over");
        }
        Step::Nothing | Step::Stop(_) => {}
    }
}

/// Reads a list that came as a whole.
pub(crate) fn items(body: &[u8], manager: &str) -> kube::Result<Vec<(ObjectKey, Arc<Entry>)>> {
    let (mut list, mut items) = (List::default(), Vec::new());
    let read = list.push(body, |item| items.push(Entry::parse(item, manager)));
    read.and_then(|()| list.finish()).map_err(|error| kube::Error::Service(error.into()))?;
    let entries = items.into_iter().map(|item| item.map(|(key, entry)| (key, Arc::new(entry))));
    entries.collect::<Result<_, _>>().map_err(|error| kube::Error::Service(error.into()))
}
