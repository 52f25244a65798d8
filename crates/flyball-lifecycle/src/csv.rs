//! The controller of ClusterServiceVersions: installs operators, upgrades them, and keeps them as described.
//!
//! | Module | Content |
//! |---|---|
//! | `transition` | the next phase, as a function of observed facts |
//! | `observe` | reads everything that the next phase depends on |
//! | `membership` | the OperatorGroup of a ClusterServiceVersion |
//! | `desired` | the objects of an operator, from `install` |
//! | `write` | applies them, as the manager or as a service account |
//! | `index` | finds objects by owner, user, origin and Operator |
//! | `copies`, `cleanup`, `reset` | copies in target namespaces; deletion |
//! | `succession`, `grants` | roles that another operator uses after a deletion, and what it needs of them |
//! | `orphans` | roles whose operator was deleted before they were created |
//! | `changes` | changes of other objects that concern an operator |
//! | `installation`, `phase` | applies the objects of an operator; changes its phase |
//! | `controller`, `declaration` | calls the above in order; what it watches |
//! | `condition`, `component`, `config` | OperatorConditions, Operators, OLMConfig |
//! | `policy` | users who may write objects that determine permissions |
//!
//! Invariant: a reconcile changes the phase at most once, and the next one starts only when the caches have this
//! change. So each phase is visible to watchers, and a crash at any request is harmless.

mod changes;
mod cleanup;
mod component;
mod condition;
mod config;
mod controller;
mod copies;
mod declaration;
mod desired;
mod grants;
mod index;
mod installation;
mod membership;
mod observe;
mod orphans;
mod phase;
mod policy;
mod release;
mod replacement;
mod reset;
mod status;
mod succession;
mod transition;
mod write;

pub(crate) use component::label_of;
pub(crate) use grants::{
    grants_all_of, needs_annotation, needs_of, recorded_needs, reduced, union, user_annotation, with_grants_of,
};
pub(crate) use orphans::PLAN_MANAGER;

use crate::api::{CatalogSource, ClusterServiceVersion, InstallPlan, OperatorGroup};
use crate::group::{group_controller, namespace_controller, role_controller};
use crate::install::Definition;
use flyball::{Cache, Kind, Operator};
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};

/// Label selector of the objects that are cached: those that the lifecycle manager created.
const MANAGED: &str = "olm.managed=true";

/// Adds the controllers of ClusterServiceVersions, OperatorGroups, OperatorConditions, Operators and OLMConfig to an
/// operator, with the caches that they need and the policies that guard their objects.
///
/// The CRDs are not added: see [`crds`](crate::api::crds()).
pub fn add_to(operator: Operator) -> Operator {
    operator
        .cache(Cache::<Deployment>::new().labels(MANAGED))
        .cache(Cache::<Service>::new().labels(MANAGED))
        .cache(Cache::<Secret>::new().labels(MANAGED))
        .cache(Cache::<ConfigMap>::new().labels(MANAGED))
        .cache(Cache::<Role>::new().labels(MANAGED))
        .cache(Cache::<RoleBinding>::new().labels(MANAGED))
        .cache(Cache::<ClusterRole>::new().labels(MANAGED))
        .cache(Cache::<ClusterRoleBinding>::new().labels(MANAGED))
        .cache(Cache::<MutatingWebhookConfiguration>::new().labels(MANAGED))
        .cache(Cache::<ValidatingWebhookConfiguration>::new().labels(MANAGED))
        .cache(Cache::<Definition>::new().without("spec.versions.schema"))
        .controller(declaration::controller())
        .controller(orphans::controller::<ClusterRole>("orphaned-clusterroles"))
        .controller(orphans::controller::<ClusterRoleBinding>("orphaned-clusterrolebindings"))
        .controller(condition::controller())
        .controller(component::controller())
        .controller(component::subscription_controller())
        .controller(config::controller())
        .controller(group_controller())
        .controller(namespace_controller())
        .controller(role_controller())
        .policy(policy::admins_only::<ClusterServiceVersion>())
        .policy(policy::admins_only::<OperatorGroup>())
        .policy(policy::admins_only::<CatalogSource>())
        .policy(policy::approval_only::<InstallPlan>())
        .policy(policy::catalog_content())
        .policy(policy::configuration())
}

/// Returns the kinds of the objects that are created for operators.
fn kinds() -> [Kind; 13] {
    let core = |name: &str| Kind::new("", "v1", name);
    let rbac = |name: &str| Kind::new("rbac.authorization.k8s.io", "v1", name);
    let webhooks = |name: &str| Kind::new("admissionregistration.k8s.io", "v1", name).cluster_scoped();
    [
        core("ServiceAccount"),
        core("Service"),
        core("Secret"),
        rbac("Role"),
        rbac("RoleBinding"),
        rbac("ClusterRole").cluster_scoped(),
        rbac("ClusterRoleBinding").cluster_scoped(),
        Kind::new("apps", "v1", "Deployment"),
        webhooks("MutatingWebhookConfiguration"),
        webhooks("ValidatingWebhookConfiguration"),
        Kind::new("apiregistration.k8s.io", "v1", "APIService").cluster_scoped(),
        Kind::new(crate::api::GROUP, "v2", "OperatorCondition"),
        Kind::new(crate::api::GROUP, "v1alpha1", "ClusterServiceVersion"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_the_names_of_their_types() {
        let plurals: Vec<String> = kinds().iter().map(|kind| kind.resource().resource.to_string()).collect();
        for typed in [
            Kind::of::<Service>(),
            Kind::of::<RoleBinding>(),
            Kind::of::<MutatingWebhookConfiguration>(),
            Kind::of::<ClusterServiceVersion>(),
            Kind::of::<crate::api::OperatorCondition>(),
        ] {
            assert!(plurals.contains(&typed.resource().resource.to_string()), "{typed:?}");
        }
    }
}
