//! Children: objects that are owned by the one being reconciled.

use super::unchanged::without_nulls;
use crate::cache::{self, Entry, Store};
use crate::client;
use crate::context::{Context, ReconcileSession, Reservation};
use crate::error::{Error, Result};
use crate::kind::{AnyResource, Kind, Type, key_of, type_of};
use crate::queue::Effect;
use flyball_core::ObjectKey;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::{Request, header::CONTENT_TYPE};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Limit of attempts at a create without a response.
const MAX_ATTEMPTS: usize = 3;
/// Random characters in a generated name.
const SUFFIX_LENGTH: usize = 5;
/// Bytes of a generated name before the random characters, as on the API server.
const MAX_PREFIX_LENGTH: usize = 58;

/// Metadata that only the API server sets.
const SET_BY_SERVER: [&str; 6] =
    ["creationTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid"];

impl<K: AnyResource> Context<K> {
    /// Applies a child by server-side apply, with the object being reconciled as its owner, and returns the result.
    ///
    /// The child gets a controller reference: it is garbage collected with its owner, and its changes trigger a
    /// reconcile of the owner. It is in the namespace of the owner unless it sets another. Absent and `null` fields
    /// are left to others, and removed if they were applied before. `status` is not applied.
    ///
    /// Nothing is sent if the cache shows that nothing would change; then the cached object is returned.
    ///
    /// # Errors
    ///
    /// When the kind is not [owned](crate::Controller::owns); when the child cannot have this owner (a child
    /// in another namespace would be [garbage
    /// collected](https://kubernetes.io/docs/concepts/overview/working-with-objects/owners-dependents/)); when an
    /// object of this name has another creator or controller; while it is being deleted (the reconcile then
    /// [waits](Error::wait) for its removal); when the API server returns an error.
    #[doc(alias = "create_or_update")]
    #[doc(alias = "CreateOrUpdate")]
    #[doc(alias = "CreateOrPatch")]
    #[doc(alias = "patch")]
    #[doc(alias = "SetControllerReference")]
    #[doc(alias = "controller_owner_ref")]
    #[doc(alias = "adopt")]
    pub async fn apply<T: AnyResource + Serialize>(&self, child: &T) -> Result<T> {
        let (kind, entry) = self.session.apply(type_of(child), serde_json::to_value(child)?, true).await?;
        Ok(entry.object(kind)?)
    }

    /// Applies an object without an owner reference, so that it outlives the one being reconciled, and returns the
    /// result.
    ///
    /// Otherwise as [`apply`](Self::apply): for cluster-scoped objects, or objects in another namespace than that of
    /// the object being reconciled. Their changes trigger a reconcile only through
    /// [`watches`](crate::Controller::watches), and only the controller deletes them.
    ///
    /// # Errors
    ///
    /// As for [`apply`](Self::apply), except those about the namespace.
    pub async fn apply_unowned<T: AnyResource + Serialize>(&self, object: &T) -> Result<T> {
        let (kind, entry) = self.session.apply(type_of(object), serde_json::to_value(object)?, false).await?;
        Ok(entry.object(kind)?)
    }

    /// Creates an object, owned by the one being reconciled, and returns it.
    ///
    /// It is for children with arbitrary names: with `metadata.generateName`, the suffix is drawn here. So a request
    /// whose response was lost is repeated without a second object, if necessary by the next reconcile. No other
    /// reconcile of the owner runs until the cache has the new object, so that [`children`](Self::children) never
    /// lacks it.
    ///
    /// # Errors
    ///
    /// As for [`apply`](Self::apply); and when the name is taken.
    pub async fn create<T: AnyResource + Serialize>(&self, child: &T) -> Result<T> {
        let (kind, entry) = self.session.create(type_of(child), serde_json::to_value(child)?).await?;
        Ok(entry.object(kind)?)
    }

    /// Creates an object without an owner reference, so that it outlives the one being reconciled, and returns it.
    ///
    /// Otherwise as [`create`](Self::create). Only the controller deletes such objects.
    ///
    /// # Errors
    ///
    /// As for [`create`](Self::create).
    pub async fn create_unowned<T: AnyResource + Serialize>(&self, object: &T) -> Result<T> {
        let (kind, entry) = self.session.create_unowned(type_of(object), serde_json::to_value(object)?).await?;
        Ok(entry.object(kind)?)
    }

    /// Deletes an object by its UID; another object of the same name is not deleted.
    ///
    /// An object that does not exist counts as deleted. Finalizers and grace periods may delay the removal; the owner
    /// is reconciled afterwards.
    ///
    /// # Errors
    ///
    /// When the kind is not [owned](crate::Controller::owns), when `object` has no UID, or when the API server returns
    /// an error.
    #[doc(alias = "Delete")]
    pub async fn delete<T: AnyResource>(&self, object: &T) -> Result<()> {
        self.session.delete(type_of(object), key_of(object), object.meta().uid.clone()).await
    }
}

impl ReconcileSession {
    fn apply(&self, ty: Type, child: Value, owned: bool) -> BoxFuture<'_, Result<(&Kind, Arc<Entry>)>> {
        async move {
            let kind = self.owned_kind(&ty)?;
            let (key, object) = self.named_object(kind, child, owned)?;
            let store = self.env.caches.store_of(kind, key.namespace())?;
            Ok((kind, self.apply_child(store, &key, &object, false).await?))
        }
        .boxed()
    }

    /// Builds the JSON of a child, or of an object without owner reference, and returns its store and key.
    pub(super) fn named_object(&self, kind: &Kind, object: Value, owned: bool) -> Result<(ObjectKey, Value)> {
        let object = if owned { self.owned_object(kind, object)? } else { self.new_object(kind, object)? };
        let text = |field: &str| object["metadata"][field].as_str();
        let Some(name) = text("name") else {
            let text = format!("{kind} has no metadata.name: use create for generated names");
            return Err(Error::from(text).terminal());
        };
        Ok((ObjectKey::new(text("namespace"), name), object))
    }

    /// Applies the JSON of a child, and returns the resulting object. `adopts` permits objects of other creators.
    pub(super) async fn apply_child(
        &self,
        store: &Store,
        key: &ObjectKey,
        object: &Value,
        adopts: bool,
    ) -> Result<Arc<Entry>> {
        let known = self.latest_to_apply(store, key).await?;
        match &known.entry {
            Some(entry) => self.check_adoption(store.kind(), key, entry, adopts)?,
            None => check_selected(store, key, object)?,
        }
        self.apply_fields(store, key, "", object, known).await
    }

    fn create(&self, ty: Type, child: Value) -> BoxFuture<'_, Result<(&Kind, Arc<Entry>)>> {
        async move {
            let kind = self.owned_kind(&ty)?;
            Ok((kind, self.post(kind, self.owned_object(kind, child)?).await?))
        }
        .boxed()
    }

    fn create_unowned(&self, ty: Type, object: Value) -> BoxFuture<'_, Result<(&Kind, Arc<Entry>)>> {
        async move {
            let kind = self.owned_kind(&ty)?;
            Ok((kind, self.post(kind, self.new_object(kind, object)?).await?))
        }
        .boxed()
    }

    async fn post(&self, kind: &Kind, mut object: Value) -> Result<Arc<Entry>> {
        let metadata = object["metadata"].as_object_mut().expect("owned_object sets metadata");
        let text = |field: &str| metadata.get(field).and_then(Value::as_str).map(str::to_owned);
        let namespace = text("namespace");
        let store = self.env.caches.store_of(kind, namespace.as_deref())?;
        let path = kind.path(namespace.as_deref());
        let mut drawn = None;
        if let (Some(Value::String(prefix)), None) = (metadata.get("generateName"), metadata.get("name")) {
            let prefix: String = prefix.chars().take(MAX_PREFIX_LENGTH).collect();
            let place = (self.primary.entry.uid().into_owned(), path.clone(), prefix.clone());
            let known = |name: &str| self.has_seen(store, &ObjectKey::new(namespace.as_deref(), name));
            let draw = || format!("{prefix}{}", self.env.rng.suffix(SUFFIX_LENGTH));
            let drawn = drawn.insert(self.env.drawn_names.reserve(place, known, draw));
            metadata.insert("name".into(), drawn.name.clone().into());
        }
        let Some(name) = metadata.get("name").and_then(Value::as_str).map(str::to_owned) else {
            let text = format!("{kind} has neither metadata.name nor metadata.generateName");
            return Err(Error::from(text).terminal());
        };
        let key = ObjectKey::new(namespace.as_deref(), &name);
        kind.check(key.namespace().into_iter().chain([key.name()]))?;
        check_selected(store, &key, &object)?;
        let path = format!("{path}?fieldManager={}", self.env.manager);
        let owned = metadata_owned(&object);
        let is_again = drawn.as_ref().is_some_and(|drawn| drawn.is_again);
        let mut settle = || drawn.iter_mut().for_each(Reservation::settle);
        let number = self.note(store, &key);
        for attempt in 1.. {
            let request = Request::post(&path)
                .header(CONTENT_TYPE, "application/json")
                .body(serde_json::to_vec(&object)?)
                .map_err(kube::Error::HttpError)?;
            let answer = self.env.client.exchange(request).await;
            let existing = match &answer {
                // An earlier attempt may have been processed after all.
                Err(kube::Error::Api(status)) if status.is_already_exists() && (attempt > 1 || is_again) => {
                    self.env.fetch(kind, &key).await?.filter(|entry| !owned || self.controls(entry))
                }
                _ => None,
            };
            match (answer, existing) {
                (Ok(body), _) => {
                    settle();
                    let entry = self.env.answered(store, &key, body)?;
                    self.settle_at(number, store, &key, &entry);
                    return Ok(entry);
                }
                (Err(_), Some(entry)) => {
                    settle();
                    self.settle_at(number, store, &key, &entry);
                    return Ok(entry);
                }
                (Err(error), None) if client::is_ambiguous(&error) && attempt < MAX_ATTEMPTS => {}
                (Err(error), None) => {
                    if !client::is_ambiguous(&error) {
                        settle();
                        self.cancel(number);
                    }
                    return Err(error.into());
                }
            }
        }
        unreachable!("the last attempt returns")
    }

    fn delete(&self, ty: Type, key: ObjectKey, uid: Option<String>) -> BoxFuture<'_, Result<()>> {
        async move {
            let kind = self.owned_kind(&ty)?;
            let store = self.env.caches.store_of(kind, key.namespace())?;
            let Some(uid) = uid.filter(|uid| !uid.is_empty()) else {
                return Err(Error::from(format!("{kind} {key} has no UID: delete an object that was read")).terminal());
            };
            self.delete_child(store, &key, uid).await
        }
        .boxed()
    }

    /// Deletes an object if it still has a UID.
    pub(super) async fn delete_child(&self, store: &Store, key: &ObjectKey, uid: String) -> Result<()> {
        let kind = store.kind();
        let options = json!({"preconditions": {"uid": uid}, "propagationPolicy": "Background"});
        let request = Request::delete(kind.object_path(key)?)
            .header(CONTENT_TYPE, "application/json")
            .body(options.to_string().into_bytes())
            .map_err(kube::Error::HttpError)?;
        let number = self.note(store, key);
        match self.env.client.exchange(request).await {
            Ok(_) => {
                tracing::debug!(resource = %kind, object = %key, uid, "deleted");
                self.settle(number, Effect::Deleted(uid), None);
                Ok(())
            }
            Err(error) if client::is_ambiguous(&error) => Err(error.into()),
            Err(kube::Error::Api(status)) if status.is_not_found() => {
                self.cancel(number);
                Ok(())
            }
            // The precondition failed if this is another object now.
            Err(kube::Error::Api(status)) if status.is_conflict() => {
                self.cancel(number);
                match self.env.fetch(kind, key).await?.filter(|entry| entry.uid() == uid) {
                    Some(_) => Err(kube::Error::Api(status).into()),
                    None => Ok(()),
                }
            }
            Err(error) => {
                self.cancel(number);
                Err(error.into())
            }
        }
    }

    /// Builds the JSON of a new object: with its kind, in its namespace, without fields that must not be applied.
    fn new_object(&self, kind: &Kind, mut object: Value) -> Result<Value> {
        without_nulls(&mut object);
        let refuse = |text: String| Err(Error::from(text).terminal());
        let Some(fields) = object.as_object_mut() else { return refuse(format!("{kind} is not a JSON object")) };
        fields.insert("apiVersion".into(), kind.gvk().api_version().into());
        fields.insert("kind".into(), kind.name().into());
        fields.remove("status");
        let metadata = fields.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
        let Some(metadata) = metadata.as_object_mut() else {
            return refuse(format!("metadata of {kind} is not an object"));
        };
        for field in SET_BY_SERVER {
            metadata.remove(field);
        }
        if let Some(namespace) = self.primary.key.namespace().filter(|_| kind.is_namespaced()) {
            metadata.entry("namespace").or_insert_with(|| namespace.into());
        }
        Ok(object)
    }

    /// Builds the JSON of a child: a new object, with its owner.
    fn owned_object(&self, kind: &Kind, child: Value) -> Result<Value> {
        let mut object = self.new_object(kind, child)?;
        let refuse = |text: String| Err(Error::from(text).terminal());
        let metadata = object["metadata"].as_object_mut().expect("new_object sets metadata");
        let owner = &self.primary;
        let owners_namespace = owner.key.namespace();
        if kind.is_namespaced() {
            let namespace = metadata.get("namespace").and_then(Value::as_str);
            if namespace.is_none() {
                return refuse(format!("{kind} has no metadata.namespace, and neither has its owner {}", owner.key));
            }
            if owners_namespace.is_some() && namespace != owners_namespace {
                let place = namespace.unwrap_or_default();
                return refuse(format!("{kind} in namespace {place} cannot be owned by {} {}", owner.kind, owner.key));
            }
        } else if owners_namespace.is_some() {
            return refuse(format!("{kind} is cluster-scoped and cannot be owned by {} {}", owner.kind, owner.key));
        }
        let uid = owner.entry.uid();
        let reference = json!({
            "apiVersion": owner.kind.gvk().api_version(),
            "kind": owner.kind.name(),
            "name": owner.key.name(),
            "uid": uid,
            "controller": true,
            "blockOwnerDeletion": true,
        });
        let owners = metadata.entry("ownerReferences").or_insert_with(|| json!([]));
        let Some(owners) = owners.as_array_mut() else {
            return refuse(format!("ownerReferences of {kind} is not a list"));
        };
        owners.retain(|owner| owner["uid"] != *uid);
        if owners.iter().any(|owner| owner["controller"] == true) {
            return refuse(format!("{kind} has another controller than {} {}", owner.kind, owner.key));
        }
        owners.push(reference);
        Ok(object)
    }

    /// Rejects the adoption of foreign objects.
    fn check_adoption(&self, kind: &Kind, key: &ObjectKey, known: &Entry, adopts: bool) -> Result<()> {
        if known.is_deleting() {
            return Err(Error::from(format!("{kind} {key} is being deleted")).wait());
        }
        match known.controller() {
            Some(owner) if owner.uid == self.primary.entry.uid() => Ok(()),
            Some(owner) => {
                Err(format!("{kind} {key} is controlled by {} {} (uid {})", owner.kind, owner.name, owner.uid).into())
            }
            None if adopts || known.applied_fields("", &self.env.manager).is_some() => Ok(()),
            None => Err(format!(
                "{kind} {key} already exists and was not created by {}: delete it, or choose another name",
                self.env.name
            )
            .into()),
        }
    }

    /// Returns true if the object being reconciled controls the other one.
    pub(super) fn controls(&self, entry: &Entry) -> bool {
        entry.controller().is_some_and(|owner| owner.uid == self.primary.entry.uid())
    }
}

/// Rejects objects that the cache does not select.
fn check_selected(store: &Store, key: &ObjectKey, object: &Value) -> Result<()> {
    match store.portion().selection.may_hold_object(key, object) {
        true => Ok(()),
        false => Err(cache::Error::not_selected(store, key)),
    }
}

/// Returns true if an object has owners.
fn metadata_owned(object: &Value) -> bool {
    object["metadata"].get("ownerReferences").is_some()
}
