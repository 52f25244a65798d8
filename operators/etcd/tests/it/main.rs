//! Tests of the operator on an embedded control plane, whose simulated nodes run a model of etcd, on one thread and
//! with paused time.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod chaos;
mod clusters;
mod exploration;
mod faults;
mod levels;
mod node;
mod samples;
mod world;
