//! The operator lifecycle manager, with the APIs of OLM.
//!
//! [`Catalogs`] hold the bundles that can be installed. [`resolve`] selects the bundles that the Subscriptions of a
//! namespace install next. It makes the same choices as the resolver of OLM v0; unlike it, a Subscription that cannot
//! be satisfied does not prevent the resolution of others, and a failure is explained by a minimal set of contradicting
//! facts.
//!
//! [`content`] parses and validates catalogs, [`manifests`] the objects of one bundle, [`source`] loads both, and
//! [`grpc`] is the protocol of catalogs over the network.
//!
//! Except for [`source`], [`grpc`] and [`packages`], these modules are pure: they perform no I/O and do not depend on a
//! clock.

pub mod api;
mod bundle;
mod catalog;
mod channel;
mod connections;
pub mod content;
mod contents;
pub mod csv;
mod document;
mod extension;
mod files;
pub mod group;
pub mod grpc;
mod image;
pub mod install;
mod installed;
mod manager;
pub mod manifests;
pub mod packages;
mod patch;
mod plan;
mod requirement;
mod resolution;
mod rules;
pub mod source;
mod subscription;
pub mod validation;
mod version;

pub use bundle::{Api, Bundle, Property};
pub use catalog::{Catalog, CatalogKey, Catalogs, Entry};
pub use channel::InvalidChannel;
pub use contents::load as load_catalog;
pub use document::InvalidDocument;
pub use files::{Files, TooManyFiles};
pub use image::{ImageName, InvalidImageName};
pub use manager::{NAME, Settings, operator};
pub use plan::{SchemaChange, bundled_kinds, planned_definitions, schema_changes, schema_of, unserved_version};
pub use requirement::{InvalidConstraint, Requirement};
pub use resolution::{
    Candidate, Choice, Explanation, Fact, Installed, Isolation, Missing, Request, Resolution, ResolutionError,
    Subscription, resolve,
};
pub use subscription::diagnosis;
pub use version::{InvalidRange, VersionRange, parse_tolerant};
