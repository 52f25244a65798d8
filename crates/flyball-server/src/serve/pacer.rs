//! Fair shares of the runtime's threads among connections.
//!
//! The runtime polls tasks in the order in which they are woken. A client that opens a hundred streams of HTTP/2 at
//! once would have its hundred requests polled before the next request of other clients. Here a connection starts a
//! few requests in each round of the runtime's tasks. It does not depend on requests.

use parking_lot::Mutex;
use tokio::task::yield_now;

/// Maximum number of requests that a connection starts before other tasks run.
const REQUESTS_PER_ROUND: usize = 16;

/// Spreads the requests of one connection over the rounds of the runtime.
#[derive(Default)]
pub(super) struct Pacer(Mutex<Round>);

#[derive(Default)]
struct Round {
    number: u64,
    started: usize,
}

impl Pacer {
    /// Waits until the connection may start a request. Requests in excess of a round are queued behind the other tasks
    /// that are ready.
    pub(super) async fn turn(&self) {
        loop {
            let full = {
                let mut round = self.0.lock();
                if round.started < REQUESTS_PER_ROUND {
                    round.started += 1;
                    return;
                }
                round.number
            };
            yield_now().await;
            let mut round = self.0.lock();
            if round.number == full {
                *round = Round { number: full + 1, started: 0 };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    #[tokio::test]
    async fn busy_connection_does_not_delay_another() {
        let (pacer, done) = (Arc::new(Pacer::default()), Arc::new(AtomicUsize::new(0)));
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..1000 {
            let (pacer, done) = (pacer.clone(), done.clone());
            tasks.spawn(async move {
                pacer.turn().await;
                done.fetch_add(1, Ordering::Relaxed)
            });
        }
        // All of them are queued in the runtime before the other one.
        yield_now().await;
        let other = Pacer::default();
        let before = tokio::spawn({
            let done = done.clone();
            async move {
                other.turn().await;
                done.load(Ordering::Relaxed)
            }
        });
        let before = before.await.unwrap();
        assert!(before < 100, "{before} requests of the first connection ran first");
        tasks.join_all().await;
        assert_eq!(done.load(Ordering::Relaxed), 1000);
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_requests_hold_no_turn() {
        let pacer = Arc::new(Pacer::default());
        let mut waiting = tokio::task::JoinSet::new();
        for _ in 0..100 {
            let pacer = pacer.clone();
            waiting.spawn(async move {
                pacer.turn().await;
                std::future::pending::<()>().await;
            });
        }
        yield_now().await;
        tokio::time::timeout(Duration::from_secs(1), pacer.turn()).await.expect("a turn is free");
    }
}
