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
mod config;
mod defaults;
mod deletion;
mod device;
mod difference;
mod event;
mod expression;
mod field;
mod fill;
mod flow;
mod job;
mod kind;
mod namespace;
mod network;
mod node;
mod pod;
mod policy;
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
pub(crate) use all::{ACTIONS, KINDS, library};
pub(crate) use deletion::{ends_gracefully, grace, mark, orphans_by_default, outlives_deletion, outlives_finalizers};
pub(crate) use field::Field;
pub(crate) use flow::objects as flow_objects;
pub(crate) use kind::{Answer, Checks, Kind, Part, ScalePaths, Subresource, Verbs};
pub(crate) use printers::{Row, View, columns};
pub(crate) use service::Service;
pub(crate) use webhook::{review_versions, webhook_client};
