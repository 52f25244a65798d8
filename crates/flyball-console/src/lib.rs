//! The console of a cluster: one page, served on loopback, that shows objects, their timelines, controllers, causes and
//! permissions.
//!
//! [`Console`] watches the cluster with the rights of the given client, polls the operators at the given addresses, and
//! serves the page. It reads only, unless writes are allowed. It knows no command line and no kubeconfig; discovery is
//! a trait that the caller implements.
//!
//! ```text
//!   API server ─► watch ─────► store ─┬─► stream ──────────────► browser
//!   operators  ─► operators ─► ledger ┴─► timeline, causality, ─► browser
//!                                         controllers, permissions
//! ```
//!
//! Everything from the cluster and from operators is data of others: it is bounded, sent as JSON, and shown as text.

mod access;
mod actions;
mod answers;
mod assets;
mod causality;
mod controllers;
mod fields;
mod kind;
mod object;
mod operators;
mod permissions;
mod secret;
mod server;
mod shared;
mod store;
mod stream;
mod summary;
mod timeline;
mod watch;

pub use kind::{Discover, Kind};
pub use operators::Address;
pub use secret::hide_values;
pub use server::{Console, Error, Settings};
