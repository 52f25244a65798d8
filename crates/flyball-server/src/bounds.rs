//! Bounds: limits of requests, bytes and watches, shared fairly among users.
//!
//! Requests without a slot wait in a queue, then are rejected with 429, as kube-apiserver's priority and fairness does
//! with one priority level and a flow for each user. Watches take no slot, and administrators have their own slots. See
//! <https://kubernetes.io/docs/concepts/cluster-administration/flow-control/>.

mod offload;
mod pool;

pub(crate) use offload::{Offload, SpawnedStep};
pub(crate) use pool::{Flow, Hold, Pool, REJECTION_REASONS};

use std::time::Duration;

/// Resource limits of a server, which users share fairly: a single user may use half of each, and each further user
/// half of the rest.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// Maximum number of concurrent reads: 400.
    pub reads: usize,
    /// Maximum number of concurrent writes: 200.
    pub writes: usize,
    /// Maximum number of reads, and of writes, that wait for a slot: 1,000.
    pub waiting: usize,
    /// Timeout of that wait: 15 seconds.
    pub max_wait: Duration,
    /// Maximum number of concurrent requests of administrators (group `system:masters`), which have their own slots:
    /// 5,000.
    pub exempt: usize,
    /// Maximum number of connections: 2,000. Beyond it, the connection that has been idle longest is closed.
    pub connections: usize,
    /// Maximum number of watches over connections: 20,000.
    pub watches: usize,
    /// Maximum number of bytes of bodies that are being received over connections: 32 MiB, and as many of
    /// administrators.
    pub received_bytes: usize,
    /// Maximum number of bytes of the heads of unanswered requests over connections: 32 MiB. Each connection has 32 KiB
    /// beside it.
    pub head_bytes: usize,
    /// Maximum number of bytes of unsent responses: 32 MiB; the same amount for administrators.
    pub unsent_bytes: usize,
    /// Maximum number of bytes of memory of objects while requests with long bodies decode and change them: 64 MiB, and
    /// as many of administrators.
    pub read_bytes: usize,
    /// Maximum number of bytes of memory of responses of webhooks, of the objects that they converted, and of responses
    /// of aggregated API servers, which count for the user whose request calls them: 64 MiB each, and as many of
    /// administrators.
    pub webhook_response_bytes: usize,
    /// Maximum number of changes of each resource that are remembered for watches: 10,000.
    pub window_events: usize,
    /// Maximum number of bytes of past states that these changes hold, for each resource: 16 MiB.
    pub window_bytes: usize,
    /// Maximum number of bytes of past states of all resources: 64 MiB. Beyond it, the resource with the most forgets
    /// changes first.
    pub all_windows_bytes: usize,
    /// Maximum number of bytes of entries that only unfinished lists reference: 256 MiB. Beyond it, the lists that
    /// began first are closed, of the user with the most bytes.
    pub past_bytes: usize,
    /// Maximum number of bytes of all objects, as etcd's `--quota-backend-bytes`: 2 GiB. The objects of a namespace
    /// take at most half of what others leave.
    pub stored_bytes: usize,
    /// Timeout of clients that do not read sent bytes: 30 seconds. Beyond it, at least 16 KiB per second of a response
    /// are read, unless it is a watch.
    pub slow_client_timeout: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            reads: 400,
            writes: 200,
            waiting: 1000,
            max_wait: Duration::from_secs(15),
            exempt: 5000,
            connections: 2000,
            watches: 20_000,
            received_bytes: 32 << 20,
            head_bytes: 32 << 20,
            unsent_bytes: 32 << 20,
            read_bytes: 64 << 20,
            webhook_response_bytes: 64 << 20,
            window_events: 10_000,
            window_bytes: 16 << 20,
            all_windows_bytes: 64 << 20,
            past_bytes: 256 << 20,
            stored_bytes: 2 << 30,
            slow_client_timeout: Duration::from_secs(30),
        }
    }
}

/// The class of a request, which selects its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestClass {
    Read,
    Write,
    Exempt,
}

/// Memory of the objects of a request up to which it does not wait for memory, in bytes.
const SMALL_REQUEST_BYTES: usize = 256 << 10;

/// Approximate overhead of an unfinished response in bytes: the stream, the request's head, the task.
pub(crate) const UNFINISHED: usize = 8 << 10;

/// A shared pool of users, and one of the same size for administrators, so that other users do not block them.
pub(crate) struct Levels {
    exempt: Pool,
    others: Pool,
}

impl Levels {
    pub(crate) fn new(limit: usize, max_waiting: usize) -> Self {
        Self { exempt: Pool::new(limit, max_waiting), others: Pool::new(limit, max_waiting) }
    }

    /// Returns the pool of a flow.
    pub(crate) fn of(&self, flow: &Flow) -> &Pool {
        if flow.is_exempt { &self.exempt } else { &self.others }
    }

    /// Returns the amount that is held.
    pub(crate) fn used(&self) -> usize {
        self.exempt.used() + self.others.used()
    }
}

/// The bounds that all users share.
pub(crate) struct SharedBounds {
    reads: Pool,
    writes: Pool,
    exempt: Pool,
    max_wait: Duration,
    /// Threads for requests that compute for long.
    pub(crate) threads: Levels,
    pub(crate) watches: Pool,
    /// Bytes of bodies.
    received: Levels,
    /// Bytes of responses.
    pub(crate) unsent: Levels,
    /// Memory of decoded bodies, in bytes.
    read: Levels,
}

impl SharedBounds {
    pub(crate) fn new(bounds: &Bounds) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            reads: Pool::new(bounds.reads, bounds.waiting),
            writes: Pool::new(bounds.writes, bounds.waiting),
            exempt: Pool::new(bounds.exempt, 0),
            max_wait: bounds.max_wait,
            threads: Levels { exempt: Pool::undivided(cores.max(2)), others: Pool::undivided(cores.max(2)) },
            watches: Pool::new(bounds.watches, 0),
            received: Levels::new(bounds.received_bytes, bounds.waiting),
            unsent: Levels::new(bounds.unsent_bytes, bounds.waiting),
            read: Levels::new(bounds.read_bytes, bounds.waiting),
        }
    }

    fn slots(&self, class: RequestClass) -> &Pool {
        match class {
            RequestClass::Read => &self.reads,
            RequestClass::Write => &self.writes,
            RequestClass::Exempt => &self.exempt,
        }
    }

    /// Acquires a slot; `None` if none becomes available in time.
    pub(crate) async fn slot(&self, class: RequestClass, flow: &Flow) -> Option<Hold> {
        self.slots(class).acquire(flow, 1, self.max_wait).await
    }

    /// Acquires the right to receive this many bytes; `None` if it does not become available in time.
    pub(crate) async fn receive(&self, flow: &Flow, bytes: usize) -> Option<Hold> {
        self.received.of(flow).acquire(flow, bytes, self.max_wait).await
    }

    /// Waits until a flow has read enough sent bytes for a response of this size; `None` on timeout.
    pub(crate) async fn room(&self, flow: &Flow, bytes: usize) -> Option<Hold> {
        self.room_in(self.unsent.of(flow), flow, bytes).await
    }

    /// Waits until there is memory for a flow's request; `None` on timeout. Requests for small objects do not wait: the
    /// number of requests limits their memory.
    pub(crate) async fn memory(&self, flow: &Flow, bytes: usize) -> Option<Hold> {
        let pool = self.read.of(flow);
        if bytes <= SMALL_REQUEST_BYTES {
            return Some(pool.charge(flow, bytes));
        }
        self.room_in(pool, flow, bytes).await
    }

    async fn room_in(&self, pool: &Pool, flow: &Flow, bytes: usize) -> Option<Hold> {
        // An amount beyond the share of a user waits until most is free, and then exceeds the share.
        let wait = pool.clone().wait(flow.clone(), bytes.min(pool.limit() / 4));
        let mut room = tokio::time::timeout(self.max_wait, wait).await.ok().flatten()?;
        room.resize(bytes);
        Some(room)
    }

    /// Returns the memory of decoded bodies and the objects that they change.
    pub(crate) fn decoded_bytes(&self) -> usize {
        self.read.used()
    }

    /// Returns the number of requests of a class in flight.
    pub(crate) fn count(&self, class: RequestClass) -> usize {
        self.slots(class).used()
    }

    /// Returns the numbers of rejected requests, by [`REJECTION_REASONS`].
    pub(crate) fn rejected(&self) -> [u64; 2] {
        let Self { received, unsent, read, .. } = self;
        let levels = [received, unsent, read].into_iter().flat_map(|levels| [&levels.exempt, &levels.others]);
        let pools = [&self.reads, &self.writes, &self.exempt, &self.watches].into_iter().chain(levels);
        let all: Vec<[u64; 2]> = pools.map(Pool::rejected).collect();
        [0, 1].map(|why| all.iter().map(|rejected| rejected[why]).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn administrators_have_threads_of_their_own() {
        let shared = SharedBounds::new(&Bounds::default());
        let take = |flow: &Flow| shared.threads.of(flow).try_take(flow, 1);
        let user = |n: usize| Flow::of(&format!("user-{n}"), false, true);
        let busy: Vec<Hold> = (0..10_000).map_while(|n| take(&user(n))).collect();
        assert!(!busy.is_empty() && take(&user(10_000)).is_none());
        assert!(take(&Flow::of("admin", true, true)).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn requests_without_slot_wait_up_to_a_timeout() {
        let bounds = Bounds { reads: 1, waiting: 1, ..Bounds::default() };
        let (shared, flow) = (SharedBounds::new(&bounds), Flow::of("ann", false, false));
        let first = shared.slot(RequestClass::Read, &flow).await.unwrap();
        let (second, third) =
            tokio::join!(shared.slot(RequestClass::Read, &flow), shared.slot(RequestClass::Read, &flow));
        assert!(second.is_none() && third.is_none());
        assert_eq!(shared.rejected(), [1, 1], "one waited in vain, the other found the line full");
        let (write, exempt) =
            (shared.slot(RequestClass::Write, &flow).await, shared.slot(RequestClass::Exempt, &flow).await);
        assert!(write.is_some() && exempt.is_some());
        let (waited, ()) = tokio::join!(shared.slot(RequestClass::Read, &flow), async { drop(first) });
        assert!(waited.is_some());
        assert_eq!(shared.count(RequestClass::Read), 1);
        drop(waited);
        assert_eq!(shared.count(RequestClass::Read), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn small_objects_do_not_wait_for_large_ones() {
        let shared = SharedBounds::new(&Bounds::default());
        let (ann, bob) = (Flow::of("ann", false, true), Flow::of("bob", false, true));
        let large = shared.memory(&ann, 200 << 20).await.expect("a large object has its time, too");
        assert_eq!(shared.decoded_bytes(), 200 << 20);
        let start = tokio::time::Instant::now();
        assert!(shared.memory(&bob, SMALL_REQUEST_BYTES).await.is_some() && start.elapsed().is_zero());
        assert!(shared.memory(&bob, SMALL_REQUEST_BYTES + 1).await.is_none());
        drop(large);
        assert!(shared.memory(&bob, SMALL_REQUEST_BYTES + 1).await.is_some());
        assert_eq!(shared.decoded_bytes(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn administrators_have_memory_of_their_own() {
        let shared = SharedBounds::new(&Bounds { unsent_bytes: 1000, received_bytes: 1000, ..Bounds::default() });
        let (ann, bob, admin) =
            (Flow::of("ann", false, true), Flow::of("bob", false, true), Flow::of("admin", true, true));
        let long = shared.room(&ann, 100_000).await.expect("a long answer has its time, too");
        let _body = shared.receive(&ann, 500).await.unwrap();
        assert!(shared.room(&bob, 1).await.is_none() && shared.receive(&ann, 1).await.is_none());
        let start = tokio::time::Instant::now();
        assert!(shared.room(&admin, 400).await.is_some() && shared.receive(&admin, 400).await.is_some());
        assert!(start.elapsed().is_zero());
        assert_eq!(shared.unsent.used(), 100_000);
        drop(long);
        assert!(shared.room(&bob, 1).await.is_some());
        assert_eq!(shared.unsent.used(), 0);
    }
}
