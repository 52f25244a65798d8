//! The ledger, exposed for benchmarks.

use super::{Accesses, Ledger, Next, Outcome, ReconcileRecord};
use crate::queue::{Cause, Causes, Trigger};
use flyball_core::{Clock, ObjectKey};
use prometheus_client::metrics::counter::Counter;
use std::time::Duration;

/// A ledger by itself, without a controller.
#[derive(Debug)]
pub struct MeasuredLedger(Ledger, Clock);

impl MeasuredLedger {
    /// Creates an empty ledger.
    pub fn new() -> Self {
        Self(Ledger::new(Counter::default()), Clock::system())
    }

    /// Records a reconcile of an object that changed, and that needed no write.
    pub fn record(&self, key: &ObjectKey, id: u64) {
        let mut causes = Causes::default();
        causes.push(Cause::Change(Trigger { store: 0, object: key.clone(), before: id, version: id + 1 }));
        self.0.record(ReconcileRecord {
            id,
            key: key.clone(),
            version: id + 1,
            generation: 1,
            from_server: false,
            began: self.1.now(),
            waited: Duration::ZERO,
            took: Duration::from_micros(5),
            causes,
            accesses: Accesses::skipping(2),
            outcome: Outcome::Success,
            error: None,
            failures: 0,
            next: Next::Change,
        });
    }

    /// Returns the number of reconciles that are kept, and their bytes.
    pub fn size(&self) -> (usize, usize) {
        let size = self.0.size();
        (size.reconciles, size.bytes)
    }
}

impl Default for MeasuredLedger {
    fn default() -> Self {
        Self::new()
    }
}
