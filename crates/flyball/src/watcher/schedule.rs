//! The schedule of a watch: waits after failures, and probes of an unreachable server.
//!
//! It maps the result of a request to a wait. It reads no clock and does no I/O: time is an argument, jitter comes
//! from the seed.
//!
//! | Result of the request | Wait |
//! |---|---|
//! | no response: refused, unreachable, silent | a probe each [`PROBE_PERIOD`], by one watch of each client, until one succeeds |
//! | no data on all streams of a client for [`MAX_QUIET`] | a probe; if it fails, further ones as above, and all streams end once one succeeds |
//! | the third 502, 503 or 504 in a row, as sent by a load balancer for an unavailable server | as the next line, but ends early if the server was unavailable and a probe succeeds |
//! | an error: 429, 5xx, 403, an incomplete list or one that did not start | grows to 30 s; longer if the server requests it |
//! | the same after an outage or a broken stream, [`MAX_RECOVERY_ERRORS`] times | grows to [`PROBE_PERIOD`]: a starting server rejects all requests temporarily |
//! | 410 | none if the previous watch was stable; else it grows to 30 s, since lists are expensive for the server |
//! | a stream that ended after a while | up to [`RECONNECT_JITTER`], so that watches that ended together do not reconnect together |
//! | a stream that ended immediately | grows to 5 s: resuming is cheap for the server |
//!
//! Invariant: neither the start of a response nor an event resets the backoff; only a watch of sufficient duration
//! does: [`STABLE_WATCH_DURATION`] if it ends with 410, [`MIN_WATCH_DURATION`] otherwise.

use crate::backoff::Backoff;
use flyball_core::Rng;
use std::time::Duration;
use tokio::time::Instant;

/// The wait after the first error, before jitter; it doubles with each further one.
const FIRST_BACKOFF: Duration = Duration::from_millis(500);
/// Maximum wait after an error, before jitter.
pub(super) const MAX_BACKOFF: Duration = Duration::from_secs(30);
/// Maximum wait after a stream that ended immediately, before jitter.
const MAX_RESUME_BACKOFF: Duration = Duration::from_secs(5);
/// Interval between probes of an unreachable server by one client: 1,000 clients send 250 probes per second. Including
/// jitter and latency, watches are restored within 5 s after the server is available again.
const PROBE_PERIOD: Duration = Duration::from_secs(4);
/// Limit of errors after an outage that are attributed to the server's start. At [`PROBE_PERIOD`] they take about a
/// minute.
const MAX_RECOVERY_ERRORS: u32 = 20;
/// The random part of [`PROBE_PERIOD`], so that clients do not synchronize.
const PROBE_JITTER: f64 = 0.2;
/// Time without data from the server before it is probed. With the timeout of a probe, an outage is detected within
/// half a minute.
const MAX_QUIET: Duration = Duration::from_secs(25);
/// The random part of [`MAX_QUIET`], so that clients that lose a server at the same time do not probe it together.
const QUIET_JITTER: f64 = 0.2;
/// Maximum delay before the other watches of a client follow the one that reached the server.
const FOLLOW_JITTER: Duration = Duration::from_millis(500);
/// Maximum delay before a watch reconnects after its stream ended.
const RECONNECT_JITTER: Duration = Duration::from_secs(1);
/// A watch that ends earlier than this counts as a failure.
const MIN_WATCH_DURATION: Duration = Duration::from_secs(5);
/// A watch of this duration resets all failures, however it ended.
const STABLE_WATCH_DURATION: Duration = Duration::from_secs(30);

/// The waits of one watch before its next request.
#[derive(Debug)]
pub(super) struct Schedule {
    rng: Rng,
    /// Errors in a row.
    errors: u32,
    /// 410 responses in a row.
    expiries: u32,
    /// Remaining errors that are attributed to the server's start.
    recovery: u32,
}

impl Schedule {
    pub(super) fn new(rng: Rng) -> Self {
        Self { rng, errors: 0, expiries: 0, recovery: 0 }
    }

    /// Records the lifetime of a watch.
    pub(super) fn lived(&mut self, time: Duration) {
        if time >= STABLE_WATCH_DURATION {
            self.reset();
        }
    }

    /// Resets all failures.
    pub(super) fn reset(&mut self) {
        (self.errors, self.expiries) = (0, 0);
    }

    /// Returns the wait after an error: at most `max`, unless the server requested more.
    pub(super) fn failed(&mut self, max: Duration, retry_after: Duration) -> Duration {
        self.errors = self.errors.saturating_add(1);
        let max = if self.recovery > 0 { max.min(PROBE_PERIOD) } else { max };
        self.recovery = self.recovery.saturating_sub(1);
        self.backoff(self.errors, max).max(retry_after.min(2 * MAX_BACKOFF))
    }

    /// Returns the wait after 410: none, if it is the first one.
    pub(super) fn expired(&mut self) -> Duration {
        self.expiries = self.expiries.saturating_add(1);
        match self.expiries - 1 {
            0 => Duration::ZERO,
            repeated => self.backoff(repeated.saturating_add(1), MAX_BACKOFF),
        }
    }

    /// Returns the wait after a stream of this duration ended.
    pub(super) fn ended(&mut self, lived: Duration) -> Duration {
        if lived < MIN_WATCH_DURATION {
            return self.failed(MAX_RESUME_BACKOFF, Duration::ZERO);
        }
        self.reset();
        self.interrupted();
        RECONNECT_JITTER.mul_f64(self.rng.fraction())
    }

    /// Returns the number of errors in a row.
    pub(super) fn errors(&self) -> u32 {
        self.errors
    }

    /// Returns the wait of a watch whose server was reached by another one.
    pub(super) fn follow(&self) -> Duration {
        FOLLOW_JITTER.mul_f64(self.rng.fraction())
    }

    /// Returns the time without data before the server is probed.
    pub(super) fn quiet(&self) -> Duration {
        MAX_QUIET.mul_f64(1.0 - QUIET_JITTER * self.rng.fraction())
    }

    /// Records that the server could not be reached.
    pub(super) fn missed(&self, probes: &mut Probes, now: Instant) {
        probes.missed(now, &self.rng);
    }

    /// Records that the server is available again after an outage. Earlier responses no longer count, since it may have
    /// been replaced.
    pub(super) fn returned(&mut self) {
        self.errors = 0;
        self.interrupted();
    }

    /// Records that the server is unreachable, or aborted a working stream: it may be restarting.
    pub(super) fn interrupted(&mut self) {
        self.recovery = MAX_RECOVERY_ERRORS;
    }

    /// Records that the watch is accepted.
    pub(super) fn recovered(&mut self) {
        self.recovery = 0;
    }

    /// Returns the next step of a watch that waits for the server.
    pub(super) fn turn(&self, probes: &mut Probes, now: Instant) -> ProbeStep {
        probes.turn(now, &self.rng)
    }

    fn backoff(&self, failures: u32, max: Duration) -> Duration {
        Backoff { base_delay: FIRST_BACKOFF, max_delay: max }.with_jitter(failures, &self.rng)
    }
}

/// The probes of a server that is unreachable for the watches of one client: only one of them probes at a time.
#[derive(Debug, Default)]
pub(super) struct Probes {
    /// The time of the next probe; `None` while the server is reachable.
    next: Option<Instant>,
    /// True if a probe failed since the server was last reached: it is unavailable, and not only slow in one
    /// response.
    is_confirmed: bool,
    /// Time of the last data from the server.
    last_response: Option<Instant>,
}

/// The next step of a watch that waits for its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProbeStep {
    /// The server was reached; `was_away` is true if a probe has failed.
    Reached { was_away: bool },
    /// This watch has to probe.
    Probe,
    /// Another watch has probed, or is about to.
    Wait(Instant),
}

impl Probes {
    /// Records a request without a response.
    fn missed(&mut self, now: Instant, rng: &Rng) {
        if self.next.is_none() {
            // All clients lose a server at the same time, so the first probes are spread over the whole period.
            self.next = Some(now + PROBE_PERIOD.mul_f64(rng.fraction()));
            self.is_confirmed = false;
        }
    }

    /// Returns the time at which the server will have been quiet for this period, counted from `start` if it sent
    /// nothing.
    pub(super) fn quiet_at(&self, start: Instant, time: Duration) -> Instant {
        self.last_response.unwrap_or(start) + time
    }

    /// Probes a quiet server immediately.
    pub(super) fn suspect(&mut self, now: Instant) {
        if self.next.is_none() {
            self.next = Some(now);
            self.is_confirmed = false;
        }
    }

    /// Records a probe without a response; returns true if the server is unavailable.
    pub(super) fn failed(&mut self) -> bool {
        let was_known = self.is_confirmed;
        self.is_confirmed |= self.next.is_some();
        self.is_unavailable() && !was_known
    }

    /// Returns true if the server is unavailable.
    pub(super) fn is_unavailable(&self) -> bool {
        self.next.is_some() && self.is_confirmed
    }

    /// Returns true if the server has sent nothing since a request without a response.
    pub(super) fn is_missing(&self) -> bool {
        self.next.is_some()
    }

    /// Records data from the server; returns true if it had been unavailable.
    pub(super) fn record_response(&mut self, now: Instant) -> bool {
        self.last_response = Some(now);
        self.next.take().is_some()
    }

    /// Returns the next step of a watch that waits.
    fn turn(&mut self, now: Instant, rng: &Rng) -> ProbeStep {
        match self.next {
            None => ProbeStep::Reached { was_away: self.is_confirmed },
            Some(next) if next <= now => {
                self.next = Some(now + Self::period(rng));
                ProbeStep::Probe
            }
            Some(next) => ProbeStep::Wait(next),
        }
    }

    fn period(rng: &Rng) -> Duration {
        PROBE_PERIOD.mul_f64(1.0 + PROBE_JITTER * (rng.fraction() - 0.5))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn backoff_grows_and_follows_the_seed() {
        let waits = |seed| {
            let mut schedule = Schedule::new(Rng::from_seed(seed));
            (0..10).map(|_| schedule.failed(MAX_BACKOFF, Duration::ZERO)).collect::<Vec<_>>()
        };
        let drawn = waits(1);
        for (n, wait) in drawn.iter().enumerate() {
            let most = Duration::from_millis(500 << n).min(MAX_BACKOFF);
            assert!(*wait >= most / 2 && *wait <= most, "{wait:?} after {n}");
        }
        assert_eq!(drawn, waits(1));
        assert_ne!(drawn, waits(2));
    }

    #[test]
    fn retry_after_is_honored_up_to_a_minute() {
        let mut schedule = Schedule::new(Rng::from_seed(1));
        assert_eq!(schedule.failed(MAX_BACKOFF, 20 * SECOND), 20 * SECOND);
        assert_eq!(schedule.failed(MAX_BACKOFF, 9999 * SECOND), 60 * SECOND);
    }

    #[test]
    fn repeated_expiry_relists_at_most_ten_times_a_minute() {
        for seed in 0..1000 {
            let (mut schedule, mut at, mut lists) = (Schedule::new(Rng::from_seed(seed)), Duration::ZERO, 1);
            loop {
                // The watch delivers an event, which takes no time, and then 410.
                schedule.lived(Duration::from_millis(1));
                at += schedule.expired();
                if at >= 60 * SECOND {
                    break;
                }
                lists += 1;
            }
            assert!(lists <= 10, "{lists} lists in the first minute from seed {seed}");
            schedule.lived(STABLE_WATCH_DURATION);
            assert_eq!(schedule.expired(), Duration::ZERO, "after a stable watch, the list follows immediately");
        }
    }

    #[test]
    fn stable_watch_reconnects_soon_and_short_one_backs_off() {
        let mut schedule = Schedule::new(Rng::from_seed(1));
        assert!((0..100).all(|_| schedule.ended(MIN_WATCH_DURATION) <= RECONNECT_JITTER));
        let waits: Vec<_> = (0..8).map(|_| schedule.ended(SECOND)).collect();
        assert!(waits[7] >= PROBE_PERIOD / 2, "{waits:?}");
        // A watch of sufficient duration resets all failures.
        schedule.ended(MIN_WATCH_DURATION);
        assert!(schedule.ended(SECOND) <= FIRST_BACKOFF);
    }

    /// One watch of one client during an outage; returns the times of its probes since the start of the outage.
    fn probes(seed: u64, away: Duration) -> Vec<Duration> {
        let (rng, began) = (Rng::from_seed(seed), Instant::now());
        let (mut probes, mut now, mut probed) = (Probes::default(), began, Vec::new());
        probes.missed(now, &rng);
        loop {
            match probes.turn(now, &rng) {
                ProbeStep::Wait(next) => now = next,
                ProbeStep::Probe => {
                    probed.push(now - began);
                    if now - began >= away {
                        assert!(probes.record_response(now));
                        return probed;
                    }
                    probes.failed();
                }
                ProbeStep::Reached { .. } => unreachable!("no other watch reaches the server"),
            }
        }
    }

    #[test]
    fn reconnects_of_many_clients_are_spread_and_bounded() {
        for away in [45, 600].map(Duration::from_secs) {
            let all: Vec<Vec<Duration>> = (0..1000).map(|seed| probes(seed, away)).collect();
            let mut arrivals: Vec<Duration> = all.iter().map(|probed| probed[probed.len() - 1] - away).collect();
            arrivals.sort_unstable();
            assert!(arrivals[999] <= PROBE_PERIOD.mul_f64(1.1), "{:?} after the return", arrivals[999]);
            let within =
                |from: Duration| all.iter().flatten().filter(|at| **at >= from && **at < from + PROBE_PERIOD).count();
            for begin in (0..away.as_secs()).step_by(4).map(Duration::from_secs) {
                assert!(within(begin) <= 1050, "{} probes in 4 s from {begin:?} on", within(begin));
            }
            for second in 0..6 {
                let in_second = |at: &&Duration| at.as_secs() == second;
                let arrived = arrivals.iter().filter(in_second).count();
                assert!(arrived <= 310, "{arrived} arrive in second {second}");
            }
        }
    }

    #[test]
    fn one_watch_of_a_client_probes_for_all() {
        let (rng, now) = (Rng::from_seed(1), Instant::now());
        let mut probes = Probes::default();
        assert_eq!(probes.turn(now, &rng), ProbeStep::Reached { was_away: false });
        (0..20).for_each(|_| probes.missed(now, &rng));
        let ProbeStep::Wait(next) = probes.turn(now, &rng) else { panic!("the first probe is spread") };
        let turns: Vec<ProbeStep> = (0..20).map(|_| probes.turn(next, &rng)).collect();
        assert_eq!(turns.iter().filter(|turn| **turn == ProbeStep::Probe).count(), 1);
        // A hanging probe blocks no other watch: the next one probes.
        let ProbeStep::Wait(later) = turns[19] else { panic!("{turns:?}") };
        assert!(later - next <= PROBE_PERIOD.mul_f64(1.1));
        assert_eq!(probes.turn(later, &rng), ProbeStep::Probe);
        assert!(probes.record_response(later) && !probes.record_response(later));
        assert_eq!(
            probes.turn(later, &rng),
            ProbeStep::Reached { was_away: false },
            "the server was slow, no probe failed"
        );
        probes.missed(later, &rng);
        probes.failed();
        assert!(
            probes.is_missing() && probes.is_unavailable() && probes.record_response(later) && !probes.is_unavailable()
        );
        // The late failure of a probe does not count after the server has responded in the meantime.
        probes.failed();
        assert_eq!(probes.turn(later, &rng), ProbeStep::Reached { was_away: true });
        probes.missed(later, &rng);
        assert!(probes.record_response(later));
        assert_eq!(probes.turn(later, &rng), ProbeStep::Reached { was_away: false }, "the next outage is a new one");
    }
}
