//! Reading of request bodies: bounded in length, time and rate, and charged to the user.
//!
//! Takes the body and returns its bytes with their hold. It does not depend on their content. The invariant: over a
//! connection, bytes are counted before they are kept.

use super::call::RejectedRequest;
use crate::bounds::{Flow, Hold, SharedBounds};
use crate::limits::MAX_BODY_BYTES;
use bytes::{Bytes, BytesMut};
use flyball_core::Status;
use flyball_core::status::Reason;
use http_body_util::BodyExt;
use std::pin::pin;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// Bytes of a body that are charged before any arrive: as many as HTTP/2 may receive before they are read.
const FIRST_RESERVATION_BYTES: usize = 64 << 10;

/// Timeout of a body.
const MAX_BODY_TIME: Duration = Duration::from_secs(30);

/// Timeout of the first byte of a body, and the bytes that extend it by a second.
const INITIAL_BODY_TIME: Duration = Duration::from_secs(5);
const MIN_BYTES_PER_SECOND: usize = 16 << 10;

/// Bytes of an oversized body that are read before the connection is closed.
const MAX_DRAINED_BYTES: usize = 8 * MAX_BODY_BYTES;

/// Reads a body. Bodies from connections are charged to the user; waiting for that does not count as the client's time.
pub(super) async fn read<B>(
    body: B,
    counted: Option<(&SharedBounds, &Flow)>,
) -> Result<(Bytes, Option<Hold>), RejectedRequest>
where
    B: http_body::Body<Data = Bytes> + Send,
    B::Error: std::fmt::Display,
{
    let too_large =
        || RejectedRequest::from(Status::too_large(format!("Request entity too large: limit is {MAX_BODY_BYTES}")));
    let late = |_| Status::new(504, Reason::Timeout, "Timeout: request did not complete within the allotted timeout");
    let mut hold: Option<Hold> = None;
    let exact = body.size_hint().exact().and_then(|length| usize::try_from(length).ok());
    if let Some((shared, flow)) = counted {
        let first = exact.map_or(FIRST_RESERVATION_BYTES, |length| length.min(FIRST_RESERVATION_BYTES));
        hold = Some(shared.receive(flow, first).await.ok_or(RejectedRequest::Busy)?);
    }
    let mut body = pin!(body);
    let (mut first, mut all) = (Bytes::new(), BytesMut::new());
    let (mut length, mut spent) = (0, Duration::ZERO);
    loop {
        let allowed =
            MAX_BODY_TIME.min(INITIAL_BODY_TIME + Duration::from_secs((length / MIN_BYTES_PER_SECOND) as u64));
        let start = Instant::now();
        let data = match timeout(allowed.saturating_sub(spent), body.as_mut().frame()).await.map_err(late)? {
            None => break,
            Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
            Some(Err(error)) => {
                return Err(Status::bad_request(format!("unable to read the request body: {error}")).into());
            }
        };
        spent += start.elapsed();
        length += data.len();
        if length > MAX_DRAINED_BYTES {
            return Err(too_large());
        }
        if length > MAX_BODY_BYTES {
            // Many clients read the response only after they have sent the whole body.
            (first, all) = (Bytes::new(), BytesMut::new());
            continue;
        }
        if let (Some((shared, flow)), Some(hold)) = (counted, &mut hold)
            && length > hold.amount()
        {
            // If the length is known, acquire all of it: requests with partial holds could deadlock.
            let target = exact.unwrap_or(2 * hold.amount()).clamp(length, MAX_BODY_BYTES);
            hold.add(shared.receive(flow, target - hold.amount()).await.ok_or(RejectedRequest::Busy)?);
        }
        if first.is_empty() && all.is_empty() {
            first = data;
        } else {
            all.extend_from_slice(&std::mem::take(&mut first));
            all.extend_from_slice(&data);
        }
    }
    if length > MAX_BODY_BYTES {
        return Err(too_large());
    }
    hold.iter_mut().for_each(|hold| hold.resize(length));
    Ok((if all.is_empty() { first } else { all.freeze() }, hold))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounds::Bounds;
    use futures_util::{StreamExt, stream};
    use http_body::Frame;
    use http_body_util::StreamBody;
    use std::convert::Infallible;

    /// Reads a body of a number of pieces of a size, with a delay in milliseconds before each.
    async fn sent(shared: &SharedBounds, pieces: usize, bytes: usize, millis: u64) -> Result<usize, u16> {
        let frames = stream::iter(0..pieces).then(move |_| async move {
            tokio::time::sleep(Duration::from_millis(millis)).await;
            Ok::<_, Infallible>(Frame::data(Bytes::from(vec![b'x'; bytes])))
        });
        match read(StreamBody::new(frames), Some((shared, &Flow::of("ann", false, true)))).await {
            Ok((read, hold)) => {
                assert_eq!(hold.map(|hold| hold.amount()), Some(read.len()));
                Ok(read.len())
            }
            Err(RejectedRequest::Status(status)) => Err(status.code),
            Err(RejectedRequest::Busy) => Err(429),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn bodies_have_a_minimum_rate() {
        let shared = SharedBounds::new(&Bounds::default());
        let start = Instant::now();
        assert_eq!(sent(&shared, 1000, 1, 1000).await, Err(504));
        assert_eq!(start.elapsed(), Duration::from_secs(5));
        assert_eq!(sent(&shared, 20, 20_000, 1000).await, Ok(400_000));
        let start = Instant::now();
        assert_eq!(sent(&shared, 100, 30_000, 1000).await, Err(504));
        assert_eq!(start.elapsed(), MAX_BODY_TIME);
        assert_eq!(sent(&shared, 2, MAX_BODY_BYTES, 0).await, Err(413));
        assert_eq!(sent(&shared, 0, 0, 0).await, Ok(0));
    }

    #[tokio::test(start_paused = true)]
    async fn bodies_are_counted_as_they_arrive() {
        // Half of it is hers, which is 16 bodies that have not begun.
        let shared = SharedBounds::new(&Bounds { received_bytes: 32 * FIRST_RESERVATION_BYTES, ..Bounds::default() });
        let slow = futures_util::future::join_all((0..16).map(|_| sent(&shared, 10, 1, 100)));
        assert!(slow.await.iter().all(|read| *read == Ok(10)));
        let (large, small) = tokio::join!(sent(&shared, 20, 32_000, 1), sent(&shared, 1, 1, 1));
        assert_eq!((large, small), (Ok(640_000), Ok(1)));
        assert_eq!(sent(&shared, 40, 64_000, 1).await, Err(429), "it is more than her share");
        assert_eq!(sent(&shared, 20, 32_000, 1).await, Ok(640_000), "nothing is left of it");
    }
}
