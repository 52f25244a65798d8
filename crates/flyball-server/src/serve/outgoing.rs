//! Responses that are being sent: each piece is counted until the transport has released it.
//!
//! Takes the body of a response and passes it on in pieces, as long as the user does not have too many unsent bytes; a
//! response that was cut off ends with an error. It does not depend on the content of a body. The invariants: bytes
//! count from their creation until they are freed, and an unfinished response has a cost of its own, since there may be
//! many short ones.

use crate::bounds::{Flow, Hold, Offload, SharedBounds, SpawnedStep, UNFINISHED};
use crate::connection::RequestConnection;
use crate::response::Body;
use bytes::{Buf, Bytes};
use futures_util::future::BoxFuture;
use http_body::{Body as _, Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::error::Elapsed;
use tokio::time::timeout;

/// Maximum number of bytes of a piece, and the free amount that the next one requires. The timeout of slow clients
/// applies to each piece.
const MAX_PIECE_BYTES: usize = 32 << 10;

/// Timeout of the wait of a response until its user has read enough of others. Meanwhile it keeps its memory.
const ROOM_TIMEOUT: Duration = Duration::from_secs(60);

/// The body of a response that is sent over a connection.
pub(super) struct ConnectionBody {
    body: Body,
    connection: RequestConnection,
    /// The piece that was taken from the body and not handed over.
    next: Bytes,
    /// Reserved bytes of generated pieces that are not sent, including `next`, and of the one that is being generated.
    generated: Hold,
    /// Waits until more bytes may be sent, for a limited time.
    wait: Option<BoxFuture<'static, Result<Option<Hold>, Elapsed>>>,
    /// The offload of the rest of the body, if it is a long computation.
    turns: Option<Offload>,
    /// The body and its next piece, while that is generated. A separate task generates it: this one is polled only
    /// while its client reads, and would block its turn otherwise.
    making: Option<SpawnedStep<(Body, Option<Bytes>)>>,
}

/// The client did not read, and the rest of the response is dropped.
#[derive(Debug, thiserror::Error)]
#[error("the client reads too slowly")]
pub(super) struct SlowReader;

impl ConnectionBody {
    pub(super) fn new(mut body: Body, connection: RequestConnection, shared: &SharedBounds) -> Self {
        if connection.flow().is_none() {
            connection.identify(&Flow::unidentified());
        }
        let flow = connection.flow().cloned().unwrap_or_else(Flow::unidentified);
        let pool = shared.unsent.of(&flow);
        // Watches are counted by themselves.
        let by_itself = if connection.is_watch() { 0 } else { UNFINISHED };
        let mut generated = match connection.replace_reservation(None) {
            // The reservation is replaced by the actual size.
            Some(mut room) => {
                room.resize(by_itself + body.available_bytes());
                room
            }
            // A rejection without a body ends with its head, which needs no accounting.
            None => pool.try_take(&flow, by_itself + body.available_bytes()).unwrap_or_else(|| {
                body = Body::empty();
                pool.charge(&flow, 0)
            }),
        };
        connection.replace_reservation(Some(generated.split(by_itself)));
        let turns = Offload::new(shared, &flow);
        Self { body, connection, next: Bytes::new(), generated, wait: None, turns, making: None }
    }

    /// Waits until the user may have more unsent bytes. Pieces that are already generated do not wait.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SlowReader>> {
        let computes = self.turns.is_some() && self.body.computes();
        if self.generated.amount() > 0 || self.wait.is_none() && !computes && self.generated.has_room() {
            return Poll::Ready(Ok(()));
        }
        let wait = || timeout(ROOM_TIMEOUT, self.generated.wait(MAX_PIECE_BYTES));
        let wait = self.wait.get_or_insert_with(|| Box::pin(wait()));
        let room = ready!(wait.as_mut().poll(cx));
        self.wait = None;
        let Ok(room) = room else {
            self.connection.close();
            return Poll::Ready(Err(SlowReader));
        };
        room.into_iter().for_each(|room| self.generated.add(room));
        Poll::Ready(Ok(()))
    }

    fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, SlowReader>>> {
        if let Some(turns) = self.turns.as_ref().filter(|_| self.making.is_none() && self.body.computes()) {
            let mut body = std::mem::replace(&mut self.body, Body::empty());
            self.making = Some(turns.spawn(move || {
                let piece = body.next_piece();
                (body, piece)
            }));
        }
        let Some(making) = &mut self.making else {
            let frame = Pin::new(&mut self.body).poll_frame(cx);
            if frame.is_pending() {
                // The watch has nothing to send, and releases its hold.
                self.generated.resize(0);
            }
            let Some(Ok(frame)) = ready!(frame) else { return Poll::Ready(None) };
            return Poll::Ready(Some(Ok(frame.into_data().unwrap_or_default())));
        };
        let generated = ready!(Pin::new(making).poll(cx));
        self.making = None;
        let Ok((body, piece)) = generated else { return Poll::Ready(Some(Err(SlowReader))) };
        self.body = body;
        Poll::Ready(piece.map(Ok))
    }
}

impl http_body::Body for ConnectionBody {
    type Data = Piece;
    type Error = SlowReader;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Piece>, SlowReader>>> {
        let this = &mut *self;
        if this.connection.is_slow() {
            return Poll::Ready(Some(Err(SlowReader)));
        }
        if this.next.is_empty() {
            if let Err(slow) = ready!(this.poll_room(cx)) {
                return Poll::Ready(Some(Err(slow)));
            }
            this.next = match ready!(this.poll_body(cx)) {
                Some(Ok(next)) => next,
                Some(Err(slow)) => return Poll::Ready(Some(Err(slow))),
                None => return Poll::Ready(None),
            };
            this.generated.resize(this.body.available_bytes() + this.next.len());
        }
        let bytes = this.next.split_to(this.next.len().min(MAX_PIECE_BYTES));
        let hold = this.generated.split(bytes.len());
        Poll::Ready(Some(Ok(Frame::data(Piece::new(bytes, this.connection.clone(), hold)))))
    }

    fn is_end_stream(&self) -> bool {
        self.next.is_empty() && self.making.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        if self.making.is_some() {
            return SizeHint::default();
        }
        let (rest, mut hint) = (self.body.size_hint(), SizeHint::new());
        let next = self.next.len() as u64;
        hint.set_lower(rest.lower() + next);
        rest.upper().into_iter().for_each(|upper| hint.set_upper(upper + next));
        hint
    }
}

/// Bytes that the transport keeps until they are sent.
pub(super) struct Piece {
    bytes: Bytes,
    connection: RequestConnection,
    _hold: Hold,
}

impl Piece {
    fn new(bytes: Bytes, connection: RequestConnection, _hold: Hold) -> Self {
        connection.record_piece(bytes.len());
        Self { bytes, connection, _hold }
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.connection.sent();
    }
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounds::Bounds;
    use futures_util::FutureExt;
    use http_body_util::BodyExt;
    use tokio::time::advance;

    fn shared(unsent_bytes: usize) -> SharedBounds {
        SharedBounds::new(&Bounds { unsent_bytes, ..Bounds::default() })
    }

    fn connection(flow: &Flow) -> RequestConnection {
        let connection = RequestConnection::default();
        connection.identify(flow);
        connection
    }

    fn next(outgoing: &mut ConnectionBody) -> Option<Piece> {
        outgoing.frame().now_or_never().flatten().map(|frame| frame.unwrap().into_data().ok().unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn slow_client_receives_a_long_response() {
        let (shared, ann) = (shared(64 << 20), Flow::of("ann", false, true));
        let connection = connection(&ann);
        let body = Bytes::from(vec![7; 1_000_000]);
        connection.replace_reservation(shared.room(&ann, body.len()).await);
        let mut outgoing = ConnectionBody::new(body.clone().into(), connection.clone(), &shared);
        assert_eq!(http_body::Body::size_hint(&outgoing).exact(), Some(1_000_000));
        assert_eq!(shared.unsent.used(), 1_000_000 + UNFINISHED);
        let (mut read, mut sent) = (0, Vec::new());
        while let Some(piece) = next(&mut outgoing) {
            assert!(piece.remaining() <= MAX_PIECE_BYTES);
            assert_eq!(shared.unsent.used(), body.len() - read + UNFINISHED, "what is sent counts until it is freed");
            advance(Duration::from_secs(2)).await;
            connection.close_if_slow(Duration::from_secs(30));
            read += piece.remaining();
            sent.extend_from_slice(piece.chunk());
        }
        assert_eq!(sent, body);
        assert!(!connection.is_slow());
        drop((outgoing, connection));
        assert_eq!(shared.unsent.used(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn unfinished_responses_are_counted_without_a_user() {
        const RESPONSES: usize = 100;
        let shared = shared(2 * RESPONSES * (UNFINISHED + 3));
        let mut unfinished: Vec<ConnectionBody> =
            (0..RESPONSES).map(|_| ConnectionBody::new("401".into(), RequestConnection::default(), &shared)).collect();
        assert!(unfinished.iter().all(|response| response.body.available_bytes() == 3));
        let more = ConnectionBody::new("401".into(), RequestConnection::default(), &shared);
        assert!(http_body::Body::is_end_stream(&more), "there is nothing to be left unread");
        // Bytes in the transport keep the response unfinished.
        let pieces: Vec<Piece> = unfinished.iter_mut().filter_map(next).collect();
        drop(unfinished);
        assert_eq!(shared.unsent.used(), RESPONSES * (UNFINISHED + 3));
        let ann = connection(&Flow::of("ann", false, true));
        assert_eq!(
            ConnectionBody::new("403".into(), ann, &shared).body.available_bytes(),
            3,
            "others have their own share"
        );
        drop(pieces);
        assert_eq!(shared.unsent.used(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn lazy_pieces_wait_for_room() {
        let (shared, ann) = (shared(4 * MAX_PIECE_BYTES), Flow::of("ann", false, true));
        let pieces = (0..9).map(|_| Bytes::from(vec![7; 2 * MAX_PIECE_BYTES]));
        let mut outgoing = ConnectionBody::new(Body::lazy(pieces, true), connection(&ann), &shared);
        // Bytes that are generated synchronously may exceed the limit.
        assert!(next(&mut outgoing).is_none() && http_body::Body::is_end_stream(&outgoing));
        let connection = connection(&ann);
        connection.replace_reservation(shared.room(&ann, 6 * MAX_PIECE_BYTES).await);
        let pieces = (0..9).map(|_| Bytes::from(vec![7; 2 * MAX_PIECE_BYTES]));
        let mut outgoing = ConnectionBody::new(Body::lazy(pieces, true), connection, &shared);
        let mut unread: Vec<Piece> = std::iter::from_fn(|| next(&mut outgoing)).collect();
        assert_eq!((unread.len(), shared.unsent.used()), (6, 6 * MAX_PIECE_BYTES + UNFINISHED));
        unread.truncate(1);
        assert_eq!(next(&mut outgoing).unwrap().remaining(), MAX_PIECE_BYTES);
    }

    #[tokio::test(start_paused = true)]
    async fn response_without_room_is_closed() {
        let (shared, ann) = (shared(4 * MAX_PIECE_BYTES), Flow::of("ann", false, true));
        let connection = connection(&ann);
        connection.replace_reservation(shared.room(&ann, 6 * MAX_PIECE_BYTES).await);
        let pieces = (0..9).map(|_| Bytes::from(vec![7; MAX_PIECE_BYTES]));
        let mut outgoing = ConnectionBody::new(Body::lazy(pieces, true), connection.clone(), &shared);
        let _unread: Vec<Piece> = std::iter::from_fn(|| next(&mut outgoing)).collect();
        let begin = tokio::time::Instant::now();
        assert!(outgoing.frame().await.unwrap().is_err() && connection.is_slow());
        assert_eq!(begin.elapsed(), ROOM_TIMEOUT);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn unpolled_response_holds_no_thread() {
        let (shared, ann, bob) = (shared(64 << 20), Flow::of("ann", false, true), Flow::of("bob", false, true));
        let connection = connection(&ann);
        connection.replace_reservation(shared.room(&ann, 3 * MAX_PIECE_BYTES).await);
        let threads = shared.threads.of(&bob);
        let all = || threads.clone().wait(bob.clone(), threads.limit());
        let taken = all().await;
        let pieces = (0..9).map(|_| Bytes::from(vec![7; MAX_PIECE_BYTES]));
        let mut outgoing = ConnectionBody::new(Body::lazy(pieces, true), connection, &shared);
        assert_eq!(std::iter::from_fn(|| next(&mut outgoing)).count(), 3, "more takes a turn");
        assert!(!http_body::Body::is_end_stream(&outgoing));
        drop(taken);
        let taken = tokio::time::timeout(Duration::from_secs(10), all()).await.expect("the turn is given back");
        drop(taken);
        assert_eq!(outgoing.collect().await.unwrap().to_bytes().len(), 6 * MAX_PIECE_BYTES);
        assert_eq!(shared.unsent.used(), 0);
    }
}
