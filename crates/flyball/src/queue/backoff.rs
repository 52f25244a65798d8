//! Backoff of a key that failed.

use std::time::Duration;

/// The longest delay, which is as good as never.
pub(super) const MAX_DELAY: Duration = Duration::from_secs(365 * 24 * 3600);

/// The exponential backoff of an object that fails: `base_delay` after one failure, doubled after each further one, at
/// most `max_delay`.
///
/// ```
/// # use flyball::Backoff;
/// # use std::time::Duration;
/// // For an external system that limits the rate of requests.
/// let backoff = Backoff { base_delay: Duration::from_secs(5), ..Backoff::default() };
/// assert_eq!(backoff.max_delay, Duration::from_secs(1000));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// Delay after the first failure.
    pub base_delay: Duration,
    /// Upper bound of the delay.
    pub max_delay: Duration,
}

impl Default for Backoff {
    /// 5 ms, 10 ms, 20 ms … 1,000 s, as client-go's controllers wait.
    fn default() -> Self {
        Self { base_delay: Duration::from_millis(5), max_delay: Duration::from_secs(1000) }
    }
}

impl Backoff {
    pub(super) fn after(&self, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(31);
        self.base_delay.saturating_mul(1 << doublings).min(self.max_delay).min(MAX_DELAY)
    }
}
