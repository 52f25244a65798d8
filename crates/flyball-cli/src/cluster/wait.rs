//! Waiting for a state by polling.

use crate::error::Result;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Polling interval of objects in a cluster.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Polls until the attempt returns `Ok`. After the timeout, returns the last `Err`, which contains the reason.
///
/// At least one attempt is made. An error of an attempt ends the wait.
#[doc(alias = "PollUntilContextTimeout")]
pub(crate) async fn poll_until<T, P>(
    timeout: Duration,
    interval: Duration,
    mut attempt: impl AsyncFnMut() -> Result<Result<T, P>>,
) -> Result<Result<T, P>> {
    let begin = Instant::now();
    loop {
        let found = attempt().await?;
        if found.is_ok() || begin.elapsed() >= timeout {
            return Ok(found);
        }
        sleep(interval).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    #[tokio::test]
    async fn wait_ends_on_state_timeout_or_error() {
        let mut attempts = 0;
        let mut count = async |timeout, reached| {
            poll_until(timeout, Duration::ZERO, async || {
                attempts += 1;
                match attempts {
                    13 => Err(Error::new("gone")),
                    attempt if attempt == reached => Ok(Ok("reached")),
                    attempt => Ok(Err(attempt)),
                }
            })
            .await
        };
        assert_eq!(count(Duration::ZERO, 1).await.ok(), Some(Ok("reached")));
        assert_eq!(count(Duration::ZERO, 0).await.ok(), Some(Err(2)), "the only attempt");
        assert_eq!(count(Duration::MAX, 12).await.ok(), Some(Ok("reached")));
        assert_eq!(count(Duration::MAX, 0).await.map_err(|error| error.to_string()), Err("gone".into()));
    }
}
