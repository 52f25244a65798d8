//! ClusterRoles and ClusterRoleBindings whose ClusterServiceVersion was deleted while its InstallPlan was executed.
//!
//! A cluster-scoped object cannot have a ClusterServiceVersion as owner, so the garbage collector does not delete it.
//! The cleanup of the ClusterServiceVersion misses an object that its plan creates a moment later. The plan may be gone
//! by then as well, or the manager may crash. So each such object is checked when it appears or changes, when its owner
//! is deleted, and when the manager starts. An object that another ClusterServiceVersion shares stays: that one passes
//! it on. So does an object that others have written, such as one that existed before the plan.

use super::index::users;
use super::succession::newest;
use crate::api::ClusterServiceVersion;
use crate::install::owners;
use crate::patch::delete_unchanged;
use crate::rules::rule;
use flyball::{Action, Context, Controller, ObjectKey, Predicate, Reconcile, Resource, Result};
use http::Request;
use kube::ResourceExt;
use kube::core::ObjectMeta;
use std::marker::PhantomData;

/// Field manager of InstallPlans. It differs from that of the other controllers, which apply parts of the same objects.
pub(crate) const PLAN_MANAGER: &str = "flyball-olm-installplan";

/// The reconciler of cluster-scoped objects that a ClusterServiceVersion owns.
struct Orphans<T>(PhantomData<fn(T)>);

impl<T: Resource> Reconcile for Orphans<T> {
    type Resource = T;

    async fn reconcile(&self, object: &T, cx: &Context<T>) -> Result<Action> {
        let Some((_, key)) = owner_of(object.meta()) else { return Ok(Action::done()) };
        if cx.get::<ClusterServiceVersion>(&key).await?.is_some() {
            return Ok(Action::done());
        }
        let path = format!("{}/{}", T::url_path(&(), None), object.name_any());
        let request = Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)?;
        // The caches do not contain field managers, and may lag behind.
        let object = match cx.client().request::<T>(request).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(Action::done()),
            read => read?,
        };
        let Some((owner, _)) = owner_of(object.meta()).filter(|_| is_of_plan(object.meta())) else {
            return Ok(Action::done());
        };
        for (namespace, name) in users(object.meta()).into_iter().chain([owner]) {
            if newest(&namespace, &name, cx.client()).await?.is_some() {
                return Ok(Action::done());
            }
        }
        Ok(if delete_unchanged(cx, &object).await? { Action::done() } else { Action::requeue() })
    }
}

/// Returns true if only InstallPlans have written an object.
fn is_of_plan(meta: &ObjectMeta) -> bool {
    let managers = meta.managed_fields.as_deref().unwrap_or_default();
    !managers.is_empty() && managers.iter().all(|fields| fields.manager.as_deref() == Some(PLAN_MANAGER))
}

/// Returns the ClusterServiceVersion that the labels of an object name as owner.
fn owner_of(meta: &ObjectMeta) -> Option<((String, String), ObjectKey)> {
    let key = owners(meta).pop()?;
    Some(((key.namespace()?.to_owned(), key.name().to_owned()), key))
}

/// Returns the controller that deletes the objects of a kind whose owner is gone.
pub(super) fn controller<T: Resource>(name: &str) -> Controller<impl Reconcile> {
    Controller::new(Orphans::<T>(PhantomData))
        .name(name)
        .allows(rule(&T::group(&()), &[&T::plural(&())], &["delete"]))
        .refers_to::<ClusterServiceVersion>(|object: &T| {
            owner_of(object.meta()).map(|(_, key)| key).into_iter().collect()
        })
        .filter::<ClusterServiceVersion>(Predicate::never())
}
