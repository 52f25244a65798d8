//! Runs renderings: on dedicated threads, within a budget, with limited concurrency.
//!
//! The author of a custom resource determines the cost of its rendering, so a rendering must block neither the
//! runtime's workers nor other renderings. Each rendering starts in a quick slot; there are as many quick slots as
//! cores. A rendering that exceeds the quick limits releases its slot and continues in a slow slot; there are fewer
//! slow slots. If no slow slot is free, the rendering is aborted and restarted as soon as one is free; if too many
//! renderings wait already, its custom resource is requeued instead. So quick renderings only wait for quick ones,
//! and few reconciles wait for a slow slot.
//!
//! Other expensive work on large releases, such as encoding and decoding the Secret and parsing the manifest, is
//! bounded separately and runs in the quick slots.
//!
//! The memory of all releases together is bounded as well: by the limits of renderings in all slots, which take at most
//! three eighths of the container's memory, and by the memory budget of the operator, to which custom resources and
//! large releases are charged, see [`Share`].
//!
//! In a simulation, renderings run inline, one after the other, so that runs are reproducible.

use flyball::{Error, MemoryBudget, MemoryCharge, Result};
use flyball_chart::Budget;
use flyball_core::memory;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::available_parallelism;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Step limit of a rendering in a quick slot: less than the 3,000,000 of `bcrypt`, which takes 50 ms and cannot be
/// interrupted.
const QUICK_STEPS: u64 = 2_500_000;
/// The computation time after which the priority of a rendering is lowered.
const QUICK_TIME: Duration = Duration::from_millis(4);
/// Memory limit in a quick slot, in bytes.
const QUICK_BYTES: usize = 16 << 20;
/// Limits of slots on machines with many cores.
const MAX_QUICK_SLOTS: usize = 8;
const MAX_SLOW_SLOTS: usize = 4;
/// Limit of reconciles that wait for a slow slot.
const MAX_WAITING: usize = 1;
/// Size limit of the release of a reconcile without a share.
const SMALL_RELEASE_BYTES: usize = 1 << 20;
/// Memory of a container that is not for custom resources and releases.
const RESERVED_BYTES: usize = 64 << 20;
/// Copies of a custom resource in a reconcile: the object, its values, and those of two revisions.
const COPIES_PER_RECONCILE: usize = 4;

/// Returns the numbers of quick and slow slots of a machine with this many cores, in a container of this many bytes.
fn counts(cores: usize, container: usize) -> (usize, usize) {
    let quick = (container / 8 / QUICK_BYTES).min(cores).clamp(1, MAX_QUICK_SLOTS);
    let slow = (container / 4 / Budget::untrusted().bytes).min(cores / 2).clamp(1, MAX_SLOW_SLOTS);
    (quick, slow)
}

/// The slots of an operator's renderings.
#[derive(Debug)]
pub(crate) struct Slots {
    is_simulated: bool,
    quick: Arc<Semaphore>,
    slow: Arc<Semaphore>,
    waiting: AtomicUsize,
    /// The memory of custom resources and large releases.
    pub(crate) memory: MemoryBudget,
}

/// The memory of a release that is charged to a reconcile, until it ends.
///
/// A reconcile holds the stored revisions and what it renders while it waits for the API server, so slots do not bound
/// their sum. The custom resource itself is charged before, see [`estimate`]. Guarantee: stored revisions of more than
/// [`SMALL_RELEASE_BYTES`] are charged before they are decoded, and a rendered one once its size is known; a release
/// that exceeds [`Slots::max_bytes`] is charged with that.
#[derive(Debug)]
pub(crate) struct Share {
    namespace: String,
    charges: Mutex<Vec<MemoryCharge>>,
}

impl Share {
    pub(crate) fn of(namespace: &str) -> Self {
        Self { namespace: namespace.to_owned(), charges: Mutex::default() }
    }
}

/// Returns the estimated memory of a reconcile of a custom resource with this JSON, without its release.
pub(crate) fn estimate(json: &str) -> usize {
    COPIES_PER_RECONCILE * memory::of_text(json.as_bytes())
}

/// A running rendering.
#[derive(Debug)]
struct Run {
    /// True if the reconcile of the rendering has ended.
    is_canceled: AtomicBool,
    /// True if the rendering was aborted because no slow slot was free.
    is_busy: AtomicBool,
    slot: Mutex<Slot>,
}

#[derive(Debug)]
enum Slot {
    Quick(#[allow(dead_code, reason = "the permit is held until the rendering ends")] OwnedSemaphorePermit),
    Slow(#[allow(dead_code, reason = "the permit is held until the rendering ends")] OwnedSemaphorePermit),
}

impl Slots {
    pub(crate) fn new(is_simulated: bool) -> Self {
        let cores = available_parallelism().map_or(1, usize::from);
        let (quick, slow) = counts(cores, MemoryBudget::of_container(0).bytes());
        let reserved = RESERVED_BYTES + quick * QUICK_BYTES + slow * Budget::untrusted().bytes;
        Self {
            is_simulated,
            quick: Arc::new(Semaphore::new(quick)),
            slow: Arc::new(Semaphore::new(slow)),
            waiting: AtomicUsize::new(0),
            memory: match is_simulated {
                // Independent of the machine.
                true => MemoryBudget::default(),
                false => MemoryBudget::of_container(reserved),
            },
        }
    }

    /// Returns the memory limit of a custom resource in a reconcile, and the largest charge of a release: both fit into
    /// the share of a namespace.
    pub(crate) fn max_bytes(&self) -> usize {
        self.memory.share() / 2
    }

    /// Returns true if a reconcile may hold a release of this size; otherwise it ends and is requeued.
    pub(crate) fn may_hold(&self, share: &Share, bytes: usize) -> bool {
        if self.is_simulated || bytes <= SMALL_RELEASE_BYTES {
            return true;
        }
        let mut charges = share.charges.lock();
        let charged = charges.iter().map(MemoryCharge::bytes).sum::<usize>();
        let more = bytes.min(self.max_bytes()).saturating_sub(charged);
        if more > 0 {
            let Some(charge) = self.memory.try_charge(Some(&share.namespace), more) else { return false };
            charges.push(charge);
        }
        true
    }

    /// Runs a job within a budget, and returns the job and its result; `None` if too many reconciles wait for a slow
    /// slot.
    pub(crate) async fn run<J, R>(&self, mut job: J, work: fn(&J, Budget) -> R) -> Result<(J, Option<R>)>
    where
        J: Send + 'static,
        R: Send + 'static,
    {
        if self.is_simulated {
            let done = work(&job, Budget::untrusted());
            return Ok((job, Some(done)));
        }
        let mut slot = Slot::Quick(Arc::clone(&self.quick).acquire_owned().await.map_err(closed)?);
        let mut quick_time = QUICK_TIME;
        loop {
            let run = Arc::new(Run {
                is_canceled: AtomicBool::new(false),
                is_busy: AtomicBool::new(false),
                slot: Mutex::new(slot),
            });
            let canceled = CancelOnDrop(Arc::clone(&run));
            let budget = self.budget(&run);
            let (back, done) = flyball::offload(quick_time, move || {
                let done = work(&job, budget);
                (job, done)
            })
            .await;
            let is_busy = run.is_busy.load(Ordering::Relaxed);
            drop((run, canceled));
            if !is_busy {
                return Ok((back, Some(done)));
            }
            let Some(_waiting) = WaitGuard::enter(&self.waiting) else { return Ok((back, None)) };
            slot = Slot::Slow(Arc::clone(&self.slow).acquire_owned().await.map_err(closed)?);
            quick_time = Duration::ZERO;
            job = back;
        }
    }

    /// Runs bounded work in a quick slot.
    pub(crate) async fn offload<R: Send + 'static>(&self, work: impl FnOnce() -> R + Send + 'static) -> Result<R> {
        if self.is_simulated {
            return Ok(work());
        }
        let slot = Arc::clone(&self.quick).acquire_owned().await.map_err(closed)?;
        let run = move || {
            let _slot = slot;
            work()
        };
        Ok(flyball::offload(QUICK_TIME, run).await)
    }

    fn budget(&self, run: &Arc<Run>) -> Budget {
        let (run, slow) = (Arc::clone(run), Arc::clone(&self.slow));
        let guard = move |steps: u64, bytes: usize| {
            if run.is_canceled.load(Ordering::Relaxed) {
                return Err("the rendering was canceled".to_owned());
            }
            if steps <= QUICK_STEPS && bytes <= QUICK_BYTES { Ok(()) } else { run.acquire_slow_slot(&slow) }
        };
        Budget { guard: Some(Arc::new(guard)), ..Budget::untrusted() }
    }
}

impl Run {
    /// Moves to a slow slot.
    fn acquire_slow_slot(&self, slow: &Arc<Semaphore>) -> Result<(), String> {
        let mut slot = self.slot.lock();
        if let Slot::Slow(_) = *slot {
            return Ok(());
        }
        match Arc::clone(slow).try_acquire_owned() {
            Ok(permit) => *slot = Slot::Slow(permit),
            Err(_) => {
                self.is_busy.store(true, Ordering::Relaxed);
                return Err("no slow slot is free for the rendering".to_owned());
            }
        }
        Ok(())
    }
}

/// Cancels a rendering whose reconcile ends early, such as at the controller's deadline.
struct CancelOnDrop(Arc<Run>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.is_canceled.store(true, Ordering::Relaxed);
    }
}

/// A reconcile that waits for a slow slot.
struct WaitGuard<'a>(&'a AtomicUsize);

impl<'a> WaitGuard<'a> {
    fn enter(count: &'a AtomicUsize) -> Option<Self> {
        let enter = |count: usize| (count < MAX_WAITING).then_some(count + 1);
        count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, enter).ok().map(|_| Self(count))
    }
}

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn closed(error: tokio::sync::AcquireError) -> Error {
    Error::from(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hint::spin_loop;

    /// Runs until `done` is set or the guard aborts it.
    fn burn(done: &Arc<AtomicBool>, budget: Budget) -> Result<(), String> {
        let guard = budget.guard.expect("the budget has a guard");
        while !done.load(Ordering::Relaxed) {
            guard(QUICK_STEPS + 1, 0)?;
            spin_loop();
        }
        Ok(())
    }

    fn quick(_: &(), budget: Budget) -> Result<(), String> {
        budget.guard.expect("the budget has a guard")(1, 1)
    }

    #[tokio::test]
    async fn quick_renderings_do_not_wait_for_slow_ones() {
        let slots = Arc::new(Slots::new(false));
        let done = Arc::new(AtomicBool::new(false));
        let long: Vec<_> = (0..50)
            .map(|_| {
                let (slots, done) = (Arc::clone(&slots), Arc::clone(&done));
                tokio::spawn(async move { slots.run(done, burn).await.expect("the job does not panic").1 })
            })
            .collect();
        for _ in 0..100 {
            assert_eq!(slots.run((), quick).await.expect("the job does not panic").1, Some(Ok(())));
        }
        done.store(true, Ordering::Relaxed);
        let mut finished = 0;
        for task in long {
            finished += usize::from(task.await.expect("the task does not panic") == Some(Ok(())));
        }
        assert!((1..50).contains(&finished), "{finished} of 50 had a slow slot");
    }

    #[tokio::test]
    async fn rendering_ends_with_its_reconcile() {
        let slots = Arc::new(Slots::new(false));
        let never = Arc::new(AtomicBool::new(false));
        let started = slots.run(Arc::clone(&never), burn);
        tokio::select! {
            biased;
            _ = started => unreachable!("the rendering is not canceled"),
            () = async { while slots.slow.available_permits() > 0 { tokio::task::yield_now().await; } } => {}
        }
        // The slot is released once the guard runs.
        let permits = u32::try_from(slots.slow.available_permits() + 1).expect("few");
        assert!(slots.slow.acquire_many(permits).await.is_ok());
    }

    #[test]
    fn slots_fit_into_the_container() {
        let mib = |count: usize| count << 20;
        for (cores, container, expected) in [
            (2, mib(256), (2, 1)),
            (64, mib(256), (2, 1)),
            (64, mib(512), (4, 2)),
            (2, mib(4096), (2, 1)),
            (64, mib(4096), (8, 4)),
            (1, mib(64), (1, 1)),
        ] {
            assert_eq!(counts(cores, container), expected, "{cores} cores, {container} bytes");
        }
    }

    #[test]
    fn large_releases_share_the_memory_budget() {
        let slots = Slots { memory: MemoryBudget::new(256 << 20), ..Slots::new(false) };
        let largest = slots.max_bytes();
        assert_eq!(largest, 64 << 20);
        let mut shares: Vec<Share> = (0..3).map(|_| Share::of("a")).collect();
        for share in &shares {
            assert!(slots.may_hold(share, SMALL_RELEASE_BYTES + 1), "{share:?}");
            assert!(slots.may_hold(share, largest) && slots.may_hold(share, 2 * largest), "{share:?}");
        }
        let next = Share::of("a");
        assert!(slots.may_hold(&next, SMALL_RELEASE_BYTES) && !slots.may_hold(&next, SMALL_RELEASE_BYTES + 1));
        assert!(slots.may_hold(&Share::of("b"), largest), "a quarter is for others");
        shares.truncate(1);
        assert!(slots.may_hold(&next, largest), "others have ended");
        assert!(slots.quick.available_permits() <= MAX_QUICK_SLOTS && slots.slow.available_permits() <= MAX_SLOW_SLOTS);
    }

    #[test]
    fn custom_resources_are_charged_with_all_of_their_memory() {
        let items = format!("[{}0]", "{\"\":0},".repeat(44_000));
        for json in [format!("{{\"spec\":{{\"items\":{items}}}}}"), format!("{{\"metadata\":{{\"a\":{items}}}}}")] {
            assert!((100..150).contains(&(estimate(&json) >> 20)), "{}", estimate(&json));
        }
        // Of a container with 512 MiB.
        let slots = Slots { memory: MemoryBudget::new(448 << 20), ..Slots::new(false) };
        assert!(estimate(&items) > slots.max_bytes());
        let usual = format!(
            "{{\"spec\":{{\"text\":\"{}\",\"list\":[{}0]}}}}",
            "a".repeat(500_000),
            "{\"a\":1,\"b\":2},".repeat(5_000)
        );
        assert!(estimate(&usual) < slots.max_bytes());
    }

    #[tokio::test]
    async fn simulation_renders_on_its_own_thread() {
        let thread = |(): &(), _: Budget| std::thread::current().id();
        let (_, found) = Slots::new(true).run((), thread).await.expect("the job does not panic");
        assert_eq!(found, Some(std::thread::current().id()));
    }
}
