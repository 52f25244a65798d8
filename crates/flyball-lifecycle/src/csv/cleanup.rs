//! Deletion of the objects of a ClusterServiceVersion that cannot have it as owner.

use super::index::{ByOwner, name_of};
use super::observe::Cx;
use crate::api::{ClusterServiceVersion, ClusterServiceVersionPhase as Phase, labels};
use crate::install::service_name;
use crate::patch::merge_patch;
use flyball::{ObjectKey, Resource, Result};
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, RoleBinding};
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::ResourceExt;
use kube::core::ObjectMeta;
use serde_json::json;

/// The progress of a deletion.
pub(super) enum CleanUp {
    /// Nothing is left.
    Complete,
    /// Objects are being deleted. Their deletion is an event.
    Waits,
    /// No event shows when it goes on.
    Again,
}

/// Deletes the cluster-scoped objects of a ClusterServiceVersion, its copies, and its binding in `kube-system`. Objects
/// that it shares with others are theirs from now on.
///
/// Webhooks go first: without their server they would reject objects. Copies take the roles of their namespaces with
/// them.
pub(super) async fn clean_up(csv: &ClusterServiceVersion, cx: &Cx) -> Result<CleanUp> {
    super::reset::reset_conversions(csv, cx).await?;
    let mut left = 0;
    left += delete_owned::<MutatingWebhookConfiguration>(csv, cx).await?;
    left += delete_owned::<ValidatingWebhookConfiguration>(csv, cx).await?;
    left += delete_owned::<APIService>(csv, cx).await?;
    if pass_on::<ClusterRoleBinding>(csv, cx).await? + pass_on::<ClusterRole>(csv, cx).await? > 0 {
        // The caches do not have the new owners yet.
        return Ok(CleanUp::Again);
    }
    left += delete_owned::<ClusterRoleBinding>(csv, cx).await?;
    left += delete_owned::<ClusterRole>(csv, cx).await?;
    left += super::copies::delete_all(csv, cx).await?;
    left += delete_auth_readers(csv, cx).await?;
    Ok(if left == 0 { CleanUp::Complete } else { CleanUp::Waits })
}

/// Makes another ClusterServiceVersion the owner of the objects that it shares; returns their number.
async fn pass_on<T: Resource>(csv: &ClusterServiceVersion, cx: &Cx) -> Result<usize> {
    let mut passed = 0;
    for object in cx.list_by::<ByOwner<T>>(&name_of(csv)).await? {
        let Some((namespace, name)) = heir(object.meta(), csv, cx).await? else { continue };
        let labels = json!({labels::OWNER: name, labels::OWNER_NAMESPACE: namespace});
        merge_patch(cx, &object, "", &json!({"metadata": {"labels": labels}})).await?;
        passed += 1;
    }
    Ok(passed)
}

/// Returns the ClusterServiceVersion that an object was installed with as well, and that stays.
async fn heir(meta: &ObjectMeta, csv: &ClusterServiceVersion, cx: &Cx) -> Result<Option<(String, String)>> {
    let annotations = meta.annotations.iter().flatten();
    let users = annotations.filter(|(name, _)| name.starts_with(labels::INSTALLED_ALONGSIDE_PREFIX));
    for (namespace, name) in users.filter_map(|(_, user)| user.split_once('/')) {
        if csv.namespace().as_deref() == Some(namespace) && csv.name_any() == name {
            continue;
        }
        let other = cx.get::<ClusterServiceVersion>(&ObjectKey::new(Some(namespace), name)).await?;
        let stays = |other: &ClusterServiceVersion| {
            let is_obsolete = matches!(other.status.phase, Phase::Replacing | Phase::Deleting);
            other.metadata.deletion_timestamp.is_none() && !is_obsolete
        };
        if other.is_some_and(|other| stays(&other)) {
            return Ok(Some((namespace.to_owned(), name.to_owned())));
        }
    }
    Ok(None)
}

async fn delete_owned<T: Resource>(csv: &ClusterServiceVersion, cx: &Cx) -> Result<usize> {
    let owned = cx.list_by::<ByOwner<T>>(&name_of(csv)).await?;
    for object in owned.iter().filter(|object| object.meta().deletion_timestamp.is_none()) {
        cx.delete(object).await?;
    }
    Ok(owned.len())
}

/// Deletes the bindings that let servers read the configuration of authentication, unless a newer version has taken
/// them over: then another ClusterServiceVersion has a Deployment of that name.
async fn delete_auth_readers(csv: &ClusterServiceVersion, cx: &Cx) -> Result<usize> {
    let siblings = super::observe::siblings(csv, cx).await?;
    let is_used = |name: &str| {
        siblings.0.iter().any(|other| other.spec.details().deployments.iter().any(|deployment| deployment.name == name))
    };
    let mut left = 0;
    for deployment in csv.spec.details().deployments.iter().filter(|deployment| !is_used(&deployment.name)) {
        let (service, namespace) = (service_name(&deployment.name), csv.namespace().unwrap_or_default());
        for name in [format!("{service}-auth-reader"), format!("{service}-{namespace}-auth-reader")] {
            let binding = cx.get::<RoleBinding>(&ObjectKey::new(Some("kube-system"), &name)).await?;
            // The same name may belong to an operator of another namespace.
            let is_own = |binding: &RoleBinding| {
                let mut subjects = binding.subjects.iter().flatten();
                subjects.all(|subject| subject.namespace.as_deref() == Some(&namespace))
            };
            if let Some(binding) = binding.filter(is_own) {
                left += 1;
                if binding.metadata.deletion_timestamp.is_none() {
                    cx.delete(&binding).await?;
                }
            }
        }
    }
    Ok(left)
}
