//! Detection of the fields that a Rust type reads.
//!
//! A type that implements `Deserialize` requests the fields that it reads from the deserializer. This deserializer
//! always ends with an error, so it runs once for each path and never creates a value.

use super::fields::Fields;
use serde::de::value::StrDeserializer;
use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Visitor,
};
use std::collections::BTreeMap;
use std::fmt;

/// Returns the fields that a type declares. Where they cannot be determined, as with flattened maps, enums and
/// recursive types, all fields are included.
pub(crate) fn declared<T: DeserializeOwned>() -> Fields {
    explore(&|path| requested_shape::<T>(path), &mut Vec::new(), &mut Vec::new())
}

/// The request of a type's `Deserialize` at a path.
enum Shape {
    Struct(&'static str, &'static [&'static str]),
    Map,
    /// A scalar, or a value of unknown type, which is kept completely.
    Value,
}

fn explore(ask: &dyn Fn(&[&str]) -> Shape, path: &mut Vec<&'static str>, within: &mut Vec<&'static str>) -> Fields {
    match ask(path) {
        Shape::Struct(name, members) if !within.contains(&name) => {
            within.push(name);
            let mut known = BTreeMap::new();
            for member in members {
                path.push(member);
                known.insert((*member).into(), explore(ask, path, within));
                path.pop();
            }
            within.pop();
            Fields::Some(known, Box::new(Fields::None))
        }
        Shape::Map => {
            path.push("key");
            let others = explore(ask, path, within);
            path.pop();
            if others == Fields::All { others } else { Fields::Some(BTreeMap::new(), Box::new(others)) }
        }
        Shape::Struct(..) | Shape::Value => Fields::All,
    }
}

fn requested_shape<T: DeserializeOwned>(path: &[&str]) -> Shape {
    let mut found = Shape::Value;
    // The result is irrelevant.
    let _ = T::deserialize(Probe { path, found: &mut found });
    found
}

/// Provides only the value at a path to a type, and records the requested type of the value.
struct Probe<'p> {
    path: &'p [&'p str],
    found: &'p mut Shape,
}

impl<'p> Probe<'p> {
    fn lead<'de, V: Visitor<'de>>(self, visitor: V, end: Shape) -> Result<V::Value, End>
    where
        'p: 'de,
    {
        match self.path.split_first() {
            Some((member, rest)) => {
                visitor.visit_map(One { member, probe: Some(Probe { path: rest, found: self.found }) })
            }
            None => {
                *self.found = end;
                Err(End)
            }
        }
    }
}

/// An object with one member, or an array with one element.
struct One<'p> {
    member: &'p str,
    probe: Option<Probe<'p>>,
}

/// The end of the path; no value is created.
#[derive(Debug)]
struct End;

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the end of the path")
    }
}

impl std::error::Error for End {}

impl de::Error for End {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self
    }
}

impl<'de> Deserializer<'de> for Probe<'de> {
    type Error = End;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, End> {
        Err(End)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, End> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, End> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, End> {
        visitor.visit_seq(One { member: "", probe: Some(self) })
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, End> {
        self.lead(visitor, Shape::Map)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, End> {
        self.lead(visitor, Shape::Struct(name, fields))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct tuple
        tuple_struct enum identifier ignored_any
    }
}

impl<'de> MapAccess<'de> for One<'de> {
    type Error = End;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, End> {
        let key: StrDeserializer<'_, End> = self.member.into_deserializer();
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, End> {
        seed.deserialize(self.probe.take().ok_or(End)?)
    }
}

impl<'de> SeqAccess<'de> for One<'de> {
    type Error = End;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, End> {
        seed.deserialize(self.probe.take().ok_or(End)?).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Pod;
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use serde::Deserialize;
    use serde_json::{Value, json};

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    #[expect(dead_code, reason = "only its fields are read")]
    struct Narrow {
        metadata: ObjectMeta,
        node_name: Option<String>,
        by_name: Option<BTreeMap<String, Item>>,
        #[serde(default)]
        list: Vec<Item>,
        tree: Option<Box<Narrow>>,
        #[serde(skip)]
        skipped: u8,
    }

    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only its fields are read")]
    struct Item {
        x: u32,
        any: Option<Value>,
    }

    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only its fields are read")]
    struct Open {
        a: u8,
        #[serde(flatten)]
        rest: BTreeMap<String, Value>,
    }

    #[test]
    fn declared_fields_are_those_of_the_type() {
        let object = json!({
            "metadata": {"name": "a", "new": 1},
            "nodeName": "n", "node_name": "no",
            "byName": {"k": {"x": 1, "y": 2}, "x": {"y": 1}},
            "list": [{"x": 1, "any": {"deep": [1]}}, {"y": 1}],
            "tree": {"other": 1},
            "skipped": 1,
        });
        let kept = declared::<Narrow>().cut(object.to_string().as_bytes()).unwrap().into_owned();
        let expected = json!({
            "metadata": {"name": "a"},
            "nodeName": "n",
            "byName": {"k": {"x": 1}, "x": {}},
            "list": [{"x": 1, "any": {"deep": [1]}}, {}],
            "tree": {"other": 1},
        });
        assert_eq!(serde_json::from_slice::<Value>(&kept).unwrap(), expected);
    }

    #[test]
    fn untyped_values_declare_all_fields() {
        assert_eq!((declared::<Open>(), declared::<Value>()), (Fields::All, Fields::All));
    }

    #[test]
    fn kubernetes_types_declare_their_fields() {
        let pod = declared::<Pod>();
        let container = pod.of("spec").of("containers");
        assert_eq!((container.of("image"), container.of("color")), (&Fields::All, &Fields::None));
        assert_eq!(container.of("resources").of("limits"), &Fields::All);
        assert_eq!(pod.of("metadata").of("ownerReferences").of("uid"), &Fields::All);
        // Schemas contain schemas.
        let schema = declared::<CustomResourceDefinition>();
        let schema = schema.of("spec").of("versions").of("schema").of("openAPIV3Schema");
        assert_eq!((schema.of("properties"), schema.of("color")), (&Fields::All, &Fields::None));
    }
}
