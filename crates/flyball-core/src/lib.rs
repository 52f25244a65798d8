//! The parts of a Kubernetes object, in plain types.
//!
//! The embedded API server (`flyball-server`) and the runtime (`flyball`) both depend on this crate: they share names,
//! selectors and [`Status`], and take time and randomness from the same [`Clock`] and [`Rng`].
//!
//! It is pure: no I/O, no threads, no wall clock except in [`Clock::system`], no randomness except in [`Rng::from_os`].
//! The deterministic simulation depends on that.

pub mod cron;
pub mod exposition;
pub mod field;
pub mod hex;
pub mod json;
pub mod memory;
pub mod metadata;
pub mod names;
pub mod object;
pub mod pointer;
pub mod quantity;
pub mod regexp;
pub mod rng;
pub mod scope;
pub mod selector;
pub mod service_account;
pub mod status;
pub mod time;

mod gvk;

pub use field::{FieldError, Path};
pub use gvk::{GroupResource, GroupVersion, GroupVersionKind, GroupVersionResource, ObjectKey};
pub use object::Object;
pub use quantity::Quantity;
pub use rng::Rng;
pub use selector::{FieldSelector, LabelSelector};
pub use status::{Cause, Reason, Status};
pub use time::Clock;
