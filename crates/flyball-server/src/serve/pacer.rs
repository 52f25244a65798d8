//! Fair shares of the runtime's threads among connections.
//!
//! The runtime polls tasks in the order in which they are woken. A client that opens a hundred streams of HTTP/2 at
//! once would have its hundred requests polled before the next request of other clients. Here a connection starts a
//! few requests in each round of the runtime's tasks. It does not depend on requests.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use tokio::sync::Semaphore;
use tokio::task::yield_now;

/// Requests that a connection begins before other tasks have their turn.
const REQUESTS_PER_ROUND: usize = 16;

/// Spreads the requests of one connection over the rounds of the runtime.
pub(super) struct Pacer(Arc<Semaphore>);

impl Pacer {
    pub(super) fn new() -> Self {
        Self(Arc::new(Semaphore::new(REQUESTS_PER_ROUND)))
    }

    /// Creates a future in its turn, if at all, and runs it. Its first poll, which completes most requests, belongs to
    /// the turn.
    pub(super) async fn begin<F: Future + Unpin>(&self, make: impl FnOnce() -> Option<F>) -> Option<F::Output> {
        let turn = self.0.clone().acquire_owned().await;
        let mut future = make()?;
        let polled = poll_fn(|cx| Poll::Ready(Pin::new(&mut future).poll(cx))).await;
        tokio::spawn(async move {
            yield_now().await;
            drop(turn);
        });
        match polled {
            Poll::Ready(output) => Some(output),
            Poll::Pending => Some(future.await),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    #[tokio::test]
    async fn busy_connection_does_not_delay_another() {
        let (pacer, done) = (Arc::new(Pacer::new()), Arc::new(AtomicUsize::new(0)));
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..1000 {
            let (pacer, done) = (pacer.clone(), done.clone());
            tasks.spawn(
                async move { pacer.begin(|| Some(Box::pin(async { done.fetch_add(1, Ordering::Relaxed) }))).await },
            );
        }
        // All of them are queued in the runtime before the other one.
        tokio::task::yield_now().await;
        let other = Pacer::new();
        let before = tokio::spawn({
            let done = done.clone();
            async move { other.begin(|| Some(Box::pin(async { done.load(Ordering::Relaxed) }))).await }
        });
        let before = before.await.unwrap().unwrap();
        assert!(before < 100, "{before} requests of the one were answered first");
        tasks.join_all().await;
        assert_eq!(done.load(Ordering::Relaxed), 1000);
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_requests_hold_no_turn() {
        let pacer = Arc::new(Pacer::new());
        let mut waiting = tokio::task::JoinSet::new();
        for _ in 0..100 {
            let pacer = pacer.clone();
            waiting.spawn(async move { pacer.begin(|| Some(std::future::pending::<()>())).await });
        }
        tokio::time::timeout(Duration::from_secs(1), pacer.begin(|| Some(std::future::ready(()))))
            .await
            .expect("a turn is free");
    }
}
