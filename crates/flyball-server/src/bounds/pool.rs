//! Pool: a bounded amount that users share, such as requests in flight, bytes or watches.
//!
//! Takes a user and an amount, returns a [`Hold`] at once, after a wait in the queue of that user, or not at all. It
//! does not depend on requests.
//!
//! A user may hold no more than the free amount (dynamic thresholds, Choudhury and Hahne 1998): a single user gets
//! half, the next one half of the rest, so that some is always left for a user without any. In pools with short holds,
//! a single user may have all. The queues of users take turns. Invariant: only [`Hold`] returns an amount.

use flyball_core::service_account;
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::oneshot;

/// Requests that are counted together: those of a user over connections, or those of a user in this process.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Flow {
    user: Arc<str>,
    over_connection: bool,
    /// True if it is an administrator's.
    pub(crate) is_exempt: bool,
}

impl Flow {
    /// Returns the flow of a user. The service accounts of a namespace share one: a user who can create one of them can
    /// create many.
    pub(crate) fn of(user: &str, is_exempt: bool, over_connection: bool) -> Self {
        let user = match service_account::split_user_name(user) {
            Some((namespace, _)) => service_account::group_name(namespace).into(),
            None => user.into(),
        };
        Self { user, over_connection, is_exempt }
    }

    /// Returns the flow of all requests without an authenticated user.
    pub(crate) fn unidentified() -> Self {
        Self::of("", false, true)
    }
}

/// The reasons of rejections in metrics.
pub(crate) const REJECTION_REASONS: [&str; 2] = ["queue-full", "time-out"];

/// An amount that flows share. Clones share the state.
#[derive(Clone)]
pub(crate) struct Pool(Arc<PoolState>);

struct PoolState {
    max_waiting: usize,
    shares: Mutex<Shares>,
    rejected: [AtomicU64; 2],
}

struct Shares {
    limit: usize,
    /// True if one flow may hold the whole pool.
    is_undivided: bool,
    used: usize,
    waiting: usize,
    flows: BTreeMap<Flow, Share>,
    /// The flows that wait, in the order of their turns.
    turns: VecDeque<Flow>,
}

#[derive(Default)]
struct Share {
    held: usize,
    queue: VecDeque<Waiter>,
}

struct Waiter {
    amount: usize,
    granted: oneshot::Sender<Hold>,
}

/// A part of a pool, released when it is dropped.
pub(crate) struct Hold {
    pool: Pool,
    flow: Flow,
    amount: usize,
}

impl Pool {
    /// Creates a pool with a limit and a maximum number of waiters.
    pub(crate) fn new(limit: usize, max_waiting: usize) -> Self {
        let (flows, turns) = (BTreeMap::new(), VecDeque::new());
        let shares = Shares { limit, is_undivided: false, used: 0, waiting: 0, flows, turns };
        Self(Arc::new(PoolState { max_waiting, shares: Mutex::new(shares), rejected: Default::default() }))
    }

    /// Creates a pool of which a single flow may have all. Several flows take turns.
    pub(crate) fn undivided(limit: usize) -> Self {
        let pool = Self::new(limit, usize::MAX);
        pool.0.shares.lock().is_undivided = true;
        pool
    }

    fn hold(&self, flow: &Flow, amount: usize) -> Hold {
        Hold { pool: self.clone(), flow: flow.clone(), amount }
    }

    /// Returns the limit of the pool.
    pub(crate) fn limit(&self) -> usize {
        self.0.shares.lock().limit
    }

    /// Returns true if a flow blocks others: it could acquire no more now, and holds more than half of an equal share.
    /// Flows that hold little are not considered to block.
    pub(crate) fn exceeds_share(&self, flow: &Flow) -> bool {
        let shares = self.0.shares.lock();
        let held = shares.flows.get(flow).map_or(0, |share| share.held);
        !shares.fits(flow, 0) && held > shares.limit / (2 * (shares.flows.len() + 1))
    }

    /// Acquires an amount if it is available now.
    pub(crate) fn try_take(&self, flow: &Flow, amount: usize) -> Option<Hold> {
        let mut shares = self.0.shares.lock();
        if !shares.fits(flow, amount) {
            drop(shares);
            self.0.rejected[0].fetch_add(1, Ordering::Relaxed);
            return None;
        }
        shares.grant(flow, amount);
        Some(self.hold(flow, amount))
    }

    /// Acquires an amount; `None` if the queue is full or the wait exceeds its timeout.
    pub(crate) async fn acquire(&self, flow: &Flow, amount: usize, max_wait: Duration) -> Option<Hold> {
        let granted = match self.begin(flow, amount, false)? {
            Acquisition::Given(hold) => return Some(hold),
            Acquisition::Queued(granted) => granted,
        };
        match tokio::time::timeout(max_wait, granted).await {
            Ok(granted) => granted.ok(),
            Err(_) => {
                self.0.shares.lock().remove_abandoned(flow);
                self.0.rejected[1].fetch_add(1, Ordering::Relaxed);
                None
            }
        }
    }

    /// Acquires an amount, without limits of the queue and of the wait.
    pub(crate) async fn wait(self, flow: Flow, amount: usize) -> Option<Hold> {
        match self.begin(&flow, amount, true)? {
            Acquisition::Given(hold) => Some(hold),
            Acquisition::Queued(granted) => granted.await.ok(),
        }
    }

    fn begin(&self, flow: &Flow, amount: usize, unbounded: bool) -> Option<Acquisition> {
        let mut shares = self.0.shares.lock();
        if shares.fits(flow, amount) {
            shares.grant(flow, amount);
            return Some(Acquisition::Given(self.hold(flow, amount)));
        }
        let is_full = |shares: &Shares| {
            let room = self.0.max_waiting.saturating_sub(shares.waiting);
            !unbounded && shares.waiting_of(flow) >= room
        };
        if is_full(&shares) {
            shares.remove_abandoned(flow);
        }
        if is_full(&shares) {
            drop(shares);
            self.0.rejected[0].fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let (granted, response) = oneshot::channel();
        if shares.waiting_of(flow) == 0 {
            shares.turns.push_back(flow.clone());
        }
        shares.waiting += 1;
        shares.flows.entry(flow.clone()).or_default().queue.push_back(Waiter { amount, granted });
        Some(Acquisition::Queued(response))
    }

    /// Acquires an amount even if it exceeds the bound.
    pub(crate) fn charge(&self, flow: &Flow, amount: usize) -> Hold {
        self.0.shares.lock().grant(flow, amount);
        self.hold(flow, amount)
    }

    fn release(&self, flow: &Flow, amount: usize) {
        let mut shares = self.0.shares.lock();
        shares.used -= amount;
        if let Some(share) = shares.flows.get_mut(flow) {
            share.held -= amount;
            if share.held == 0 && share.queue.is_empty() {
                shares.flows.remove(flow);
            }
        }
        while let Some((flow, waiter)) = shares.next() {
            shares.grant(&flow, waiter.amount);
            // An abandoned waiter drops its hold, which locks the pool.
            drop(shares);
            drop(waiter.granted.send(self.hold(&flow, waiter.amount)));
            shares = self.0.shares.lock();
        }
    }

    /// Returns how much is held.
    pub(crate) fn used(&self) -> usize {
        self.0.shares.lock().used
    }

    /// Returns the numbers of rejected requests, by [`REJECTION_REASONS`].
    pub(crate) fn rejected(&self) -> [u64; 2] {
        [0, 1].map(|why| self.0.rejected[why].load(Ordering::Relaxed))
    }
}

enum Acquisition {
    Given(Hold),
    Queued(oneshot::Receiver<Hold>),
}

impl Shares {
    fn fits(&self, flow: &Flow, amount: usize) -> bool {
        let held = self.flows.get(flow).filter(|_| !self.is_undivided).map_or(0, |share| share.held);
        held.saturating_add(amount.max(1)) <= self.limit.saturating_sub(self.used)
    }

    fn grant(&mut self, flow: &Flow, amount: usize) {
        self.used += amount;
        match self.flows.get_mut(flow) {
            Some(share) => share.held += amount,
            None => drop(self.flows.insert(flow.clone(), Share { held: amount, queue: VecDeque::new() })),
        }
    }

    fn waiting_of(&self, flow: &Flow) -> usize {
        self.flows.get(flow).map_or(0, |share| share.queue.len())
    }

    /// Removes the next waiter whose amount is available.
    fn next(&mut self) -> Option<(Flow, Waiter)> {
        for _ in 0..self.turns.len() {
            let flow = self.turns.pop_front()?;
            let share = self.flows.get_mut(&flow)?;
            while share.queue.pop_front_if(|waiter| waiter.granted.is_closed()).is_some() {
                self.waiting -= 1;
            }
            let Some(amount) = share.queue.front().map(|waiter| waiter.amount) else {
                if share.held == 0 {
                    self.flows.remove(&flow);
                }
                continue;
            };
            if !self.fits(&flow, amount) {
                self.turns.push_back(flow);
                continue;
            }
            let share = self.flows.get_mut(&flow)?;
            let waiter = share.queue.pop_front()?;
            self.waiting -= 1;
            if !share.queue.is_empty() {
                self.turns.push_back(flow.clone());
            }
            return Some((flow, waiter));
        }
        None
    }

    /// Removes the abandoned waiters of a flow.
    fn remove_abandoned(&mut self, flow: &Flow) {
        let Some(share) = self.flows.get_mut(flow) else { return };
        let before = share.queue.len();
        share.queue.retain(|waiter| !waiter.granted.is_closed());
        self.waiting -= before - share.queue.len();
        if share.queue.is_empty() {
            self.turns.retain(|turn| turn != flow);
            if self.flows.get(flow).is_some_and(|share| share.held == 0) {
                self.flows.remove(flow);
            }
        }
    }
}

impl Hold {
    /// Returns the amount.
    pub(crate) fn amount(&self) -> usize {
        self.amount
    }

    /// Changes the amount that is held. A larger amount is held even if it exceeds the bound.
    pub(crate) fn resize(&mut self, amount: usize) {
        let before = std::mem::replace(&mut self.amount, amount);
        match amount.checked_sub(before) {
            Some(0) => {}
            Some(more) => self.pool.0.shares.lock().grant(&self.flow, more),
            None => self.pool.release(&self.flow, before - amount),
        }
    }

    /// Splits off an amount, which is released separately.
    pub(crate) fn split(&mut self, amount: usize) -> Self {
        let amount = amount.min(self.amount);
        self.amount -= amount;
        self.pool.hold(&self.flow, amount)
    }

    /// Adds another part of the same pool, of the same flow.
    pub(crate) fn add(&mut self, mut other: Self) {
        debug_assert!(Arc::ptr_eq(&self.pool.0, &other.pool.0) && self.flow == other.flow);
        self.amount += std::mem::take(&mut other.amount);
    }

    /// Returns true if its flow could acquire more now.
    pub(crate) fn has_room(&self) -> bool {
        self.pool.0.shares.lock().fits(&self.flow, 0)
    }

    /// Acquires more for the same flow, without limit of the wait.
    pub(crate) fn wait(&self, amount: usize) -> impl Future<Output = Option<Self>> + Send + use<> {
        self.pool.clone().wait(self.flow.clone(), amount)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if self.amount > 0 {
            self.pool.release(&self.flow, self.amount);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    fn flow(user: &str) -> Flow {
        Flow::of(user, false, true)
    }

    #[test]
    fn flow_holds_at_most_the_free_amount() {
        let pool = Pool::new(8, 0);
        let take = |user: &str| std::iter::from_fn(|| pool.try_take(&flow(user), 1)).collect::<Vec<_>>();
        let holds = ["ann", "bob", "cid", "dan", "eve"].map(take);
        assert_eq!(holds.each_ref().map(Vec::len), [4, 2, 1, 1, 0]);
        drop(holds);
        assert_eq!(pool.used(), 0);
        assert!(pool.0.shares.lock().flows.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn grants_of_cancelled_requests_are_released() {
        let pool = Pool::new(2, 100);
        let first = pool.try_take(&flow("ann"), 1).unwrap();
        let wait = |user: &str| Box::pin(pool.clone().wait(flow(user), 1));
        let mut waits: Vec<_> = ["ann", "ann", "ann", "bob", "bob"].map(wait).into();
        // Bob holds nothing, so the rest is available to him.
        let mut granted: Vec<Option<Hold>> = waits.iter_mut().map(|wait| wait.now_or_never().flatten()).collect();
        assert_eq!(granted.iter().map(Option::is_some).collect::<Vec<_>>(), [false, false, false, true, false]);
        granted.clear();
        drop(first);
        drop(waits);
        assert_eq!((pool.used(), pool.0.shares.lock().waiting), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn requests_of_flows_alternate() {
        let pool = Pool::new(1, 2000);
        let busy = pool.try_take(&flow("ann"), 1).unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = tokio::task::JoinSet::new();
        for (user, count) in [("ann", 900), ("bob", 1), ("cid", 2)] {
            for _ in 0..count {
                let (pool, order) = (pool.clone(), order.clone());
                tasks.spawn(async move {
                    let _hold = pool.wait(flow(user), 1).await;
                    order.lock().push(user);
                });
                tokio::task::yield_now().await;
            }
        }
        drop(busy);
        while tasks.join_next().await.is_some() {}
        assert_eq!(order.lock()[..6], ["ann", "bob", "cid", "ann", "cid", "ann"]);
    }

    #[tokio::test(start_paused = true)]
    async fn undivided_pool_is_shared_when_another_flow_waits() {
        let pool = Pool::undivided(2);
        let wait = |user: &str| Box::pin(pool.clone().wait(flow(user), 1));
        let (first, _second) = (wait("ann").await.unwrap(), wait("ann").await.unwrap());
        let (mut ann_waits, mut bob_waits) = (wait("ann"), wait("bob"));
        assert!((&mut ann_waits).now_or_never().is_none() && (&mut bob_waits).now_or_never().is_none());
        let _third = wait("ann");
        drop(first);
        let granted = ann_waits.now_or_never().flatten().unwrap();
        drop(granted);
        assert!(bob_waits.now_or_never().flatten().is_some(), "it is his turn");
    }

    #[test]
    fn service_accounts_of_a_namespace_are_one_flow() {
        let account = |name: &str| flow(&format!("system:serviceaccount:{name}"));
        assert_eq!(account("a:x"), account("a:y"));
        assert_ne!(account("a:x"), account("b:x"));
        assert_ne!(flow("x"), flow("y"));
    }

    #[test]
    fn only_flows_beyond_their_share_are_overdrawn() {
        let pool = Pool::new(100, 0);
        let overdrawn = |users: [&str; 3]| users.map(|user| pool.exceeds_share(&flow(user)));
        let _little = pool.try_take(&flow("bob"), 5).unwrap();
        let mut much = pool.try_take(&flow("ann"), 40).unwrap();
        assert_eq!(overdrawn(["ann", "bob", "cid"]), [false; 3], "each would be given more");
        much.resize(200);
        assert_eq!(overdrawn(["ann", "bob", "cid"]), [true, false, false]);
        let part = much.split(190);
        assert_eq!((much.amount(), pool.used()), (10, 205));
        drop(much);
        assert_eq!(overdrawn(["ann", "bob", "cid"]), [true, false, false], "what is left of it counts");
        drop(part);
        assert_eq!(pool.used(), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn full_queue_of_a_flow_leaves_room_for_others() {
        let pool = Pool::new(1, 8);
        let _busy = pool.try_take(&flow("ann"), 1).unwrap();
        let second = Duration::from_secs(1);
        let (pool, ann, bob) = (&pool, flow("ann"), flow("bob"));
        let many = futures_util::future::join_all((0..100).map(|_| pool.acquire(&ann, 1, second)));
        let (many, other) = tokio::join!(many, pool.acquire(&bob, 1, second));
        assert!(other.is_none() && many.iter().all(Option::is_none));
        assert_eq!(pool.rejected(), [96, 5], "four of hers and his waited in vain");
        assert_eq!(pool.0.shares.lock().waiting, 0);
    }
}
