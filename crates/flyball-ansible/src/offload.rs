//! Polls futures on blocking threads.
//!
//! A run evaluates templates between its requests, as long as its budget permits, and the operator has a single
//! thread for everything else: other reconciles, watches, and the lease. So each poll of a run is a blocking task,
//! and the runtime's thread only waits for it.

use futures_util::future::BoxFuture;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::available_parallelism;
use std::time::Duration;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tracing::Span;

/// The computation time after which a run counts as slow, and its priority is lowered.
const QUICK_TIME: Duration = Duration::from_millis(4);

/// The slots for polls of an operator: as many as cores, assigned in order. Slow runs share half of them, so that
/// quick runs do not wait for slow ones.
#[derive(Clone, Debug)]
pub(crate) struct Slots {
    all: Arc<Semaphore>,
    slow: Arc<Semaphore>,
}

impl Slots {
    pub(crate) fn new() -> Self {
        Self::of(available_parallelism().map_or(1, usize::from))
    }

    fn of(cores: usize) -> Self {
        Self { all: Arc::new(Semaphore::new(cores)), slow: Arc::new(Semaphore::new((cores / 2).max(1))) }
    }

    /// Awaits a future that may compute for a long time. If this is dropped, the future is dropped when its current
    /// poll ends.
    pub(crate) async fn run<T: Send + 'static>(&self, mut future: BoxFuture<'static, T>) -> T {
        let wakes = Arc::new(WakeCounter::default());
        let mut computed = Duration::ZERO;
        loop {
            let slow = if computed > QUICK_TIME { Some(acquire(&self.slow).await) } else { None };
            let slots = (acquire(&self.all).await, slow);
            let (waker, span) = (Waker::from(wakes.clone()), Span::current());
            let (poll, rest, took) = flyball::offload(QUICK_TIME.saturating_sub(computed), move || {
                let start = Instant::now();
                let poll = span.in_scope(|| future.as_mut().poll(&mut Context::from_waker(&waker)));
                drop(slots);
                (poll, future, start.elapsed())
            })
            .await;
            if let Poll::Ready(value) = poll {
                return value;
            }
            future = rest;
            computed += took;
            wakes.0.notified().await;
        }
    }
}

async fn acquire(slots: &Arc<Semaphore>) -> OwnedSemaphorePermit {
    slots.clone().acquire_owned().await.expect("the semaphore is never closed")
}

/// Wakeups of a future; those during a poll count for the next one.
#[derive(Default)]
struct WakeCounter(Notify);

impl Wake for WakeCounter {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use futures_util::future::{join_all, pending};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;
    use std::thread;

    #[tokio::test]
    async fn computation_does_not_block_the_only_thread() {
        let (done, waits) = mpsc::channel();
        tokio::spawn(async move { done.send(()) });
        let computes = async move { waits.recv_timeout(Duration::from_secs(60)).is_ok() };
        assert!(Slots::new().run(computes.boxed()).await);
    }

    #[tokio::test(start_paused = true)]
    async fn future_is_polled_for_each_wake() {
        let slots = Slots::new();
        let (send, mut receive) = tokio::sync::mpsc::channel(1);
        let sender = tokio::spawn(async move {
            for number in 0..100 {
                send.send(number).await.expect("the receiver is alive");
            }
        });
        let sum = async move {
            let mut sum = 0;
            while let Some(number) = receive.recv().await {
                tokio::task::yield_now().await;
                tokio::time::sleep(Duration::from_secs(1)).await;
                sum += number;
            }
            sum
        };
        assert_eq!(slots.run(sum.boxed()).await, 4950);
        sender.await.expect("it ends");
    }

    #[tokio::test]
    #[expect(clippy::disallowed_methods, reason = "the test measures computation")]
    async fn slow_runs_use_at_most_half_of_the_slots() {
        const CORES: usize = 4;
        let slots = Slots::of(CORES);
        let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let slow = || {
            let (running, most) = (running.clone(), most.clone());
            async move {
                thread::sleep(2 * QUICK_TIME);
                for _ in 0..5 {
                    tokio::task::yield_now().await;
                    most.fetch_max(running.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                    thread::sleep(QUICK_TIME / 4);
                    running.fetch_sub(1, Ordering::Relaxed);
                }
            }
        };
        join_all((0..2 * CORES).map(|_| slots.run(slow().boxed()))).await;
        assert!((1..=CORES / 2).contains(&most.load(Ordering::Relaxed)));
    }

    #[tokio::test]
    async fn slot_is_released_between_polls_and_on_panic() {
        let slots = Slots::of(1);
        let waiting = tokio::spawn({
            let slots = slots.clone();
            async move { slots.run(pending::<()>().boxed()).await }
        });
        tokio::task::yield_now().await;
        let panicking = slots.clone();
        let panicked = tokio::spawn(async move { panicking.run(async { panic!("so") }.boxed()).await }).await;
        assert!(panicked.is_err_and(|error| error.is_panic()));
        assert_eq!(slots.run(async { 3 }.boxed()).await, 3);
        waiting.abort();
    }
}
