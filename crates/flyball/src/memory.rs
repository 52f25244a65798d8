//! The memory budget of a process, which reconciles share.
//!
//! Users determine the sizes of their objects, and the number of reconciles does not bound their sum. So each reconcile
//! is charged before its object is decoded. [`Ledger`] decides which charges fit: a plain structure without tasks and
//! clock. This module is independent of objects.
//!
//! Invariants: the sum of all charges never exceeds the budget; a charge that waits blocks no thread and no worker; a
//! namespace without a charge waits only for memory that several others hold together.

use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::fs;
use std::mem;
use std::sync::Arc;

/// Budget of a process without a memory limit.
const DEFAULT_BYTES: usize = 1 << 30;

/// Memory limits of a container's control group: version 2, then version 1.
const LIMIT_FILES: [&str; 2] = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];

/// A limit from which on there is none: version 1 writes the largest number of pages.
const UNLIMITED: usize = 1 << 50;

/// A budget of memory for the reconciles of an operator, in bytes; see
/// [`Controller::memory_budget`](crate::Controller::memory_budget).
///
/// Charges that do not fit wait, those of a namespace in order. Namespaces share the budget: one takes at most half of
/// it beside others, and three quarters without others, unless a single charge is larger; the rest is for namespaces
/// without a charge. Cluster-scoped objects have only the limit of the whole budget.
///
/// Clones share the budget.
#[derive(Clone)]
pub struct MemoryBudget {
    bytes: usize,
    ledger: Arc<Mutex<Ledger>>,
}

/// Memory that is charged until this is dropped.
#[must_use = "a charge ends when it is dropped"]
pub struct MemoryCharge {
    budget: MemoryBudget,
    tenant: Tenant,
    bytes: usize,
}

/// A namespace, or all cluster-scoped objects.
type Tenant = Option<Arc<str>>;

/// Called with the charge once it fits.
type Notify = Box<dyn FnOnce(MemoryCharge) + Send>;

impl MemoryBudget {
    /// Creates a budget of this size.
    pub fn new(bytes: usize) -> Self {
        Self { bytes, ledger: Arc::new(Mutex::new(Ledger::new(bytes))) }
    }

    /// Creates a budget from the memory limit of the container: the limit without `reserved` bytes, at least half of
    /// it. Without a limit it is the default, 1 GiB.
    pub fn of_container(reserved: usize) -> Self {
        let limit = LIMIT_FILES.iter().find_map(|file| fs::read_to_string(file).ok()).and_then(|text| limit_in(&text));
        Self::within(limit, reserved)
    }

    fn within(limit: Option<usize>, reserved: usize) -> Self {
        Self::new(limit.map_or(DEFAULT_BYTES, |limit| limit.saturating_sub(reserved).max(limit / 2)))
    }

    /// Returns the budget in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the bytes that one of several namespaces may use.
    pub fn share(&self) -> usize {
        self.bytes / 2
    }

    /// Returns the bytes that a single namespace may use.
    pub fn largest_share(&self) -> usize {
        self.bytes - self.bytes / 4
    }

    /// Charges a namespace, or cluster-scoped objects; `None` if the charge does not fit now.
    pub fn try_charge(&self, namespace: Option<&str>, bytes: usize) -> Option<MemoryCharge> {
        let tenant: Tenant = namespace.map(Arc::from);
        let mut ledger = self.ledger.lock();
        if !ledger.is_next(&tenant, bytes) {
            return None;
        }
        ledger.charge(&tenant, bytes);
        drop(ledger);
        Some(self.charge(tenant, bytes))
    }

    /// Charges a namespace, or cluster-scoped objects, and calls `notify` with the charge, at once or later.
    pub(crate) fn request(
        &self,
        namespace: Option<&str>,
        bytes: usize,
        notify: impl FnOnce(MemoryCharge) + Send + 'static,
    ) {
        let mut ledger = self.ledger.lock();
        ledger.wait(Request { tenant: namespace.map(Arc::from), bytes, notify: Box::new(notify) });
        let granted = ledger.grant();
        drop(ledger);
        self.notify(granted);
    }

    fn charge(&self, tenant: Tenant, bytes: usize) -> MemoryCharge {
        MemoryCharge { budget: self.clone(), tenant, bytes }
    }

    /// Notifies without the lock, since a charge may be dropped at once.
    fn notify(&self, granted: Vec<Request>) {
        for Request { tenant, bytes, notify } in granted {
            notify(self.charge(tenant, bytes));
        }
    }
}

impl Default for MemoryBudget {
    fn default() -> Self {
        Self::new(DEFAULT_BYTES)
    }
}

impl fmt::Debug for MemoryBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryBudget").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl MemoryCharge {
    /// Returns the charged bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl fmt::Debug for MemoryCharge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryCharge").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl Drop for MemoryCharge {
    fn drop(&mut self) {
        let mut ledger = self.budget.ledger.lock();
        ledger.release(&self.tenant, self.bytes);
        let granted = ledger.grant();
        drop(ledger);
        self.budget.notify(granted);
    }
}

/// Returns the limit in a file of a control group, `None` if there is none.
fn limit_in(text: &str) -> Option<usize> {
    text.trim().parse().ok().filter(|limit| *limit < UNLIMITED)
}

/// A charge that waits.
struct Request {
    tenant: Tenant,
    bytes: usize,
    notify: Notify,
}

/// Charges and requests of a tenant.
#[derive(Debug, Default)]
struct Account {
    charged: usize,
    charges: usize,
    waiting: usize,
}

/// The decision about a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Fits,
    /// The charge waits for other charges of its tenant.
    AwaitsTenant,
    /// The charge waits for charges of any tenant.
    AwaitsOthers,
}

/// The charges of a budget.
struct Ledger {
    total: usize,
    charged: usize,
    /// The tenants with charges or requests.
    accounts: BTreeMap<Tenant, Account>,
    waiting: VecDeque<Request>,
}

impl Ledger {
    fn new(total: usize) -> Self {
        Self { total, charged: 0, accounts: BTreeMap::new(), waiting: VecDeque::new() }
    }

    fn is_new(&self, tenant: &Tenant) -> bool {
        self.accounts.get(tenant).is_none_or(|account| account.charges == 0)
    }

    fn verdict(&self, tenant: &Tenant, bytes: usize) -> Verdict {
        let own = self.accounts.get(tenant).map_or(0, |account| account.charged);
        let quarter = self.total / 4;
        let (limit, reserved) = match tenant {
            _ if self.is_new(tenant) => (self.total, 0),
            // They are not those of one user.
            None => (self.total, 0),
            Some(_) if self.accounts.len() > 1 => (self.total / 2, quarter),
            Some(_) => (self.total - quarter, quarter),
        };
        let fits_in = |charged: usize, limit: usize| charged.checked_add(bytes).is_some_and(|sum| sum <= limit);
        match () {
            () if !fits_in(own, limit) => Verdict::AwaitsTenant,
            () if !fits_in(self.charged + reserved, self.total) => Verdict::AwaitsOthers,
            () => Verdict::Fits,
        }
    }

    /// Returns true if a charge fits that was not requested before.
    fn is_next(&self, tenant: &Tenant, bytes: usize) -> bool {
        let is_full = |request: &Request| self.verdict(&request.tenant, request.bytes) == Verdict::AwaitsOthers;
        let waits = self.accounts.get(tenant).is_some_and(|account| account.waiting > 0);
        self.verdict(tenant, bytes) == Verdict::Fits
            && !waits
            && (self.is_new(tenant) || !self.waiting.iter().any(is_full))
    }

    /// Removes the requests that fit, and charges them. If one waits for others, only those of tenants without a charge
    /// pass it.
    fn grant(&mut self) -> Vec<Request> {
        let mut granted = Vec::new();
        let (mut is_full, mut waiting) = (false, BTreeSet::new());
        for request in mem::take(&mut self.waiting) {
            let verdict = self.verdict(&request.tenant, request.bytes);
            let is_next = !waiting.contains(&request.tenant) && (!is_full || self.is_new(&request.tenant));
            if verdict == Verdict::Fits && is_next {
                self.charge(&request.tenant, request.bytes);
                self.change(&request.tenant, |account| account.waiting -= 1);
                granted.push(request);
            } else {
                is_full |= verdict == Verdict::AwaitsOthers;
                waiting.insert(request.tenant.clone());
                self.waiting.push_back(request);
            }
        }
        granted
    }

    fn wait(&mut self, request: Request) {
        self.change(&request.tenant, |account| account.waiting += 1);
        self.waiting.push_back(request);
    }

    fn charge(&mut self, tenant: &Tenant, bytes: usize) {
        self.charged += bytes;
        self.change(tenant, |account| {
            account.charged += bytes;
            account.charges += 1;
        });
    }

    fn release(&mut self, tenant: &Tenant, bytes: usize) {
        self.charged -= bytes;
        self.change(tenant, |account| {
            account.charged -= bytes;
            account.charges -= 1;
        });
    }

    fn change(&mut self, tenant: &Tenant, change: impl FnOnce(&mut Account)) {
        let account = self.accounts.entry(tenant.clone()).or_default();
        change(account);
        if account.charges == 0 && account.waiting == 0 {
            self.accounts.remove(tenant);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests a charge, which is added to the list when it is granted.
    fn request(budget: &MemoryBudget, granted: &Arc<Mutex<Vec<MemoryCharge>>>, namespace: &str, bytes: usize) {
        let granted = granted.clone();
        budget.request(Some(namespace), bytes, move |charge| granted.lock().push(charge));
    }

    fn names(granted: &Mutex<Vec<MemoryCharge>>) -> Vec<String> {
        let name = |charge: &MemoryCharge| format!("{}{}", charge.tenant.as_deref().unwrap_or("-"), charge.bytes);
        granted.lock().iter().map(name).collect()
    }

    fn assert_is_empty(budget: &MemoryBudget) {
        let ledger = budget.ledger.lock();
        assert_eq!((ledger.charged, ledger.waiting.len(), ledger.accounts.len()), (0, 0, 0));
    }

    /// Ends a charge.
    fn end(granted: &Mutex<Vec<MemoryCharge>>, index: usize) {
        let charge = granted.lock().remove(index);
        drop(charge);
    }

    #[test]
    fn namespace_takes_three_quarters_alone_and_half_beside_others() {
        let budget = MemoryBudget::new(16);
        let mut of_a: Vec<_> = (0..20).map_while(|_| budget.try_charge(Some("a"), 1)).collect();
        assert_eq!(of_a.len(), 12);
        let of_b: Vec<_> = (0..20).map_while(|_| budget.try_charge(Some("b"), 1)).collect();
        assert_eq!(of_b.len(), 1, "the rest is for namespaces without a charge");
        let of_c = budget.try_charge(Some("c"), 3);
        assert!(of_c.is_some() && budget.try_charge(Some("d"), 1).is_none());
        of_a.truncate(4);
        drop((of_b, of_c));
        let of_b: Vec<_> = (0..20).map_while(|_| budget.try_charge(Some("b"), 1)).collect();
        assert_eq!((of_b.len(), budget.try_charge(Some("a"), 1).is_some()), (8, false));
        drop((of_a, of_b));
        assert_is_empty(&budget);
        let of_cluster: Vec<_> = (0..20).map_while(|_| budget.try_charge(None, 1)).collect();
        assert_eq!(of_cluster.len(), 16);
    }

    #[test]
    fn requests_are_granted_in_order() {
        let (budget, granted) = (MemoryBudget::new(16), Arc::default());
        for bytes in [10, 2, 8, 1] {
            request(&budget, &granted, "a", bytes);
        }
        assert_eq!(names(&granted), ["a10", "a2"]);
        assert!(budget.try_charge(Some("a"), 1).is_none(), "it would pass the others");
        end(&granted, 1);
        assert_eq!(names(&granted), ["a10"], "the next one needs more");
        end(&granted, 0);
        assert_eq!(names(&granted), ["a8", "a1"]);
    }

    #[test]
    fn namespace_without_a_charge_does_not_wait_for_the_runs_of_another() {
        let (budget, granted) = (MemoryBudget::new(16), Arc::default());
        (0..100).for_each(|_| request(&budget, &granted, "a", 3));
        assert_eq!(names(&granted), ["a3"; 4]);
        request(&budget, &granted, "victim", 4);
        assert_eq!(names(&granted).last().unwrap(), "victim4");
        end(&granted, 0);
        end(&granted, 0);
        end(&granted, 0);
        request(&budget, &granted, "victim", 2);
        assert_eq!(names(&granted), ["a3", "victim4", "a3", "victim2"], "a has at most half of it beside others");
    }

    #[test]
    fn small_requests_do_not_starve_a_large_one() {
        let (budget, granted) = (MemoryBudget::new(16), Arc::default());
        for (namespace, bytes) in [("a", 4), ("b", 4), ("c", 4), ("a", 4), ("b", 1), ("d", 1)] {
            request(&budget, &granted, namespace, bytes);
        }
        assert_eq!(names(&granted), ["a4", "b4", "c4", "d1"], "only a new namespace passes the request of a");
        end(&granted, 2);
        assert_eq!(names(&granted), ["a4", "b4", "d1"]);
        end(&granted, 1);
        assert_eq!(names(&granted), ["a4", "d1", "a4", "b1"]);
    }

    #[test]
    fn sum_of_charges_never_exceeds_the_budget() {
        let (budget, granted) = (MemoryBudget::new(100), Arc::<Mutex<Vec<MemoryCharge>>>::default());
        let rng = flyball_core::Rng::from_seed(7);
        for _ in 0..5_000 {
            let number = rng.next() as usize;
            if number.is_multiple_of(2) {
                request(&budget, &granted, &format!("n{}", number / 2 % 5), number / 16 % 75);
            } else if !granted.lock().is_empty() {
                let index = number / 2 % granted.lock().len();
                end(&granted, index);
            }
            let sum = granted.lock().iter().map(MemoryCharge::bytes).sum::<usize>();
            assert!(sum <= 100 && sum == budget.ledger.lock().charged);
        }
        while !granted.lock().is_empty() {
            end(&granted, 0);
        }
        assert_is_empty(&budget);
    }

    #[test]
    fn budget_is_the_limit_of_the_container_without_a_reserve() {
        let of = |text: &str| MemoryBudget::within(limit_in(text), 96 << 20).bytes() >> 20;
        assert_eq!((of("536870912\n"), of("134217728\n")), (416, 64));
        assert_eq!((of("max\n"), of("9223372036854771712\n"), of("")), (1024, 1024, 1024));
    }
}
