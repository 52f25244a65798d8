//! Values of roles: JSON whose maps keep the order of their fields, as dictionaries of Python do.
//!
//! A role sees this order in loops, in `to_json` and in texts. The values of `serde_json` have the order of the names
//! instead, and must keep it: its feature `preserve_order` would apply to the whole workspace, including the objects
//! of the API server. So YAML, variables and results of tasks are these values, and the objects of the cluster are
//! those of `serde_json`. Both convert into each other by `From`; a map becomes sorted on its way to the cluster.
//!
//! Invariant: equality ignores the order, as in Python. The order of fields is only changed by [`Value::sorted`].

mod json;
mod map;
pub(crate) mod memory;

pub(crate) use json::json;
pub(crate) use map::Map;

use serde::de::{Deserialize, DeserializeOwned, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, Serializer};
use serde_json::Number;
use std::fmt;
use std::ops::{Index, IndexMut};

/// A value with ordered maps.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Value {
    #[default]
    Null,
    Bool(bool),
    Number(Number),
    String(String),
    Array(Vec<Value>),
    Object(Map),
}

/// Decodes a value.
pub(crate) fn from_value<T: DeserializeOwned>(value: Value) -> Result<T, serde_json::Error> {
    serde_json::from_value(value.into())
}

/// Converts an object of the cluster, or another one without values of roles: its maps become sorted.
pub(crate) fn to_value(object: impl Serialize) -> Result<Value, serde_json::Error> {
    serde_json::to_value(object).map(Into::into)
}

/// A field name or the index of an item.
pub(crate) trait Key {
    fn find<'v>(&self, value: &'v Value) -> Option<&'v Value>;
    fn find_mut<'v>(&self, value: &'v mut Value) -> Option<&'v mut Value>;
}

impl Key for str {
    fn find<'v>(&self, value: &'v Value) -> Option<&'v Value> {
        value.as_object()?.get(self)
    }

    fn find_mut<'v>(&self, value: &'v mut Value) -> Option<&'v mut Value> {
        value.as_object_mut()?.get_mut(self)
    }
}

impl Key for String {
    fn find<'v>(&self, value: &'v Value) -> Option<&'v Value> {
        value.as_object()?.get(self)
    }

    fn find_mut<'v>(&self, value: &'v mut Value) -> Option<&'v mut Value> {
        value.as_object_mut()?.get_mut(self)
    }
}

impl Key for usize {
    fn find<'v>(&self, value: &'v Value) -> Option<&'v Value> {
        value.as_array()?.get(*self)
    }

    fn find_mut<'v>(&self, value: &'v mut Value) -> Option<&'v mut Value> {
        value.as_array_mut()?.get_mut(*self)
    }
}

impl<K: Key + ?Sized> Key for &K {
    fn find<'v>(&self, value: &'v Value) -> Option<&'v Value> {
        (**self).find(value)
    }

    fn find_mut<'v>(&self, value: &'v mut Value) -> Option<&'v mut Value> {
        (**self).find_mut(value)
    }
}

/// The methods of `serde_json::Value`.
impl Value {
    pub(crate) fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    pub(crate) fn is_boolean(&self) -> bool {
        matches!(self, Self::Bool(_))
    }

    pub(crate) fn is_number(&self) -> bool {
        matches!(self, Self::Number(_))
    }

    pub(crate) fn is_i64(&self) -> bool {
        matches!(self, Self::Number(number) if number.is_i64())
    }

    pub(crate) fn is_u64(&self) -> bool {
        matches!(self, Self::Number(number) if number.is_u64())
    }

    pub(crate) fn is_string(&self) -> bool {
        matches!(self, Self::String(_))
    }

    pub(crate) fn is_array(&self) -> bool {
        matches!(self, Self::Array(_))
    }

    pub(crate) fn is_object(&self) -> bool {
        matches!(self, Self::Object(_))
    }

    pub(crate) fn as_bool(&self) -> Option<bool> {
        if let Self::Bool(truth) = self { Some(*truth) } else { None }
    }

    pub(crate) fn as_i64(&self) -> Option<i64> {
        if let Self::Number(number) = self { number.as_i64() } else { None }
    }

    pub(crate) fn as_u64(&self) -> Option<u64> {
        if let Self::Number(number) = self { number.as_u64() } else { None }
    }

    pub(crate) fn as_f64(&self) -> Option<f64> {
        if let Self::Number(number) = self { number.as_f64() } else { None }
    }

    pub(crate) fn as_str(&self) -> Option<&str> {
        if let Self::String(text) = self { Some(text) } else { None }
    }

    pub(crate) fn as_array(&self) -> Option<&Vec<Value>> {
        if let Self::Array(items) = self { Some(items) } else { None }
    }

    pub(crate) fn as_array_mut(&mut self) -> Option<&mut Vec<Value>> {
        if let Self::Array(items) = self { Some(items) } else { None }
    }

    pub(crate) fn as_object(&self) -> Option<&Map> {
        if let Self::Object(fields) = self { Some(fields) } else { None }
    }

    pub(crate) fn as_object_mut(&mut self) -> Option<&mut Map> {
        if let Self::Object(fields) = self { Some(fields) } else { None }
    }

    pub(crate) fn get(&self, key: impl Key) -> Option<&Value> {
        key.find(self)
    }

    pub(crate) fn get_mut(&mut self, key: impl Key) -> Option<&mut Value> {
        key.find_mut(self)
    }

    /// Sorts the fields of all maps by name.
    pub(crate) fn sorted(&self) -> Self {
        match self {
            Self::Array(items) => items.iter().map(Self::sorted).collect(),
            Self::Object(fields) => {
                let mut fields: Vec<_> = fields.iter().collect();
                fields.sort_by_key(|(name, _)| *name);
                Self::Object(fields.into_iter().map(|(name, field)| (name.clone(), field.sorted())).collect())
            }
            scalar => scalar.clone(),
        }
    }
}

impl<K: Key> Index<K> for Value {
    type Output = Value;

    /// Returns null for other keys.
    fn index(&self, key: K) -> &Value {
        static NULL: Value = Value::Null;
        key.find(self).unwrap_or(&NULL)
    }
}

impl IndexMut<&str> for Value {
    /// Creates the field of a map, and the map in the place of null.
    fn index_mut(&mut self, name: &str) -> &mut Value {
        if self.is_null() {
            *self = Self::Object(Map::new());
        }
        let fields = self.as_object_mut().expect("the caller has a map");
        fields.entry(name).or_default()
    }
}

/// Writes compact JSON.
impl fmt::Display for Value {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => out.serialize_unit(),
            Self::Bool(truth) => out.serialize_bool(*truth),
            Self::Number(number) => number.serialize(out),
            Self::String(text) => out.serialize_str(text),
            Self::Array(items) => out.collect_seq(items),
            Self::Object(fields) => fields.serialize(out),
        }
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        input.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("any valid JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, input: D) -> Result<Value, D::Error> {
        Value::deserialize(input)
    }

    fn visit_bool<E>(self, truth: bool) -> Result<Value, E> {
        Ok(truth.into())
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut input: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = input.next_element()? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut input: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some((name, field)) = input.next_entry()? {
            fields.insert(name, field);
        }
        Ok(Value::Object(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_keep_the_order_of_their_fields() {
        let text = r#"{"b":1,"a":{"z":[{"y":null,"x":-1.5}],"c":true},"B":"é"}"#;
        let value: Value = serde_json::from_str(text).unwrap();
        assert_eq!(value.to_string(), text);
        assert_eq!(value.sorted().to_string(), r#"{"B":"é","a":{"c":true,"z":[{"x":-1.5,"y":null}]},"b":1}"#);
        assert_eq!(value, value.sorted(), "equality ignores the order");
        assert_ne!(value, json!({"b": 1, "a": 2, "B": "é"}));
        assert_eq!(
            json!({"b": 1, "a": [{"d": null, "c": value["b"].clone()}, []]}).to_string(),
            r#"{"b":1,"a":[{"d":null,"c":1},[]]}"#
        );
    }

    #[test]
    fn changes_keep_the_places_of_other_fields() {
        // As dictionaries of Python: `d['b'] = 4`, `del d['a']`, `d['a'] = 5`.
        let mut value: Value = serde_json::from_str(r#"{"b": 0, "a": 2, "c": 3, "b": 1}"#).unwrap();
        assert_eq!(value.to_string(), r#"{"b":1,"a":2,"c":3}"#, "the last of equal fields has the place of the first");
        let fields = value.as_object_mut().unwrap();
        fields.insert("b".to_owned(), 4.into());
        assert_eq!(fields.remove("a"), Some(2.into()));
        fields.insert("a".to_owned(), 5.into());
        assert_eq!(value.to_string(), r#"{"b":4,"c":3,"a":5}"#);
        value["d"] = json!({});
        value["d"]["e"] = 6.into();
        assert_eq!(value.to_string(), r#"{"b":4,"c":3,"a":5,"d":{"e":6}}"#);
        assert!(value["x"]["y"].is_null() && value[0].is_null());
    }

    #[test]
    fn objects_of_the_cluster_are_sorted() {
        let value: Value = serde_json::from_str(r#"{"b": [{"d": 1, "c": 2.5}], "a": -1}"#).unwrap();
        let object = serde_json::Value::from(value.clone());
        assert_eq!(object.to_string(), r#"{"a":-1,"b":[{"c":2.5,"d":1}]}"#);
        assert_eq!(Value::from(object.clone()).to_string(), object.to_string());
        assert_eq!(Value::from(object), value);
        assert_eq!(from_value::<Vec<u8>>(json!([1, 2])).unwrap(), [1, 2]);
    }
}
