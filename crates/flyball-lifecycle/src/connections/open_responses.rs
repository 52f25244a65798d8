//! The responses of a connection that are being sent: the connection is closed if its client does not take them.
//!
//! In HTTP/2, the client grants each response a window. While it is empty, nothing is written, so that the [time limit
//! of writes](super::WRITE_TIMEOUT) does not apply, and pings are answered. Bodies are therefore passed on in small
//! parts: a part counts as taken when the next one is requested. The last part may still be buffered after that.
//!
//! A client for several users, such as the API server, keeps its connection while it takes one of the responses: a user
//! who takes none must not disconnect the others.

use super::WRITE_TIMEOUT;
use bytes::Bytes;
use http::Response;
use hyper::body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Size of a part of a body, that of a frame of HTTP/2.
const PART_BYTES: usize = 16 << 10;

/// The responses of a connection that are not complete. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct OpenResponses(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    has_several_users: bool,
    count: u64,
    /// The open responses, by number, with the time at which the client took a part last; `None` for those that wait
    /// for the server.
    open: BTreeMap<u64, Option<Instant>>,
    /// Time of the last progress: a response began or ended, or a part was taken.
    progress: Instant,
}

impl OpenResponses {
    /// The responses to a client that has to take each of them.
    pub(crate) fn of_one_user() -> Self {
        Self::new(false)
    }

    /// The responses to a client that has to take one of them.
    pub(crate) fn of_several_users() -> Self {
        Self::new(true)
    }

    fn new(has_several_users: bool) -> Self {
        let (count, open, progress) = (0, BTreeMap::new(), Instant::now());
        Self(Arc::new(Mutex::new(State { has_several_users, count, open, progress })))
    }

    /// Counts a response until its body is dropped.
    pub(crate) fn track<B>(&self, response: Response<B>) -> Response<TrackedBody<B>> {
        let number = {
            let mut state = self.0.lock();
            state.count += 1;
            state.progress = Instant::now();
            let (number, began) = (state.count, state.progress);
            state.open.insert(number, Some(began));
            number
        };
        let all = self.clone();
        response.map(|body| TrackedBody { body, rest: Bytes::new(), has_begun: false, number, all })
    }

    /// Waits until the client has taken no part of a response within [`WRITE_TIMEOUT`]: of one, or, for several users,
    /// of any. A response that waits for the server, such as a watch without events, does not count as untaken.
    pub(crate) async fn stalled(&self) {
        loop {
            let rest = self.remaining_time();
            if rest.is_zero() {
                return;
            }
            sleep(rest).await;
        }
    }

    /// Returns the time after which the connection may be stalled; zero if it is.
    fn remaining_time(&self) -> Duration {
        let state = self.0.lock();
        let since = match state.has_several_users {
            true => Some(state.progress).filter(|_| !state.open.is_empty() && state.open.values().all(Option::is_some)),
            false => state.open.values().flatten().min().copied(),
        };
        since.map_or(WRITE_TIMEOUT, |since| WRITE_TIMEOUT.saturating_sub(since.elapsed()))
    }
}

/// A body whose progress is recorded.
#[derive(Debug)]
pub(crate) struct TrackedBody<B> {
    body: B,
    /// The rest of the current frame.
    rest: Bytes,
    has_begun: bool,
    number: u64,
    all: OpenResponses,
}

impl<B> TrackedBody<B> {
    /// Records that the last part was taken, and whether there is a next one.
    fn record(&self, has_next: bool) {
        let mut state = self.all.0.lock();
        state.progress = Instant::now();
        let since = has_next.then_some(state.progress);
        state.open.insert(self.number, since);
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for TrackedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        self.has_begun = true;
        if self.rest.is_empty() {
            let polled = Pin::new(&mut self.body).poll_frame(cx);
            self.record(matches!(polled, Poll::Ready(Some(Ok(_)))));
            let is_large = |frame: &Frame<Bytes>| frame.data_ref().is_some_and(|data| data.len() > PART_BYTES);
            match polled {
                Poll::Ready(Some(Ok(frame))) if is_large(&frame) => self.rest = frame.into_data().unwrap_or_default(),
                other => return other,
            }
        } else {
            self.record(true);
        }
        let length = self.rest.len().min(PART_BYTES);
        // A copy does not keep a large message in memory.
        let part = Bytes::copy_from_slice(&self.rest.split_to(length));
        Poll::Ready(Some(Ok(Frame::data(part))))
    }

    /// Returns true for an empty body only: the end of others is requested after their last part.
    fn is_end_stream(&self) -> bool {
        !self.has_begun && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        if self.rest.is_empty() { self.body.size_hint() } else { SizeHint::default() }
    }
}

impl<B> Drop for TrackedBody<B> {
    fn drop(&mut self) {
        let mut state = self.all.0.lock();
        state.open.remove(&self.number);
        state.progress = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use futures_util::stream::{pending, unfold};
    use http_body_util::{BodyExt, Full, StreamBody};
    use std::convert::Infallible;
    use tokio::time::timeout;

    async fn is_stalled_within(responses: &OpenResponses, seconds: u64) -> bool {
        timeout(Duration::from_secs(seconds), responses.stalled()).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn connection_is_stalled_if_no_response_is_taken() {
        let responses = OpenResponses::of_several_users();
        assert!(!is_stalled_within(&responses, 100).await, "nothing is sent");
        let mut body = responses.track(Response::new(Full::new(Bytes::from(vec![1; 4 * PART_BYTES])))).into_body();
        for _ in 0..4 {
            assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap().len(), PART_BYTES);
            assert!(!is_stalled_within(&responses, 29).await, "it takes a part from time to time");
        }
        assert!(is_stalled_within(&responses, 2).await, "the end is not requested");
        assert!(body.frame().await.is_none());
        drop(body);
        assert!(!is_stalled_within(&responses, 100).await);
    }

    #[tokio::test(start_paused = true)]
    async fn response_that_waits_for_the_server_keeps_the_connection() {
        let responses = OpenResponses::of_several_users();
        let events = StreamBody::new(pending::<Result<Frame<Bytes>, Infallible>>());
        let mut watch = responses.track(Response::new(events)).into_body();
        assert!(watch.frame().now_or_never().is_none());
        let endless = unfold((), async |()| Some((Ok::<_, Infallible>(Frame::data(Bytes::from("a"))), ())));
        let mut stalled = responses.track(Response::new(StreamBody::new(Box::pin(endless)))).into_body();
        assert!(stalled.frame().await.is_some());
        assert!(!is_stalled_within(&responses, 100).await);
        drop(watch);
        assert!(!is_stalled_within(&responses, 29).await && is_stalled_within(&responses, 2).await);
    }

    #[tokio::test(start_paused = true)]
    async fn one_user_has_to_take_each_response() {
        let responses = OpenResponses::of_one_user();
        let endless = || unfold((), async |()| Some((Ok::<_, Infallible>(Frame::data(Bytes::from("a"))), ())));
        let stalled = responses.track(Response::new(StreamBody::new(Box::pin(endless()))));
        let mut other = responses.track(Response::new(StreamBody::new(Box::pin(endless())))).into_body();
        assert!(!is_stalled_within(&responses, 29).await);
        assert!(other.frame().await.is_some());
        assert!(is_stalled_within(&responses, 2).await, "another response does not excuse it");
        drop(stalled);
        assert!(!is_stalled_within(&responses, 10).await);
    }

    #[test]
    fn empty_bodies_end_at_once() {
        let responses = OpenResponses::of_several_users();
        let is_end = |text: &'static str| responses.track(Response::new(Full::from(text))).body().is_end_stream();
        assert!(is_end("") && !is_end("a"));
    }
}
