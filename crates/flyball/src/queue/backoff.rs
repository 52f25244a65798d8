//! Backoff of a key that failed.

use std::time::Duration;

/// The longest delay, which is as good as never.
pub(super) const MAX_DELAY: Duration = Duration::from_secs(365 * 24 * 3600);

/// The exponential backoff of an object that fails: `first` after one failure, doubled after each further one, at most
/// `longest`.
///
/// ```
/// # use flyball::Backoff;
/// # use std::time::Duration;
/// // For a world outside that does not like to be asked again at once.
/// let patient = Backoff { first: Duration::from_secs(5), ..Backoff::default() };
/// assert_eq!(patient.longest, Duration::from_secs(1000));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The wait after the first failure.
    pub first: Duration,
    /// The longest wait.
    pub longest: Duration,
}

impl Default for Backoff {
    /// 5 ms, 10 ms, 20 ms … 1,000 s, as client-go's controllers wait.
    fn default() -> Self {
        Self { first: Duration::from_millis(5), longest: Duration::from_secs(1000) }
    }
}

impl Backoff {
    pub(super) fn after(&self, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(31);
        self.first.saturating_mul(1 << doublings).min(self.longest).min(MAX_DELAY)
    }
}
