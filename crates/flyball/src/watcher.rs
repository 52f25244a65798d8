//! Lists and watches one kind in one scope, and recovers from every error.
//!
//! It converts the responses of the API server to [`Delta`](crate::cache::Delta)s for the cache; it is independent of
//! types, controllers and queues. The [`Session`], a state machine without I/O, decides the next request, and its
//! [`Schedule`](schedule::Schedule) when to send it; this file sends requests and waits. See
//! <https://kubernetes.io/docs/reference/using-api/api-concepts/> for the protocol.
//!
//! Watches are independent: a watch that fails, for example because it is forbidden or its connection is broken, is
//! retried without end, while the others continue. They share the [`Reachability`] of their server, so that only one
//! of them probes it during an outage. A kind that is not installed is a state of the watch: it has no objects until
//! it is installed.
//!
//! Invariant: no object is deleted because of an incomplete response. A list that lacks many objects is confirmed by a
//! second one, and a kind that had objects is removed only if discovery denies it, not by a 404.

mod frame;
mod metrics;
mod objects;
mod reachability;
mod schedule;
mod session;
#[cfg(test)]
mod tests;

pub(crate) use metrics::{WatchCounters, WatchMetrics};
pub use objects::{WatchEvent, watch, watch_objects};
pub(crate) use reachability::Reachability;

use crate::cache::{Delta, Entry, KeptFields, Writer};
use crate::client::{self, HttpService, NoRetry, ResponseBody};
use crate::error::chain;
use crate::kind::Kind;
use bytes::Bytes;
use flyball_core::{ObjectKey, Rng};
use frame::{FrameError, Lines, List};
use http::Response;
use http_body_util::BodyExt;
use kube::client::Body;
use kube::core::Status;
use session::{End, Pause, Request, ResponseFormat, Session, Step};
use std::future::pending;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep, sleep_until, timeout};

/// `Accept` header for objects.
const ACCEPT_OBJECTS: &str = "application/json";
/// `Accept` headers for metadata only. A server without support sends whole objects. Lists and watches have different
/// media types, and a server rejects the wrong one.
const ACCEPT_METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
const ACCEPT_METADATA_EVENTS: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

/// Timeout of the start of a response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);
/// Time after which a server that has not begun a response is probed.
const PROBE_DELAY: Duration = Duration::from_secs(1);
/// Minimum transfer rate of a list, after the first half minute.
const MIN_BYTES_PER_SECOND: u64 = 32 << 10;
/// Time for which the server must report a kind with known objects as missing: a starting server, or an unavailable
/// aggregated one, may do so temporarily.
const ABSENCE_DELAY: Duration = Duration::from_secs(30);

/// A running watch.
pub(crate) struct Watcher {
    client: Box<dyn HttpService>,
    reach: Arc<Reachability>,
    writer: Writer,
    session: Session,
    metrics: WatchCounters,
    /// True if only metadata is requested.
    metadata_only: bool,
    /// The time since which the server has reported the kind as missing.
    denied: Option<Instant>,
}

impl Watcher {
    /// Prepares the watch that fills a store, with a client and the shared reachability of its server; it keeps the
    /// managed fields of `manager`.
    pub(crate) fn new(
        client: impl HttpService,
        reach: Arc<Reachability>,
        writer: Writer,
        manager: Arc<str>,
        rng: &Rng,
        metrics: WatchCounters,
    ) -> Self {
        let store = writer.store();
        let metadata_only = store.cached_part().kept == KeptFields::Metadata;
        let session = Session::new(store, manager, rng.fork("watch"));
        Self { client: Box::new(client), reach, writer, session, metrics, metadata_only, denied: None }
    }

    /// Watches until it is dropped.
    pub(crate) async fn run(mut self) {
        loop {
            if self.session.begins_list() {
                self.writer.apply(Delta::Restart);
                self.metrics.lists.inc();
            }
            let request = self.session.request();
            let pause = match self.send(&request).await {
                Ok(body) => match request.format {
                    ResponseFormat::List => self.list(Chunks::new(body, request.silence, MIN_BYTES_PER_SECOND)).await,
                    ResponseFormat::Events => self.watch(Chunks::new(body, request.silence, u64::MAX)).await,
                },
                Err(pause) => pause,
            };
            let is_absent = self.is_gone().await;
            if let Some(last_error) = self.session.last_error() {
                let store = self.writer.store();
                store.set_last_error(Some(last_error));
                let (kind, namespace) = (store.kind(), store.namespace());
                match (is_absent, store.is_absent()) {
                    (false, _) => tracing::warn!(%kind, namespace, ?pause, "watch failed: {last_error}"),
                    (true, false) => tracing::warn!(
                        %kind,
                        namespace,
                        "no matches for kind: its CustomResourceDefinition is not installed, waiting for it: {last_error}"
                    ),
                    (true, true) => tracing::debug!(%kind, namespace, ?pause, "still not installed"),
                }
            }
            if is_absent {
                self.writer.apply(Delta::Absent);
            }
            match pause {
                Pause::For(time) => sleep(time).await,
                Pause::Server(time) => {
                    let due = Instant::now() + time;
                    self.reach.missed(self.session.schedule());
                    let was_away = self.reach.reached(&*self.client, self.session.schedule()).await;
                    let back = Instant::now() + self.session.schedule().follow();
                    if was_away {
                        self.session.returned();
                    }
                    sleep_until(if was_away { back } else { back.max(due) }).await;
                }
            }
        }
    }

    /// Sends a request; returns the body of the response, or the wait before the next request.
    async fn send(&mut self, request: &Request) -> Result<ResponseBody, Pause> {
        let response = match self.get(request).await {
            Ok(response) => response,
            Err(end) => return Err(self.session.ended(end, Duration::ZERO)),
        };
        if !session::is_gateway_error(response.status().as_u16()) {
            self.reach.record_response();
        }
        if response.status().is_success() {
            self.session.accepted();
            if self.session.is_watching() {
                self.writer.store().set_last_error(None);
            }
            return Ok(response.into_body());
        }
        let status = timeout(request.silence, client::error_status(response)).await;
        let status = status.unwrap_or_else(|_| Status::failure("the response is incomplete", "").with_code(504));
        Err(self.session.rejected(&status, Duration::ZERO))
    }

    /// Returns the head of a response, or the reason why there is none.
    async fn get(&self, request: &Request) -> Result<Response<ResponseBody>, End> {
        let accept = match (self.metadata_only, request.format) {
            (false, _) => ACCEPT_OBJECTS,
            (true, ResponseFormat::List) => ACCEPT_METADATA_LIST,
            (true, ResponseFormat::Events) => ACCEPT_METADATA_EVENTS,
        };
        let get = http::Request::get(&request.uri).header(http::header::ACCEPT, accept);
        let get = get.extension(NoRetry).body(Body::empty());
        let get = get.expect("paths of kinds and numbers make a valid request");
        let mut sent = pin!(timeout(RESPONSE_TIMEOUT, self.client.send(get)));
        let result = match timeout(PROBE_DELAY, &mut sent).await {
            Ok(result) => result,
            Err(_) => {
                self.reach.missed(self.session.schedule());
                tokio::select! {
                    biased;
                    result = &mut sent => result,
                    () = self.lost() => return Err(End::Lost),
                }
            }
        };
        match result {
            Ok(response) => response.map_err(|error| End::Unreachable(chain(&error))),
            Err(_) if self.reach.is_missing() => {
                Err(End::Unreachable(format!("no response within {} s", RESPONSE_TIMEOUT.as_secs())))
            }
            Err(_) => Err(End::Late),
        }
    }

    /// Waits until a late request must be aborted, because the server was unavailable and is available again: it
    /// responds to other requests, but not to this one.
    async fn lost(&self) {
        let was_away = self.reach.reached(&*self.client, self.session.schedule()).await;
        if !was_away && !self.session.aborts_late_requests() {
            pending::<()>().await;
        }
    }

    /// Returns true if the kind is not installed. For a kind with known objects, discovery must confirm it, after
    /// some time.
    async fn is_gone(&mut self) -> bool {
        if !self.session.is_absent() {
            self.denied = None;
            return false;
        }
        let since = *self.denied.get_or_insert_with(Instant::now);
        let known = self.writer.store().len();
        known == 0 || since.elapsed() >= ABSENCE_DELAY && self.is_undiscovered().await
    }

    /// Returns true if discovery does not contain the kind; false if discovery fails.
    async fn is_undiscovered(&self) -> bool {
        let kind = self.writer.store().kind();
        let found = Kind::discover_by(&*self.client, kind.gvk()).await;
        found.is_ok_and(|found| found.is_none_or(|found| found.resource() != kind.resource()))
    }

    /// Reads a list, or a page of it, and returns the wait before the next request.
    async fn list(&mut self, mut chunks: Chunks) -> Pause {
        let mut list = List::default();
        let end = loop {
            let chunk = match chunks.next().await {
                Ok(chunk) => chunk,
                Err(end) => break end,
            };
            let (writer, session, metrics) = (&mut self.writer, &mut self.session, &self.metrics);
            if let Err(error) = list.push(&chunk, |item| _ = apply_step(session.item(item), session, writer, metrics)) {
                break End::Broken(error.to_string());
            }
        };
        let end = match (end, list.finish()) {
            (End::Closed, Ok(page)) => {
                let step = self.session.page(page);
                let pause = apply_step(step, &mut self.session, &mut self.writer, &self.metrics);
                return pause.unwrap_or(Pause::For(Duration::ZERO));
            }
            (End::Closed, Err(error)) => End::Broken(error.to_string()),
            (end, _) => end,
        };
        self.session.ended(end, Duration::ZERO)
    }

    /// Reads events, and returns the wait before the next request.
    async fn watch(&mut self, mut chunks: Chunks) -> Pause {
        let began = Instant::now();
        let mut lines = Lines::default();
        let reach = self.reach.clone();
        let mut availability_changed = pin!(reach.availability_changed());
        let end = loop {
            let chunk = tokio::select! {
                biased;
                chunk = chunks.next() => chunk,
                is_there = &mut availability_changed => {
                    if is_there {
                        break End::Lost;
                    }
                    self.writer.store().set_last_error(Some("no data from the API server, and no response to probes"));
                    availability_changed.set(reach.availability_changed());
                    continue;
                }
            };
            let chunk = match chunk {
                Ok(chunk) => chunk,
                Err(end) => break end,
            };
            reach.record_response();
            let (writer, session, metrics) = (&mut self.writer, &mut self.session, &self.metrics);
            let (mut stop, mut is_alive) = (None, false);
            let pushed = lines.push(&chunk, |line| {
                if stop.is_some() || line.is_empty() {
                    return;
                }
                stop = match session.line(line) {
                    Step::Stop(status) => Some(session.rejected(&status, began.elapsed())),
                    Step::Lost(error) => apply_step(Step::Lost(error), session, writer, metrics),
                    step => {
                        is_alive = true;
                        apply_step(step, session, writer, metrics)
                    }
                };
            });
            if is_alive {
                chunks.progress();
            }
            if let Some(pause) = stop {
                return pause;
            }
            if let Err(error) = pushed {
                break End::Broken(error.to_string());
            }
        };
        self.session.ended(end, began.elapsed())
    }
}

/// A response that is received chunk by chunk, until there is no progress for too long. Bytes alone do not count as
/// progress, because a slow response might never end.
struct Chunks {
    body: ResponseBody,
    silence: Duration,
    /// Number of bytes that extend the deadline by a second.
    rate: u64,
    /// Time of the start of the response, or of its last progress.
    last: Instant,
    /// Bytes received since then.
    received: u64,
    /// A timer at some time at which the deadline may have passed: resetting it for each chunk would cost more than
    /// reading the chunk.
    alarm: Pin<Box<Sleep>>,
}

impl Chunks {
    fn new(body: ResponseBody, silence: Duration, rate: u64) -> Self {
        Self { body, silence, rate, last: Instant::now(), received: 0, alarm: Box::pin(sleep(silence)) }
    }

    /// Records progress.
    fn progress(&mut self) {
        (self.last, self.received) = (Instant::now(), 0);
    }

    /// Returns the deadline of the response.
    fn due(&self) -> Instant {
        self.last + self.silence + Duration::from_secs(self.received / self.rate)
    }

    async fn next(&mut self) -> Result<Bytes, End> {
        loop {
            tokio::select! {
                biased;
                frame = self.body.frame() => {
                    let chunk = match frame {
                        None => return Err(End::Closed),
                        Some(Err(error)) => return Err(End::Broken(chain(&*error))),
                        Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
                    };
                    self.received = self.received.saturating_add(chunk.len() as u64);
                    return if self.due() <= Instant::now() { Err(End::Silent) } else { Ok(chunk) };
                }
                () = &mut self.alarm => match self.due() {
                    due if due <= Instant::now() => return Err(End::Silent),
                    due => self.alarm.as_mut().reset(due),
                }
            }
        }
    }
}

/// Executes a step; returns the wait, if the step ends the exchange.
fn apply_step(step: Step, session: &mut Session, writer: &mut Writer, metrics: &WatchCounters) -> Option<Pause> {
    match step {
        Step::Apply(delta) => {
            metrics.events.inc();
            writer.apply(delta);
        }
        Step::Listed(revision) => match writer.unconfirmed() {
            Some(why) => return Some(session.unconfirmed(why)),
            None => {
                metrics.events.inc();
                writer.store().set_last_error(None);
                writer.apply(session.complete(revision));
            }
        },
        Step::Lost(error) => {
            metrics.lost.inc();
            tracing::warn!(kind = %writer.store().kind(), error, "cannot decode object; skipping it");
        }
        Step::Nothing | Step::Stop(_) => {}
    }
    None
}

/// Reads a complete list.
pub(crate) fn items(body: &[u8], manager: &str) -> kube::Result<Vec<(ObjectKey, Arc<Entry>)>> {
    let (mut list, mut items) = (List::default(), Vec::new());
    let read = list.push(body, |item| items.push(Entry::parse(item, manager)));
    match read.and_then(|()| list.finish()) {
        // No watch continues from there.
        Ok(_) | Err(FrameError::NoRevision) => {}
        Err(error) => return Err(kube::Error::Service(error.into())),
    }
    let entries = items.into_iter().map(|item| item.map(|(key, entry)| (key, Arc::new(entry))));
    entries.collect::<Result<_, _>>().map_err(|error| kube::Error::Service(error.into()))
}
