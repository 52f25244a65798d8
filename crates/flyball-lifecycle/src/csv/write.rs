//! Writes of the objects of an operator: by the manager itself, or on behalf of a service account.
//!
//! If the OperatorGroup names a service account, the API server decides with its rights what may be created, also which
//! rights roles may grant. The manager has to be allowed to impersonate it.

use super::kinds;
use crate::api::{ClusterServiceVersion, OperatorGroup};
use crate::install::Definition;
use crate::patch::{merge_patch, object};
use flyball::{Children, Context, Error, Kind, ObjectKey, Result};
use flyball_core::service_account;
use http::Request;
use http::header::CONTENT_TYPE;
use kube::ResourceExt;
use kube::core::{DynamicObject, Resource};
use serde_json::Value;
use std::sync::atomic::{AtomicBool, Ordering};

/// Field manager of objects that are applied on behalf of a service account.
const SCOPED_MANAGER: &str = "flyball-lifecycle-scoped";

/// The identity that applies the objects of an operator.
#[derive(Debug, Default)]
pub(super) struct Identity {
    /// The user name of a service account; the manager if absent.
    user: Option<String>,
    wrote: AtomicBool,
}

impl Identity {
    /// Returns the identity for the operators of a group; an error message if its service account does not exist.
    pub(super) fn of(group: &OperatorGroup) -> Result<Self, String> {
        let name = &group.spec.service_account_name;
        if name.is_empty() {
            return Ok(Self::default());
        }
        let namespace = group.namespace().unwrap_or_default();
        let known = group.status.service_account_ref.as_ref().and_then(|reference| reference.name.as_ref());
        match known == Some(name) {
            true => {
                let user = service_account::user_name(&namespace, name);
                Ok(Self { user: Some(user), ..Self::default() })
            }
            false => Err(format!("service account {name} of OperatorGroup {} does not exist", group.name_any())),
        }
    }

    /// Returns true if objects were written on behalf of a service account. Only the next reconcile can read them.
    pub(super) fn wrote(&self) -> bool {
        self.wrote.load(Ordering::Relaxed)
    }

    /// Merges a patch into a CRD that was read.
    pub(super) async fn patch_definition(
        &self,
        cx: &Context<ClusterServiceVersion>,
        definition: &Definition,
        patch: &Value,
    ) -> Result<()> {
        if let Some(user) = &self.user {
            let name = definition.name_any();
            let denied = |error| Error::from(error).context(format_args!("CRD {name} on behalf of {user}"));
            // A dry run decides; the write itself is recorded as one of the manager.
            let request = Request::patch(format!("{}/{name}?dryRun=All", Definition::url_path(&(), None)))
                .header(CONTENT_TYPE, "application/merge-patch+json")
                .header("Impersonate-User", user)
                .body(serde_json::to_vec(patch)?)
                .map_err(kube::Error::HttpError)?;
            cx.client().request::<DynamicObject>(request).await.map_err(denied)?;
        }
        merge_patch(cx, definition, "", patch).await.map(drop)
    }

    /// Applies objects. The OperatorCondition is always among the children, since children that are not declared are
    /// deleted.
    pub(super) async fn apply(
        &self,
        cx: &Context<ClusterServiceVersion>,
        condition: &Value,
        objects: Vec<Value>,
    ) -> Result<()> {
        let mut children = Children::new().unowned(&object(condition.clone())?).adopting();
        for wanted in objects {
            match &self.user {
                None => children = children.unowned(&object(wanted)?).adopting(),
                Some(user) => {
                    if apply_as(cx, user, wanted).await? {
                        self.wrote.store(true, Ordering::Relaxed);
                    }
                }
            }
        }
        cx.apply_all(&children).await?;
        Ok(())
    }
}

/// Applies an object as another user, unless it has the desired fields already; returns true if it was applied.
async fn apply_as(cx: &Context<ClusterServiceVersion>, user: &str, wanted: Value) -> Result<bool> {
    let wanted_object = object(wanted.clone())?;
    let kind = kind_of(&wanted)?;
    let key = ObjectKey::new(wanted_object.metadata.namespace.as_deref(), &wanted_object.name_any());
    if let Some(existing) = cx.dynamic(&kind).get(&key).await?
        && has_fields(&serde_json::to_value(&existing)?, &wanted)
    {
        return Ok(false);
    }
    let collection = DynamicObject::url_path(&kind.api_resource(), key.namespace());
    let request = Request::patch(format!("{collection}/{}?fieldManager={SCOPED_MANAGER}&force=true", key.name()))
        .header(CONTENT_TYPE, "application/apply-patch+yaml")
        .header("Impersonate-User", user)
        .body(serde_json::to_vec(&wanted)?)
        .map_err(kube::Error::HttpError)?;
    let applied: DynamicObject = cx
        .client()
        .request(request)
        .await
        .map_err(|error| Error::from(error).context(format_args!("{} {key} on behalf of {user}", kind.name())))?;
    cx.record_write(&applied);
    Ok(true)
}

fn kind_of(object: &Value) -> Result<Kind> {
    let (api_version, name) = (object["apiVersion"].as_str(), object["kind"].as_str());
    let (api_version, name) = (api_version.unwrap_or_default(), name.unwrap_or_default());
    let is_kind = |kind: &Kind| kind.name() == name && kind.gvk().api_version() == api_version;
    let known = kinds().into_iter().find(is_kind);
    known.ok_or_else(|| Error::from(format!("{api_version} {name} is not created for operators")).terminal())
}

/// Returns true if an object has all desired fields, and no further elements in their lists. Labels with hashes show
/// that a field is not desired any more.
pub(super) fn has_fields(existing: &Value, desired: &Value) -> bool {
    match (existing, desired) {
        (_, Value::Null) => true,
        (Value::Object(existing), Value::Object(desired)) => desired.iter().all(|(name, desired)| {
            desired.is_null() || existing.get(name).is_some_and(|existing| has_fields(existing, desired))
        }),
        (Value::Array(existing), Value::Array(desired)) => {
            existing.len() == desired.len()
                && existing.iter().zip(desired).all(|(existing, desired)| has_fields(existing, desired))
        }
        (existing, desired) => existing == desired,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_of_others_do_not_count() {
        let check = |existing: Value, desired: Value, expected| assert_eq!(has_fields(&existing, &desired), expected);
        check(json!({"a": 1, "b": [{"c": 1, "d": 2}]}), json!({"a": 1, "b": [{"c": 1}]}), true);
        check(json!({"a": 1}), json!({"a": 2}), false);
        check(json!({"b": [1, 2]}), json!({"b": [1]}), false);
        check(json!({}), json!({"a": null}), true);
    }

    #[test]
    fn a_missing_service_account_is_named() {
        let mut group = OperatorGroup::new(Some("demo"), "group");
        assert_eq!(Identity::of(&group).unwrap().user, None);
        group.spec.service_account_name = "installer".into();
        assert!(Identity::of(&group).unwrap_err().contains("installer"));
        group.status.service_account_ref = Some(serde_json::from_value(json!({"name": "installer"})).unwrap());
        let user = Identity::of(&group).unwrap().user;
        assert_eq!(user.as_deref(), Some("system:serviceaccount:demo:installer"));
    }
}
