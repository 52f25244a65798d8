//! Exponential backoff for all retries.
//!
//! It reads no clock and does not sleep: the caller counts failures, and waits.

use flyball_core::Rng;
use std::time::Duration;

/// Exponential backoff: `base_delay` after the first failure, doubled after each further one, limited to `max_delay`.
///
/// ```
/// # use flyball::Backoff;
/// # use std::time::Duration;
/// // For an external system that limits the rate of requests.
/// let backoff = Backoff { base_delay: Duration::from_secs(5), ..Backoff::default() };
/// assert_eq!(backoff.after(2), Duration::from_secs(10));
/// assert_eq!(backoff.after(100), Duration::from_secs(1000));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "ItemExponentialFailureRateLimiter")]
#[doc(alias = "default_backoff")]
pub struct Backoff {
    /// Delay after the first failure.
    pub base_delay: Duration,
    /// Upper bound of the delay.
    pub max_delay: Duration,
}

impl Default for Backoff {
    /// 5 ms, 10 ms, 20 ms … 1,000 s, as client-go's controllers.
    fn default() -> Self {
        Self { base_delay: Duration::from_millis(5), max_delay: Duration::from_secs(1000) }
    }
}

impl Backoff {
    /// Returns the delay after this many failures in a row.
    pub fn after(&self, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(31);
        self.base_delay.saturating_mul(1 << doublings).min(self.max_delay)
    }

    /// Returns a random delay between half of [`after`](Self::after) and all of it, so that clients that failed
    /// together do not retry together.
    pub fn with_jitter(&self, failures: u32, rng: &Rng) -> Duration {
        self.after(failures).mul_f64(0.5 + rng.fraction() / 2.0)
    }
}
