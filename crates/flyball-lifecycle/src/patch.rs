//! Changes of objects that server-side apply does not express.

use flyball::{Context, Error, Resource, Result};
use http::Request;
use http::header::CONTENT_TYPE;
use kube::ResourceExt;
use kube::core::DynamicObject;
use serde::Serialize;
use serde_json::{Value, json};

/// Applies a JSON merge patch to an object that was read, or to a subresource, and returns the result. It fails with a
/// conflict if the object has changed since.
pub(crate) async fn merge_patch<K: Resource, T: Resource>(
    cx: &Context<K>,
    object: &T,
    subresource: &str,
    patch: &Value,
) -> Result<T> {
    let mut patch = patch.clone();
    let metadata = metadata_of(&mut patch);
    metadata.insert("resourceVersion".into(), json!(object.meta().resource_version));
    metadata.insert("uid".into(), json!(object.meta().uid));
    let collection = T::url_path(&(), object.meta().namespace.as_deref());
    let mut path = format!("{collection}/{}", object.name_any());
    if !subresource.is_empty() {
        path = format!("{path}/{subresource}");
    }
    let request = Request::patch(path)
        .header(CONTENT_TYPE, "application/merge-patch+json")
        .body(serde_json::to_vec(&patch)?)
        .map_err(kube::Error::HttpError)?;
    let changed: T = cx.client().request(request).await?;
    cx.record_write(&changed);
    Ok(changed)
}

/// Deletes an object that was read; returns false if it has changed since. An object that does not exist counts as
/// deleted.
pub(crate) async fn delete_unchanged<K: Resource, T: Resource>(cx: &Context<K>, object: &T) -> Result<bool> {
    let meta = object.meta();
    let preconditions = json!({"uid": meta.uid, "resourceVersion": meta.resource_version});
    let options = json!({"preconditions": preconditions, "propagationPolicy": "Background"});
    let path = format!("{}/{}", T::url_path(&(), meta.namespace.as_deref()), object.name_any());
    let request = Request::delete(path)
        .header(CONTENT_TYPE, "application/json")
        .body(serde_json::to_vec(&options)?)
        .map_err(kube::Error::HttpError)?;
    match cx.client().request::<Value>(request).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(true),
        Err(kube::Error::Api(status)) if status.is_conflict() => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Changes the status of an object that was read to another one, and returns the result. Only the fields that differ
/// are sent, without the resource version: the caller is the only one that writes them.
pub(crate) async fn change_status<K: Resource, T: Resource>(
    cx: &Context<K>,
    object: &T,
    before: &impl Serialize,
    after: &impl Serialize,
) -> Result<T> {
    let (before, after) = (serde_json::to_value(before)?, serde_json::to_value(after)?);
    let empty = serde_json::Map::new();
    let (before, after) = (before.as_object().unwrap_or(&empty), after.as_object().unwrap_or(&empty));
    let removed = before.keys().filter(|name| !after.contains_key(*name)).map(|name| (name.clone(), Value::Null));
    let changed = after.iter().filter(|(name, value)| before.get(*name) != Some(value));
    let status: Value = removed.chain(changed.map(|(name, value)| (name.clone(), value.clone()))).collect();
    let patch = json!({"metadata": {"uid": object.meta().uid}, "status": status});
    let collection = T::url_path(&(), object.meta().namespace.as_deref());
    let request = Request::patch(format!("{collection}/{}/status", object.name_any()))
        .header(CONTENT_TYPE, "application/merge-patch+json")
        .body(serde_json::to_vec(&patch)?)
        .map_err(kube::Error::HttpError)?;
    let changed: T = cx.client().request(request).await?;
    cx.record_write(&changed);
    Ok(changed)
}

fn metadata_of(patch: &mut Value) -> &mut serde_json::Map<String, Value> {
    let fields = patch.as_object_mut().expect("patches are objects");
    let metadata = fields.entry("metadata").or_insert_with(|| json!({}));
    metadata.as_object_mut().expect("metadata is an object")
}

/// Returns JSON as an object of a kind that is known at run time.
pub(crate) fn object(value: Value) -> Result<DynamicObject> {
    let name = value["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    serde_json::from_value(value).map_err(|error| Error::from(error).context(format_args!("object {name}")).terminal())
}
