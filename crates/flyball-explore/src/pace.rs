//! The pace of runs: the durations of waits and faults, in virtual time or in real time.

use std::time::Duration;

/// Divisor of the durations of faults in real time: operators notice seconds as well as minutes.
const DIVISOR: u32 = 10;
/// Time in which an operator reacts to the end of a fault, in real time.
const REACTION: Duration = Duration::from_millis(300);
/// Number of the further times in which a run may reach the expected state.
const GRACES: usize = 10;
/// Interval of attempts in real time.
const RETRY: Duration = Duration::from_millis(100);

/// The durations of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Interval at which changes are checked.
    pub(crate) poll: Duration,
    /// Time without changes after which a step of the scenario has settled.
    pub(crate) step_idle: Duration,
    /// Maximum time that a step waits for it.
    pub(crate) step_timeout: Duration,
    /// Maximum time that a deletion waits for the end of the object.
    pub(crate) delete_timeout: Duration,
    /// Time without changes after which a world in its expected state is quiet.
    pub(crate) brief: Duration,
    /// Time without changes after which the world is quiet.
    pub(crate) quiet: Duration,
    /// Maximum time until the world is quiet.
    pub(crate) quiet_timeout: Duration,
    /// Further time in which a run may reach the expected state: longer than the longest usual backoff.
    pub(crate) grace: Duration,
    /// Number of these times.
    pub(crate) graces: usize,
    /// Time in which an operator checks its objects again.
    pub(crate) resync: Duration,
    /// Interval and number of attempts of a rejected step that may succeed later.
    pub(crate) retry: (Duration, usize),
    /// Maximum duration of a fault; `None` in virtual time, which costs nothing.
    longest: Option<Duration>,
}

impl Pace {
    /// The pace of simulated runs.
    pub(crate) const VIRTUAL: Self = Self {
        poll: Duration::from_secs(1),
        step_idle: Duration::from_secs(15),
        step_timeout: Duration::from_secs(600),
        delete_timeout: Duration::from_secs(1800),
        brief: Duration::from_secs(25),
        quiet: Duration::from_secs(60),
        quiet_timeout: Duration::from_secs(3600),
        grace: Duration::from_secs(300),
        graces: 4,
        resync: Duration::from_secs(1200),
        retry: (Duration::from_secs(2), 60),
        longest: None,
    };

    /// Creates the pace of an operator in another process, which reacts within `quiet` and recovers within `timeout`.
    /// It starts in `startup`.
    pub(crate) fn real(quiet: Duration, timeout: Duration, startup: Duration) -> Self {
        Self {
            poll: Duration::from_millis(20),
            step_idle: quiet / 2,
            step_timeout: timeout,
            delete_timeout: timeout,
            brief: quiet,
            quiet,
            quiet_timeout: timeout,
            grace: timeout / u32::try_from(GRACES).unwrap_or(1),
            graces: GRACES,
            resync: Duration::ZERO,
            retry: (RETRY, usize::try_from(timeout.as_millis() / RETRY.as_millis()).unwrap_or(usize::MAX).max(1)),
            // A replica of the API server has to stay frozen until the operator has started.
            longest: Some(quiet + startup + REACTION),
        }
    }

    /// Returns the duration of a fault that lasts for this time in virtual time.
    pub(crate) fn of(&self, time: Duration) -> Duration {
        self.longest.map_or(time, |longest| (time / DIVISOR).min(longest))
    }

    /// Returns true if time passes only while nothing runs.
    pub(crate) fn is_virtual(&self) -> bool {
        self.longest.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_short_in_real_time() {
        let (second, week) = (Duration::from_secs(1), Duration::from_secs(604_800));
        assert_eq!(Pace::VIRTUAL.of(week), week);
        let pace = Pace::real(second, Duration::from_secs(30), Duration::from_millis(200));
        assert_eq!((pace.of(second), pace.of(week)), (second / 10, Duration::from_millis(1500)));
        assert_eq!((pace.grace * 10, pace.retry.1), (Duration::from_secs(30), 300));
    }
}
