//! The parts of a Kubernetes object, in plain types.
//!
//! This crate sits below both halves of the loop: the embedded API server (`flyball-server`) and the runtime
//! (`flyball`) speak of the same names, selectors and [`Status`], and take time and randomness from the same [`Clock`]
//! and [`Rng`].
//!
//! It is pure: no I/O, no threads, no wall clock but the one inside [`Clock::system`], no randomness but the one that
//! seeds [`Rng::from_os`]. Whoever breaks that breaks the deterministic simulation built on it.

pub mod cron;
pub mod field;
pub mod memory;
pub mod metadata;
pub mod names;
pub mod object;
pub mod quantity;
pub mod regexp;
pub mod rng;
pub mod scope;
pub mod selector;
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
