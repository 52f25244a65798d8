//! The recorder of events, which merges equal ones into series.
//!
//! [`EventQueue`], a plain structure, decides what to send and when; the task around it sends and waits. The format is
//! [events.k8s.io/v1](https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1/): the first
//! occurrence makes an object, further ones become its `series`.

use super::Event;
use super::EventMetrics;
use crate::client;
use crate::error::chain;
use crate::kind::Kind;
use flyball_core::time::{Timestamp, rfc3339_micro};
use flyball_core::{ObjectKey, Rng};
use http::{Request, header::CONTENT_TYPE};
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// Limit of concurrent series.
const MAX_SERIES: usize = 1000;
/// Burst of events.
const BURST: u32 = 50;
/// Interval after which one more event may be sent.
const TOKEN_INTERVAL: Duration = Duration::from_millis(100);
/// First delay of the count of a series; it doubles each time that the count is written.
const FIRST_LAG: Duration = Duration::from_secs(5);
/// Maximum delay of the count of a series.
const MAX_LAG: Duration = Duration::from_secs(30 * 60);
/// Time after which a series ends; the next equal event begins another.
const SERIES_TIMEOUT: Duration = Duration::from_secs(6 * 60);
/// Limit of attempts at sending an event.
const MAX_ATTEMPTS: u32 = 3;
/// Length limit of a note, as in the API.
const MAX_NOTE_BYTES: usize = 1024;
/// Length limit of reason and action, as in the API.
const MAX_REASON_BYTES: usize = 128;
/// Length limit of the object's name within the name of the event, which has at most 253 bytes.
const MAX_NAME_BYTES: usize = 230;

/// The annotation with the identifier of a reconcile.
const RECONCILE: &str = "flyball.dev/reconcile";

/// The object of an event.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct InvolvedObject {
    api_version: String,
    kind: String,
    key: ObjectKey,
    uid: String,
}

/// The series of one operator that have not ended.
#[derive(Debug)]
struct EventQueue {
    series: BTreeMap<(InvolvedObject, Event), Series>,
    tokens: u32,
    refilled: Instant,
    closing: bool,
}

#[derive(Debug)]
struct Series {
    name: String,
    /// The last reconcile that published it.
    reconcile: Option<u64>,
    first: Timestamp,
    last: Timestamp,
    last_seen: Instant,
    count: u64,
    /// The last count written; 0 before the object is created.
    written: u64,
    due: Instant,
    lag: Duration,
    failures: u32,
}

/// The next request to send.
#[derive(Debug, PartialEq)]
enum EventRequest {
    Create(Value),
    Patch(Value),
}

/// Collects events and sends them in the background.
#[derive(Debug)]
pub(crate) struct Recorder {
    operator: Arc<str>,
    instance: String,
    rng: Rng,
    metrics: EventMetrics,
    queue: Mutex<EventQueue>,
    wake: Notify,
}

impl Recorder {
    /// Sets the reporting controller and instance of events.
    pub(crate) fn new(operator: Arc<str>, instance: String, rng: &Rng, metrics: EventMetrics) -> Self {
        let queue = EventQueue { series: BTreeMap::new(), tokens: BURST, refilled: Instant::now(), closing: false };
        Self { operator, instance, rng: rng.fork("events"), metrics, queue: Mutex::new(queue), wake: Notify::new() }
    }

    /// Records an event about an object, and the reconcile that published it.
    pub(crate) fn record(
        &self,
        kind: &Kind,
        key: &ObjectKey,
        uid: &str,
        mut event: Event,
        reconcile: Option<u64>,
        at: Timestamp,
    ) {
        shorten(&mut event.note, MAX_NOTE_BYTES);
        shorten(&mut event.reason, MAX_REASON_BYTES);
        shorten(&mut event.action, MAX_REASON_BYTES);
        let regarding = InvolvedObject {
            api_version: kind.gvk().api_version(),
            kind: kind.name().to_owned(),
            key: key.clone(),
            uid: uid.to_owned(),
        };
        let mut name = key.name().to_owned();
        shorten(&mut name, MAX_NAME_BYTES);
        let name = || format!("{name}.{:016x}", self.rng.next());
        let is_accepted = self.queue().add(regarding, event, reconcile, at, Instant::now(), name);
        if !is_accepted {
            self.metrics.dropped.inc();
        }
        self.wake.notify_one();
    }

    /// Sends events without end, or after [`close`](Self::close) until all are sent.
    pub(crate) async fn run(&self, client: &kube::Client) {
        loop {
            let woken = self.wake.notified();
            let (next, closing) = {
                let mut queue = self.queue();
                (queue.next(Instant::now()), queue.closing)
            };
            match next {
                Ok(key) => self.send(client, &key).await,
                Err(None) if closing => return,
                Err(at) => {
                    let elapsed = async {
                        match at {
                            Some(at) => sleep_until(at).await,
                            None => std::future::pending().await,
                        }
                    };
                    tokio::select! {
                        biased;
                        () = woken => {}
                        () = elapsed => {}
                    }
                }
            }
        }
    }

    /// Sends pending events without waiting for further equal ones.
    pub(crate) fn close(&self) {
        self.queue().closing = true;
        self.wake.notify_one();
    }

    async fn send(&self, client: &kube::Client, key: &(InvolvedObject, Event)) {
        let Some((post, name, count)) = self.post(key) else { return };
        let namespace = key.0.key.namespace().unwrap_or("default");
        let path = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
        let request = match &post {
            EventRequest::Create(event) => {
                Request::post(path).header(CONTENT_TYPE, "application/json").body(event.to_string().into_bytes())
            }
            EventRequest::Patch(patch) => Request::patch(format!("{path}/{name}"))
                .header(CONTENT_TYPE, "application/merge-patch+json")
                .body(patch.to_string().into_bytes()),
        };
        let sent = match request {
            Ok(request) => client::exchange(client, request).await,
            Err(error) => Err(kube::Error::HttpError(error)),
        };
        match &sent {
            Ok(_) => drop(self.metrics.sent.inc()),
            Err(error) => tracing::debug!("cannot send an event: {}", chain(error)),
        }
        if !self.queue().sent(key, count, sent.map(drop), Instant::now()) {
            self.metrics.dropped.inc();
        }
    }

    /// Encodes the next request of a series.
    fn post(&self, key: &(InvolvedObject, Event)) -> Option<(EventRequest, String, u64)> {
        let queue = self.queue();
        let (series, (regarding, event)) = (queue.series.get(key)?, key);
        let last = rfc3339_micro(series.last);
        let repeated = (series.count > 1).then(|| json!({"count": series.count, "lastObservedTime": last}));
        if series.written > 0 {
            let mut patch = json!({"series": repeated});
            if let Some(annotations) = series.annotations() {
                patch["metadata"]["annotations"] = annotations;
            }
            return Some((EventRequest::Patch(patch), series.name.clone(), series.count));
        }
        let namespace = regarding.key.namespace();
        let mut object = json!({
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": series.name, "namespace": namespace.unwrap_or("default")},
            "eventTime": rfc3339_micro(series.first),
            "type": event.kind,
            "reason": event.reason,
            "action": event.action,
            "note": event.note,
            "regarding": {
                "apiVersion": regarding.api_version,
                "kind": regarding.kind,
                "name": regarding.key.name(),
                "uid": regarding.uid,
            },
            "reportingController": &*self.operator,
            "reportingInstance": self.instance,
        });
        if let Some(annotations) = series.annotations() {
            object["metadata"]["annotations"] = annotations;
        }
        if let Some(namespace) = namespace {
            object["regarding"]["namespace"] = namespace.into();
        }
        if let Some(repeated) = repeated {
            object["series"] = repeated;
        }
        Some((EventRequest::Create(object), series.name.clone(), series.count))
    }

    fn queue(&self) -> MutexGuard<'_, EventQueue> {
        self.queue.lock()
    }
}

impl EventQueue {
    /// Adds an event, and returns false if the queue is full.
    fn add(
        &mut self,
        regarding: InvolvedObject,
        event: Event,
        reconcile: Option<u64>,
        at: Timestamp,
        now: Instant,
        name: impl FnOnce() -> String,
    ) -> bool {
        let key = (regarding, event);
        if let Some(series) = self.series.get_mut(&key).filter(|series| !series.is_over(now)) {
            (series.count, series.last, series.last_seen) = (series.count + 1, at, now);
            series.reconcile = reconcile;
            return true;
        }
        if self.series.len() >= MAX_SERIES {
            self.series.retain(|_, series| !series.is_over(now));
        }
        let room = self.series.len() < MAX_SERIES;
        if room {
            let series = Series {
                name: name(),
                reconcile,
                first: at,
                last: at,
                last_seen: now,
                count: 1,
                written: 0,
                due: now,
                lag: FIRST_LAG,
                failures: 0,
            };
            self.series.insert(key, series);
        }
        room
    }

    /// Returns the series to send now, or the time of the next one.
    fn next(&mut self, now: Instant) -> Result<(InvolvedObject, Event), Option<Instant>> {
        let intervals = (now - self.refilled).as_millis() / TOKEN_INTERVAL.as_millis();
        let intervals = u32::try_from(intervals).unwrap_or(u32::MAX);
        self.tokens = self.tokens.saturating_add(intervals).min(BURST);
        self.refilled = if self.tokens == BURST { now } else { self.refilled + TOKEN_INTERVAL * intervals };
        let closing = self.closing;
        let due = |series: &Series| if closing { now } else { series.due };
        let unsent = self.series.iter().filter(|(_, series)| series.written < series.count);
        let Some((key, series)) = unsent.min_by_key(|(_, series)| due(series)) else { return Err(None) };
        match due(series) {
            at if at > now => Err(Some(at)),
            _ if self.tokens == 0 && !closing => Err(Some(self.refilled + TOKEN_INTERVAL)),
            _ => {
                let key = key.clone();
                self.tokens = self.tokens.saturating_sub(1);
                Ok(key)
            }
        }
    }

    /// Handles the result of sending a series with this count, and returns false if the series is dropped.
    fn sent(&mut self, key: &(InvolvedObject, Event), count: u64, result: kube::Result<()>, now: Instant) -> bool {
        let Some(series) = self.series.get_mut(key) else { return true };
        series.due = now + series.lag;
        match result {
            Ok(()) => {
                (series.written, series.failures) = (count, 0);
                series.lag = (series.lag * 2).min(MAX_LAG);
                return true;
            }
            // The object expired, as events do after an hour: it is created again.
            Err(kube::Error::Api(status)) if status.is_not_found() && series.written > 0 => series.written = 0,
            Err(_) => {}
        }
        series.failures += 1;
        let goes_on = series.failures < MAX_ATTEMPTS && !self.closing;
        if !goes_on {
            self.series.remove(key);
        }
        goes_on
    }
}

impl Series {
    /// Returns the annotation with the identifier of the last reconcile that published the event.
    fn annotations(&self) -> Option<Value> {
        self.reconcile.map(|id| json!({RECONCILE: format!("{id:016x}")}))
    }

    fn is_over(&self, now: Instant) -> bool {
        self.written == self.count && now - self.last_seen > SERIES_TIMEOUT
    }
}

fn shorten(text: &mut String, longest: usize) {
    text.truncate(text.floor_char_boundary(longest));
}
