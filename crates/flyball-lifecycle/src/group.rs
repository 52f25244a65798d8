//! OperatorGroups: target namespaces of operators, the APIs that they provide, and the roles to use these.
//!
//! [`targets`] and [`ProvidedApis`] are pure; three small controllers apply them: `group_controller` sets status and
//! annotations of groups, `namespace_controller` labels the target namespaces, and `role_controller` deletes roles
//! of groups that are gone. Groups have no finalizer, as in OLM.
//!
//! Invariant: only the controller of groups writes the annotation of provided APIs, and the controller of
//! ClusterServiceVersions installs nothing before the annotation has the APIs. So of two operators in intersecting
//! groups only one can provide an API.

mod conflict;
mod controller;
mod namespaces;
mod provided;
mod roles;
mod targets;

pub(crate) use conflict::has_conflict;
pub(crate) use controller::{group_changes, group_controller};
pub(crate) use namespaces::namespace_controller;
pub use provided::{ProvidedApi, ProvidedApis};
pub(crate) use roles::{api_roles, role_controller};
pub use targets::{InvalidTargets, targets};
