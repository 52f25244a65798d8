//! Deletion of the objects of a ClusterServiceVersion that cannot have it as owner.

use super::index::{ByOwner, name_of};
use super::observe::Cx;
use super::succession::{CleanUp, pass_on_or_delete};
use crate::api::ClusterServiceVersion;
use crate::install::service_name;
use flyball::{ObjectKey, Resource, Result};
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, RoleBinding};
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::ResourceExt;

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
    let bindings = pass_on_or_delete::<ClusterRoleBinding>(csv, cx).await?;
    let roles = pass_on_or_delete::<ClusterRole>(csv, cx).await?;
    left += super::copies::delete_all(csv, cx).await?;
    left += delete_auth_readers(csv, cx).await?;
    let progress = if left == 0 { CleanUp::Complete } else { CleanUp::Waits };
    Ok(progress.max(bindings).max(roles))
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
