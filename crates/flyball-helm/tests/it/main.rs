//! Charts with what the real Helm says of them; and operators made of charts, on control planes that run in the tests themselves: see
//! `flyball_cluster::testing`.

mod cases;
mod hooks;
mod lookups;
mod memcached;
mod owners;
mod project;
mod releases;
