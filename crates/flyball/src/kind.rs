//! Kinds of objects, as Rust types and as values.

mod dynamic;
mod value;

pub use dynamic::Dynamic;
pub use value::Kind;
pub(crate) use value::{InvalidName, group_version_path};

use flyball_core::ObjectKey;
use kube::core::{ApiResource, DynamicObject, PartialObjectMeta, TypeMeta};
use serde::de::DeserializeOwned;
use std::any::{TypeId, type_name};
use std::fmt;

/// A Rust type for one kind of object: types of `k8s-openapi` and types that derive `CustomResource`.
///
/// It is implemented for every type that fits, so that it serves as a bound:
///
/// ```
/// use flyball::{Caches, Resource, Result};
///
/// fn count<T: Resource>(caches: &Caches) -> Result<usize> {
///     Ok(caches.list::<T>(None)?.len())
/// }
/// # let _ = count::<k8s_openapi::api::core::v1::Pod>;
/// ```
pub trait Resource:
    kube::Resource<DynamicType = (), Scope: 'static> + DeserializeOwned + Send + Sync + 'static
{
}

impl<T> Resource for T where
    T: kube::Resource<DynamicType = (), Scope: 'static> + DeserializeOwned + Send + Sync + 'static
{
}

/// A Rust type for objects: a [`Resource`], whose kind is known when the operator is compiled, or [`DynamicObject`],
/// whose [`Kind`] is a value.
pub trait AnyResource:
    kube::Resource<DynamicType: sealed::Decode<Self>> + DeserializeOwned + Send + Sync + 'static
{
}

impl<T> AnyResource for T where
    T: kube::Resource<DynamicType: sealed::Decode<T>> + DeserializeOwned + Send + Sync + 'static
{
}

mod sealed {
    use super::{ApiResource, DynamicObject, Kind, PartialObjectMeta, Resource, Type, TypeMeta, type_name};
    use serde_json::{Map, Value};

    /// The information that identifies the kind of an object in addition to its type: none for a [`Resource`].
    pub trait Decode<T> {
        /// Returns the type by which a controller uses the object.
        fn type_of(object: &T) -> Type;
        /// Decodes an object of this kind.
        fn decode(json: &str, kind: &Kind) -> serde_json::Result<T>;
        /// Returns true if the type has nothing but metadata.
        fn is_metadata() -> bool;
    }

    impl<T: Resource> Decode<T> for () {
        fn type_of(_: &T) -> Type {
            Type::of::<T>()
        }

        fn decode(json: &str, _: &Kind) -> serde_json::Result<T> {
            serde_json::from_str(json)
        }

        fn is_metadata() -> bool {
            // No trait distinguishes `PartialObjectMeta<T>` from other resources, and a bound on all resources does
            // not permit a second implementation. A test checks the name.
            type_name::<T>().starts_with(type_name::<PartialObjectMeta<()>>().trim_end_matches("()>"))
        }
    }

    impl Decode<DynamicObject> for ApiResource {
        fn type_of(object: &DynamicObject) -> Type {
            let TypeMeta { api_version, kind } = object.types.clone().unwrap_or_default();
            let (group, version) = api_version.rsplit_once('/').unwrap_or(("", &api_version));
            Type::dynamic(&Kind::new(group, version, &kind))
        }

        fn decode(json: &str, kind: &Kind) -> serde_json::Result<DynamicObject> {
            // The type has flattened fields, so its own decoder would copy all fields first.
            let mut fields: Map<String, Value> = serde_json::from_str(json)?;
            let metadata = fields.remove("metadata").map(serde_json::from_value).transpose()?.unwrap_or_default();
            let mut text = |field: &str| match fields.remove(field) {
                Some(Value::String(text)) => Some(text),
                _ => None,
            };
            let types = text("apiVersion").zip(text("kind")).map(|(api_version, kind)| TypeMeta { api_version, kind });
            // Lists of built-in kinds have no kind in their items, and metadata-only objects have the kind of the
            // metadata.
            let types = types.filter(|types| types.kind != "PartialObjectMetadata").unwrap_or_else(|| kind.types());
            Ok(DynamicObject { types: Some(types), metadata, data: Value::Object(fields) })
        }

        fn is_metadata() -> bool {
            false
        }
    }
}

/// Returns the type by which a controller uses an object.
pub(crate) fn type_of<T: AnyResource>(object: &T) -> Type {
    <T::DynamicType as sealed::Decode<T>>::type_of(object)
}

/// Decodes an object of this kind.
pub(crate) fn decode<T: AnyResource>(json: &str, kind: &Kind) -> serde_json::Result<T> {
    flyball_core::json::check_keys(json.as_bytes())?;
    <T::DynamicType as sealed::Decode<T>>::decode(json, kind)
}

/// The type by which a controller uses a kind, and the kind if the type does not determine it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Type {
    id: TypeId,
    kind: Option<Kind>,
    name: &'static str,
    metadata: bool,
}

impl Type {
    pub(crate) fn of<T: Resource>() -> Self {
        Self { id: TypeId::of::<T>(), kind: None, name: type_name::<T>(), metadata: reads_metadata::<T>() }
    }

    /// Returns the type of a kind that is used as [`DynamicObject`].
    pub(crate) fn dynamic(kind: &Kind) -> Self {
        let (id, name) = (TypeId::of::<DynamicObject>(), type_name::<DynamicObject>());
        Self { id, kind: Some(kind.clone()), name, metadata: false }
    }

    /// Returns true if the type only reads metadata.
    pub(crate) fn is_metadata(&self) -> bool {
        self.metadata
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Some(kind) if kind.name().is_empty() => f.write_str("an object without apiVersion and kind"),
            Some(kind) => write!(f, "{} of {}", kind.name(), kind.gvk().api_version()),
            None => f.write_str(self.name),
        }
    }
}

/// Returns true if a type only reads metadata.
pub(crate) fn reads_metadata<T: AnyResource>() -> bool {
    <T::DynamicType as sealed::Decode<T>>::is_metadata()
}

/// Returns namespace and name of an object.
pub(crate) fn key_of<T: kube::Resource>(object: &T) -> ObjectKey {
    let meta = object.meta();
    ObjectKey::new(meta.namespace.as_deref(), meta.name.as_deref().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Pod;

    #[test]
    fn metadata_types_are_recognized() {
        assert!(reads_metadata::<PartialObjectMeta<Pod>>() && Type::of::<PartialObjectMeta<Pod>>().is_metadata());
        assert!(!reads_metadata::<Pod>() && !reads_metadata::<DynamicObject>() && !Type::of::<Pod>().is_metadata());
    }

    #[test]
    fn missing_kind_is_filled_in() {
        let kind = Kind::new("apps", "v1", "Deployment");
        let decode = |json: &str| type_of(&super::decode::<DynamicObject>(json, &kind).unwrap());
        for json in [
            r#"{"metadata":{"name":"a"}}"#,
            r#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{}}"#,
            r#"{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata","metadata":{}}"#,
        ] {
            assert_eq!(decode(json), Type::dynamic(&kind), "{json}");
        }
        // Otherwise, the object is that of its own decoder.
        let json = r#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"a","generation":2},"spec":{"a":[1,"b",{}]},"status":null}"#;
        assert_eq!(super::decode::<DynamicObject>(json, &kind).unwrap(), serde_json::from_str(json).unwrap());
        assert!(super::decode::<DynamicObject>(r#"{"metadata":{"name":1}}"#, &kind).is_err());
        let nameless: DynamicObject = serde_json::from_str(r#"{"metadata":{}}"#).unwrap();
        assert_eq!(type_of(&nameless).to_string(), "an object without apiVersion and kind");
    }
}
