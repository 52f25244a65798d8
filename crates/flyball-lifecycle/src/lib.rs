//! The operator lifecycle manager: what OLM is.
//!
//! [`Catalogs`] hold the bundles that can be installed. [`resolve`] selects the bundles that the Subscriptions of a
//! namespace install next. It makes the same choices as the resolver of OLM v0; unlike it, a Subscription that cannot
//! be satisfied does not prevent the resolution of others, and a failure is explained by the smallest set of facts that
//! contradict each other.
//!
//! The crate is pure: it performs no I/O and does not depend on a clock.

mod bundle;
mod catalog;
mod channel;
mod requirement;
mod resolution;
mod version;

pub use bundle::{Api, Bundle, Property};
pub use catalog::{Catalog, CatalogKey, Catalogs, Entry};
pub use channel::InvalidChannel;
pub use requirement::{InvalidConstraint, Requirement};
pub use resolution::{
    Candidate, Choice, Explanation, Fact, Installed, Isolation, Missing, Request, Resolution, ResolutionError,
    Subscription, resolve,
};
pub use version::{InvalidRange, VersionRange, parse_tolerant};
