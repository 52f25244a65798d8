//! Schemas of built-in kinds and of custom resources.
//!
//! A [`Schema`] describes the valid JSON values of one field in an object, and their merge strategy. Schemas refer to
//! one another by number within their [`Schemas`], so types may be recursive and shared. [`Node`] is a cursor for
//! traversing schemas.
//!
//! [`crate::notation`] creates the schemas of built-in kinds, [`crate::openapi`] those of custom resources from their
//! CRD.

mod constraints;

pub use constraints::{Bound, Constraints};

use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The index of a schema within its [`Schemas`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id(u32);

/// Schemas that refer to one another.
#[derive(Clone, Debug, Default)]
pub struct Schemas(Vec<Schema>);

/// A cursor to a schema within its [`Schemas`].
#[derive(Clone, Copy, Debug)]
pub struct Node<'a> {
    all: &'a Schemas,
    id: Id,
}

/// The schema of one kind, which owns all referenced schemas.
#[derive(Clone, Debug)]
pub struct Root {
    all: Arc<Schemas>,
    id: Id,
}

/// The schema of one value in an object.
#[derive(Clone, Debug, Default)]
pub struct Schema {
    /// The type of the value.
    pub shape: Shape,
    /// True if null is allowed and preserved.
    pub nullable: bool,
    /// The default of an absent field.
    pub default: Option<Value>,
    /// True if unknown fields are preserved.
    pub preserve_unknown: bool,
    /// True if the value is an object with apiVersion, kind and metadata.
    pub embedded: bool,
    /// The Go type in errors (`v1.Protocol`); only for built-in kinds.
    pub go: Option<Box<str>>,
    /// Constraints of a custom resource in addition to the type.
    pub constraints: Option<Box<Constraints>>,
}

/// The type of a value.
#[derive(Clone, Debug, Default)]
pub enum Shape {
    /// Any JSON.
    #[default]
    Any,
    /// Any JSON; objects have another schema.
    Open(OpenSchema),
    /// True or false.
    Boolean,
    /// An integer with this number of bits.
    Integer(u8),
    /// Any number.
    Number,
    /// A string.
    Text(Text),
    /// An integer or a string, such as a port or a percentage.
    IntOrString,
    /// A list.
    List(List),
    /// A map from strings to values of one schema.
    Map(Map),
    /// An object with declared fields.
    Struct(Struct),
}

/// The meaning of a string that Go decodes to another type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are self-explanatory")]
pub enum Text {
    Plain,
    Quantity,
    Time,
    MicroTime,
    Duration,
    /// Bytes in base64.
    Bytes,
}

/// Any JSON, with a separate schema for objects.
#[derive(Clone, Debug)]
pub struct OpenSchema {
    /// Schema of an object, and of each item of a list.
    pub object: Id,
    /// The fields in protobuf: one for each type of value.
    pub numbered: Vec<(u32, Id)>,
}

/// The schema of a list and its merge strategy.
#[derive(Clone, Debug)]
pub struct List {
    /// Schema of the items; any JSON if absent.
    pub items: Option<Id>,
    /// Identity of the items in merges.
    pub kind: ListKind,
}

/// The identity of list items in merges; see
/// <https://kubernetes.io/docs/reference/using-api/server-side-apply/#merge-strategy>.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListKind {
    /// None: the list is atomic.
    Atomic,
    /// Their values.
    Set,
    /// The values of these fields.
    Map(Vec<Box<str>>),
}

/// The schema of a map and its merge strategy.
#[derive(Clone, Debug)]
pub struct Map {
    /// Schema of the values; any JSON if absent.
    pub values: Option<Id>,
    /// True if the map is atomic.
    pub atomic: bool,
}

/// The schema of an object with declared fields, and its merge strategy.
#[derive(Clone, Debug, Default)]
pub struct Struct {
    /// Name of the Go struct; only for built-in kinds.
    pub name: Box<str>,
    /// The fields by name.
    pub fields: BTreeMap<Box<str>, Field>,
    /// True if the object is atomic.
    pub atomic: bool,
    /// Structs whose fields are embedded here, but are in a field with this number in protobuf.
    pub embedded: Vec<(u32, Id)>,
}

/// A field of a [`Struct`].
#[derive(Clone, Debug)]
pub struct Field {
    /// Schema of its value.
    pub schema: Id,
    /// The condition under which it is encoded.
    pub presence: Presence,
    /// Rules for strategic merge patches.
    pub patch: Patch,
    /// Field number in protobuf; 0 if there is none.
    pub number: u32,
    /// Position in Go's encoding order.
    pub order: u32,
}

/// The condition under which Go encodes a field of a built-in kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// Set values, including zero and empty ones: pointers, and all fields of custom resources.
    Given,
    /// Values that are neither zero nor empty.
    NotEmpty,
    /// Always: as zero or empty if it is not set, lists and maps as null.
    Always,
    /// Always: as null if it is not set.
    OrNull,
}

/// The rules of a field for strategic merge patches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Patch {
    /// True if lists are merged instead of replaced.
    pub merge: bool,
    /// True if the patch may list the only keys to keep.
    pub retain_keys: bool,
    /// The field that identifies the items of a merged list; `None` for lists of scalars.
    pub key: Option<Box<str>>,
}

impl Schemas {
    /// Adds a schema.
    pub fn add(&mut self, schema: Schema) -> Id {
        self.0.push(schema);
        Id(u32::try_from(self.0.len() - 1).expect("fewer schemas than 2³²"))
    }

    /// Changes an added schema.
    pub fn change(&mut self, id: Id) -> &mut Schema {
        &mut self.0[id.0 as usize]
    }

    /// Returns a schema.
    pub fn node(&self, id: Id) -> Node<'_> {
        Node { all: self, id }
    }
}

impl Root {
    /// Builds the schema of a kind from the referenced schemas.
    pub fn new(all: Arc<Schemas>, id: Id) -> Self {
        Self { all, id }
    }

    /// Returns a cursor to the root schema.
    pub fn node(&self) -> Node<'_> {
        self.all.node(self.id)
    }
}

impl std::ops::Deref for Node<'_> {
    type Target = Schema;

    fn deref(&self) -> &Schema {
        self.get()
    }
}

impl<'a> Node<'a> {
    /// Returns the schema, with the lifetime of its [`Schemas`].
    pub fn get(self) -> &'a Schema {
        &self.all.0[self.id.0 as usize]
    }

    /// Returns the number of the schema within its [`Schemas`].
    pub fn id(self) -> Id {
        self.id
    }

    /// Returns another schema of the same [`Schemas`].
    pub fn at(self, id: Id) -> Node<'a> {
        self.all.node(id)
    }

    /// Returns the fields, if this is a struct.
    pub fn as_struct(self) -> Option<&'a Struct> {
        match &self.get().shape {
            Shape::Struct(fields) => Some(fields),
            _ => None,
        }
    }

    /// Descends into a field of a struct, or a value of a map.
    pub fn field(self, name: &str) -> Option<Node<'a>> {
        match &self.get().shape {
            Shape::Struct(fields) => fields.fields.get(name).map(|field| self.at(field.schema)),
            Shape::Map(map) => map.values.map(|values| self.at(values)),
            _ => None,
        }
    }

    /// Descends into the items of a list.
    pub fn items(self) -> Option<Node<'a>> {
        match &self.get().shape {
            Shape::List(list) => list.items.map(|items| self.at(items)),
            _ => None,
        }
    }

    /// Returns true if a custom resource's schema has a format, such as `date-time`.
    pub fn has_format(self) -> bool {
        self.constraints.as_ref().is_some_and(|constraints| constraints.format.is_some())
    }

    /// Returns true if all values are valid.
    pub fn is_any(self) -> bool {
        matches!(self.get().shape, Shape::Any)
    }
}
