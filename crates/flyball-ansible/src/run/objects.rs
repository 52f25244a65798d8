//! Objects in the cluster: read through the caches of the operator, written through its context.

use super::Run;
use crate::access::Access;
use crate::job::TaskError;
use crate::playbook::{Literals, kind_of};
use flyball::{Kind, ObjectKey};
use flyball_core::names::is_path_segment;
use flyball_core::selector::LabelSelector;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::core::DynamicObject;
use serde_json::Value;

/// Merge keys of lists in strategic merge patches.
const MERGE_KEYS: [&str; 9] =
    ["name", "containerPort", "port", "mountPath", "devicePath", "key", "type", "ip", "topologyKey"];

/// Limit of compared pairs of items of two lists.
const MAX_PAIRS: usize = 100_000;

/// The result of a change to an object.
pub(super) struct Change {
    pub(super) changed: bool,
    pub(super) object: Option<Value>,
    pub(super) method: &'static str,
}

impl Run<'_> {
    /// Returns a kind, if it was known at startup.
    pub(super) fn kind(&self, api_version: &str, kind: &str) -> Result<Kind, TaskError> {
        let requested = kind_of(api_version, kind)
            .ok_or_else(|| TaskError::rejected(format!("invalid apiVersion {api_version:?} or kind {kind:?}")))?;
        let known = self.job.kinds.created.get(&requested).or_else(|| self.job.kinds.read.get(&requested));
        known.cloned().ok_or_else(|| {
            TaskError::rejected(format!(
                "the operator has no permissions for {kind} of {api_version}, since the kind was unknown at startup: write apiVersion \
                 and kind literally in a task, a template or a variable of the role"
            ))
        })
    }

    pub(super) fn access(&self) -> Access {
        Access::of(&self.job)
    }

    /// Returns the namespace of an object: the requested one, if the run may access it, or that of the reconciled
    /// object.
    pub(super) fn namespace(&self, kind: &Kind, requested: Option<&str>) -> Result<Option<String>, TaskError> {
        if !kind.is_namespaced() {
            return Ok(None);
        }
        let own = self.job.cx.key().namespace();
        let namespace = requested.filter(|namespace| !namespace.is_empty()).or(own).unwrap_or("default");
        self.access().check_namespace(namespace).map_err(TaskError::rejected)?;
        Ok(Some(namespace.to_owned()))
    }

    pub(super) async fn get(&self, kind: &Kind, key: &ObjectKey) -> Result<Option<DynamicObject>, TaskError> {
        // The name becomes part of a path. All operations on an object start here.
        if let Some(wrong) =
            [Some(key.name()), key.namespace()].into_iter().flatten().find(|name| !is_path_segment(name))
        {
            return Err(TaskError::rejected(format!("invalid name of an object or namespace: {wrong:?}")));
        }
        self.job.cx.dynamic(kind).get(key).await.map_err(TaskError::of)
    }

    /// Applies a definition.
    pub(super) async fn present(&mut self, definition: &Value, named: &Literals) -> Result<Change, TaskError> {
        let (kind, key) = self.kind_and_key(definition)?;
        let access = self.access();
        access
            .check_write(&kind.gvk().group, kind.name(), key.namespace(), definition, named)
            .map_err(TaskError::rejected)?;
        let mut definition = definition.clone();
        if let Some(namespace) = key.namespace() {
            definition["metadata"]["namespace"] = namespace.into();
        }
        let before = self.get(&kind, &key).await?;
        let own = self.job.cx.key().namespace();
        if own.is_some() && key.namespace() != own {
            return self.present_unowned(&kind, &key, definition, before).await;
        }
        let object: DynamicObject = decode(definition)?;
        let object = self.job.cx.apply(&object).await.map_err(TaskError::of)?;
        let version = |object: &DynamicObject| object.metadata.resource_version.clone();
        let changed = before.as_ref().is_none_or(|before| version(before) != version(&object));
        change(&object, changed, if before.is_none() { "create" } else { "update" })
    }

    /// Creates an object with a generated name.
    pub(super) async fn create(&mut self, definition: &Value, named: &Literals) -> Result<Change, TaskError> {
        let kind = self.kind(text(&definition["apiVersion"]), text(&definition["kind"]))?;
        let namespace = self.namespace(&kind, definition["metadata"]["namespace"].as_str())?;
        let access = self.access();
        access
            .check_write(&kind.gvk().group, kind.name(), namespace.as_deref(), definition, named)
            .map_err(TaskError::rejected)?;
        let mut definition = definition.clone();
        if let Some(namespace) = &namespace {
            definition["metadata"]["namespace"] = namespace.as_str().into();
        }
        let cx = self.job.cx;
        let object = if access.is_own(namespace.as_deref()) {
            cx.create(&decode(definition)?).await
        } else {
            access.annotate(&mut definition);
            cx.create_unowned(&decode(definition)?).await
        };
        change(&object.map_err(TaskError::of)?, true, "create")
    }

    /// The same for objects outside of the namespace, which cannot be owned: they are not deleted with the custom
    /// resource.
    async fn present_unowned(
        &mut self,
        kind: &Kind,
        key: &ObjectKey,
        mut definition: Value,
        before: Option<DynamicObject>,
    ) -> Result<Change, TaskError> {
        self.access().annotate(&mut definition);
        match before {
            Some(before) => self.patch(kind, key, &before, definition, false).await,
            None => {
                let object: DynamicObject = decode(definition)?;
                let object = self.job.cx.create_unowned(&object).await.map_err(TaskError::of)?;
                change(&object, true, "create")
            }
        }
    }

    /// Patches an existing object.
    ///
    /// Lists are merged by key in built-in kinds unless they are to be replaced, and replaced in other kinds.
    pub(super) async fn patched(
        &mut self,
        definition: &Value,
        named: &Literals,
        replaces_lists: bool,
    ) -> Result<Change, TaskError> {
        let (kind, key) = self.kind_and_key(definition)?;
        let access = self.access();
        access
            .check_write(&kind.gvk().group, kind.name(), key.namespace(), definition, named)
            .map_err(TaskError::rejected)?;
        match self.get(&kind, &key).await? {
            Some(before) => self.patch(&kind, &key, &before, definition.clone(), replaces_lists).await,
            // As in Ansible, which only logs a warning.
            None => Ok(Change { changed: false, object: None, method: "patch" }),
        }
    }

    /// Patches an object, unless the patch changes nothing.
    async fn patch(
        &mut self,
        kind: &Kind,
        key: &ObjectKey,
        before: &DynamicObject,
        patch: Value,
        replaces_lists: bool,
    ) -> Result<Change, TaskError> {
        let live = serde_json::to_value(before).map_err(|error| TaskError::new(error.to_string()))?;
        let group = kind.gvk().group.clone();
        self.access().check_change(&group, kind.name(), key.namespace(), key.name(), &live).map_err(TaskError::new)?;
        let by_key = !replaces_lists && (!group.contains('.') || group.ends_with(".k8s.io"));
        if contains(&live, &patch, by_key) {
            return change(before, false, "patch");
        }
        let api = self.api(kind, key);
        let params = PatchParams { field_manager: Some(self.job.manager.to_owned()), ..PatchParams::default() };
        let patch = if by_key { Patch::Strategic(patch) } else { Patch::Merge(patch) };
        let after = api.patch(key.name(), &params, &patch).await.map_err(|error| TaskError::of(error.into()))?;
        self.job.cx.record_write(&after);
        change(&after, after.metadata.resource_version != before.metadata.resource_version, "patch")
    }

    fn api(&self, kind: &Kind, key: &ObjectKey) -> Api<DynamicObject> {
        let (client, resource) = (self.job.cx.client().clone(), kind.api_resource());
        match key.namespace() {
            Some(namespace) => Api::namespaced_with(client, namespace, &resource),
            None => Api::all_with(client, &resource),
        }
    }

    /// Deletes an object, if it exists.
    pub(super) async fn delete(
        &mut self,
        kind: &Kind,
        key: &ObjectKey,
        options: &Option<DeleteParams>,
    ) -> Result<Change, TaskError> {
        let Some(object) = self.get(kind, key).await? else {
            return Ok(Change { changed: false, object: None, method: "delete" });
        };
        let going = object.metadata.deletion_timestamp.is_some();
        if !going {
            let live = serde_json::to_value(&object).map_err(|error| TaskError::new(error.to_string()))?;
            let group = &kind.gvk().group;
            self.access()
                .check_change(group, kind.name(), key.namespace(), key.name(), &live)
                .map_err(TaskError::new)?;
            match options {
                None => self.job.cx.delete(&object).await.map_err(TaskError::of)?,
                Some(options) => {
                    let deleted = self.api(kind, key).delete(key.name(), options).await;
                    let remaining = deleted.map_err(|error| TaskError::of(error.into()))?.left();
                    remaining.iter().for_each(|object| self.job.cx.record_write(object));
                }
            }
        }
        change(&object, !going, "delete")
    }
}

/// Returns a string of an object, such as its kind.
pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn decode(definition: Value) -> Result<DynamicObject, TaskError> {
    serde_json::from_value(definition)
        .map_err(|error| TaskError::rejected(format!("invalid Kubernetes object in definition: {error}")))
}

fn change(object: &DynamicObject, changed: bool, method: &'static str) -> Result<Change, TaskError> {
    let mut object = serde_json::to_value(object).map_err(|error| TaskError::new(error.to_string()))?;
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    Ok(Change { changed, object: Some(object), method })
}

/// Returns true if a value already contains a patch.
fn contains(live: &Value, patch: &Value, by_key: bool) -> bool {
    match (live, patch) {
        (Value::Object(live), Value::Object(patch)) => patch.iter().all(|(key, patch)| match (live.get(key), patch) {
            (None, Value::Null) => true,
            (Some(live), patch) => contains(live, patch, by_key),
            (None, _) => false,
        }),
        (Value::Array(live), Value::Array(patch)) if by_key && patch.iter().all(Value::is_object) => {
            // A comparison of long lists would take longer than the patch.
            let is_short = live.len().saturating_mul(patch.len()) <= MAX_PAIRS;
            is_short
                && patch.iter().all(|patch| {
                    let key = MERGE_KEYS.iter().find(|key| patch.get(**key).is_some());
                    key.and_then(|key| live.iter().find(|live| live.get(*key) == patch.get(*key)))
                        .is_some_and(|live| contains(live, patch, by_key))
                })
        }
        (live, patch) => live == patch,
    }
}

pub(super) fn has_labels(object: &DynamicObject, selector: &LabelSelector) -> bool {
    selector.matches(|label| object.metadata.labels.as_ref()?.get(label).map(String::as_str))
}

/// Returns true if an object matches a term such as `status.phase=Running`.
pub(super) fn has_field(object: &Value, term: &str) -> bool {
    let (path, value, equal) = match (term.split_once("!="), term.split_once("==").or_else(|| term.split_once('='))) {
        (Some((path, value)), _) => (path, value, false),
        (None, Some((path, value))) => (path, value, true),
        (None, None) => return false,
    };
    let found = path.trim().split('.').try_fold(object, |value, field| value.get(field));
    let found = found.map(|found| found.as_str().map_or_else(|| found.to_string(), str::to_owned)).unwrap_or_default();
    (found == value.trim()) == equal
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn unchanged_patch_is_recognized() {
        let live =
            json!({"a": 1, "list": [{"name": "x", "image": "i", "args": ["a"]}, {"name": "y"}], "plain": [1, 2]});
        let check = |patch: Value, by_key: bool| contains(&live, &patch, by_key);
        assert!(check(json!({"a": 1, "b": null, "list": [{"name": "x", "image": "i"}]}), true));
        assert!(!check(json!({"list": [{"name": "x", "image": "i"}]}), false));
        assert!(!check(json!({"list": [{"name": "z"}]}), true));
        assert!(!check(json!({"a": 2}), true) && !check(json!({"b": 1}), true) && !check(json!({"a": null}), true));
        let long = json!({"list": vec![json!({"name": "x"}); 1000]});
        assert!(contains(&long, &json!({"list": [{"name": "x"}]}), true) && !contains(&long, &long, true));
        assert!(check(json!({"plain": [1, 2]}), true) && !check(json!({"plain": [1]}), true));
    }

    #[test]
    fn fields_are_selected() {
        let pod = json!({"status": {"phase": "Running"}, "spec": {"replicas": 2}});
        assert!(has_field(&pod, "status.phase=Running") && has_field(&pod, "spec.replicas==2"));
        assert!(
            has_field(&pod, "status.phase!=Failed") && !has_field(&pod, "status.reason=x") && !has_field(&pod, "x")
        );
    }
}
