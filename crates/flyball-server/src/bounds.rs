//! Bounds: how much the server takes on, and how many requests are under way at a time.
//!
//! Requests that find no place wait in line for a while, then are told to come back: what the real server's priority and
//! fairness does with one level for all. Watches take no place, and administrators have places of their own. See
//! <https://kubernetes.io/docs/concepts/cluster-administration/flow-control/>.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How much a server takes on.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// The most requests under way that read: 400.
    pub reads: usize,
    /// The most that write: 200.
    pub writes: usize,
    /// The most of each that wait for a place: 1,000.
    pub waiting: usize,
    /// How long they do so: 15 seconds.
    pub patience: Duration,
    /// The most requests of administrators (group `system:masters`) under way, which are not counted with the others:
    /// 5,000.
    pub exempt: usize,
    /// The most changes of each resource that are remembered for watches: 10,000.
    pub window_events: usize,
    /// The most bytes of past states that are kept alive so, for each resource: 32 MiB.
    pub window_bytes: usize,
    /// How long a client may leave what a watch tells it unread: 30 seconds.
    pub slow_watch: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            reads: 400,
            writes: 200,
            waiting: 1000,
            patience: Duration::from_secs(15),
            exempt: 5000,
            window_events: 10_000,
            window_bytes: 32 << 20,
            slow_watch: Duration::from_secs(30),
        }
    }
}

/// What requests are counted with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    Read,
    Write,
    Exempt,
}

/// The requests under way.
pub(crate) struct InFlight {
    reads: Lane,
    writes: Lane,
    exempt: Lane,
    patience: Duration,
}

/// A place among the requests under way, free again when it is dropped.
pub(crate) struct Slot(#[expect(dead_code, reason = "held")] OwnedSemaphorePermit);

struct Lane {
    places: Arc<Semaphore>,
    limit: usize,
    most_waiting: usize,
    waiting: AtomicUsize,
    refused: [AtomicU64; 2],
}

/// Why a request was sent away, as metrics name it.
pub(crate) const REFUSALS: [&str; 2] = ["queue-full", "time-out"];

impl InFlight {
    pub(crate) fn new(bounds: &Bounds) -> Self {
        let lane = |limit: usize, most_waiting| Lane {
            places: Arc::new(Semaphore::new(limit.min(Semaphore::MAX_PERMITS))),
            limit,
            most_waiting,
            waiting: AtomicUsize::new(0),
            refused: Default::default(),
        };
        Self {
            reads: lane(bounds.reads, bounds.waiting),
            writes: lane(bounds.writes, bounds.waiting),
            exempt: lane(bounds.exempt, 0),
            patience: bounds.patience,
        }
    }

    fn lane(&self, sort: Sort) -> &Lane {
        match sort {
            Sort::Read => &self.reads,
            Sort::Write => &self.writes,
            Sort::Exempt => &self.exempt,
        }
    }

    /// Takes a place, which may have to be waited for; `None` if there is none to be had.
    pub(crate) async fn enter(&self, sort: Sort) -> Option<Slot> {
        let lane = self.lane(sort);
        if let Ok(place) = lane.places.clone().try_acquire_owned() {
            return Some(Slot(place));
        }
        let waits = Waits(&lane.waiting);
        if lane.waiting.fetch_add(1, Ordering::Relaxed) >= lane.most_waiting {
            lane.refused[0].fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let place = tokio::time::timeout(self.patience, lane.places.clone().acquire_owned()).await;
        drop(waits);
        match place {
            Ok(place) => place.ok().map(Slot),
            Err(_) => {
                lane.refused[1].fetch_add(1, Ordering::Relaxed);
                None
            }
        }
    }

    /// Counts the requests of a sort that are under way.
    pub(crate) fn count(&self, sort: Sort) -> usize {
        let lane = self.lane(sort);
        lane.limit.saturating_sub(lane.places.available_permits())
    }

    /// Counts the requests that were sent away, by [`REFUSALS`].
    pub(crate) fn refused(&self) -> [u64; 2] {
        let of = |why: usize| {
            [&self.reads, &self.writes, &self.exempt].map(|lane| lane.refused[why].load(Ordering::Relaxed)).iter().sum()
        };
        [of(0), of(1)]
    }
}

/// Waits until it is dropped.
struct Waits<'l>(&'l AtomicUsize);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_finds_no_place_waits_and_then_goes() {
        let bounds = Bounds { reads: 1, waiting: 1, ..Bounds::default() };
        let places = InFlight::new(&bounds);
        let first = places.enter(Sort::Read).await.unwrap();
        let (second, third) = tokio::join!(places.enter(Sort::Read), places.enter(Sort::Read));
        assert!(second.is_none() && third.is_none());
        assert_eq!(places.refused(), [1, 1], "one waited in vain, the other found the line full");
        assert!(places.enter(Sort::Write).await.is_some() && places.enter(Sort::Exempt).await.is_some());
        let (waited, ()) = tokio::join!(places.enter(Sort::Read), async { drop(first) });
        assert!(waited.is_some());
        assert_eq!(places.count(Sort::Read), 1);
        drop(waited);
        assert_eq!(places.count(Sort::Read), 0);
    }
}
