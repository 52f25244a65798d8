//! Charts compared with the output of Helm; and Helm operators on embedded control planes: see
//! `flyball_cluster::testing`.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests may panic, and print differences")]

mod architecture;
mod chunks;
mod collisions;
mod crds;
mod extensions;
mod forged;
mod hooks;
mod lookups;
mod memcached;
mod owners;
mod places;
mod project;
mod releases;
mod restarts;
mod rights;
mod rollbacks;
mod schemas;
mod visitors;
