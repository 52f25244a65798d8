//! The stream of objects as server-sent events.
//!
//! The next event is made when the connection accepts it, from the state of that moment: a slow browser has no queue
//! here. See <https://html.spec.whatwg.org/multipage/server-sent-events.html>.

use crate::shared::Shared;
use bytes::Bytes;
use flyball_core::time::rfc3339_micro;
use http_body::Frame;
use serde_json::json;
use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep_until, timeout_at};

/// Objects of one event.
const BATCH: usize = 1_000;
/// Minimum time between events, so that a burst is a few of them.
const MIN_INTERVAL: Duration = Duration::from_millis(100);
/// Interval of the state of watches and operators, and of signs of life.
const STATUS_INTERVAL: Duration = Duration::from_secs(2);

/// A reader of the stream.
struct Reader {
    shared: Arc<Shared>,
    cursor: Option<u64>,
    more: bool,
    next_status: Instant,
    next_batch: Instant,
    _permit: OwnedSemaphorePermit,
}

/// Returns the body of the stream.
pub(crate) fn body(
    shared: Arc<Shared>,
    permit: OwnedSemaphorePermit,
) -> impl futures_util::Stream<Item = Result<Frame<Bytes>, Infallible>> {
    let now = Instant::now();
    let reader = Reader { shared, cursor: None, more: false, next_status: now, next_batch: now, _permit: permit };
    futures_util::stream::unfold(reader, |mut reader| async {
        let event = reader.next().await;
        Some((Ok(Frame::data(Bytes::from(event))), reader))
    })
}

impl Reader {
    /// Waits for the next event.
    async fn next(&mut self) -> String {
        loop {
            if Instant::now() >= self.next_status {
                self.next_status = Instant::now() + STATUS_INTERVAL;
                return event("status", &self.status());
            }
            if !self.more {
                sleep_until(self.next_batch.min(self.next_status)).await;
            }
            let shared = self.shared.clone();
            let mut changed = pin!(shared.store.changed.notified());
            // Registered before the state is read, so that no change is missed.
            changed.as_mut().enable();
            let batch = self.shared.store.batch(self.cursor, BATCH);
            let is_news = batch.reset || !batch.objects.is_empty() || !batch.removed.is_empty();
            (self.cursor, self.more) = (Some(batch.cursor), batch.more);
            if is_news {
                self.next_batch = Instant::now() + MIN_INTERVAL;
                return event("objects", &json!(batch));
            }
            // At the timeout, the status is due.
            let _ = timeout_at(self.next_status, changed).await;
        }
    }

    fn status(&self) -> serde_json::Value {
        let shared = &self.shared;
        let (objects, omitted) = shared.store.size();
        let operators = shared.operators.all();
        let operators = operators
            .iter()
            .map(|operator| json!({"name": operator.name(), "address": operator.address, "error": operator.error}));
        json!({
            "now": rfc3339_micro(shared.clock.now()), "cluster": shared.cluster, "context": shared.context,
            "write": shared.write, "explores": shared.explorer.is_some(), "namespace": shared.namespace,
            "objects": objects, "omitted": omitted, "watches": shared.store.watches(),
            "disconnected": shared.store.disconnected(),
            "operators": operators.collect::<Vec<_>>(),
        })
    }
}

fn event(name: &str, data: &serde_json::Value) -> String {
    // JSON has no line breaks.
    format!("event: {name}\ndata: {data}\n\n")
}
