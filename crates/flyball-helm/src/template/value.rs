//! What templates compute with: Go's values, as far as templates can tell them apart.
//!
//! Maps are shared: `set` changes the map that everybody sees, as in Go. Texts are bytes, since `trunc` cuts where it likes.

use super::object::Object;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

/// A value. `Nil` is Go's nil interface.
#[derive(Clone)]
pub(crate) enum Value {
    Nil,
    Bool(bool),
    Int(IntKind, i64),
    Float(f64),
    Str(Rc<[u8]>),
    Bytes(Rc<[u8]>),
    List(List),
    Map(Map),
    Object(Rc<Object>),
}

/// Go's integers of different types, which do not mix where types are checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum IntKind {
    Int,
    Int64,
    Uint8,
    Uint64,
}

/// A slice. Nothing in a template changes one in place.
#[derive(Clone)]
pub(crate) struct List {
    pub(crate) kind: ListKind,
    pub(crate) items: Rc<Vec<Value>>,
    /// There is no slice: empty, and null in JSON.
    pub(crate) is_nil: bool,
}

/// The type of a slice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ListKind {
    Any,
    Strings,
    Ints,
    /// `[]*chart.Maintainer` and its like.
    Named(&'static str),
    /// `chartutil.VersionSet`, texts with a method.
    VersionSet,
}

/// A map with texts for keys.
#[derive(Clone)]
pub(crate) struct Map {
    pub(crate) kind: MapKind,
    pub(crate) entries: Rc<RefCell<BTreeMap<String, Value>>>,
}

/// The type of a map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MapKind {
    /// `map[string]interface {}`.
    Any,
    /// `chartutil.Values`, the same with another name.
    Values,
    Strings,
    /// `engine.files`, bytes by path.
    Files,
}

impl ListKind {
    /// Tells whether its items are interfaces, of which the type is not known before one looks.
    pub(crate) fn holds_any(self) -> bool {
        self == ListKind::Any
    }
}

impl MapKind {
    pub(crate) fn holds_any(self) -> bool {
        matches!(self, MapKind::Any | MapKind::Values)
    }
}

/// The type of a value or of a parameter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Type {
    /// `interface {}`.
    Any,
    /// `reflect.Value`: built-in functions take what there is, and what there is not.
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
            Type::List(ListKind::VersionSet) => "chartutil.VersionSet",
            Type::List(ListKind::Named(name)) | Type::Object(name) => name,
            Type::Map(MapKind::Any) => "map[string]interface {}",
            Type::Map(MapKind::Values) => "chartutil.Values",
            Type::Map(MapKind::Strings) => "map[string]string",
            Type::Map(MapKind::Files) => "engine.files",
        })
    }
}

impl Type {
    /// Go's rule of what may be given where this is wanted.
    pub(crate) fn accepts(self, other: Type) -> bool {
        match (self, other) {
            (Type::Any | Type::Reflect, _) => true,
            // Types with equal content of which one has no name.
            (Type::Map(MapKind::Any), Type::Map(MapKind::Values))
            | (Type::Map(MapKind::Values), Type::Map(MapKind::Any)) => true,
            (Type::List(ListKind::Strings), Type::List(ListKind::VersionSet)) => true,
            (this, other) => this == other,
        }
    }

    /// Tells whether nil may stand for it.
    pub(crate) fn takes_nil(self) -> bool {
        matches!(self, Type::Any | Type::Reflect | Type::Bytes | Type::List(_) | Type::Map(_))
    }
}

impl Value {
    pub(crate) fn str(text: impl AsRef<[u8]>) -> Value {
        Value::Str(Rc::from(text.as_ref()))
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

    pub(crate) fn map(entries: BTreeMap<String, Value>) -> Value {
        Value::Map(Map::new(MapKind::Any, entries))
    }

    pub(crate) fn object(object: Object) -> Value {
        Value::Object(Rc::new(object))
    }

    /// Its type; none if it is nil.
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

    /// The name of its type, as `%T` writes it.
    pub(crate) fn type_name(&self) -> String {
        self.type_of().map_or_else(|| "<nil>".to_owned(), |kind| kind.to_string())
    }

    /// Go's word for what sort of type it has.
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

    /// Go's truth: what is neither zero nor empty.
    pub(crate) fn truth(&self) -> bool {
        match self {
            Value::Nil => false,
            Value::Bool(is) => *is,
            Value::Int(_, number) => *number != 0,
            Value::Float(number) => *number != 0.0,
            Value::Str(bytes) | Value::Bytes(bytes) => !bytes.is_empty(),
            Value::List(list) => !list.items.is_empty(),
            Value::Map(map) => !map.entries.borrow().is_empty(),
            Value::Object(object) => object.truth(),
        }
    }

    /// The text that it is, with what is not UTF-8 replaced.
    pub(crate) fn text(&self) -> Option<std::borrow::Cow<'_, str>> {
        match self {
            Value::Str(bytes) => Some(String::from_utf8_lossy(bytes)),
            _ => None,
        }
    }

    /// The items of a slice of any type.
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
            (Value::Str(a), Value::Str(b)) | (Value::Bytes(a), Value::Bytes(b)) => a == b,
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

    /// A copy that shares nothing that can change.
    pub(crate) fn deep_copy(&self) -> Value {
        match self {
            Value::List(list) => {
                let items = Rc::new(list.items.iter().map(Value::deep_copy).collect());
                Value::List(List { items, ..list.clone() })
            }
            Value::Map(map) => {
                let entries =
                    map.entries.borrow().iter().map(|(key, value)| (key.clone(), value.deep_copy())).collect();
                Value::Map(Map::new(map.kind, entries))
            }
            other => other.clone(),
        }
    }

    /// How deep it is nested, up to a bound: a map that contains itself has no end.
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
        List { kind, items: Rc::new(items), is_nil: false }
    }

    /// A slice that is none.
    pub(crate) fn nil(kind: ListKind) -> List {
        List { kind, items: Rc::default(), is_nil: true }
    }
}

impl Map {
    pub(crate) fn new(kind: MapKind, entries: BTreeMap<String, Value>) -> Map {
        Map { kind, entries: Rc::new(RefCell::new(entries)) }
    }

    pub(crate) fn get(&self, key: &str) -> Option<Value> {
        self.entries.borrow().get(key).cloned()
    }

    pub(crate) fn set(&self, key: impl Into<String>, value: Value) {
        self.entries.borrow_mut().insert(key.into(), value);
    }

    pub(crate) fn keys(&self) -> Vec<String> {
        self.entries.borrow().keys().cloned().collect()
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
