//! Bounds: how much the server takes on, and how users share it.
//!
//! Requests that find no slot wait in line for a while, then are told to come back: what the real server's priority and
//! fairness does with one level for all and a flow for each user. Watches take no slot, and administrators have slots
//! of their own. See <https://kubernetes.io/docs/concepts/cluster-administration/flow-control/>.

mod pool;

pub(crate) use pool::{Flow, Hold, Pool, REFUSALS};

use std::time::Duration;

/// How much a server takes on. Users share each of these: one alone may have half of it, and leaves half of what
/// remains to the next.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// The most requests under way that read: 400.
    pub reads: usize,
    /// The most that write: 200.
    pub writes: usize,
    /// The most of each that wait for a slot: 1,000.
    pub waiting: usize,
    /// How long they do so: 15 seconds.
    pub patience: Duration,
    /// The most requests of administrators (group `system:masters`) under way, which are not counted with the others:
    /// 5,000.
    pub exempt: usize,
    /// The most connections: 2,000. The idlest is closed if there is one more.
    pub connections: usize,
    /// The most watches over connections: 20,000.
    pub watches: usize,
    /// The most bytes of bodies that are being received over connections: 64 MiB.
    pub received_bytes: usize,
    /// The most bytes of answers that wait until their clients read them: 64 MiB.
    pub unsent_bytes: usize,
    /// The most changes of each resource that are remembered for watches: 10,000.
    pub window_events: usize,
    /// The most bytes of past states that are kept alive so, for each resource: 32 MiB.
    pub window_bytes: usize,
    /// How long a client may leave what it is sent unread: 30 seconds.
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
            connections: 2000,
            watches: 20_000,
            received_bytes: 64 << 20,
            unsent_bytes: 64 << 20,
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

/// What all users share.
pub(crate) struct Shared {
    reads: Pool,
    writes: Pool,
    exempt: Pool,
    /// Threads for such requests of administrators, who share as many among themselves.
    exempt_threads: Pool,
    patience: Duration,
    /// Threads for requests that compute for long.
    threads: Pool,
    pub(crate) watches: Pool,
    /// Bytes of bodies.
    pub(crate) received: Pool,
    /// Bytes of answers.
    pub(crate) unsent: Pool,
}

impl Shared {
    pub(crate) fn new(bounds: &Bounds) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            reads: Pool::new(bounds.reads, bounds.waiting),
            writes: Pool::new(bounds.writes, bounds.waiting),
            exempt: Pool::new(bounds.exempt, 0),
            exempt_threads: Pool::new(cores.max(2), usize::MAX),
            patience: bounds.patience,
            threads: Pool::new(cores.max(2), usize::MAX),
            watches: Pool::new(bounds.watches, 0),
            received: Pool::new(bounds.received_bytes, bounds.waiting),
            unsent: Pool::new(bounds.unsent_bytes, bounds.waiting),
        }
    }

    /// Returns the threads for requests that compute for long, of administrators or of others.
    pub(crate) fn threads(&self, is_exempt: bool) -> &Pool {
        if is_exempt { &self.exempt_threads } else { &self.threads }
    }

    fn slots(&self, sort: Sort) -> &Pool {
        match sort {
            Sort::Read => &self.reads,
            Sort::Write => &self.writes,
            Sort::Exempt => &self.exempt,
        }
    }

    /// Takes a slot, which may have to be waited for; `None` if there is none to be had.
    pub(crate) async fn slot(&self, sort: Sort, flow: &Flow) -> Option<Hold> {
        self.slots(sort).take(flow, 1, self.patience).await
    }

    /// Takes the right to receive so many bytes; `None` if there is none to be had.
    pub(crate) async fn receive(&self, flow: &Flow, bytes: usize) -> Option<Hold> {
        self.received.take(flow, bytes, self.patience).await
    }

    /// Waits until a flow has read enough of what it was sent for an answer of so many bytes; `None` if it does not.
    pub(crate) async fn room(&self, flow: &Flow, bytes: usize) -> Option<Hold> {
        let wait = self.unsent.clone().wait(flow.clone(), bytes);
        tokio::time::timeout(self.patience, wait).await.ok().flatten()
    }

    /// Counts the requests of a sort that are under way.
    pub(crate) fn count(&self, sort: Sort) -> usize {
        self.slots(sort).used()
    }

    /// Counts the requests that were refused, by [`REFUSALS`].
    pub(crate) fn refused(&self) -> [u64; 2] {
        let pools = [&self.reads, &self.writes, &self.exempt, &self.watches, &self.received, &self.unsent];
        let all = pools.map(Pool::refused);
        [0, 1].map(|why| all.iter().map(|refused| refused[why]).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn administrators_do_not_wait_for_the_threads_of_others() {
        let shared = Shared::new(&Bounds::default());
        let flow = |user: &str| Flow { user: user.into(), over_connection: true };
        let take = |n: usize| shared.threads(false).try_take(&flow(&format!("user-{n}")), 1);
        let busy: Vec<Hold> = (0..10_000).map_while(take).collect();
        assert!(!busy.is_empty() && take(10_000).is_none());
        assert!(shared.threads(true).try_take(&flow("admin"), 1).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn who_finds_no_slot_waits_and_then_goes() {
        let bounds = Bounds { reads: 1, waiting: 1, ..Bounds::default() };
        let (shared, flow) = (Shared::new(&bounds), Flow { user: "ann".into(), over_connection: false });
        let first = shared.slot(Sort::Read, &flow).await.unwrap();
        let (second, third) = tokio::join!(shared.slot(Sort::Read, &flow), shared.slot(Sort::Read, &flow));
        assert!(second.is_none() && third.is_none());
        assert_eq!(shared.refused(), [1, 1], "one waited in vain, the other found the line full");
        let (write, exempt) = (shared.slot(Sort::Write, &flow).await, shared.slot(Sort::Exempt, &flow).await);
        assert!(write.is_some() && exempt.is_some());
        let (waited, ()) = tokio::join!(shared.slot(Sort::Read, &flow), async { drop(first) });
        assert!(waited.is_some());
        assert_eq!(shared.count(Sort::Read), 1);
        drop(waited);
        assert_eq!(shared.count(Sort::Read), 0);
    }
}
