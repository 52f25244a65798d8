//! Values of templates: Go values, as far as templates can distinguish them.
//!
//! Maps are shared: `set` changes the map for all references, as in Go. Strings are bytes, because `trunc` may cut
//! within a character.

pub(crate) mod object;

use crate::helm::HelmVersion;
use crate::memory::{self, MemoryCharge};
use crate::text::{Marks, Text, lossy};
use object::Object;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;
use std::rc::{Rc, Weak};
use std::sync::Arc;

/// A value. `Nil` is Go's nil interface.
#[derive(Clone)]
pub(crate) enum Value {
    Nil,
    Bool(bool),
    Int(IntKind, i64),
    Float(f64),
    Str(Text),
    Bytes(Arc<[u8]>),
    List(List),
    Map(Map),
    Object(Rc<Object>),
}

/// Go's integer types, which are distinct where types are checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum IntKind {
    Int,
    Int64,
    Uint8,
    Uint64,
}

/// A slice. Templates never modify one in place.
#[derive(Clone)]
pub(crate) struct List {
    pub(crate) kind: ListKind,
    pub(crate) items: Rc<Items>,
    /// The nil slice: empty, and null in JSON.
    pub(crate) is_nil: bool,
}

/// The type of a slice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ListKind {
    Any,
    Strings,
    Ints,
    /// `[]*chart.Maintainer` and similar types.
    Named(&'static str),
    /// `chartutil.VersionSet`, strings with a method.
    VersionSet(HelmVersion),
}

/// A map with string keys.
#[derive(Clone)]
pub(crate) struct Map {
    pub(crate) kind: MapKind,
    pub(crate) entries: Rc<RefCell<Entries>>,
}

/// The items of a slice, counted until dropped.
#[derive(Default)]
pub(crate) struct Items {
    items: Vec<Value>,
    _charge: MemoryCharge,
}

/// The entries of a map, counted until dropped.
#[derive(Default)]
pub(crate) struct Entries {
    entries: BTreeMap<Key, Value>,
    charge: MemoryCharge,
    /// A template changed the map, so it may contain itself.
    changed: bool,
}

/// A key of a map. The data mark does not affect equality.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    text: String,
    is_data: bool,
}

/// Estimated size of a map entry in addition to its key, in bytes.
const ENTRY: usize = 96;

impl Key {
    pub(crate) fn new(text: impl Into<String>, is_data: bool) -> Self {
        Self { text: text.into(), is_data }
    }

    pub(crate) fn is_data(&self) -> bool {
        self.is_data
    }

    /// Returns it as a value.
    pub(crate) fn to_value(&self) -> Value {
        let text = Text::new(self.text.as_bytes(), Marks::new());
        Value::Str(if self.is_data { text.to_data() } else { text })
    }
}

impl Deref for Key {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

impl std::borrow::Borrow<str> for Key {
    fn borrow(&self) -> &str {
        &self.text
    }
}

impl From<String> for Key {
    fn from(text: String) -> Self {
        Self::new(text, false)
    }
}

impl From<&str> for Key {
    fn from(text: &str) -> Self {
        Self::new(text, false)
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Key {}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.text.cmp(&other.text)
    }
}

impl Items {
    fn new(items: Vec<Value>) -> Self {
        let charge = MemoryCharge::new(items.len() * size_of::<Value>() + ENTRY);
        Self { items, _charge: charge }
    }
}

impl Deref for Items {
    type Target = Vec<Value>;

    fn deref(&self) -> &Vec<Value> {
        &self.items
    }
}

impl Drop for Items {
    fn drop(&mut self) {
        dismantle(std::mem::take(&mut self.items));
    }
}

impl Entries {
    fn new(entries: BTreeMap<Key, Value>) -> Self {
        let bytes = entries.keys().map(|key| key.len() + ENTRY).sum();
        Self { entries, charge: MemoryCharge::new(bytes), changed: false }
    }

    pub(crate) fn take_all(&mut self) -> BTreeMap<Key, Value> {
        self.charge = MemoryCharge::default();
        std::mem::take(&mut self.entries)
    }

    pub(crate) fn remove(&mut self, key: &str) -> Option<Value> {
        self.entries.remove(key)
    }
}

impl memory::Clear for RefCell<Entries> {
    fn clear(&self) {
        // Dropped values may borrow the map again.
        let entries = self.borrow_mut().take_all();
        drop(entries);
    }
}

impl Deref for Entries {
    type Target = BTreeMap<Key, Value>;

    fn deref(&self) -> &BTreeMap<Key, Value> {
        &self.entries
    }
}

impl Drop for Entries {
    fn drop(&mut self) {
        dismantle(std::mem::take(&mut self.entries).into_values().collect());
    }
}

/// Drops nested values without recursion.
fn dismantle(mut values: Vec<Value>) {
    while let Some(value) = values.pop() {
        match value {
            Value::List(list) => {
                if let Ok(mut items) = Rc::try_unwrap(list.items) {
                    values.append(&mut items.items);
                }
            }
            Value::Map(map) => {
                if let Ok(entries) = Rc::try_unwrap(map.entries) {
                    values.extend(std::mem::take(&mut entries.into_inner().entries).into_values());
                }
            }
            _ => {}
        }
    }
}

/// The type of a map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MapKind {
    /// `map[string]interface {}`.
    Any,
    /// `chartutil.Values`, the same with another type name.
    Values(HelmVersion),
    Strings,
    /// `engine.files`, bytes by path.
    Files,
}

impl ListKind {
    /// Returns true if its items have an interface type.
    pub(crate) fn holds_any(self) -> bool {
        self == ListKind::Any
    }
}

impl MapKind {
    pub(crate) fn holds_any(self) -> bool {
        matches!(self, MapKind::Any | MapKind::Values(_))
    }
}

/// The type of a value or of a parameter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Type {
    /// `interface {}`.
    Any,
    /// `reflect.Value`: the parameter type of built-in functions, for any value including a missing one.
    Reflect,
    Bool,
    Int(IntKind),
    Float,
    Str,
    Bytes,
    List(ListKind),
    Map(MapKind),
    Object(&'static str),
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Type::Any => "interface {}",
            Type::Reflect => "reflect.Value",
            Type::Bool => "bool",
            Type::Int(IntKind::Int) => "int",
            Type::Int(IntKind::Int64) => "int64",
            Type::Int(IntKind::Uint8) => "uint8",
            Type::Int(IntKind::Uint64) => "uint64",
            Type::Float => "float64",
            Type::Str => "string",
            Type::Bytes => "[]uint8",
            Type::List(ListKind::Any) => "[]interface {}",
            Type::List(ListKind::Strings) => "[]string",
            Type::List(ListKind::Ints) => "[]int",
            Type::List(ListKind::VersionSet(helm)) => helm.choose("chartutil.VersionSet", "common.VersionSet"),
            Type::List(ListKind::Named(name)) | Type::Object(name) => name,
            Type::Map(MapKind::Any) => "map[string]interface {}",
            Type::Map(MapKind::Values(helm)) => helm.choose("chartutil.Values", "common.Values"),
            Type::Map(MapKind::Strings) => "map[string]string",
            Type::Map(MapKind::Files) => "engine.files",
        })
    }
}

impl Type {
    /// Go's assignability rule.
    pub(crate) fn accepts(self, other: Type) -> bool {
        match (self, other) {
            (Type::Any | Type::Reflect, _) => true,
            // Types with the same underlying type, one of which is unnamed.
            (Type::Map(MapKind::Any), Type::Map(MapKind::Values(_)))
            | (Type::Map(MapKind::Values(_)), Type::Map(MapKind::Any)) => true,
            (Type::List(ListKind::Strings), Type::List(ListKind::VersionSet(_))) => true,
            (this, other) => this == other,
        }
    }

    /// Returns true if nil is assignable.
    pub(crate) fn takes_nil(self) -> bool {
        matches!(self, Type::Any | Type::Reflect | Type::Bytes | Type::List(_) | Type::Map(_))
    }
}

impl Value {
    /// Returns true if any string in it is data. The value is within the limits of
    /// [`RenderContext::weigh`](crate::context::RenderContext::weigh).
    pub(crate) fn is_data(&self) -> bool {
        match self {
            Value::Str(text) => text.is_data(),
            Value::List(list) => list.items.iter().any(Value::is_data),
            Value::Map(map) => map.entries.borrow().iter().any(|(key, value)| key.is_data() || value.is_data()),
            Value::Object(object) => {
                object.is_made_of_texts() || object.fields().iter().any(|field| field.value.is_data())
            }
            _ => false,
        }
    }

    /// Returns the same value with all strings marked as data.
    pub(crate) fn to_data(&self) -> Value {
        match self {
            Value::Str(text) => Value::Str(text.to_data()),
            Value::List(list) => {
                let items = list.items.iter().map(Value::to_data).collect();
                Value::List(List { items: Rc::new(Items::new(items)), ..list.clone() })
            }
            Value::Map(map) => {
                let entries = map.entries.borrow();
                let entries: BTreeMap<Key, Value> =
                    entries.iter().map(|(key, value)| (Key::new(&**key, true), value.to_data())).collect();
                Value::Map(Map::new(map.kind, entries))
            }
            Value::Object(object) => match &**object {
                Object::Record(record) => Value::object(Object::Record(record.to_data())),
                _ => self.clone(),
            },
            other => other.clone(),
        }
    }

    pub(crate) fn str(text: impl AsRef<[u8]>) -> Value {
        Value::Str(Text::new(text.as_ref(), Marks::new()))
    }

    pub(crate) fn int(number: i64) -> Value {
        Value::Int(IntKind::Int, number)
    }

    pub(crate) fn int64(number: i64) -> Value {
        Value::Int(IntKind::Int64, number)
    }

    pub(crate) fn list(items: Vec<Value>) -> Value {
        Value::List(List::new(ListKind::Any, items))
    }

    pub(crate) fn strings<T: AsRef<[u8]>>(items: impl IntoIterator<Item = T>) -> Value {
        Value::List(List::new(ListKind::Strings, items.into_iter().map(Value::str).collect()))
    }

    pub(crate) fn map<K: Into<Key>>(entries: BTreeMap<K, Value>) -> Value {
        Value::Map(Map::new(MapKind::Any, entries))
    }

    pub(crate) fn object(object: Object) -> Value {
        Value::Object(Rc::new(object))
    }

    /// Returns its type; `None` for nil.
    pub(crate) fn type_of(&self) -> Option<Type> {
        Some(match self {
            Value::Nil => return None,
            Value::Bool(_) => Type::Bool,
            Value::Int(kind, _) => Type::Int(*kind),
            Value::Float(_) => Type::Float,
            Value::Str(_) => Type::Str,
            Value::Bytes(_) => Type::Bytes,
            Value::List(list) => Type::List(list.kind),
            Value::Map(map) => Type::Map(map.kind),
            Value::Object(object) => Type::Object(object.type_name()),
        })
    }

    /// Returns the name of its type, as in `%T`.
    pub(crate) fn type_name(&self) -> String {
        self.type_of().map_or_else(|| "<nil>".to_owned(), |kind| kind.to_string())
    }

    /// Returns the name of its Go kind.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Value::Nil => "invalid",
            Value::Bool(_) => "bool",
            Value::Int(IntKind::Int, _) => "int",
            Value::Int(IntKind::Int64, _) => "int64",
            Value::Int(IntKind::Uint8, _) => "uint8",
            Value::Int(IntKind::Uint64, _) => "uint64",
            Value::Float(_) => "float64",
            Value::Str(_) => "string",
            Value::Bytes(_) | Value::List(_) => "slice",
            Value::Map(_) => "map",
            Value::Object(object) => object.kind(),
        }
    }

    /// Go's truth value: neither zero nor empty.
    pub(crate) fn truth(&self) -> bool {
        match self {
            Value::Nil => false,
            Value::Bool(is) => *is,
            Value::Int(_, number) => *number != 0,
            Value::Float(number) => *number != 0.0,
            Value::Str(text) => !text.is_empty(),
            Value::Bytes(bytes) => !bytes.is_empty(),
            Value::List(list) => !list.items.is_empty(),
            Value::Map(map) => !map.entries.borrow().is_empty(),
            Value::Object(object) => object.truth(),
        }
    }

    /// Returns it as a string, with invalid UTF-8 replaced.
    pub(crate) fn text(&self) -> Option<std::borrow::Cow<'_, str>> {
        match self {
            Value::Str(bytes) => Some(lossy(bytes)),
            _ => None,
        }
    }

    /// Returns the items of a slice of any type.
    pub(crate) fn items(&self) -> Option<Vec<Value>> {
        match self {
            Value::List(list) => Some(list.items.to_vec()),
            Value::Bytes(bytes) => {
                Some(bytes.iter().map(|byte| Value::Int(IntKind::Uint8, i64::from(*byte))).collect())
            }
            _ => None,
        }
    }

    /// Go's `reflect.DeepEqual`.
    pub(crate) fn deep_equal(&self, other: &Value) -> bool {
        if self.type_of() != other.type_of() {
            return false;
        }
        match (self, other) {
            (Value::Nil, Value::Nil) => true,
            (Value::Bool(a), Value::Bool(b)) => a == b,
            (Value::Int(_, a), Value::Int(_, b)) => a == b,
            (Value::Float(a), Value::Float(b)) => a == b,
            (Value::Str(a), Value::Str(b)) => a == b,
            (Value::Bytes(a), Value::Bytes(b)) => a == b,
            (Value::List(a), Value::List(b)) => {
                a.items.len() == b.items.len() && a.items.iter().zip(b.items.iter()).all(|(a, b)| a.deep_equal(b))
            }
            (Value::Map(a), Value::Map(b)) => {
                if Rc::ptr_eq(&a.entries, &b.entries) {
                    return true;
                }
                let (a, b) = (a.entries.borrow(), b.entries.borrow());
                a.len() == b.len() && a.iter().zip(b.iter()).all(|((k, a), (l, b))| k == l && a.deep_equal(b))
            }
            (Value::Object(a), Value::Object(b)) => Rc::ptr_eq(a, b) || a.equals(b),
            _ => false,
        }
    }

    /// Returns a deep copy.
    pub(crate) fn deep_copy(&self) -> Value {
        match self {
            Value::List(list) => {
                let items = list.items.iter().map(Value::deep_copy).collect();
                Value::List(List { items: Rc::new(Items::new(items)), ..list.clone() })
            }
            Value::Map(map) => {
                let entries =
                    map.entries.borrow().iter().map(|(key, value)| (key.clone(), value.deep_copy())).collect();
                Value::Map(Map::new(map.kind, entries))
            }
            other => other.clone(),
        }
    }

    /// Returns the nesting depth, up to a limit, because a map that contains itself is infinitely deep.
    pub(crate) fn is_deeper_than(&self, bound: usize) -> bool {
        match self {
            Value::List(list) => bound == 0 || list.items.iter().any(|item| item.is_deeper_than(bound - 1)),
            Value::Map(map) => bound == 0 || map.entries.borrow().values().any(|value| value.is_deeper_than(bound - 1)),
            _ => false,
        }
    }
}

impl List {
    pub(crate) fn new(kind: ListKind, items: Vec<Value>) -> List {
        List { kind, items: Rc::new(Items::new(items)), is_nil: false }
    }

    /// The nil slice.
    pub(crate) fn nil(kind: ListKind) -> List {
        List { kind, items: Rc::default(), is_nil: true }
    }
}

impl Map {
    pub(crate) fn empty(kind: MapKind) -> Map {
        Map::new(kind, BTreeMap::<Key, Value>::new())
    }

    pub(crate) fn new<K: Into<Key>>(kind: MapKind, entries: BTreeMap<K, Value>) -> Map {
        let entries = entries.into_iter().map(|(key, value)| (key.into(), value)).collect();
        Map { kind, entries: Rc::new(RefCell::new(Entries::new(entries))) }
    }

    pub(crate) fn get(&self, key: &str) -> Option<Value> {
        self.entries.borrow().get(key).cloned()
    }

    pub(crate) fn set(&self, key: impl Into<Key>, value: Value) {
        let key = key.into();
        let mut entries = self.entries.borrow_mut();
        if matches!(value, Value::List(_) | Value::Map(_)) && !entries.changed {
            entries.changed = true;
            let map: Weak<RefCell<Entries>> = Rc::downgrade(&self.entries);
            memory::changed(map);
        }
        let size = key.len() + ENTRY;
        // The old value is dropped after the borrow of the map ends, since it may contain the map.
        let before = entries.entries.insert(key, value);
        if before.is_none() {
            entries.charge.add(size);
        }
        drop(entries);
        drop(before);
    }

    pub(crate) fn keys(&self) -> Vec<Key> {
        self.entries.borrow().keys().cloned().collect()
    }
}

impl Value {
    /// Converts an untrusted value: strings are data, unless the trusted value has the same string at the same
    /// position.
    pub(crate) fn untrusted(json: &serde_json::Value, trusted: Option<&serde_json::Value>) -> Value {
        match json {
            serde_json::Value::String(text) => match trusted.and_then(serde_json::Value::as_str) {
                Some(same) if same == text => Value::str(text),
                _ => Value::str(text).to_data(),
            },
            serde_json::Value::Array(items) => {
                let trusted = |at: usize| trusted.and_then(|trusted| trusted.get(at));
                Value::list(items.iter().enumerate().map(|(at, item)| Value::untrusted(item, trusted(at))).collect())
            }
            serde_json::Value::Object(fields) => {
                let entry = |(key, value): (&String, _)| {
                    let trusted = trusted.and_then(|trusted| trusted.get(key));
                    (Key::new(key, trusted.is_none()), Value::untrusted(value, trusted))
                };
                Value::map(fields.iter().map(entry).collect())
            }
            other => Value::from(other),
        }
    }
}

impl From<&serde_json::Value> for Value {
    fn from(json: &serde_json::Value) -> Self {
        match json {
            serde_json::Value::Null => Value::Nil,
            serde_json::Value::Bool(is) => Value::Bool(*is),
            serde_json::Value::Number(number) => match number.as_i64() {
                Some(whole) => Value::int64(whole),
                None => Value::Float(number.as_f64().unwrap_or(f64::NAN)),
            },
            serde_json::Value::String(text) => Value::str(text),
            serde_json::Value::Array(items) => Value::list(items.iter().map(Value::from).collect()),
            serde_json::Value::Object(fields) => Value::from(fields),
        }
    }
}

impl From<&serde_json::Map<String, serde_json::Value>> for Value {
    fn from(fields: &serde_json::Map<String, serde_json::Value>) -> Self {
        Value::map(fields.iter().map(|(key, value)| (key.clone(), Value::from(value))).collect())
    }
}
