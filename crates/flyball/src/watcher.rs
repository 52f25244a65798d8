//! Follows one kind in one scope: lists it, watches it, and recovers from whatever ends the watch.
//!
//! Takes the bytes that the API server sends and gives [`Delta`](crate::cache::Delta)s to the cache; it knows nothing of types,
//! controllers or queues. What to do next is decided by the [`Session`], a state machine without I/O, and when, by its
//! [`Schedule`](schedule::Schedule); this file sends the requests and keeps the waits. The API server's side is told at
//! <https://kubernetes.io/docs/reference/using-api/api-concepts/>.
//!
//! Each watch stands alone: one that fails, because its kind is not allowed, or its connection is broken, waits and
//! tries again without end, while the others go on. All they share is the [`Reachability`] of their server, so that one
//! looks for it while it is away. A kind that is not installed is a state of the watch as well: it has no objects,
//! until it is installed.
//!
//! Invariant: no object is treated as deleted because a server answered less than there is. A list that lacks many
//! objects is confirmed by a second one, and a kind that had objects goes by the word of discovery, not by that of a
//! 404.

mod follow;
mod frame;
mod metrics;
mod reachability;
mod schedule;
mod session;
#[cfg(test)]
mod tests;

pub use follow::{Seen, follow, follow_objects};
pub(crate) use metrics::{WatchCounters, WatchMetrics};
pub(crate) use reachability::Reachability;

use crate::cache::{Delta, Entry, Kept, Writer};
use crate::client::{self, HttpService, NoRetry, ResponseBody};
use crate::error::chain;
use crate::kind::Kind;
use bytes::Bytes;
use flyball_core::{ObjectKey, Rng};
use frame::{Lines, List, Unreadable};
use http::Response;
use http_body_util::BodyExt;
use kube::client::Body;
use kube::core::Status;
use session::{Answer, End, Pause, Request, Session, Step};
use std::future::pending;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep, sleep_until, timeout};

/// What asks for whole objects.
const WHOLE: &str = "application/json";
/// What asks for the metadata of objects; a server that cannot give it sends the whole. A list and the events of a watch
/// are asked for by different names, and a server refuses the one for the other.
const METADATA_OF_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
const METADATA_OF_EVENTS: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

/// How long the server may take to begin an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// A server that takes longer than this to begin an answer is probed meanwhile.
const PROMPT_ANSWER: Duration = Duration::from_secs(1);
/// How fast a list has to come in, beyond the half minute that it is allowed anyway.
const MIN_BYTES_PER_SECOND: u64 = 32 << 10;
/// How long a server has to deny a kind of which there were objects: one that starts, or an aggregated one that is away
/// for a moment, may do so for a while.
const ABSENCE_DELAY: Duration = Duration::from_secs(30);

/// One running watch.
pub(crate) struct Watcher {
    client: Box<dyn HttpService>,
    reach: Arc<Reachability>,
    writer: Writer,
    session: Session,
    metrics: WatchCounters,
    /// Whether the answers are to hold metadata alone.
    metadata_only: bool,
    /// Since when the server has denied the kind each time.
    denied: Option<Instant>,
}

impl Watcher {
    /// Prepares the watch that fills a store, over a client that has this reach; of all managed fields it keeps those
    /// of `manager`.
    pub(crate) fn new(
        client: impl HttpService,
        reach: Arc<Reachability>,
        writer: Writer,
        manager: Arc<str>,
        rng: &Rng,
        metrics: WatchCounters,
    ) -> Self {
        let store = writer.store();
        let metadata_only = store.portion().kept == Kept::Metadata;
        let session = Session::new(store, manager, rng.fork("watch"));
        Self { client: Box::new(client), reach, writer, session, metrics, metadata_only, denied: None }
    }

    /// Watches for ever.
    pub(crate) async fn run(mut self) {
        loop {
            if self.session.begins_list() {
                self.writer.apply(Delta::Restart);
                self.metrics.lists.inc();
            }
            let request = self.session.request();
            let pause = match self.send(&request).await {
                Ok(body) => match request.answer {
                    Answer::List => self.list(Chunks::new(body, request.silence, MIN_BYTES_PER_SECOND)).await,
                    Answer::Events => self.watch(Chunks::new(body, request.silence, u64::MAX)).await,
                },
                Err(pause) => pause,
            };
            let gone = self.is_gone().await;
            if let Some(trouble) = self.session.trouble() {
                let store = self.writer.store();
                store.set_trouble(Some(trouble));
                let (kind, namespace) = (store.kind(), store.namespace());
                match (gone, store.is_absent()) {
                    (false, _) => tracing::warn!(%kind, namespace, ?pause, "watch failed: {trouble}"),
                    (true, false) => tracing::warn!(
                        %kind,
                        namespace,
                        "no matches for kind: its CustomResourceDefinition is not installed, waiting for it: {trouble}"
                    ),
                    (true, true) => tracing::debug!(%kind, namespace, ?pause, "still not installed"),
                }
            }
            if gone {
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

    /// Sends a request; gives the body of the answer, or what to wait for before the next one.
    async fn send(&mut self, request: &Request) -> Result<ResponseBody, Pause> {
        let answer = match self.get(request).await {
            Ok(answer) => answer,
            Err(end) => return Err(self.session.ended(end, Duration::ZERO)),
        };
        if !session::is_gateway_error(answer.status().as_u16()) {
            self.reach.answered();
        }
        if answer.status().is_success() {
            self.session.accepted();
            if self.session.is_watching() {
                self.writer.store().set_trouble(None);
            }
            return Ok(answer.into_body());
        }
        let status = timeout(request.silence, client::refusal(answer)).await;
        let status = status.unwrap_or_else(|_| Status::failure("the answer broke off", "").with_code(504));
        Err(self.session.refused(&status, Duration::ZERO))
    }

    /// Gives the beginning of an answer, or why there is none.
    async fn get(&self, request: &Request) -> Result<Response<ResponseBody>, End> {
        let accept = match (self.metadata_only, request.answer) {
            (false, _) => WHOLE,
            (true, Answer::List) => METADATA_OF_LIST,
            (true, Answer::Events) => METADATA_OF_EVENTS,
        };
        let get = http::Request::get(&request.uri).header(http::header::ACCEPT, accept);
        let get = get.extension(NoRetry).body(Body::empty());
        let get = get.expect("paths of kinds and numbers make a valid request");
        let mut sent = pin!(timeout(ANSWER_TIMEOUT, self.client.send(get)));
        let answered = match timeout(PROMPT_ANSWER, &mut sent).await {
            Ok(answered) => answered,
            Err(_) => {
                self.reach.missed(self.session.schedule());
                tokio::select! {
                    biased;
                    answered = &mut sent => answered,
                    () = self.lost() => return Err(End::Lost),
                }
            }
        };
        match answered {
            Ok(answer) => answer.map_err(|error| End::Unreachable(chain(&error))),
            Err(_) if self.reach.is_missing() => {
                Err(End::Unreachable(format!("no answer within {} s", ANSWER_TIMEOUT.as_secs())))
            }
            Err(_) => Err(End::Late),
        }
    }

    /// Waits until a request that was not answered promptly is to be given up, because it was sent to a server that has
    /// gone and come back since: that answers others, and never this one.
    async fn lost(&self) {
        let was_away = self.reach.reached(&*self.client, self.session.schedule()).await;
        if !was_away && !self.session.is_impatient() {
            pending::<()>().await;
        }
    }

    /// Tells whether the kind is not installed. Of one that has objects, discovery has to say so as well, after a
    /// while.
    async fn is_gone(&mut self) -> bool {
        if !self.session.is_absent() {
            self.denied = None;
            return false;
        }
        let since = *self.denied.get_or_insert_with(Instant::now);
        let known = self.writer.store().len();
        known == 0 || since.elapsed() >= ABSENCE_DELAY && self.is_undiscovered().await
    }

    /// Tells whether discovery knows nothing of the kind; `false` if it cannot be asked.
    async fn is_undiscovered(&self) -> bool {
        let kind = self.writer.store().kind();
        let found = Kind::discover_by(&*self.client, kind.gvk()).await;
        found.is_ok_and(|found| found.is_none_or(|found| found.resource() != kind.resource()))
    }

    /// Takes in a list, or a page of it; gives what to wait for before the next request.
    async fn list(&mut self, mut chunks: Chunks) -> Pause {
        let mut list = List::default();
        let end = loop {
            let chunk = match chunks.next().await {
                Ok(chunk) => chunk,
                Err(end) => break end,
            };
            let (writer, session, metrics) = (&mut self.writer, &mut self.session, &self.metrics);
            if let Err(error) = list.push(&chunk, |item| _ = take(session.item(item), session, writer, metrics)) {
                break End::Broken(error.to_string());
            }
        };
        let end = match (end, list.finish()) {
            (End::Closed, Ok(page)) => {
                let step = self.session.page(page);
                let pause = take(step, &mut self.session, &mut self.writer, &self.metrics);
                return pause.unwrap_or(Pause::For(Duration::ZERO));
            }
            (End::Closed, Err(error)) => End::Broken(error.to_string()),
            (end, _) => end,
        };
        self.session.ended(end, Duration::ZERO)
    }

    /// Takes in events; gives what to wait for before the next request.
    async fn watch(&mut self, mut chunks: Chunks) -> Pause {
        let began = Instant::now();
        let mut lines = Lines::default();
        let reach = self.reach.clone();
        let mut turned = pin!(reach.turned());
        let end = loop {
            let chunk = tokio::select! {
                biased;
                chunk = chunks.next() => chunk,
                is_there = &mut turned => {
                    if is_there {
                        break End::Lost;
                    }
                    self.writer.store().set_trouble(Some("the API server sends nothing and answers no probes"));
                    turned.set(reach.turned());
                    continue;
                }
            };
            let chunk = match chunk {
                Ok(chunk) => chunk,
                Err(end) => break end,
            };
            reach.answered();
            let (writer, session, metrics) = (&mut self.writer, &mut self.session, &self.metrics);
            let (mut stop, mut is_alive) = (None, false);
            let pushed = lines.push(&chunk, |line| {
                if stop.is_some() || line.is_empty() {
                    return;
                }
                stop = match session.line(line) {
                    Step::Stop(status) => Some(session.refused(&status, began.elapsed())),
                    Step::Lost(error) => take(Step::Lost(error), session, writer, metrics),
                    step => {
                        is_alive = true;
                        take(step, session, writer, metrics)
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

/// An answer that comes in chunk by chunk, until nothing of use comes for too long. Bytes alone are no progress, or an answer that
/// trickles would be waited for without end.
struct Chunks {
    body: ResponseBody,
    silence: Duration,
    /// So many bytes allow for another second.
    rate: u64,
    /// When the answer began, or last made progress.
    last: Instant,
    /// How many bytes have come since.
    received: u64,
    /// Rings at some time at which the silence may have become too long: setting it anew for each chunk would cost more
    /// than reading the chunk.
    alarm: Pin<Box<Sleep>>,
}

impl Chunks {
    fn new(body: ResponseBody, silence: Duration, rate: u64) -> Self {
        Self { body, silence, rate, last: Instant::now(), received: 0, alarm: Box::pin(sleep(silence)) }
    }

    /// Takes in that what came is of use.
    fn progress(&mut self) {
        (self.last, self.received) = (Instant::now(), 0);
    }

    /// Returns when the answer is given up.
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

/// Carries one step out; gives what to wait for, if that ends the exchange.
fn take(step: Step, session: &mut Session, writer: &mut Writer, metrics: &WatchCounters) -> Option<Pause> {
    match step {
        Step::Apply(delta) => {
            metrics.events.inc();
            writer.apply(delta);
        }
        Step::Listed(revision) => match writer.doubts() {
            Some(why) => return Some(session.doubt(why)),
            None => {
                metrics.events.inc();
                writer.store().set_trouble(None);
                writer.apply(session.complete(revision));
            }
        },
        Step::Lost(error) => {
            metrics.lost.inc();
            tracing::warn!(kind = %writer.store().kind(), error, "an object of the watch could not be read, passed over");
        }
        Step::Nothing | Step::Stop(_) => {}
    }
    None
}

/// Reads a list that came as a whole.
pub(crate) fn items(body: &[u8], manager: &str) -> kube::Result<Vec<(ObjectKey, Arc<Entry>)>> {
    let (mut list, mut items) = (List::default(), Vec::new());
    let read = list.push(body, |item| items.push(Entry::parse(item, manager)));
    match read.and_then(|()| list.finish()) {
        // Nobody goes on from there.
        Ok(_) | Err(Unreadable::NoRevision) => {}
        Err(error) => return Err(kube::Error::Service(error.into())),
    }
    let entries = items.into_iter().map(|item| item.map(|(key, entry)| (key, Arc::new(entry))));
    entries.collect::<Result<_, _>>().map_err(|error| kube::Error::Service(error.into()))
}
