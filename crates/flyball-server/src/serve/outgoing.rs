//! Answers on their way to a client: each piece is counted until the transport has let it go.
//!
//! Takes the body of an answer and gives it on in pieces, as long as the user has not too much that waits to be sent;
//! what was cut off ends with an error. It knows nothing of what is in a body. The invariant: bytes count from when
//! they are made to when they are freed.

use crate::bounds::{Hold, Pool};
use crate::link::Link;
use crate::response::Body;
use bytes::{Buf, Bytes};
use futures_util::future::BoxFuture;
use http_body::{Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// How much room there has to be for the next piece.
const PIECE: usize = 32 << 10;

/// The body of an answer that is sent over a connection.
pub(super) struct Outgoing {
    body: Body,
    link: Link,
    pool: Pool,
    /// What is made already and not handed over.
    made: Option<Hold>,
    /// Until there is room for more.
    wait: Option<BoxFuture<'static, Option<Hold>>>,
}

/// The client did not read, and the rest of the answer is withheld.
#[derive(Debug, thiserror::Error)]
#[error("the client does not read")]
pub(super) struct CutOff;

impl Outgoing {
    pub(super) fn new(body: Body, link: Link, pool: Pool) -> Self {
        let made = made(&body);
        let made = link.flow().filter(|_| made > 0).map(|flow| pool.charge(flow, made));
        // It is counted as what it is now.
        drop(link.keep_room(None));
        Self { body, link, pool, made, wait: None }
    }

    /// Waits until the user may be sent more. What is made already need not wait.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Option<Hold>> {
        let Some(flow) = self.link.flow().filter(|_| self.made.is_none()) else { return Poll::Ready(None) };
        if self.wait.is_none() && self.pool.has_room(flow) {
            return Poll::Ready(None);
        }
        let wait = self.wait.get_or_insert_with(|| Box::pin(self.pool.clone().wait(flow.clone(), PIECE)));
        let room = ready!(wait.as_mut().poll(cx));
        self.wait = None;
        Poll::Ready(room)
    }
}

/// Counts the bytes of a body that are in memory.
fn made(body: &Body) -> usize {
    usize::try_from(http_body::Body::size_hint(body).lower()).unwrap_or(usize::MAX)
}

impl http_body::Body for Outgoing {
    type Data = Piece;
    type Error = CutOff;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Piece>, CutOff>>> {
        let this = &mut *self;
        if this.link.is_slow() {
            return Poll::Ready(Some(Err(CutOff)));
        }
        let _room = ready!(this.poll_room(cx));
        let Some(Ok(frame)) = ready!(Pin::new(&mut this.body).poll_frame(cx)) else { return Poll::Ready(None) };
        if let Some(hold) = &mut this.made {
            match made(&this.body) {
                0 => this.made = None,
                left => hold.shrink_to(left),
            }
        }
        let piece = frame.map_data(|bytes| Piece::new(bytes, this.link.clone(), &this.pool));
        Poll::Ready(Some(Ok(piece)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Bytes that the transport holds until they are sent.
pub(super) struct Piece {
    bytes: Bytes,
    link: Link,
    _hold: Option<Hold>,
}

impl Piece {
    fn new(bytes: Bytes, link: Link, pool: &Pool) -> Self {
        link.handed();
        let _hold = link.flow().map(|flow| pool.charge(flow, bytes.len()));
        Self { bytes, link, _hold }
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.link.sent();
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
