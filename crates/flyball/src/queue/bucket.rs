//! Rate limit of the retries of one controller.

use std::time::Duration;
use tokio::time::Instant;

/// The maximum delay, practically infinite.
pub(super) const MAX_DELAY: Duration = Duration::from_secs(365 * 24 * 3600);

/// The rate limit of all retries of one controller, after failures and [`Action::requeue`](crate::Action::requeue):
/// `burst` retries at once, then one per `interval`.
///
/// Each object has its own [`Backoff`](crate::Backoff), but a thousand objects that fail together would still be
/// retried together, and overload an API server or external system that is starting. Reconciles after a change, and
/// those [requeued after](crate::Action::requeue_after) a time, are not limited.
///
/// ```
/// # use flyball::{Action, Context, Controller, Reconcile, Result, RetryRate};
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # use std::time::Duration;
/// # struct Sites;
/// # impl Reconcile for Sites {
/// #     type Resource = ConfigMap;
/// #     async fn reconcile(&self, _: &ConfigMap, _: &Context<ConfigMap>) -> Result<Action> { Ok(Action::done()) }
/// # }
/// // For a provider that allows sixty calls in a minute.
/// let rate = RetryRate { interval: Duration::from_secs(1), burst: 10 };
/// let controller = Controller::new(Sites).retry_rate(rate);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "BucketRateLimiter")]
#[doc(alias = "workqueue")]
pub struct RetryRate {
    /// The interval between two retries; zero means no limit.
    pub interval: Duration,
    /// Retries that may begin at once, at least 1.
    pub burst: u32,
}

impl Default for RetryRate {
    /// 100 at once, then 10 in a second, as client-go's controllers do.
    fn default() -> Self {
        Self { interval: Duration::from_millis(100), burst: 100 }
    }
}

/// The token bucket.
#[derive(Debug)]
pub(super) struct Bucket {
    every: Duration,
    /// Maximum of `full_at` in the future while there is a token.
    slack: Duration,
    /// Time at which the bucket will be full without further acquisitions; `None` before the first one.
    full_at: Option<Instant>,
}

impl Bucket {
    pub(super) fn new(rate: RetryRate) -> Self {
        let every = rate.interval.min(MAX_DELAY);
        Self { every, slack: every.saturating_mul(rate.burst.max(1) - 1), full_at: None }
    }

    /// Takes a token, and returns false if there is none.
    pub(super) fn try_acquire(&mut self, now: Instant) -> bool {
        let full_at = self.full_at.map_or(now, |full_at| full_at.max(now));
        let free = full_at - now <= self.slack;
        if free {
            self.full_at = full_at.checked_add(self.every).or(self.full_at);
        }
        free
    }

    /// Returns when there will be a token.
    pub(super) fn next(&self, now: Instant) -> Instant {
        self.full_at.and_then(|full_at| full_at.checked_sub(self.slack)).map_or(now, |at| at.max(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bucket_matches_the_rate_exactly(
            every in 1..50u64,
            burst in 0..5u32,
            steps in prop::collection::vec(0..60u64, 1..100),
        ) {
            let mut bucket = Bucket::new(RetryRate { interval: Duration::from_millis(every), burst });
            let (mut now, burst) = (Instant::now(), u64::from(burst.max(1)));
            // The model: tokens in parts, where one part is the token's share of one millisecond.
            let mut parts = burst * every;
            for step in steps {
                now += Duration::from_millis(step);
                parts = (parts + step).min(burst * every);
                let has_one = parts >= every;
                if !has_one {
                    prop_assert_eq!(bucket.next(now) - now, Duration::from_millis(every - parts));
                }
                prop_assert_eq!(bucket.try_acquire(now), has_one);
                parts -= if has_one { every } else { 0 };
            }
        }
    }

    #[test]
    fn extreme_rates_do_not_overflow() {
        let now = Instant::now();
        let mut unlimited = Bucket::new(RetryRate { interval: Duration::ZERO, burst: 0 });
        assert!((0..1000).all(|_| unlimited.try_acquire(now)));
        let mut saturated = Bucket::new(RetryRate { interval: Duration::MAX, burst: u32::MAX });
        assert!((0..1000).all(|_| saturated.try_acquire(now)));
        let mut once = Bucket::new(RetryRate { interval: Duration::MAX, burst: 1 });
        assert_eq!((once.try_acquire(now), once.try_acquire(now)), (true, false));
    }
}
