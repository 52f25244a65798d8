//! Schemas of fields, in one form for built-in kinds and for custom resources.
//!
//! A [`Schema`] describes the JSON values that are valid at one place in an object, and their merge strategy. Schemas
//! refer to one another by number within the [`Schemas`] that holds them, so that types may be recursive and shared;
//! [`Node`] is the cursor with which the rest of this crate descends.
//!
//! Built-in kinds come from the notation of [`crate::notation`], custom resources from their CRD (see
//! [`crate::openapi`]).

mod constraints;

pub use constraints::{Bound, Constraints};

use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The place of a schema within its [`Schemas`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id(u32);

/// Schemas that refer to one another.
#[derive(Clone, Debug, Default)]
pub struct Schemas(Vec<Schema>);

/// A schema within its [`Schemas`], ready to descend from.
#[derive(Clone, Copy, Debug)]
pub struct Node<'a> {
    all: &'a Schemas,
    id: Id,
}

/// The schema of one kind, which owns all schemas that it refers to.
#[derive(Clone, Debug)]
pub struct Root {
    all: Arc<Schemas>,
    id: Id,
}

/// The schema of one place in an object.
#[derive(Clone, Debug, Default)]
pub struct Schema {
    /// The sort of value.
    pub shape: Shape,
    /// Null is allowed and kept.
    pub nullable: bool,
    /// The value of an absent field.
    pub default: Option<Value>,
    /// Fields that the schema does not name are kept.
    pub preserve_unknown: bool,
    /// The value is an object with apiVersion, kind and metadata.
    pub embedded: bool,
    /// The type as Go prints it in errors (`v1.Protocol`); built-in kinds only.
    pub go: Option<Box<str>>,
    /// Constraints of a custom resource beyond the sort of value.
    pub constraints: Option<Box<Constraints>>,
}

/// The type of a value.
#[derive(Clone, Debug, Default)]
pub enum Shape {
    /// Any JSON.
    #[default]
    Any,
    /// Any JSON; an object is read by another schema.
    Open(Open),
    /// True or false.
    Boolean,
    /// An integer with this number of bits.
    Integer(u8),
    /// Any number.
    Number,
    /// A text.
    Text(Text),
    /// An integer or a text, such as a port or a percentage.
    IntOrString,
    /// A list.
    List(List),
    /// A map from any text to values of one schema.
    Map(Map),
    /// Fields of fixed names.
    Struct(Struct),
}

/// The meaning of a text that Go decodes into something else than a string.
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

/// A value of any type; an object has a schema of its own.
#[derive(Clone, Debug)]
pub struct Open {
    /// Schema of an object, and of each item of a list.
    pub object: Id,
    /// The fields that protobuf has instead of the one value: one for each sort of value.
    pub numbered: Vec<(u32, Id)>,
}

/// A list, and the rule to merge two of them.
#[derive(Clone, Debug)]
pub struct List {
    /// Schema of the items; any JSON if absent.
    pub items: Option<Id>,
    /// Identity of the items.
    pub kind: ListKind,
}

/// The identity of the items of a list when two lists merge; see
/// <https://kubernetes.io/docs/reference/using-api/server-side-apply/#merge-strategy>.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListKind {
    /// Not at all: the list is one value.
    Atomic,
    /// By their values.
    Set,
    /// By the values of these fields.
    Map(Vec<Box<str>>),
}

/// A map, and the rule to merge two of them.
#[derive(Clone, Debug)]
pub struct Map {
    /// Schema of the values; any JSON if absent.
    pub values: Option<Id>,
    /// The map is one value.
    pub atomic: bool,
}

/// A struct: an object with fixed fields, and the rule to merge two of them.
#[derive(Clone, Debug, Default)]
pub struct Struct {
    /// Name of the Go struct; built-in kinds only.
    pub name: Box<str>,
    /// The fields by name.
    pub fields: BTreeMap<Box<str>, Field>,
    /// The value is replaced as a whole.
    pub atomic: bool,
    /// Structs whose fields are among those above, but are in a field of this number in protobuf.
    pub embedded: Vec<(u32, Id)>,
}

/// A field of a [`Struct`].
#[derive(Clone, Debug)]
pub struct Field {
    /// Schema of its value.
    pub schema: Id,
    /// The condition under which it is written.
    pub presence: Presence,
    /// Rules of strategic merge patch.
    pub patch: Patch,
    /// Its number in protobuf; 0 if it has none here.
    pub number: u32,
    /// Its position in the order in which Go writes the fields.
    pub place: u32,
}

/// The condition under which Go writes a field of a built-in kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// When it is given, even as zero or empty: a pointer, and every field of a custom resource.
    Given,
    /// When it is neither zero nor empty.
    NotEmpty,
    /// Always: as zero or empty if it is not given, lists and maps as null.
    Always,
    /// Always: as null if it is not given.
    OrNull,
}

/// The rules of strategic merge patch for a field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Patch {
    /// Lists merge instead of being replaced.
    pub merge: bool,
    /// The patch may list the only keys to keep.
    pub retain_keys: bool,
    /// The field that identifies the items of a merged list; without one they are plain values.
    pub key: Option<Box<str>>,
}

impl Schemas {
    /// Adds a schema.
    pub fn add(&mut self, schema: Schema) -> Id {
        self.0.push(schema);
        Id(u32::try_from(self.0.len() - 1).expect("fewer schemas than 2³²"))
    }

    /// Changes a schema that has been added.
    pub fn change(&mut self, id: Id) -> &mut Schema {
        &mut self.0[id.0 as usize]
    }

    /// Returns a schema.
    pub fn node(&self, id: Id) -> Node<'_> {
        Node { all: self, id }
    }
}

impl Root {
    /// Builds the schema of a kind from the schemas that it refers to.
    pub fn new(all: Arc<Schemas>, id: Id) -> Self {
        Self { all, id }
    }

    /// Returns the cursor to descend with.
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
    /// Returns the schema for as long as its [`Schemas`] live.
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

    /// Returns true if a custom resource's schema names a format, such as `date-time`.
    pub fn has_format(self) -> bool {
        self.constraints.as_ref().is_some_and(|constraints| constraints.format.is_some())
    }

    /// Returns true if all values are valid.
    pub fn is_any(self) -> bool {
        matches!(self.get().shape, Shape::Any)
    }
}
