//! ClusterRoles and ClusterRoleBindings of a ClusterServiceVersion that is deleted. Other installations may share them,
//! and take them over at any time.
//!
//! An object that others use loses the annotations of the ClusterServiceVersion, and what only this one needs. So after
//! upgrades of several installations at the same time, the last one that leaves removes what no newer version needs.
//!
//! An object is passed on to another user, or deleted, only in the version that was read. The new owner may be gone by
//! then, and its own cleanup has not found the object. So a ClusterServiceVersion stays until each object that names it
//! as a user has an owner that exists. Other ClusterServiceVersions are read from the API server, since the caches may
//! lag behind the objects that name them.

use super::grants::without_users;
use super::index::{ByOwner, ByUser, CsvName, name_of, users};
use super::observe::Cx;
use crate::api::{ClusterServiceVersion, ClusterServiceVersionPhase as Phase, labels};
use crate::install::{KIND, owners};
use crate::patch::{delete_unchanged, merge_patch};
use flyball::{Index, ObjectKey, Resource, Result};
use http::Request;
use kube::Api;
use kube::core::{ObjectList, ObjectMeta};
use serde::Serialize;
use serde_json::json;
use std::collections::BTreeSet;

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
pub(super) async fn pass_on_or_delete<T: Resource + Clone + Serialize>(
    csv: &ClusterServiceVersion,
    cx: &Cx,
) -> Result<CleanUp> {
    let name = name_of(csv);
    let mut owned = cx.list_by::<ByOwner<T>>(&name).await?;
    if owned.is_empty() {
        owned = newest_owned::<T>(&name, cx).await?;
    }
    let mut progress = CleanUp::Complete;
    for object in owned {
        progress = progress.max(pass_on(&object, csv, cx).await?);
    }
    if progress > CleanUp::Waits {
        return Ok(progress);
    }
    for object in cx.list_by::<ByUser<T>>(&name).await? {
        if object.meta().deletion_timestamp.is_some() || owner_of(object.meta()).is_none_or(|owner| owner == name) {
            continue;
        }
        if !is_abandoned(object.meta(), &name, cx).await? {
            leave(&object, &name, None, cx).await?;
        } else {
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
async fn pass_on<T: Resource + Serialize>(object: &T, csv: &ClusterServiceVersion, cx: &Cx) -> Result<CleanUp> {
    if object.meta().deletion_timestamp.is_some() {
        return Ok(CleanUp::Waits);
    }
    let own = name_of(csv);
    for (namespace, name) in users(object.meta()).into_iter().filter(|user| *user != own) {
        let other = newest(&namespace, &name, cx.client()).await?;
        if other.is_some_and(|other| !matches!(other.status.phase, Phase::Replacing | Phase::Deleting)) {
            leave(object, &own, Some(&(namespace, name)), cx).await?;
            // The next reconcile checks that the new owner still exists.
            return Ok(CleanUp::Again);
        }
    }
    Ok(if delete_unchanged(cx, object).await? { CleanUp::Waits } else { CleanUp::Conflict })
}

/// Removes a ClusterServiceVersion, and others that are gone, from the users of an object, with what only they need.
/// Makes another one its owner, if there is one.
async fn leave<T: Resource + Serialize>(object: &T, own: &CsvName, owner: Option<&CsvName>, cx: &Cx) -> Result<()> {
    let text = |(namespace, name): &CsvName| format!("{namespace}/{name}");
    let (mut gone, mut left) = (vec![text(own)], Vec::new());
    let all: BTreeSet<CsvName> = users(object.meta()).into_iter().chain(owner_of(object.meta())).collect();
    for user in all.iter().filter(|user| *user != own) {
        let place = if exists(user, cx).await? { &mut left } else { &mut gone };
        place.push(text(user));
    }
    let mut patch = without_users(&serde_json::to_value(object)?, &gone, &left);
    if let Some((namespace, name)) = owner {
        patch["metadata"]["labels"] = json!({labels::OWNER: name, labels::OWNER_NAMESPACE: namespace});
    }
    merge_patch(cx, object, "", &patch).await.map(drop)
}

/// Returns true if a ClusterServiceVersion exists. One that is being deleted leaves its objects itself.
async fn exists((namespace, name): &CsvName, cx: &Cx) -> Result<bool> {
    let is_cached = cx.get::<ClusterServiceVersion>(&ObjectKey::new(Some(namespace), name)).await?.is_some();
    Ok(is_cached || newest(namespace, name, cx.client()).await?.is_some())
}

/// Returns the ClusterServiceVersion that owns an object.
fn owner_of(meta: &ObjectMeta) -> Option<CsvName> {
    let owner = owners(meta).pop()?;
    Some((owner.namespace().unwrap_or_default().to_owned(), owner.name().to_owned()))
}

/// Returns true if the owner of an object is another ClusterServiceVersion, which is gone or being deleted.
async fn is_abandoned(meta: &ObjectMeta, own: &CsvName, cx: &Cx) -> Result<bool> {
    let Some(owner) = owner_of(meta) else { return Ok(false) };
    Ok(owner != *own && newest(&owner.0, &owner.1, cx.client()).await?.is_none())
}

/// Returns a ClusterServiceVersion as the API server has it, unless it is being deleted.
pub(super) async fn newest(
    namespace: &str,
    name: &str,
    client: &kube::Client,
) -> Result<Option<ClusterServiceVersion>> {
    let csvs: Api<ClusterServiceVersion> = Api::namespaced(client.clone(), namespace);
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
