//! The console of a cluster: one page, served on loopback, that shows objects, their timelines, controllers, their
//! performance, causes and permissions, and explorations of an operator under development.
//!
//! [`Console`] watches the cluster with the rights of the given client, polls the operators at the given addresses, and
//! serves the page. It reads only, unless writes are allowed. It knows no command line and no kubeconfig; discovery
//! and explorations are traits that the caller implements.
//!
//! ```text
//!   API server ─► watch ─────► store ─┬─► stream ──────────────► browser
//!   operators  ─► operators ─► ledger ┴─► timeline, causality, ─► browser
//!                                         controllers, performance,
//!                                         permissions
//! ```
//!
//! Everything from the cluster and from operators is data of others: it is bounded, sent as JSON, and shown as text.

mod access;
mod actions;
mod answers;
mod assets;
mod causality;
mod claims;
mod controllers;
mod explore;
mod fields;
mod kind;
mod object;
mod operators;
mod performance;
mod permissions;
mod secret;
mod server;
mod shared;
mod store;
mod stream;
mod summary;
mod timeline;
mod verification;
mod watch;
mod writers;

pub use claims::{
    ClaimStatus, Claimant, ClaimedWrite, LoggedWrite, ManagerEntry, WriteTarget, best_claims, is_manager, logged_writes,
};
pub use explore::{
    ExplorationState, Explore, ExploreError, ExploreRequest, FinishedExploration, ForkedCluster, FoundViolation,
    RunningExploration, SiteChoice, Sites, Task,
};
pub use kind::{Discover, Kind};
pub use operators::{Address, FindOperators, Location, Origin, PageError, Pages};
pub use secret::hide_values;
pub use server::{Console, Error, Settings};
