//! The objects of an operator: those that a ClusterServiceVersion requires, and those that are created for it.
//!
//! The functions are pure: they take a ClusterServiceVersion, its OperatorGroup and observed objects, and return
//! desired objects as JSON, or the state of requirements. The controller of ClusterServiceVersions applies them.
//!
//! Invariant: everything that is created for a ClusterServiceVersion is labeled `olm.managed`, because the caches
//! select this label, and has the ClusterServiceVersion as owner: by an owner reference in its namespace, otherwise by
//! labels.

mod api_service;
mod certificate;
mod config;
mod conversion;
mod definition;
mod deployment;
mod hash;
mod health;
mod modes;
mod owner;
mod permissions;
mod requirement;
mod service;
mod webhook;

pub use conversion::with_conversions;
pub use definition::{Definition, DefinitionCondition, DefinitionVersion};
pub use modes::{InstallModes, UnsupportedModes};
pub use permissions::{permissions, rights_in_all_namespaces, rights_in_target};

pub(crate) use api_service::{api_services, belongs_to, is_available};
pub(crate) use certificate::ServingCertificate;
pub(crate) use conversion::{converted, remove_foreign_conversion};
pub(crate) use deployment::deployments;
pub(crate) use hash::content_hash;
pub(crate) use health::{Health, health};
pub(crate) use owner::{KIND, component_labels, managed, owner_labels, owner_reference, owners, reference};
pub(crate) use permissions::role_names;
pub(crate) use requirement::{ClusterObjects, requirements};
pub(crate) use service::{secret_name, service_name, service_objects};
pub(crate) use webhook::{check as check_webhooks, conversions, webhook_configurations};
