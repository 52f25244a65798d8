//! The queue of controllers, exposed for benchmarks.

use super::{Cause, NextStep, Priority, Queue, RetryRate, Workers};
use crate::backoff::Backoff;
use flyball_core::{ObjectKey, Rng};
use std::time::Duration;

/// A queue by itself, without a controller.
#[derive(Debug)]
pub struct MeasuredQueue(Queue);

impl MeasuredQueue {
    /// Creates an empty queue with the settings that controllers have.
    pub fn new() -> Self {
        let (rate, rng) = (RetryRate::default(), Rng::from_seed(1));
        let workers = Workers { count: usize::MAX, are_shared: false };
        Self(Queue::new(Backoff::default(), rate, Duration::from_secs(10), workers, &rng))
    }

    /// Adds a key, as the change of an object does.
    pub fn add(&self, key: &ObjectKey) {
        self.0.add(key, Priority::Fresh, Cause::Start);
    }

    /// Processes keys like a worker, until `go_on` returns false or the queue is closed.
    pub async fn work(&self, go_on: impl Fn(&ObjectKey) -> bool) {
        let mut work = self.0.next().await;
        while let Some(taken) = work {
            let ready = self.0.done(&taken.item, NextStep::Rest, Vec::new(), |_, _, _| false);
            if !go_on(&taken.item.key) {
                break;
            }
            tokio::task::coop::consume_budget().await;
            work = match ready {
                Some(ready) => Some(ready),
                None => self.0.next().await,
            };
        }
    }

    /// Closes the queue.
    pub fn close(&self) {
        self.0.close();
    }
}

impl Default for MeasuredQueue {
    fn default() -> Self {
        Self::new()
    }
}
