//! The queue and the ledger alone, for benchmarks. The API of this module may change in any version.

pub use crate::ledger::MeasuredLedger;
pub use crate::queue::MeasuredQueue;
