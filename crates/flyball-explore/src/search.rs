//! The search: which schedules are tried, in which order.
//!
//! It proceeds in waves. A wave depends only on the results of earlier ones, and its results are ordered, so that the
//! number of threads does not change the outcome.

use crate::evaluate::{Evaluation, Evaluator};
use crate::fault::Fault;
use crate::run::Outcome;
use crate::schedule::{Injection, Schedule};
use crate::site::{Port, Site};
use flyball_core::Rng;
use std::collections::{BTreeMap, BTreeSet};

/// Number of schedules of one wave.
pub(crate) const WAVE: usize = 16;
/// Limit of the events at which a stale replica is frozen, for each step.
const MAX_STALE: usize = 40;
/// Limit of the crossings of a lease at which faults are injected.
const MAX_LEASES: u32 = 4;
/// Maximum number of faults of a random schedule.
const MAX_RANDOM: u64 = 5;
/// Time of an absence: a week.
const WEEK: u32 = 604_800;

/// Returns the faults that are tried at a site, the most fruitful first.
fn faults_at(port: Port) -> Vec<Fault> {
    use Fault as F;
    const LATE: u32 = 20;
    let faults = match port {
        Port::Create | Port::Update | Port::Patch | Port::Delete | Port::DeleteCollection => vec![
            F::CrashAfter,
            F::Error(500),
            F::CrashBefore,
            F::LoseResponse,
            F::DelayResponse(LATE),
            F::Delay(LATE),
            F::Conflict,
            F::DeleteTarget,
            F::Annotate,
            F::Flip,
            F::DeletePrimary,
            F::Terminate,
            F::Reset,
            F::Deny,
            F::Throttle,
            F::Stick,
            F::CrashLoop(4),
            F::Preexist,
        ],
        Port::Get => vec![F::Error(500), F::Delay(LATE), F::LoseResponse, F::Error(503), F::Reset],
        Port::List => vec![F::Error(500), F::Truncate, F::Expire, F::Slow(LATE), F::Error(504), F::Reset],
        Port::Open => vec![F::Expire, F::TooLargeVersion, F::Error(500), F::Reset, F::Delay(LATE)],
        Port::Watch => {
            vec![F::Hold(30), F::Coalesce(30), F::Duplicate, F::Cut, F::Gone, F::Corrupt, F::Silence, F::DropBookmarks]
        }
        Port::Lease => vec![F::BlockLease(LATE), F::CrashAfter, F::Error(500), F::Delay(12), F::LoseResponse],
        Port::Webhook => vec![F::Reset, F::Delay(12), F::CrashBefore],
        Port::External => vec![
            F::Fail,
            F::CrashAfter,
            F::LoseResponse,
            F::CrashBefore,
            F::DelayResponse(LATE),
            F::Delay(LATE),
            F::Terminate,
        ],
        Port::Step => vec![
            F::Restart,
            F::Absent(WEEK),
            F::Partition(600),
            F::PartitionWatches(60),
            F::RestartServer(10),
            F::Revoke(60),
            F::Skew(3600),
            F::Skew(-3600),
            F::RecreateDefinition,
            F::DeleteNamespace,
        ],
    };
    faults.into_iter().filter(|fault| fault.fits(port)).collect()
}

/// Returns all schedules with one fault at a site of an undisturbed run, interleaved by fault.
pub(crate) fn singles(schedule: &Schedule, outcome: &Outcome, is_custom: &dyn Fn(&str) -> bool) -> Vec<Schedule> {
    let mut ranked: Vec<(usize, usize, Injection)> = Vec::new();
    let mut add = |rank: usize, site: &Site, fault: Fault| {
        let position = ranked.len();
        ranked.push((rank, position, Injection::new(site.clone(), fault)));
    };
    let has_webhooks = outcome.visits.iter().any(|site| site.port == Port::Webhook);
    let has_lease = outcome.visits.iter().any(|site| site.port == Port::Lease);
    let mut drops_bookmarks = true;
    for (n, site) in outcome.visits.iter().enumerate() {
        if site.concerns_lease() && site.occurrence > MAX_LEASES {
            continue;
        }
        if site.port == Port::Step && site.name == "1" {
            continue;
        }
        for (rank, fault) in faults_at(site.port).into_iter().enumerate() {
            if fault != Fault::DropBookmarks || std::mem::take(&mut drops_bookmarks) {
                add(rank, site, fault);
            }
        }
        if site.port == Port::Step {
            let fits = |fault: &Fault| match fault {
                Fault::SilenceWebhooks(_) => has_webhooks,
                _ => has_lease,
            };
            let more = [Fault::SilenceWebhooks(30), Fault::BlockLease(20)];
            more.into_iter().filter(fits).for_each(|fault| add(3, site, fault));
            for event in stale_events(&outcome.visits[..n], is_custom) {
                add(1, site, Fault::RestartStale(event));
            }
        }
    }
    ranked.sort_by_key(|(rank, position, _)| (*rank, *position));
    ranked.into_iter().map(|(_, _, injection)| schedule.with(vec![injection])).collect()
}

/// Returns the events after which a replica is frozen: those of custom resources first, the latest first.
fn stale_events(visits: &[Site], is_custom: &dyn Fn(&str) -> bool) -> Vec<Site> {
    let is_event = |site: &&Site| site.port == Port::Watch && site.process == 0 && !site.concerns_lease();
    let events = || visits.iter().rev().filter(is_event);
    let (custom, other): (Vec<&Site>, Vec<&Site>) = events().partition(|site| is_custom(&site.name));
    custom.into_iter().chain(other).take(MAX_STALE).cloned().collect()
}

/// Returns schedules with two faults: the same fault at the next crossing first, then any fault after a run with a new
/// outcome.
pub(crate) fn pairs(singles: &[Evaluation]) -> Vec<Schedule> {
    let (mut same, mut other) = (Vec::new(), Vec::new());
    let mut abstractions = BTreeSet::new();
    for single in singles {
        let [injection] = &*single.schedule.injections else { continue };
        let next = injection.at.later(1);
        let repeats = single.later.contains(&next);
        if repeats && injection.at.port != Port::Step {
            let again = Injection::new(next, injection.fault.clone());
            same.push(single.schedule.with(vec![injection.clone(), again]));
        }
        if single.occurred.is_empty() || !abstractions.insert(single.abstraction) {
            continue;
        }
        for site in single.later.iter().take(60) {
            for fault in faults_at(site.port).into_iter().take(3) {
                other.push(single.schedule.with(vec![injection.clone(), Injection::new(site.clone(), fault)]));
            }
        }
    }
    same.into_iter().chain(other).collect()
}

/// Returns schedules in which a request is late while the process loses the lease, or ends: pairs of single faults.
pub(crate) fn late_requests(singles: &[Schedule]) -> Vec<Schedule> {
    let named = |name: &'static str| singles.iter().filter(move |single| single.injections[0].fault.name() == name);
    let mut schedules = Vec::new();
    if named("block-lease").next().is_none() {
        return schedules;
    }
    for late in named("delay").filter(|late| late.injections[0].at.port.is_write()) {
        let delay = &late.injections[0];
        schedules.push(late.with(vec![Injection::new(delay.at.clone(), Fault::Terminate), delay.clone()]));
        for block in named("block-lease").filter(|block| block.scenario == late.scenario) {
            let block = &block.injections[0];
            if block.at.process == delay.at.process {
                schedules.push(late.with(vec![block.clone(), delay.clone()]));
            }
        }
    }
    schedules
}

/// Draws random schedules: each enables some faults, and injects a few of them at sites of the undisturbed run.
pub(crate) fn random(schedule: &Schedule, outcome: &Outcome, rng: &Rng, count: usize) -> Vec<Schedule> {
    let sites: Vec<&Site> = outcome.visits.iter().filter(|site| site.port != Port::Step || site.name != "1").collect();
    let mut schedules = Vec::new();
    for _ in 0..count {
        let mut injections: BTreeMap<Site, Fault> = BTreeMap::new();
        let swarm = rng.next();
        for _ in 0..=rng.below(MAX_RANDOM) {
            let Some(site) = pick(&sites, rng) else { break };
            let faults: Vec<Fault> = faults_at(site.port)
                .into_iter()
                .enumerate()
                .filter(|(n, fault)| swarm >> (n % 64) & 1 == 1 && !fault.changes_input())
                .map(|(_, fault)| fault)
                .collect();
            if let Some(fault) = pick(&faults, rng) {
                injections.insert((*site).clone(), fault.clone());
            }
        }
        let injections = injections.into_iter().map(|(site, fault)| Injection::new(site, fault)).collect();
        let jitter = [0, 0, 10, 100][usize::try_from(rng.below(4)).unwrap_or_default()];
        let mut drawn = schedule.with(injections);
        drawn.jitter = jitter;
        schedules.push(drawn);
    }
    schedules
}

fn pick<'a, T>(items: &'a [T], rng: &Rng) -> Option<&'a T> {
    let n = rng.below(u64::try_from(items.len()).ok()?);
    items.get(usize::try_from(n).ok()?)
}

/// The faults that occurred, by port: the coverage of a search.
#[derive(Clone, Debug, Default)]
pub(crate) struct Coverage {
    /// Number of sites by fault and port.
    pub(crate) cells: BTreeMap<(&'static str, Port), BTreeSet<Site>>,
    hashes: BTreeSet<u64>,
    abstractions: BTreeSet<u64>,
}

impl Coverage {
    /// Adds a run.
    pub(crate) fn add(&mut self, evaluation: &Evaluation) {
        for (site, fault) in &evaluation.occurred {
            self.cells.entry((fault, site.port)).or_default().insert(site.clone());
        }
        self.hashes.insert(evaluation.hash);
        self.abstractions.insert(evaluation.abstraction);
    }

    /// Returns the number of different runs.
    pub(crate) fn traces(&self) -> usize {
        self.hashes.len()
    }

    /// Returns the number of different final states.
    pub(crate) fn states(&self) -> usize {
        self.abstractions.len()
    }
}

/// Evaluates the generated scenarios, which have no faults.
pub(crate) fn generated(evaluator: &Evaluator, seed: u64) -> Vec<Schedule> {
    evaluator.checks.keys().map(|name| Schedule::undisturbed(name.clone(), seed)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_port_has_faults() {
        assert!(Port::ALL.into_iter().all(|port| !faults_at(port).is_empty()));
        let tried: BTreeSet<&str> = Port::ALL.into_iter().flat_map(faults_at).map(|fault| fault.name()).collect();
        for fault in Fault::all() {
            // These change what an operator is not bound to repair, or lead to two leaders by design.
            let is_special = ["absence", "edit-target", "orphan", "delete-lease"].contains(&fault.name());
            // These depend on the run.
            let is_conditional = ["restart-stale", "silence-webhooks"].contains(&fault.name());
            assert_eq!(tried.contains(fault.name()), !is_special && !is_conditional, "{fault}");
        }
    }

    #[test]
    fn random_picks_are_within_bounds() {
        let rng = Rng::from_seed(1);
        assert!((0..100).all(|_| pick(&[1, 2, 3], &rng).is_some()));
        assert_eq!(pick::<u8>(&[], &rng), None);
    }
}
