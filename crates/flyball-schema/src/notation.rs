//! Parser of `.types` files, which declare the types of built-in kinds.
//!
//! A file declares a package, a line declares a field:
//!
//! ```text
//! package core/v1
//!
//! kind ConfigMap                     a struct with apiVersion and kind of its own
//!   metadata meta.ObjectMeta         a type of another package
//!   data {}string                    a map from text
//! struct Container
//!   name! string                     written even when it is empty
//!   started? Time                    a value of its own that is omitted when it is zero
//!   tty bool                         written unless it is zero or empty
//!   priority *int32                  written when it is given
//!   ports []ContainerPort map(containerPort,protocol) merge(containerPort)
//!   ...VolumeSource @2               the fields of another struct
//! struct LocalObjectReference atomic
//! alias Protocol string              a type that Go names in errors
//! open JSONSchemaPropsOrBool JSONSchemaProps @2 bool @1    any JSON; an object is read as the first type
//! ```
//!
//! Flags of a field: `map(keys)`, `set`, `atomic` and `granular` are its merge strategy in server-side apply,
//! `merge(key)` and `retain` that of strategic merge patch, `=value` is its default as JSON, `@1` its number in
//! protobuf. The types `Quantity`, `IntOrString`, `Time`, `MicroTime`, `Duration`, `bytes`, `UID` and `Any` are built
//! in, as are Go's scalars.
//!
//! The files are part of the program: an error in one is a broken invariant and panics. A test parses all of them.

use crate::schema::{
    Field, Id, List, ListKind, Map, Node, OpenSchema, Patch, Presence, Root, Schema, Schemas, Shape, Struct, Text,
};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The types shared by all packages: object metadata, label selectors, conditions.
pub const META: &str = include_str!("notation/meta.types");

/// Types by package and name.
#[derive(Clone, Debug)]
pub struct Library {
    schemas: Arc<Schemas>,
    names: BTreeMap<String, Id>,
}

impl Library {
    /// Parses packages, which may refer to one another and to [`META`].
    pub fn read(packages: &[&'static str]) -> Self {
        let mut reader = Reader::default();
        let all = std::iter::once(META).chain(packages.iter().copied());
        reader.read(all);
        Self { schemas: Arc::new(reader.schemas), names: reader.names }
    }

    /// Returns a type of a package such as `apps/v1`.
    pub fn get(&self, package: &str, name: &str) -> Option<Root> {
        let id = self.names.get(&format!("{package}.{name}"))?;
        Some(Root::new(self.schemas.clone(), *id))
    }

    /// Returns all types with their names, such as `core/v1.PodSpec`.
    pub fn types(&self) -> impl Iterator<Item = (&str, Node<'_>)> {
        self.names.iter().map(|(name, id)| (name.as_str(), self.schemas.node(*id)))
    }
}

/// Adds the schema of `metadata` to others.
pub fn object_meta(schemas: &mut Schemas) -> Id {
    let mut reader = Reader { schemas: std::mem::take(schemas), ..Reader::default() };
    reader.read(std::iter::once(META));
    *schemas = reader.schemas;
    reader.names["meta/v1.ObjectMeta"]
}

/// Gap between the positions of two fields, for the fields of embedded structs.
const ORDER_STEP: u32 = 1 << 10;

/// One declaration and the lines of its fields.
struct Declaration {
    package: &'static str,
    head: Vec<&'static str>,
    fields: Vec<&'static str>,
}

impl Declaration {
    /// Returns the name of the type in Go: with the last segment of its package.
    fn go(&self) -> String {
        let short = self.package.rsplit('/').next().expect("a split has a last part");
        format!("{short}.{}", self.head[1])
    }
}

#[derive(Default)]
struct Reader {
    schemas: Schemas,
    names: BTreeMap<String, Id>,
    scalars: BTreeMap<&'static str, Id>,
    /// Named types that are structs, known before their fields.
    structs: BTreeSet<Id>,
    /// Schemas that are derived from another one, which may not be parsed yet.
    derived: Vec<(Id, Id, Difference)>,
}

/// The difference between the schema of a field and that of its type.
enum Difference {
    Default(Value),
    /// The flag and its arguments.
    Merging(&'static str, &'static str),
}

impl Reader {
    fn read(&mut self, packages: impl Iterator<Item = &'static str>) {
        let declarations: Vec<Declaration> = packages.flat_map(declarations).collect();
        for declaration in &declarations {
            let id = self.schemas.add(Schema { go: Some(declaration.go().into()), ..Schema::default() });
            if matches!(declaration.head[0], "struct" | "kind") {
                self.structs.insert(id);
            }
            self.names.insert(format!("{}.{}", declaration.package, declaration.head[1]), id);
        }
        for declaration in &declarations {
            self.declare(declaration);
        }
        for declaration in &declarations {
            self.embed(declaration);
        }
        for (id, from, difference) in std::mem::take(&mut self.derived) {
            let mut schema = self.schemas.node(from).get().clone();
            match difference {
                Difference::Default(default) => schema.default = Some(default),
                Difference::Merging(flag, arguments) => merge_by(&mut schema, flag, arguments),
            }
            *self.schemas.change(id) = schema;
        }
    }

    /// Returns a new schema that will be derived from another.
    fn derive(&mut self, from: Id, difference: Difference) -> Id {
        let id = self.schemas.add(Schema::default());
        self.derived.push((id, from, difference));
        id
    }

    fn declare(&mut self, declaration: &Declaration) {
        let id = self.names[&format!("{}.{}", declaration.package, declaration.head[1])];
        let name = declaration.head[1];
        let go = Some(declaration.go().into());
        let schema = match declaration.head[..] {
            ["alias", _, ty] => {
                let aliased = self.ty(declaration.package, ty);
                Schema { go, ..self.schemas.node(aliased).get().clone() }
            }
            ["open", _, ref types @ ..] => {
                let sort = |pair: &[&'static str]| (number(pair[1]), self.ty(declaration.package, pair[0]));
                let numbered: Vec<(u32, Id)> = types.chunks_exact(2).map(sort).collect();
                Schema { go, shape: Shape::Open(OpenSchema { object: numbered[0].1, numbered }), ..Schema::default() }
            }
            ["struct" | "kind", _, ref flags @ ..] => {
                let mut fields = BTreeMap::new();
                if declaration.head[0] == "kind" {
                    let text = self.scalar("string");
                    let field = || Field {
                        schema: text,
                        presence: Presence::NotEmpty,
                        patch: Patch::default(),
                        number: 0,
                        order: 0,
                    };
                    fields.insert("apiVersion".into(), field());
                    fields.insert("kind".into(), field());
                }
                for (line, order) in declaration.fields.iter().zip((ORDER_STEP..).step_by(ORDER_STEP as usize)) {
                    if !line.starts_with("...") {
                        let (name, field) = self.field(declaration.package, line);
                        fields.insert(name.into(), Field { order, ..field });
                    }
                }
                let atomic = flags.contains(&"atomic");
                let shape = Shape::Struct(Struct { name: name.into(), fields, atomic, embedded: Vec::new() });
                Schema { go, shape, ..Schema::default() }
            }
            _ => panic!("{}: {:?} declares nothing", declaration.package, declaration.head),
        };
        *self.schemas.change(id) = schema;
    }

    /// Copies the fields of embedded structs, which do not embed other structs.
    fn embed(&mut self, declaration: &Declaration) {
        let id = self.names[&format!("{}.{}", declaration.package, declaration.head[1])];
        for (line, order) in declaration.fields.iter().zip((ORDER_STEP..).step_by(ORDER_STEP as usize)) {
            let Some(line) = line.strip_prefix("...") else { continue };
            let (name, at) = line.split_once(' ').unwrap_or((line, "@0"));
            let embedded = self.named(declaration.package, name);
            let mut fields = self.schemas.node(embedded).as_struct().expect("only structs are embedded").fields.clone();
            fields.values_mut().for_each(|field| (field.number, field.order) = (0, order + field.order / ORDER_STEP));
            let Shape::Struct(target) = &mut self.schemas.change(id).shape else { panic!("only structs embed") };
            target.fields.extend(fields);
            target.embedded.push((number(at), embedded));
        }
    }

    fn field(&mut self, package: &str, line: &'static str) -> (&'static str, Field) {
        let mut words = line.split_whitespace();
        let (name, ty) = words.next().zip(words.next()).expect("a field has a name and a type");
        let (name, written) = match name.strip_suffix(['!', '?']) {
            Some(bare) => (bare, name.as_bytes()[name.len() - 1]),
            None => (name, b' '),
        };
        let pointer = ty.starts_with('*');
        let mut schema = self.ty(package, ty.trim_start_matches('*'));
        let text = matches!(self.schemas.node(schema).get().shape, Shape::Text(Text::Time | Text::MicroTime));
        let go_struct = text || self.structs.contains(&schema);
        let (mut patch, mut at) = (Patch::default(), 0);
        for flag in words {
            let (flag, arguments) = match flag.split_once('(') {
                Some((flag, arguments)) => (flag, arguments.trim_end_matches(')')),
                None => (flag, ""),
            };
            match flag {
                "merge" => {
                    patch = Patch { merge: true, key: (!arguments.is_empty()).then(|| arguments.into()), ..patch }
                }
                "retain" => patch.retain_keys = true,
                flag if flag.starts_with('@') => at = number(flag),
                "map" | "set" | "atomic" | "granular" => {
                    schema = self.derive(schema, Difference::Merging(flag, arguments))
                }
                flag => {
                    let default = flag.strip_prefix('=').unwrap_or_else(|| panic!("{package}: unknown flag {flag}"));
                    let default = serde_json::from_str(default).unwrap_or_else(|e| panic!("{package}: {flag}: {e}"));
                    schema = self.derive(schema, Difference::Default(default));
                }
            }
        }
        let presence = match written {
            b'!' if pointer => Presence::OrNull,
            _ if pointer => Presence::Given,
            b'!' => Presence::Always,
            b'?' => Presence::NotEmpty,
            _ if go_struct => Presence::Always, // Go never omits structs
            _ => Presence::NotEmpty,
        };
        (name, Field { schema, presence, patch, number: at, order: 0 })
    }

    fn ty(&mut self, package: &str, ty: &'static str) -> Id {
        if let Some(items) = ty.strip_prefix("[]") {
            let items = self.ty(package, items);
            let go = self.go(items).map(|go| format!("[]{go}").into());
            let shape = Shape::List(List { items: Some(items), kind: ListKind::Atomic });
            return self.schemas.add(Schema { go, shape, ..Schema::default() });
        }
        if let Some(values) = ty.strip_prefix("{}") {
            let values = self.ty(package, values);
            let go = self.go(values).map(|go| format!("map[string]{go}").into());
            let shape = Shape::Map(Map { values: Some(values), atomic: false });
            return self.schemas.add(Schema { go, shape, ..Schema::default() });
        }
        if is_scalar(ty) { self.scalar(ty) } else { self.named(package, ty) }
    }

    fn go(&self, id: Id) -> Option<&str> {
        self.schemas.node(id).get().go.as_deref()
    }

    fn named(&self, package: &str, ty: &str) -> Id {
        let full = match ty.split_once('.') {
            Some((package, name)) => format!("{package}/v1.{name}"),
            None => format!("{package}.{ty}"),
        };
        *self.names.get(&full).unwrap_or_else(|| panic!("{package}: no type {full}"))
    }

    fn scalar(&mut self, ty: &'static str) -> Id {
        if let Some(id) = self.scalars.get(ty) {
            return *id;
        }
        let (shape, go) = match ty {
            "bool" => (Shape::Boolean, "bool"),
            "int32" => (Shape::Integer(32), "int32"),
            "int64" => (Shape::Integer(64), "int64"),
            "float64" => (Shape::Number, "float64"),
            "bytes" => (Shape::Text(Text::Bytes), "[]uint8"),
            "Quantity" => (Shape::Text(Text::Quantity), "resource.Quantity"),
            "Time" => (Shape::Text(Text::Time), "v1.Time"),
            "MicroTime" => (Shape::Text(Text::MicroTime), "v1.MicroTime"),
            "Duration" => (Shape::Text(Text::Duration), "v1.Duration"),
            "IntOrString" => (Shape::IntOrString, "intstr.IntOrString"),
            "UID" => (Shape::Text(Text::Plain), "types.UID"),
            "Any" => (Shape::Any, "interface {}"),
            _ => (Shape::Text(Text::Plain), "string"),
        };
        let id = self.schemas.add(Schema { shape, go: Some(go.into()), ..Schema::default() });
        self.scalars.insert(ty, id);
        id
    }
}

/// Sets the merge strategy of a schema.
fn merge_by(schema: &mut Schema, flag: &str, arguments: &str) {
    match &mut schema.shape {
        Shape::List(list) => {
            list.kind = match flag {
                "map" => ListKind::Map(arguments.split(',').map(Into::into).collect()),
                "set" => ListKind::Set,
                _ => ListKind::Atomic,
            }
        }
        Shape::Map(map) => map.atomic = flag == "atomic",
        Shape::Struct(fields) => fields.atomic = flag == "atomic",
        _ => {}
    }
}

/// Parses the protobuf number of a field.
fn number(flag: &str) -> u32 {
    flag.strip_prefix('@')
        .and_then(|number| number.parse().ok())
        .unwrap_or_else(|| panic!("{flag} is not the number of a field"))
}

fn is_scalar(ty: &str) -> bool {
    let go = ["bool", "int32", "int64", "float64", "string", "bytes"];
    let ours = ["Quantity", "Time", "MicroTime", "Duration", "IntOrString", "UID", "Any"];
    go.contains(&ty) || ours.contains(&ty)
}

fn declarations(text: &'static str) -> Vec<Declaration> {
    let mut package = "";
    let mut declarations: Vec<Declaration> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(name) = line.strip_prefix("package ") {
            package = name;
        } else if line.starts_with(' ') {
            declarations.last_mut().expect("a field belongs to a declaration").fields.push(line.trim());
        } else {
            declarations.push(Declaration { package, head: line.split_whitespace().collect(), fields: Vec::new() });
        }
    }
    declarations
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = "package apps/v1\n\nkind Deployment\n  metadata meta.ObjectMeta\n  spec DeploymentSpec\nstruct DeploymentSpec\n  replicas *int32\n  \
                          paused bool\n  ports []Port map(port,protocol) merge(port)\n  ...Source @9\nstruct Source\n  limits {}Quantity\nstruct Port\n  \
                          port! int32\n  protocol Protocol =\"TCP\"\nalias Protocol string\n";

    #[test]
    fn fields_have_merge_keys_and_presence() {
        let library = Library::read(&[SAMPLE]);
        let root = library.get("apps/v1", "Deployment").unwrap();
        let spec = root.node().field("spec").unwrap();
        let fields = &spec.as_struct().unwrap().fields;
        assert_eq!(fields["replicas"].presence, Presence::Given);
        assert_eq!(fields["paused"].presence, Presence::NotEmpty);
        assert_eq!(root.node().as_struct().unwrap().fields["spec"].presence, Presence::Always);
        assert_eq!(fields["ports"].patch.key.as_deref(), Some("port"));
        let ports = spec.field("ports").unwrap();
        assert!(
            matches!(&ports.get().shape, Shape::List(list) if list.kind == ListKind::Map(vec!["port".into(), "protocol".into()]))
        );
        assert_eq!(ports.get().go.as_deref(), Some("[]v1.Port"));
        assert_eq!(ports.items().unwrap().field("protocol").unwrap().default, Some("TCP".into()));
        assert_eq!(spec.field("limits").unwrap().get().go.as_deref(), Some("map[string]resource.Quantity"));
    }

    #[test]
    fn object_meta_has_keyed_lists() {
        let mut schemas = Schemas::default();
        let meta = object_meta(&mut schemas);
        let owners = schemas.node(meta).field("ownerReferences").unwrap();
        assert!(matches!(&owners.get().shape, Shape::List(list) if list.kind == ListKind::Map(vec!["uid".into()])));
    }
}
