//! The controller of ClusterServiceVersions: what it owns, watches and may do.

use super::changes::definition_changes;
use super::controller::ClusterServiceVersions;
use super::index::{ByOwner, ByUser, CopiesOf};
use super::kinds;
use crate::api::{ClusterServiceVersion, OlmConfig, OperatorCondition, OperatorGroup, Subscription};
use crate::group::group_changes;
use crate::install::{Definition, owners};
use crate::rules::rule;
use flyball::{Controller, ObjectKey, Predicate, Reconcile, Resource, Result};
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Secret, Service, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::ResourceExt;

/// Returns the controller of ClusterServiceVersions.
pub(super) fn controller() -> Controller<impl Reconcile> {
    let mut controller = Controller::new(ClusterServiceVersions::default())
        .while_deleting()
        .owns::<ClusterServiceVersion>()
        .owns::<MutatingWebhookConfiguration>()
        .owns::<ValidatingWebhookConfiguration>()
        .owns::<APIService>()
        .owns::<ClusterRole>()
        .owns::<ClusterRoleBinding>()
        .owns::<RoleBinding>()
        .owns::<Deployment>();
    for kind in kinds() {
        controller = controller.dynamic(&kind).owns();
    }
    let controller = watch_components(controller);
    controller
        .allows(rule(crate::api::GROUP, &["clusterserviceversions", "clusterserviceversions/status"], &["patch"]))
        .allows(rule("apiextensions.k8s.io", &["customresourcedefinitions"], &["patch"]))
        // Roles of operators may have permissions that the manager does not have.
        .allows(rule("rbac.authorization.k8s.io", &["roles", "clusterroles"], &["bind", "escalate"]))
        .allows(rule("", &["serviceaccounts"], &["impersonate"]))
}

/// Declares the objects whose changes concern ClusterServiceVersions.
fn watch_components(controller: Controller<ClusterServiceVersions>) -> Controller<ClusterServiceVersions> {
    fn owned<T: Resource>(controller: Controller<ClusterServiceVersions>) -> Controller<ClusterServiceVersions> {
        controller.index::<ByOwner<T>>().watches::<T>(|object, _| Ok(owners(object.meta())))
    }
    fn beside<T: Resource>(controller: Controller<ClusterServiceVersions>) -> Controller<ClusterServiceVersions> {
        controller.watches_by_key::<T>(|key, caches| caches.keys::<ClusterServiceVersion>(key.namespace()))
    }
    let controller = owned::<Deployment>(controller);
    let controller = owned::<Service>(controller);
    let controller = owned::<Secret>(controller);
    let controller = owned::<Role>(controller);
    let controller = owned::<RoleBinding>(controller);
    let controller = owned::<ClusterRole>(controller);
    let controller = owned::<ClusterRoleBinding>(controller);
    let controller = owned::<MutatingWebhookConfiguration>(controller);
    let controller = owned::<ValidatingWebhookConfiguration>(controller);
    let controller = beside::<ServiceAccount>(controller);
    let controller = beside::<OperatorCondition>(controller);
    let controller = beside::<Subscription>(controller);
    let controller = beside::<ClusterServiceVersion>(controller);
    let all = |_: &ObjectKey, caches: &flyball::Caches| originals(caches);
    controller
        .index::<CopiesOf>()
        .index::<ByOwner<APIService>>()
        .index::<ByUser<ClusterRole>>()
        .index::<ByUser<ClusterRoleBinding>>()
        // Those of a chain, and the original of a copy.
        .watches::<ClusterServiceVersion>(|csv, _| {
            Ok(csv.copied_from().map(|from| ObjectKey::new(Some(from), &csv.name_any())).into_iter().collect())
        })
        .watches_by_key::<OperatorGroup>(all)
        .watches_by_key::<Namespace>(all)
        .watches_by_key::<OlmConfig>(all)
        .filter::<OperatorGroup>(group_changes())
        .filter::<Namespace>(Predicate::labels())
        .filter::<Definition>(definition_changes())
        .refers_to::<Definition>(|csv| {
            let crds = csv.spec.crds.owned.iter().chain(&csv.spec.crds.required);
            crds.map(|crd| ObjectKey::new(None, &crd.name)).collect()
        })
        .refers_to::<APIService>(|csv| {
            let apis = csv.spec.api_services.owned.iter().chain(&csv.spec.api_services.required);
            apis.map(|api| ObjectKey::new(None, &api.api_service_name())).collect()
        })
}

/// Returns the ClusterServiceVersions in the namespaces with OperatorGroups: originals are nowhere else, unless they
/// have failed.
fn originals(caches: &flyball::Caches) -> Result<Vec<ObjectKey>> {
    let mut keys = Vec::new();
    let mut namespaces: Vec<ObjectKey> = caches.keys::<OperatorGroup>(None)?;
    namespaces.dedup_by(|one, other| one.namespace() == other.namespace());
    for group in namespaces {
        keys.extend(caches.keys::<ClusterServiceVersion>(group.namespace())?);
    }
    Ok(keys)
}
