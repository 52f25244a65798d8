//! Fault injection from a seed and a trace of all requests, between clients and the server of a simulation.
//!
//! On a single-threaded runtime with paused time, with a [`simulated_clock`] and one seed for all randomness, two runs
//! have equal [`Trace`]s.

use crate::Cluster;
use bytes::Bytes;
use flyball_core::time::{SignedDuration, Timestamp, rfc3339_micro};
use flyball_core::{Clock, Reason, Rng, Status};
use flyball_server::User;
use http::{Method, Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use std::fmt::{self, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep};
use tower::service_fn;

/// Creates a clock that starts at 2026-01-01 and follows tokio's time, which simulations pause.
///
/// # Panics
///
/// Outside of a tokio runtime.
pub fn simulated_clock() -> Clock {
    let began = Instant::now();
    let first = Timestamp::from_second(1_767_225_600).expect("the year 2026 is in range");
    Clock::new(move || first + SignedDuration::try_from(began.elapsed()).unwrap_or(SignedDuration::MAX))
}

/// Rates of injected faults, from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Faults {
    /// Rate of writes that are rejected with 409 `Conflict`, as if another client had written.
    pub conflict: f64,
    /// Rate of requests that fail with 500 and have no effect.
    pub server_error: f64,
    /// Rate of requests that have their effect, but fail with 500.
    pub lost_response: f64,
    /// Rate of frames before which the stream of a watch ends.
    pub broken_watch: f64,
    /// Rate of frames of a watch that are delayed by up to [`MAX_DELAY`](Self::MAX_DELAY), so that events of different
    /// kinds arrive out of order.
    pub late: f64,
    /// Rate of frames of a watch that are duplicated.
    pub repeated: f64,
    /// Rate of watches from a resource version, and of further pages of a list, that fail with 410 `Expired`.
    pub expired: f64,
    /// Rate of requests that are delayed by up to [`MAX_DELAY`](Self::MAX_DELAY).
    pub slow: f64,
}

impl Faults {
    /// No faults.
    pub const NONE: Self = Self {
        conflict: 0.0,
        server_error: 0.0,
        lost_response: 0.0,
        broken_watch: 0.0,
        late: 0.0,
        repeated: 0.0,
        expired: 0.0,
        slow: 0.0,
    };

    /// Maximum delay of a request or a frame of a watch.
    pub const MAX_DELAY: Duration = Duration::from_secs(5);
}

/// A record of requests and responses in order; clones share the record.
#[derive(Clone, Default)]
pub struct Trace(Arc<Mutex<Record>>);

#[derive(Default)]
struct Record {
    text: String,
    requests: u64,
}

impl Trace {
    /// Returns the record.
    pub fn text(&self) -> String {
        self.0.lock().text.clone()
    }

    fn request(&self, at: &str, user: &User, request: &Request<Bytes>) -> u64 {
        let mut record = self.0.lock();
        record.requests += 1;
        let (number, text) = (record.requests, String::from_utf8_lossy(request.body()));
        let _ = writeln!(record.text, "{at} #{number} > {} {} {} {text}", user.name, request.method(), request.uri());
        number
    }

    fn record(&self, at: &str, number: u64, what: fmt::Arguments<'_>) {
        let mut record = self.0.lock();
        let _ = writeln!(record.text, "{at} #{number} < {what}");
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Trace of {} requests", self.0.lock().requests)
    }
}

impl Cluster {
    /// Creates a client that records its requests and injects faults.
    pub fn simulated_client(&self, user: User, faults: Faults, rng: Rng, trace: Trace) -> kube::Client {
        let wire = Arc::new(Wire { clock: self.clock().clone(), user, faults, rng, trace });
        let server = self.server().clone();
        let pass = move |request: Request<kube::client::Body>| {
            let (wire, server) = (wire.clone(), server.clone());
            async move { wire.pass(&server, request).await }
        };
        kube::Client::new(service_fn(pass), "default")
    }
}

/// The connection of one client to the server.
struct Wire {
    clock: Clock,
    user: User,
    faults: Faults,
    rng: Rng,
    trace: Trace,
}

impl Wire {
    async fn pass(
        self: Arc<Self>,
        server: &flyball_server::Server,
        request: Request<kube::client::Body>,
    ) -> Result<Response<RecordedBody>, kube::Error> {
        let (mut head, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let writes = head.method != Method::GET;
        head.extensions.insert(self.user.clone());
        let request = Request::from_parts(head, body);
        let number = self.trace.request(&self.now(), &self.user, &request);
        if let Some(delay) = self.delay(self.faults.slow) {
            delay.await;
        }
        if is_continuation(request.uri().query().unwrap_or_default()) && self.occurs(self.faults.expired) {
            return Ok(self.error_response(
                number,
                Status::new(410, Reason::Expired, "simulated: the resource version has expired"),
            ));
        }
        if writes && self.occurs(self.faults.conflict) {
            return Ok(self.error_response(
                number,
                Status::new(409, Reason::Conflict, "simulated: conflict with another client"),
            ));
        }
        if self.occurs(self.faults.server_error) {
            return Ok(self.error_response(number, Status::internal("simulated: refused")));
        }
        let lost = self.occurs(self.faults.lost_response);
        let response = server.handle(request.map(http_body_util::Full::new)).await;
        if lost {
            return Ok(self.error_response(number, Status::internal("simulated: executed, but the response was lost")));
        }
        let (head, body) = response.into_parts();
        self.trace.record(&self.now(), number, format_args!("{}", head.status.as_u16()));
        Ok(Response::from_parts(head, RecordedBody::new(body, number, self)))
    }

    fn error_response(self: &Arc<Self>, number: u64, status: Status) -> Response<RecordedBody> {
        self.trace.record(&self.now(), number, format_args!("{}", status.code));
        let body = flyball_server::Body::from(serde_json::to_vec(&status).unwrap_or_default());
        let mut response = Response::new(RecordedBody::new(body, number, self.clone()));
        *response.status_mut() = StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        response
    }

    fn occurs(&self, share: f64) -> bool {
        share > 0.0 && self.rng.fraction() < share
    }

    /// Draws a delay, if any.
    fn delay(&self, share: f64) -> Option<Pin<Box<Sleep>>> {
        self.occurs(share).then(|| Box::pin(sleep(Faults::MAX_DELAY.mul_f64(self.rng.fraction()))))
    }

    fn now(&self) -> String {
        rfc3339_micro(self.clock.now())
    }
}

/// Returns true if a request continues from a resource version or a continue token.
fn is_continuation(query: &str) -> bool {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let watches = query.split('&').any(|pair| pair == "watch=true");
    pairs.any(|(name, value)| name == "continue" || (watches && name == "resourceVersion" && value != "0"))
}

/// The body of a response, recorded frame by frame.
struct RecordedBody {
    body: flyball_server::Body,
    number: u64,
    wire: Arc<Wire>,
    /// The delayed frame of a watch, and its delay.
    held: Option<(Bytes, Option<Pin<Box<Sleep>>>)>,
}

impl RecordedBody {
    fn new(body: flyball_server::Body, number: u64, wire: Arc<Wire>) -> Self {
        Self { body, number, wire, held: None }
    }

    fn record(&self, what: fmt::Arguments<'_>) {
        self.wire.trace.record(&self.wire.now(), self.number, what);
    }

    fn deliver(&mut self, data: Bytes) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        self.record(format_args!("{}", String::from_utf8_lossy(&data).trim_end()));
        Poll::Ready(Some(Ok(Frame::data(data))))
    }
}

impl Body for RecordedBody {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        let streams = self.body.size_hint().exact().is_none();
        if self.held.is_none() {
            let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) else { return Poll::Pending };
            let Some(data) = frame.and_then(Result::ok).and_then(|frame| frame.into_data().ok()) else {
                return Poll::Ready(None);
            };
            if !streams {
                return self.deliver(data);
            }
            let delay = self.wire.delay(self.wire.faults.late);
            self.held = Some((data, delay));
        }
        let Some((data, delay)) = &mut self.held else { return Poll::Pending };
        if let Some(delay) = delay
            && delay.as_mut().poll(cx).is_pending()
        {
            return Poll::Pending;
        }
        let (data, faults) = (data.clone(), self.wire.faults);
        self.held = None;
        if self.wire.occurs(faults.broken_watch) {
            self.record(format_args!("cut"));
            self.body = flyball_server::Body::empty();
            return Poll::Ready(Some(Err(std::io::ErrorKind::ConnectionReset.into())));
        }
        if self.wire.occurs(faults.repeated) {
            self.held = Some((data.clone(), None));
        }
        self.deliver(data)
    }

    fn is_end_stream(&self) -> bool {
        self.held.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pages_and_resumed_watches_continue_from_a_version() {
        let check = |query: &str, expected: bool| assert_eq!(is_continuation(query), expected, "{query}");
        check("", false);
        check("limit=500", false);
        check("limit=500&continue=abc", true);
        check("watch=true&allowWatchBookmarks=true&resourceVersion=7", true);
        check("watch=true&resourceVersion=0", false);
        check("watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan", false);
        check("resourceVersion=7&resourceVersionMatch=Exact", false);
    }
}
