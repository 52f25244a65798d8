//! Replacement of whole objects, for controllers that set every field.

use crate::cache::Entry;
use crate::context::{Context, ReconcileSession};
use crate::error::{Error, Result};
use crate::kind::{AnyResource, Kind, Type, key_of, type_of};
use crate::ledger::Verb;
use flyball_core::ObjectKey;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::{Request, header::CONTENT_TYPE};
use serde::Serialize;
use serde_json::Value;
use std::sync::Arc;

impl<K: AnyResource> Context<K> {
    /// Replaces an object by a changed copy of the one that was read, and returns the result.
    ///
    /// Prefer [`apply`](Self::apply), which leaves the fields of others alone. This is for changes that server-side
    /// apply cannot express: removing an element of a shared list, such as a finalizer or an owner, or a change that
    /// applies only to the state that was read. It is sent even if it changes nothing.
    ///
    /// # Errors
    ///
    /// When the kind is not [declared](crate::Controller::replaces); with a conflict when the object has changed
    /// since it was read, or is another one; when the API server returns an error.
    #[doc(alias = "update")]
    #[doc(alias = "Update")]
    pub async fn replace<T: AnyResource + Serialize>(&self, object: &T) -> Result<T> {
        self.put(object, "").await
    }

    /// Replaces the status of an object by that of a changed copy of the one that was read, and returns the result.
    ///
    /// Prefer [`set_status`](Self::set_status): this method also removes the fields of others.
    ///
    /// # Errors
    ///
    /// As for [`replace`](Self::replace).
    pub async fn replace_status<T: AnyResource + Serialize>(&self, object: &T) -> Result<T> {
        self.put(object, "/status").await
    }

    async fn put<T: AnyResource + Serialize>(&self, object: &T, subresource: &'static str) -> Result<T> {
        let value = serde_json::to_value(object)?;
        let (kind, entry) = self.session.put(type_of(object), key_of(object), value, subresource).await?;
        Ok(entry.object(kind)?)
    }
}

impl ReconcileSession {
    fn put(
        &self,
        ty: Type,
        key: ObjectKey,
        mut object: Value,
        subresource: &'static str,
    ) -> BoxFuture<'_, Result<(&Kind, Arc<Entry>)>> {
        async move {
            let kind = self.replaced_kind(&ty)?;
            object["apiVersion"] = kind.gvk().api_version().into();
            object["kind"] = kind.name().into();
            if let Some(metadata) = object["metadata"].as_object_mut() {
                metadata.retain(|field, value| field != "managedFields" && *value != Value::Null);
            }
            if object["metadata"].get("resourceVersion").is_none() {
                let text = format!("{kind} {key} has no resourceVersion: replace an object that was read");
                return Err(Error::from(text).terminal());
            }
            let store = self.env.caches.store_of(kind, key.namespace())?;
            let path = format!("{}{subresource}?fieldManager={}", kind.object_path(&key)?, self.env.manager);
            let request = Request::put(path)
                .header(CONTENT_TYPE, "application/json")
                .body(object.to_string().into_bytes())
                .map_err(kube::Error::HttpError)?;
            let verb = (Verb::Update, subresource.trim_start_matches('/'));
            Ok((kind, self.write(store, &key, verb, store.get(&key).as_ref(), request).await?))
        }
        .boxed()
    }
}
