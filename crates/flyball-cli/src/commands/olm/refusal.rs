//! Failures that are final for a user: the lifecycle manager tries again without end, but with the same result.

use std::time::Duration;
use tokio::time::Instant;

/// Time after which a failure with the same reason is final: the manager tries plans again after 1, 2 and 4 seconds.
const REFUSAL_TIME: Duration = Duration::from_secs(4);

/// A reason for a failure, and the time since which it has been the same.
#[derive(Debug, Default)]
pub(super) struct Refusal(Option<(String, Instant)>);

impl Refusal {
    /// Returns true if the reason has not changed for a time in which the manager has tried several times.
    pub(super) fn persists(&mut self, reason: &str, now: Instant) -> bool {
        match &self.0 {
            Some((known, since)) if known == reason => now.duration_since(*since) >= REFUSAL_TIME,
            _ => {
                self.0 = Some((reason.to_owned(), now));
                false
            }
        }
    }

    /// Records that there is no failure.
    pub(super) fn ends(&mut self) -> bool {
        self.0 = None;
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_a_failure_that_stays_is_final() {
        let (start, mut refusal) = (Instant::now(), Refusal::default());
        assert!(!refusal.persists("conflict", start));
        assert!(!refusal.persists("conflict", start + REFUSAL_TIME / 2));
        assert!(!refusal.persists("denied", start + REFUSAL_TIME), "another reason begins again");
        assert!(refusal.persists("denied", start + REFUSAL_TIME * 2));
        assert!(!refusal.ends() && !refusal.persists("denied", start + REFUSAL_TIME * 3));
    }
}
