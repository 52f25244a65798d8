//! Helm operators on control planes that run in the tests themselves: see `flyball_cluster::testing`.

mod hooks;
mod lookups;
mod memcached;
mod owners;
mod project;
mod releases;
