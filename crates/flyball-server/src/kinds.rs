//! The built-in kinds: names, verbs and behavior.
//!
//! A [`Kind`] is data, with functions for defaults, validation and preparation of writes. Each kind is the value `KIND`
//! of a separate file in the directory of its API group. The module of a group lists its kinds and contains their
//! shared code. Code shared by groups is in the modules below them. `kinds/types` declares the types of fields, in the
//! notation of `flyball_schema::notation`.

// Modules below the groups.
mod claim_spec;
mod difference;
mod display;
mod expression;
mod field;
mod fill;
mod kind;
mod load_balancer;
mod pod_spec;
mod printer;
mod rules;
mod subresource;
mod usage;
mod webhook_client;
mod workload;

/// Declares the modules of a group's kinds, and `KINDS`, their values in this order, which is that of discovery.
macro_rules! kinds {
    ($($visibility:vis mod $kind:ident;)*) => {
        $($visibility mod $kind;)*
        pub(super) static KINDS: &[&$crate::kinds::kind::Kind] = &[$(&$kind::KIND),*];
    };
}

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
pub(crate) use built_in::{ACTIONS, built_in, library, of_group};
pub(crate) use flowcontrol::objects as flow_objects;
pub(crate) use kind::{Checks, Deletion, DeletionResponse, Kind, Review, ScalePaths, Verbs};
pub(crate) use printer::{Heading, Row, View};
pub(crate) use subresource::{Part, Subresource};
pub use usage::Amounts;
pub(crate) use usage::amounts;

// Kinds that other modules use.
pub(crate) use admissionregistration::{
    MUTATING_ADMISSION_POLICY, MUTATING_ADMISSION_POLICY_BINDING, MUTATING_WEBHOOK_CONFIGURATION,
    VALIDATING_ADMISSION_POLICY, VALIDATING_ADMISSION_POLICY_BINDING, VALIDATING_WEBHOOK_CONFIGURATION,
};
pub(crate) use apiextensions::CUSTOM_RESOURCE_DEFINITION;
pub(crate) use apiregistration::API_SERVICE;
pub(crate) use certificates::{CERTIFICATE_SIGNING_REQUEST, requested_groups};
pub(crate) use core::Service;
pub(crate) use core::{
    BINDING, LIMIT_RANGE, NAMESPACE, NODE, PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM, POD, RESOURCE_QUOTA, SECRET,
    SERVICE, SERVICE_ACCOUNT, pod_usage,
};
pub(crate) use networking::{INGRESS, INGRESS_CLASS};
pub(crate) use node::RUNTIME_CLASS;
pub(crate) use policy::POD_DISRUPTION_BUDGET;
pub(crate) use rbac::{CLUSTER_ROLE, CLUSTER_ROLE_BINDING, ROLE, ROLE_BINDING};
pub(crate) use resource::{RESOURCE_CLAIM, RESOURCE_CLAIM_TEMPLATE};
pub(crate) use scheduling::PRIORITY_CLASS;
pub(crate) use storage::STORAGE_CLASS;
