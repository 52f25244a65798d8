//! Replaces objects whole, for controllers that must say of every field what it is.

use crate::error::{Error, Result};
use crate::kind::{AnyResource, dealt, key_of};
use crate::reconcile::Context;
use http::{Request, header::CONTENT_TYPE};
use serde::Serialize;
use serde_json::Value;

impl<K: AnyResource> Context<K> {
    /// Replaces an object by a changed copy of what was read, and returns it as it is then.
    ///
    /// Prefer [`apply`](Self::apply), which leaves the fields of others alone. This is for what server-side apply cannot say: taking
    /// something out of a list that others keep, such as a finalizer or an owner, or a change that must not be made to any
    /// other state than the one that was read. It is sent even if it changes nothing.
    ///
    /// # Errors
    ///
    /// When the kind is not [declared](crate::Controller::replaces); with a conflict when the object has changed since it
    /// was read, or is another one; when the API server refuses.
    pub async fn replace<T: AnyResource + Serialize>(&self, object: &T) -> Result<T> {
        self.put(object, "").await
    }

    /// Replaces the status of an object by that of a changed copy of what was read, and returns the object as it is then.
    ///
    /// Prefer [`set_status`](Self::set_status). This one also removes what others wrote.
    ///
    /// # Errors
    ///
    /// As for [`replace`](Self::replace).
    pub async fn replace_status<T: AnyResource + Serialize>(&self, object: &T) -> Result<T> {
        self.put(object, "/status").await
    }

    async fn put<T: AnyResource + Serialize>(&self, object: &T, subresource: &str) -> Result<T> {
        let (kind, key) = (self.replaced_kind(&dealt(object))?, key_of(object));
        if object.meta().resource_version.is_none() {
            return Err(Error::from(format!("{kind} {key} has no resourceVersion: replace what was read")).terminal());
        }
        let store = self.env.caches.store_of(kind, key.namespace())?;
        let mut value = serde_json::to_value(object)?;
        value["apiVersion"] = kind.gvk().api_version().into();
        value["kind"] = kind.name().into();
        if let Some(metadata) = value["metadata"].as_object_mut() {
            metadata.retain(|field, value| field != "managedFields" && *value != Value::Null);
        }
        let path = format!("{}{subresource}?fieldManager={}", kind.object_path(&key), self.env.manager);
        let request = Request::put(path)
            .header(CONTENT_TYPE, "application/json")
            .body(value.to_string().into_bytes())
            .map_err(kube::Error::HttpError)?;
        let entry = self.write(store, &key, request).await?;
        Ok(entry.object(kind)?)
    }
}
