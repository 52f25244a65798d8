//! The runtime against an API server in the same process, on one thread, in virtual time.

#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(unreachable_pub, reason = "a test binary exports nothing")]

mod api;
mod apply;
mod architecture;
mod barrier;
mod caches;
mod children;
mod controllers;
mod deletion;
mod faults;
mod kinds;
mod memory;
mod operator;
mod outage;
mod reconcile;
mod references;
mod replicaset;
mod sources;
mod storm;
mod threads;
mod watch;
mod webhooks;
mod widgets;
