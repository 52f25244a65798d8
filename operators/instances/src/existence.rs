//! Confirmation that an object still exists, before something is created for it outside of the cluster.
//!
//! A reconcile may read a cache that is older than the deletion of the object, for example after a restart that reads a
//! lagging API server. Objects in the cluster are garbage collected then; a machine would remain.

use flyball::{Context, Resource, Result};
use k8s_openapi::NamespaceResourceScope;
use kube::Api;
use serde::de::DeserializeOwned;
use std::fmt::Debug;

/// Returns true if the object being reconciled still exists and is not being deleted, according to the API server.
pub(crate) async fn is_confirmed<K>(cx: &Context<K>) -> Result<bool>
where
    K: Resource + kube::Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let namespace = cx.key().namespace().unwrap_or_default();
    let found = Api::<K>::namespaced(cx.client().clone(), namespace).get_opt(cx.key().name()).await?;
    let meta = found.as_ref().map(kube::Resource::meta);
    let uid = &kube::Resource::meta(&**cx.object()).uid;
    Ok(meta.is_some_and(|meta| meta.uid == *uid && meta.deletion_timestamp.is_none()))
}
