//! Finalizers by hand, as operators that were ported from other frameworks have them.

use crate::objects::api;
use flyball::{Context, Resource, Result};
use k8s_openapi::NamespaceResourceScope;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use std::fmt::Debug;

/// Adds or removes a finalizer, on condition that the object has not changed since it was read.
pub(crate) async fn set_finalizer<K>(object: &K, cx: &Context<K>, finalizer: &str, present: bool) -> Result<()>
where
    K: Resource + kube::Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug,
{
    let mut finalizers = object.finalizers().to_vec();
    if finalizers.iter().any(|other| other == finalizer) == present {
        return Ok(());
    }
    finalizers.retain(|other| other != finalizer);
    if present {
        finalizers.push(finalizer.into());
    }
    let metadata = json!({"uid": object.uid(), "resourceVersion": object.resource_version(), "finalizers": finalizers});
    let patch = Patch::Merge(json!({"metadata": metadata}));
    let changed: K = api(cx).patch(&object.name_any(), &PatchParams::default(), &patch).await?;
    cx.record_write(&changed);
    Ok(())
}
