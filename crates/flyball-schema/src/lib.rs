//! Schemas of Kubernetes objects, and merges of objects.
//!
//! Schemas ([`schema`]) of built-in kinds ([`notation`]) and of custom resources ([`openapi`]), and the algebra of
//! server-side apply ([`apply`]). The crate is pure: no I/O, clock, randomness or HTTP.

pub mod apply;
pub mod cel;
pub mod decode;
mod extent;
pub mod formats;
pub mod matching;
pub mod notation;
pub mod openapi;
pub mod patch;
pub mod pattern;
pub mod protobuf;
pub mod prune;
pub mod rules;
pub mod schema;
pub mod validate;
