//! The built-in kinds: what each is called, what can be done with it and how it behaves.
//!
//! A [`Kind`] is data; what needs code (defaults, rules of validation, what an update may not touch) hangs on it as
//! functions. Each kind is the value `KIND` of a file of its own, in the folder of its API group. A group's module lists
//! its kinds and has what they share; groups share the modules below them. The types of fields stand in `kinds/types`,
//! in the notation of `flyball_schema::notation`.

// Machinery below the groups.
mod claim_spec;
mod difference;
mod expression;
mod field;
mod fill;
mod kind;
mod load_balancer;
mod pod_spec;
mod printer;
mod rules;
mod shown;
mod webhook_client;
mod workload;

// The groups.
mod admissionregistration;
mod apiextensions;
mod apiregistration;
mod apps;
mod authentication;
mod authorization;
mod autoscaling;
mod batch;
mod certificates;
mod coordination;
mod core;
mod discovery;
mod events;
mod flowcontrol;
mod networking;
mod node;
mod policy;
mod rbac;
mod resource;
mod scheduling;
mod storage;

mod built_in;

pub(crate) use apiextensions::custom_resource_definition::{self as definition, validate_embedded};
pub use built_in::built_in_schema;
pub(crate) use built_in::{ACTIONS, built_in, library};
pub(crate) use core::Service;
pub(crate) use flowcontrol::objects as flow_objects;
pub(crate) use kind::{Answer, Checks, Deletion, Kind, Part, ScalePaths, Subresource, Verbs};
pub(crate) use printer::{Heading, Row, View};
