//! Registry: what is served, and the one path by which objects come into being, change and go.
//!
//! Takes decoded requests, gives objects or a [`Status`]. A write reads what is stored, makes a candidate of it and of
//! what the client sent, brings it through admission and validation and stores it, and begins anew if another write
//! came first. It must not know of HTTP beyond media types, nor how objects are stored.
//!
//! [`Status`]: flyball_core::Status

mod catalog;
mod change;
mod create;
pub(crate) mod decode;
mod delete;
pub(crate) mod managed;
mod meta;
mod patch;
pub(crate) mod protobuf;
mod read;
mod resource;
pub(crate) mod scale;
mod scheme;
mod seed;
mod write;

pub(crate) use catalog::{Catalog, Group, Lookup, Version, stability};
pub(crate) use change::storage_error;
pub(crate) use delete::{Deleted, check_preconditions};
pub(crate) use meta::{validate_annotations, validate_labels};
pub(crate) use patch::{Patch, PatchKind};
pub(crate) use read::{Listed, Selection, convert_whole, parse_version, pruned};
pub(crate) use resource::{Behaviour, Resource, head};
pub(crate) use write::{Change, Outcome, Target, Writer, Written};
