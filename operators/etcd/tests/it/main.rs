//! The operator on an embedded control plane with simulated nodes, on which a model of etcd runs: in one thread and
//! under paused time.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod chaos;
mod clusters;
mod faults;
mod levels;
mod node;
mod samples;
mod world;
