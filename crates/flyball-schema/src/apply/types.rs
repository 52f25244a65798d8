//! Types of values for server-side apply.

use super::path::{PathElement, Scalar as KeyValue};
use super::set::{Branch, FieldSet};
use crate::decode::go_type;
use crate::schema::{ListKind, Node, Presence, Shape, Struct, Text};
use flyball_core::field::go_print;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt;

/// The type of a value in an object.
#[derive(Clone, Copy)]
pub(super) enum Type<'a> {
    /// The type of a schema.
    Schema(Node<'a>),
    /// Below a schema that preserves unknown fields: maps are granular, lists are atomic.
    Deduced,
    /// Inside a list of arbitrary values: all values are atomic.
    Atomic,
}

/// The structure of a type for merges.
pub(super) enum Atom<'a> {
    Scalar(Scalar),
    List(ListAtom<'a>),
    Map(MapAtom<'a>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Scalar {
    Numeric,
    Text,
    Boolean,
    Untyped,
}

pub(super) struct ListAtom<'a> {
    pub(super) kind: &'a ListKind,
    pub(super) items: Type<'a>,
}

pub(super) struct MapAtom<'a> {
    pub(super) atomic: bool,
    fields: Option<(Node<'a>, &'a Struct)>,
    rest: Option<Type<'a>>,
}

/// The mismatch of a value and its schema, prefixed with the path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeMismatch {
    path: String,
    reason: String,
}

impl TypeMismatch {
    fn new(reason: impl Into<String>) -> Self {
        Self { path: String::new(), reason: reason.into() }
    }

    fn below(mut self, element: &PathElement) -> Self {
        self.path = format!("{element}{}", self.path);
        self
    }
}

impl fmt::Display for TypeMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() { f.write_str(&self.reason) } else { write!(f, "{}: {}", self.path, self.reason) }
    }
}

impl<'a> Type<'a> {
    /// Returns the structure of a value; for null or an absent value of an open type, a map.
    pub(super) fn atom(self, value: Option<&Value>) -> Atom<'a> {
        let scalar = || matches!(value, Some(Value::Bool(_) | Value::Number(_) | Value::String(_)));
        let open = |map: MapAtom<'a>, list: ListAtom<'a>| match value {
            Some(Value::Array(_)) => Atom::List(list),
            _ if scalar() => Atom::Scalar(Scalar::Untyped),
            _ => Atom::Map(map),
        };
        let one_list = || ListAtom { kind: &ListKind::Atomic, items: Type::Atomic };
        match self {
            Type::Deduced => open(MapAtom { atomic: false, fields: None, rest: Some(Type::Deduced) }, one_list()),
            Type::Atomic => open(MapAtom { atomic: true, fields: None, rest: Some(Type::Atomic) }, one_list()),
            Type::Schema(node) => match &node.get().shape {
                // Raw JSON of a built-in kind is atomic, that of a custom resource is not.
                Shape::Any if !node.preserve_unknown => Type::Atomic.atom(value),
                Shape::Any | Shape::Open(_) => Type::Deduced.atom(value),
                Shape::Boolean => Atom::Scalar(Scalar::Boolean),
                Shape::Integer(_) | Shape::Number => Atom::Scalar(Scalar::Numeric),
                Shape::Text(Text::Plain | Text::Bytes) if !node.has_format() => Atom::Scalar(Scalar::Text),
                Shape::Text(_) | Shape::IntOrString => Atom::Scalar(Scalar::Untyped),
                Shape::List(list) => Atom::List(ListAtom {
                    kind: &list.kind,
                    items: list.items.map_or(Type::Atomic, |id| Type::Schema(node.at(id))),
                }),
                Shape::Map(map) => Atom::Map(MapAtom {
                    atomic: map.atomic,
                    fields: None,
                    rest: Some(map.values.map_or(Type::Deduced, |id| Type::Schema(node.at(id)))),
                }),
                Shape::Struct(fields) => Atom::Map(MapAtom {
                    atomic: fields.atomic,
                    fields: Some((node, fields)),
                    rest: (node.preserve_unknown || fields.fields.is_empty()).then_some(Type::Deduced),
                }),
            },
        }
    }

    fn map(self) -> Option<MapAtom<'a>> {
        match self.atom(None) {
            Atom::Map(map) => Some(map),
            Atom::Scalar(_) | Atom::List(_) => None,
        }
    }

    fn list(self) -> Option<ListAtom<'a>> {
        match self.atom(Some(&Value::Array(Vec::new()))) {
            Atom::List(list) => Some(list),
            Atom::Scalar(_) | Atom::Map(_) => None,
        }
    }

    /// Rejects a value that does not match the schema.
    pub(super) fn check(self, value: &Value, duplicates: bool) -> Result<(), TypeMismatch> {
        match (self.atom(Some(value)), value) {
            // Without a schema, all values are valid.
            _ if matches!(self, Type::Deduced | Type::Atomic) => Ok(()),
            (_, Value::Null) => Ok(()),
            (Atom::Scalar(scalar), value) => scalar.check(value),
            (Atom::List(ListAtom { kind: ListKind::Atomic, items: ty }), Value::Array(items)) => {
                let check =
                    |(i, item)| ty.check(item, duplicates).map_err(|misfit| misfit.below(&PathElement::Index(i)));
                items.iter().enumerate().try_for_each(check)
            }
            (Atom::List(list), Value::Array(items)) => {
                let mut seen = BTreeSet::new();
                for (i, item) in items.iter().enumerate() {
                    let element =
                        list.element(item).map_err(|reason| TypeMismatch::new(format!("element {i}: {reason}")))?;
                    if !duplicates && seen.contains(&element) {
                        return Err(TypeMismatch::new(format!("duplicate entries for key {element}")));
                    }
                    list.items.check(item, duplicates).map_err(|misfit| misfit.below(&element))?;
                    seen.insert(element);
                }
                Ok(())
            }
            (Atom::Map(map), Value::Object(entries)) => entries.iter().try_for_each(|(key, value)| {
                let undeclared = || Err(TypeMismatch::new("field not declared in schema"));
                let checked = map.get(key).map_or_else(undeclared, |ty| ty.check(value, duplicates));
                checked.map_err(|misfit| misfit.below(&PathElement::field(key)))
            }),
            (Atom::List(_), value) => Err(TypeMismatch::new(format!("expected list, got &{{{}}}", go_print(value)))),
            (Atom::Map(_), value) => Err(TypeMismatch::new(format!("expected map, got &{{{}}}", go_print(value)))),
        }
    }

    /// Returns the paths of a value and of all its descendants.
    pub(super) fn fields(self, value: &Value) -> Branch {
        match (self.atom(Some(value)), value) {
            (Atom::Scalar(_), _) => Branch::MEMBER,
            (Atom::List(ListAtom { kind: ListKind::Atomic, .. }), _) | (Atom::Map(MapAtom { atomic: true, .. }), _) => {
                Branch::MEMBER
            }
            (Atom::List(list), Value::Array(items)) => {
                let branch = |item| {
                    let element = list.element(item).ok()?;
                    Some((element, Branch { member: true, below: list.items.fields(item).below }))
                };
                Branch { member: false, below: items.iter().filter_map(branch).collect() }
            }
            (Atom::Map(map), Value::Object(entries)) => {
                let branch = |(key, value): (&String, &Value)| {
                    let mut branch = map.get(key).unwrap_or(Type::Deduced).fields(value);
                    let empty = value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty);
                    branch.member |= empty || !map.names(key);
                    (PathElement::field(key), branch)
                };
                Branch { member: false, below: entries.iter().map(branch).collect() }
            }
            (Atom::List(_) | Atom::Map(_), _) => Branch::default(),
        }
    }

    /// Adds the fields of structs that have descendants in the set.
    pub(super) fn with_named_fields(self, set: &FieldSet) -> FieldSet {
        let (map, list) = (self.map(), self.list());
        let with_named = |(element, branch): (&PathElement, &Branch)| {
            let (named, inner) = match (element, &map, &list) {
                (PathElement::Field(name), Some(map), _) => (map.names(name), map.get(name)),
                (PathElement::Key(_), _, Some(list)) => (false, Some(list.items)),
                _ => (false, None),
            };
            let below = inner.unwrap_or(Type::Deduced).with_named_fields(&branch.below);
            let member = branch.member || named && !branch.below.is_empty();
            (element.clone(), Branch { member, below })
        };
        set.branches().map(with_named).collect()
    }

    /// Adapts a set to the current schema: paths below a value that has become atomic are replaced by that value.
    pub(super) fn reconcile(self, branch: &Branch) -> Branch {
        let atom = self.atom(None);
        let atomic = match &atom {
            Atom::Scalar(_) => return branch.clone(),
            Atom::Map(map) if map.is_deduced() => return branch.clone(),
            Atom::Map(map) => map.atomic && !branch.below.is_empty(),
            Atom::List(list) => *list.kind == ListKind::Atomic,
        };
        let leaf = branch.member && branch.below.is_empty();
        if atomic && !leaf {
            return Branch::MEMBER;
        }
        let reconciled = |(element, inner): (&PathElement, &Branch)| {
            let ty = match (&atom, element) {
                (Atom::Map(map), PathElement::Field(name)) => map.get(name),
                (Atom::Map(map), _) => map.rest,
                (Atom::List(list), _) => Some(list.items),
                (Atom::Scalar(_), _) => None,
            };
            (element.clone(), ty.map_or_else(|| inner.clone(), |ty| ty.reconcile(inner)))
        };
        Branch { member: branch.member, below: branch.below.branches().map(reconciled).collect() }
    }
}

/// Returns the value of an absent field: its default, or zero if Go always writes it.
fn default(node: Node<'_>, name: &str) -> Option<Value> {
    let field = node.field(name)?;
    let always =
        node.as_struct().and_then(|of| of.fields.get(name)).is_some_and(|field| field.presence == Presence::Always);
    let zero = || Some(crate::decode::zero(field)).filter(|zero| always && !zero.is_null());
    field.get().default.clone().or_else(zero)
}

impl<'a> ListAtom<'a> {
    /// Returns the path element of an item of a set or map list; `Err` is the reason why it has no key.
    pub(super) fn element(&self, item: &Value) -> Result<PathElement, String> {
        let ListKind::Map(keys) = self.kind else {
            return match item {
                Value::Object(_) => Err("associative list without keys has an element that's a map type".into()),
                Value::Array(_) => Err("not supported: associative list with lists as elements".into()),
                Value::Null => Err("associative list without keys has an element that's an explicit null".into()),
                scalar => Ok(PathElement::Value(scalar.into())),
            };
        };
        let fields = match item {
            Value::Object(fields) => fields,
            Value::Null => return Err("associative list with keys may not have a null element".into()),
            _ => return Err("associative list with keys may not have non-map elements".into()),
        };
        let mut values: Vec<(Box<str>, KeyValue)> = Vec::with_capacity(keys.len());
        for key in keys {
            let default = || match self.items {
                Type::Schema(node) => default(node, key),
                Type::Deduced | Type::Atomic => None,
            };
            if let Some(value) = fields.get(&**key).cloned().or_else(default) {
                values.push((key.clone(), (&value).into()));
            }
        }
        if values.is_empty() {
            let keys: Vec<String> = keys.iter().map(|key| format!("{key:?}")).collect();
            return Err(format!(
                "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
                keys.join(" ")
            ));
        }
        values.sort();
        Ok(PathElement::Key(values.into()))
    }
}

impl<'a> MapAtom<'a> {
    /// Returns the type of a field; `None` if the schema has no field with this name.
    pub(super) fn get(&self, name: &str) -> Option<Type<'a>> {
        let field = self
            .fields
            .and_then(|(node, fields)| fields.fields.get(name).map(|field| Type::Schema(node.at(field.schema))));
        field.or(self.rest)
    }

    /// Returns true if the schema declares the field.
    pub(super) fn names(&self, name: &str) -> bool {
        self.fields.is_some_and(|(_, fields)| fields.fields.contains_key(name))
    }

    fn is_deduced(&self) -> bool {
        self.fields.is_none_or(|(_, fields)| fields.fields.is_empty()) && matches!(self.rest, Some(Type::Deduced))
    }
}

impl Scalar {
    fn check(self, value: &Value) -> Result<(), TypeMismatch> {
        let wrong = match (self, value) {
            (Self::Numeric, Value::Number(_)) | (Self::Text, Value::String(_)) | (Self::Boolean, Value::Bool(_)) => {
                return Ok(());
            }
            (Self::Untyped, Value::Bool(_) | Value::Number(_) | Value::String(_)) => return Ok(()),
            (Self::Numeric, value) => format!("expected numeric (int or float), got {}", go_type(value)),
            (Self::Text, value) => {
                format!("expected string, got &value.valueUnstructured{{Value:{}}}", go_print(value))
            }
            (Self::Boolean, value) => format!("expected boolean, got &{{{}}}", go_print(value)),
            (Self::Untyped, value) => format!("expected any scalar, got &{{{}}}", go_print(value)),
        };
        Err(TypeMismatch::new(wrong))
    }
}
