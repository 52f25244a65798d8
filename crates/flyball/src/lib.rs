//! The operator framework for Kubernetes in Rust.

mod client;
mod error;
mod json;
mod kind;

mod apply;
mod cache;
mod operator;
mod queue;
mod reconcile;
mod watcher;

pub use apply::{Condition, Event};
pub use cache::Caches;
pub use error::{Error, Result, is_namespace_terminating};
pub use flyball_core::{Clock, ObjectKey, Rng};
pub use kind::Resource;
pub use operator::{Operator, RunError};
pub use queue::Backoff;
pub use reconcile::{Action, Context, Controller, Predicate, Reconcile};
