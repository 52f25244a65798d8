//! ClusterRoles and ClusterRoleBindings of a ClusterServiceVersion that is deleted. Other installations may share them,
//! and take them over at any time.
//!
//! An object is passed on to another user, or deleted, only in the version that was read. The new owner may be gone by
//! then, and its own cleanup has not found the object. So a ClusterServiceVersion stays until each object that names it
//! as a user has an owner that exists. Other ClusterServiceVersions are read from the API server, since the caches may
//! lag behind the objects that name them.

use super::index::{ByOwner, ByUser, CsvName, name_of, users};
use super::observe::Cx;
use crate::api::{ClusterServiceVersion, ClusterServiceVersionPhase as Phase, labels};
use crate::install::{KIND, owners};
use crate::patch::{delete_unchanged, merge_patch};
use flyball::{Index, Resource, Result};
use http::Request;
use kube::Api;
use kube::core::{ObjectList, ObjectMeta};
use serde_json::json;

/// The progress of a deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CleanUp {
    /// Nothing is left.
    Complete,
    /// Objects are being deleted. Their deletion is an event.
    Waits,
    /// Objects were changed. No event shows when it goes on.
    Again,
    /// An object has changed since it was read.
    Conflict,
}

/// Passes the objects of a kind on to other ClusterServiceVersions, and deletes those that nobody else uses.
pub(super) async fn pass_on_or_delete<T: Resource + Clone>(csv: &ClusterServiceVersion, cx: &Cx) -> Result<CleanUp> {
    let name = name_of(csv);
    let mut owned = cx.list_by::<ByOwner<T>>(&name).await?;
    if owned.is_empty() {
        owned = newest_owned::<T>(&name, cx).await?;
    }
    let mut progress = CleanUp::Complete;
    for object in owned {
        progress = progress.max(pass_on(&object, csv, cx).await?);
    }
    for object in cx.list_by::<ByUser<T>>(&name).await? {
        if object.meta().deletion_timestamp.is_none() && is_abandoned(object.meta(), &name, cx).await? {
            progress = progress.max(match pass_on(&object, csv, cx).await? {
                // Its deletion is no event of this ClusterServiceVersion.
                CleanUp::Waits => CleanUp::Complete,
                other => other,
            });
        }
    }
    Ok(progress)
}

/// Makes another user of an object its owner; deletes the object if there is none.
async fn pass_on<T: Resource>(object: &T, csv: &ClusterServiceVersion, cx: &Cx) -> Result<CleanUp> {
    if object.meta().deletion_timestamp.is_some() {
        return Ok(CleanUp::Waits);
    }
    let own = name_of(csv);
    for (namespace, name) in users(object.meta()).into_iter().filter(|user| *user != own) {
        let other = newest(&namespace, &name, cx).await?;
        if other.is_some_and(|other| !matches!(other.status.phase, Phase::Replacing | Phase::Deleting)) {
            let labels = json!({labels::OWNER: name, labels::OWNER_NAMESPACE: namespace});
            merge_patch(cx, object, "", &json!({"metadata": {"labels": labels}})).await?;
            // The next reconcile checks that the new owner still exists.
            return Ok(CleanUp::Again);
        }
    }
    Ok(if delete_unchanged(cx, object).await? { CleanUp::Waits } else { CleanUp::Conflict })
}

/// Returns true if the owner of an object is another ClusterServiceVersion, which is gone or being deleted.
async fn is_abandoned(meta: &ObjectMeta, own: &CsvName, cx: &Cx) -> Result<bool> {
    let Some(owner) = owners(meta).pop() else { return Ok(false) };
    let owner = (owner.namespace().unwrap_or_default().to_owned(), owner.name().to_owned());
    Ok(owner != *own && newest(&owner.0, &owner.1, cx).await?.is_none())
}

/// Returns a ClusterServiceVersion as the API server has it, unless it is being deleted.
async fn newest(namespace: &str, name: &str, cx: &Cx) -> Result<Option<ClusterServiceVersion>> {
    let csvs: Api<ClusterServiceVersion> = Api::namespaced(cx.client().clone(), namespace);
    Ok(csvs.get_opt(name).await?.filter(|csv| csv.metadata.deletion_timestamp.is_none()))
}

/// Returns the objects of a ClusterServiceVersion as the API server has them: another one may have passed them on a
/// moment ago.
async fn newest_owned<T: Resource + Clone>(name: &CsvName, cx: &Cx) -> Result<Vec<T>> {
    let (managed, kind, namespace) = (labels::MANAGED, labels::OWNER_KIND, labels::OWNER_NAMESPACE);
    let selector = format!("{managed}=true,{kind}={KIND},{namespace}={}", name.0);
    let query = url::form_urlencoded::Serializer::new(String::new()).append_pair("labelSelector", &selector).finish();
    let request = Request::get(format!("{}?{query}", T::url_path(&(), None)));
    let request = request.body(Vec::new()).map_err(kube::Error::HttpError)?;
    let list: ObjectList<T> = cx.client().request(request).await?;
    Ok(list.items.into_iter().filter(|object| ByOwner::<T>::values(object).contains(name)).collect())
}
