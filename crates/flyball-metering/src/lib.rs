//! Metering: what pods, volumes, custom resources and operators use.
//!
//! ```text
//! API server ─ watches ─► observation ─► collect ─► gauges ─┐
//! metrics.k8s.io, Prometheus, ledgers ─► source ─► samples ─┴► store ─► query ─► results
//! ```
//!
//! State is exact to the second, by the times of the objects. Amounts are integers, so that the amounts of custom
//! resources add up to those of pods. Queries are SQL of users, which [`query`] runs within limits.
//!
//! `observation`, `collect` (but for `collect::watch`), `schedule` and `source` are pure: time is an argument.

pub mod access;
pub mod api;
pub mod collect;
pub mod endpoint;
pub mod meter;
pub mod observation;
mod operator;
pub mod output;
pub mod query;
pub mod schedule;
pub mod source;
pub mod store;

pub use operator::{NAME, OperatorPolls, OperatorToken, Settings, operator};
