//! The ledger of a controller: its newest reconciles, with causes, reads, writes, outcome and next step.
//!
//! It answers why an object is as it is. It holds names, versions, field paths and error messages, but no value of an
//! object, so it has no secrets. A change that one controller wrote has the same resource version as the change that
//! caused a reconcile of another one, also in another operator: this joins the ledgers of several operators.
//!
//! Invariants: everything in it is bounded, in number and in bytes; it sends no request and draws no randomness, so
//! that the requests of a simulation do not depend on it.

mod denial;
mod fields;
mod flaps;
#[cfg(feature = "bench")]
mod measured;
mod record;
mod ring;

pub(crate) use denial::Denial;
pub(crate) use fields::{ChangedFields, Segment, changed_fields, path_text, value_at};
pub(crate) use flaps::{Flap, FlapDetector, WrittenObject, flap, owners_of};
#[cfg(feature = "bench")]
pub use measured::MeasuredLedger;
pub(crate) use record::{
    Accesses, FilteredChange, MAX_ERROR_BYTES, MAX_WRITES, Next, Outcome, Read, ReconcileRecord, RecordedError, Target,
    Verb, WriteRecord,
};

use flyball_core::ObjectKey;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use ring::{Ring, RingSize};
use std::collections::VecDeque;

/// Limit of reconciles that are kept of each sort: those that wrote or failed, and all others.
const MAX_RECONCILES: usize = 500;
/// Limit of the bytes of reconciles that wrote or failed.
const MAX_BYTES: usize = 3 << 20;
/// Limit of the bytes of reconciles that neither wrote nor failed.
const MAX_QUIET_BYTES: usize = 1 << 20;
/// Limit of changes that were dropped by filters.
const MAX_FILTERED: usize = 256;

/// The ledger of one controller.
#[derive(Debug)]
pub(crate) struct Ledger {
    rings: Mutex<Rings>,
    filtered: Mutex<VecDeque<FilteredChange>>,
    flaps: Mutex<FlapDetector>,
    flap_counter: Counter,
    is_enabled: bool,
}

/// The reconciles, in two rings: those that change nothing are frequent, and must not evict the others.
#[derive(Debug)]
struct Rings {
    notable: Ring,
    quiet: Ring,
    sequence: u64,
}

/// The size of a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LedgerSize {
    pub(crate) reconciles: usize,
    pub(crate) bytes: usize,
    pub(crate) dropped: u64,
    pub(crate) flaps: u64,
}

impl Ledger {
    /// Creates an empty ledger, which counts flaps.
    pub(crate) fn new(flap_counter: Counter) -> Self {
        let rings = Rings {
            notable: Ring::new(MAX_RECONCILES, MAX_BYTES),
            quiet: Ring::new(MAX_RECONCILES, MAX_QUIET_BYTES),
            sequence: 0,
        };
        Self {
            rings: Mutex::new(rings),
            filtered: Mutex::default(),
            flaps: Mutex::default(),
            flap_counter,
            is_enabled: true,
        }
    }

    /// Enables or disables it: a disabled ledger, the baseline of benchmarks, is not called.
    pub(crate) fn enabled(self, is_enabled: bool) -> Self {
        Self { is_enabled, ..self }
    }

    /// Returns true if reconciles with their reads, writes and changed fields are recorded.
    pub(crate) fn is_enabled(&self) -> bool {
        self.is_enabled
    }

    /// Adds a reconcile that ended.
    pub(crate) fn record(&self, reconcile: ReconcileRecord) {
        let mut rings = self.rings.lock();
        rings.sequence += 1;
        let sequence = rings.sequence;
        let ring = if reconcile.is_quiet() { &mut rings.quiet } else { &mut rings.notable };
        ring.push(sequence, reconcile);
    }

    /// Adds a change that a filter dropped.
    pub(crate) fn record_filtered(&self, change: FilteredChange) {
        let mut filtered = self.filtered.lock();
        if filtered.len() >= MAX_FILTERED {
            filtered.pop_front();
        }
        filtered.push_back(change);
    }

    /// Returns the newest of the selected reconciles, newest first.
    pub(crate) fn reconciles(
        &self,
        max: usize,
        is_selected: impl Fn(&ReconcileRecord) -> bool,
    ) -> Vec<ReconcileRecord> {
        let rings = self.rings.lock();
        let all = rings.notable.iter().chain(rings.quiet.iter());
        let mut all: Vec<_> = all.filter(|(_, reconcile)| is_selected(reconcile)).collect();
        all.sort_unstable_by_key(|(sequence, _)| std::cmp::Reverse(*sequence));
        all.into_iter().take(max).map(|(_, reconcile)| reconcile.clone()).collect()
    }

    /// Returns the newest changes of an object that filters dropped, newest first.
    pub(crate) fn filtered(&self, object: &ObjectKey, max: usize) -> Vec<FilteredChange> {
        let filtered = self.filtered.lock();
        filtered.iter().rev().filter(|change| change.object == *object).take(max).cloned().collect()
    }

    /// Returns the flap detector.
    pub(crate) fn flaps(&self) -> parking_lot::MutexGuard<'_, FlapDetector> {
        self.flaps.lock()
    }

    /// Counts flaps.
    pub(crate) fn count_flaps(&self, count: usize) {
        self.flap_counter.inc_by(count as u64);
    }

    /// Returns its size.
    pub(crate) fn size(&self) -> LedgerSize {
        let rings = self.rings.lock();
        let sum = |of: fn(&RingSize) -> u64| of(&rings.notable.size()) + of(&rings.quiet.size());
        LedgerSize {
            reconciles: sum(|size| size.count as u64) as usize,
            bytes: sum(|size| size.bytes as u64) as usize,
            dropped: sum(|size| size.dropped),
            flaps: self.flap_counter.get(),
        }
    }
}

#[cfg(test)]
mod tests;
