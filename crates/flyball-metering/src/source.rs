//! Sources of usage: responses of servers become samples.

pub mod counters;
pub mod ledger;
pub mod prometheus;
pub mod resource_metrics;
