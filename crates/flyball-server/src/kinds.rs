//! The built-in kinds: what each is called, what can be done with it and how it behaves.
//!
//! A [`Kind`] is data; what needs code (defaults, rules of validation, what an update may not touch) hangs on it as
//! functions. The types of their fields stand in `kinds/types`, in the notation of `flyball_schema::notation`.

mod access;
mod admission_policy;
mod all;
mod apps;
mod attachment;
mod batch;
mod certificate;
mod claim_spec;
mod config;
mod defaults;
pub(crate) mod definition;
mod device;
mod difference;
mod event;
mod expression;
mod field;
mod fill;
mod flow;
mod groups;
mod job;
mod kind;
mod namespace;
mod network;
mod node;
mod pod;
mod policy;
mod printer;
mod printers;
mod quota;
mod registration;
mod rules;
mod scaling;
mod scaling_v1;
mod service;
mod shown;
mod storage;
mod webhook;
mod workload;

pub use all::built_in_schema;
pub(crate) use all::{ACTIONS, built_in, library};
pub(crate) use definition::validate_embedded;
pub(crate) use flow::objects as flow_objects;
pub(crate) use kind::{Answer, Checks, Deletion, Kind, Part, ScalePaths, Subresource, Verbs};
pub(crate) use printer::{Heading, Row, View};
pub(crate) use service::Service;
