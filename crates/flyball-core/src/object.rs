//! A Kubernetes object of any kind.

use crate::{GroupVersion, GroupVersionKind, ObjectKey};
use serde_json::{Map, Value};

/// An object of any kind as JSON, with accessors for the metadata that all kinds share.
///
/// Absent fields and fields of the wrong type are returned as `None` or empty. A schema validates objects.
#[derive(Clone, Debug, PartialEq)]
pub struct Object(Value);

/// A reference from an object to its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerReference<'a> {
    /// Group and version of the owner.
    pub api_version: &'a str,
    /// Kind of the owner.
    pub kind: &'a str,
    /// Name of the owner.
    pub name: &'a str,
    /// UID of the owner.
    pub uid: &'a str,
    /// The owner manages the object; at most one owner does.
    pub controller: bool,
    /// Foreground deletion of the owner waits for the object.
    pub block_owner_deletion: bool,
}

impl Default for Object {
    fn default() -> Self {
        Self(Value::Object(Map::new()))
    }
}

impl TryFrom<Value> for Object {
    type Error = Value;

    /// Converts a JSON object; any other value is returned as the error.
    fn try_from(value: Value) -> Result<Self, Value> {
        if value.is_object() { Ok(Self(value)) } else { Err(value) }
    }
}

impl From<Map<String, Value>> for Object {
    fn from(map: Map<String, Value>) -> Self {
        Self(Value::Object(map))
    }
}

impl From<Object> for Value {
    fn from(object: Object) -> Self {
        object.0
    }
}

impl std::ops::Deref for Object {
    type Target = Map<String, Value>;

    fn deref(&self) -> &Self::Target {
        match &self.0 {
            Value::Object(map) => map,
            _ => unreachable!("an object always holds a JSON object"),
        }
    }
}

impl std::ops::DerefMut for Object {
    fn deref_mut(&mut self) -> &mut Self::Target {
        match &mut self.0 {
            Value::Object(map) => map,
            _ => unreachable!("an object always holds a JSON object"),
        }
    }
}

impl Object {
    /// Returns the object as JSON.
    pub fn as_value(&self) -> &Value {
        &self.0
    }

    /// Changes the object as JSON. `change` must not replace it by a value that is not a JSON object.
    pub fn change<T>(&mut self, change: impl FnOnce(&mut Value) -> T) -> T {
        let out = change(&mut self.0);
        assert!(self.0.is_object(), "an object stays an object");
        out
    }

    /// Returns `apiVersion`, empty if there is none.
    pub fn api_version(&self) -> &str {
        self.text("apiVersion")
    }

    /// Returns `kind`, empty if there is none.
    pub fn kind(&self) -> &str {
        self.text("kind")
    }

    fn text(&self, field: &str) -> &str {
        self.get(field).and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns the kind with group and version, if both are there.
    pub fn group_version_kind(&self) -> Option<GroupVersionKind> {
        let group_version = GroupVersion::parse(self.api_version())?;
        (!self.kind().is_empty()).then(|| group_version.kind(self.kind()))
    }

    /// Sets `apiVersion` and `kind`.
    pub fn set_kind(&mut self, kind: &GroupVersionKind) {
        self.insert("apiVersion".into(), kind.api_version().into());
        self.insert("kind".into(), (&*kind.kind).into());
    }

    /// Returns the metadata, if it is a JSON object.
    pub fn metadata(&self) -> Option<&Map<String, Value>> {
        self.get("metadata").and_then(Value::as_object)
    }

    /// Returns the metadata, and creates it if it is absent.
    pub fn metadata_mut(&mut self) -> &mut Map<String, Value> {
        let metadata = self.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
        if !metadata.is_object() {
            *metadata = Value::Object(Map::new());
        }
        metadata.as_object_mut().expect("just made one")
    }

    fn meta(&self, field: &str) -> Option<&Value> {
        self.metadata()?.get(field)
    }

    fn meta_text(&self, field: &str) -> &str {
        self.meta(field).and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns the name, empty if there is none.
    pub fn name(&self) -> &str {
        self.meta_text("name")
    }

    /// Returns the namespace, `None` if there is none or it is empty.
    pub fn namespace(&self) -> Option<&str> {
        Some(self.meta_text("namespace")).filter(|namespace| !namespace.is_empty())
    }

    /// Returns namespace and name.
    pub fn key(&self) -> ObjectKey {
        ObjectKey::new(self.namespace(), self.name())
    }

    /// Returns the UID, empty if there is none.
    pub fn uid(&self) -> &str {
        self.meta_text("uid")
    }

    /// Returns the resource version, empty if there is none.
    pub fn resource_version(&self) -> &str {
        self.meta_text("resourceVersion")
    }

    /// Returns the generation, 0 if there is none.
    pub fn generation(&self) -> i64 {
        self.meta("generation").and_then(Value::as_i64).unwrap_or_default()
    }

    /// Returns the time of the deletion, if the object is being deleted.
    pub fn deletion_timestamp(&self) -> Option<&str> {
        self.meta("deletionTimestamp").and_then(Value::as_str)
    }

    /// Returns one label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels()?.get(key)?.as_str()
    }

    /// Returns the labels.
    pub fn labels(&self) -> Option<&Map<String, Value>> {
        self.meta("labels")?.as_object()
    }

    /// Returns one annotation.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.meta("annotations")?.as_object()?.get(key)?.as_str()
    }

    /// Returns the finalizers.
    pub fn finalizers(&self) -> impl Iterator<Item = &str> {
        self.meta("finalizers").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
    }

    /// Returns the references to owners.
    pub fn owner_references(&self) -> impl Iterator<Item = OwnerReference<'_>> {
        self.meta("ownerReferences").and_then(Value::as_array).into_iter().flatten().map(|reference| {
            let text = |field: &str| reference[field].as_str().unwrap_or_default();
            OwnerReference {
                api_version: text("apiVersion"),
                kind: text("kind"),
                name: text("name"),
                uid: text("uid"),
                controller: reference["controller"].as_bool().unwrap_or_default(),
                block_owner_deletion: reference["blockOwnerDeletion"].as_bool().unwrap_or_default(),
            }
        })
    }

    /// Returns the value at a path of field names.
    pub fn at(&self, path: &[&str]) -> Option<&Value> {
        path.iter().try_fold(&self.0, |value, field| value.as_object()?.get(*field))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn accessors_return_metadata() {
        let object = Object::try_from(json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "namespace": "a", "generation": 2, "labels": {"app": "web"}, "finalizers": ["x/y"],
                         "ownerReferences": [{"apiVersion": "v1", "kind": "Owner", "name": "o", "uid": "1", "controller": true}]},
        }))
        .unwrap();
        assert_eq!(object.key().to_string(), "a/web");
        assert_eq!(object.group_version_kind().unwrap().to_string(), "apps/v1, Kind=Deployment");
        assert_eq!(object.label("app"), Some("web"));
        assert_eq!(object.finalizers().collect::<Vec<_>>(), ["x/y"]);
        assert!(object.owner_references().next().unwrap().controller);
        assert_eq!(object.at(&["metadata", "generation"]), Some(&json!(2)));
    }

    #[test]
    fn malformed_metadata_reads_as_absent() {
        let mut object = Object::try_from(json!({"metadata": ["x"], "kind": 5})).unwrap();
        assert_eq!((object.name(), object.kind(), object.namespace()), ("", "", None));
        object.metadata_mut().insert("name".into(), "a".into());
        assert_eq!(object.name(), "a");
        assert!(Object::try_from(json!([])).is_err());
    }
}
