//! Static types of values.

use serde_json::{Map, Value};
use std::fmt;
use std::sync::Arc;

/// A schema in the format of a CRD.
pub(super) type Schema = Map<String, Value>;

/// The key of the type name in built-in schemas; those of CRDs have none.
pub(super) const TYPE_NAME: &str = "$name";

/// The type of a value in an expression.
#[derive(Clone, Debug)]
pub enum Type<'s> {
    /// Unknown: any type.
    Dyn,
    /// A type identified by its name.
    Plain(&'static str),
    /// A list with items of this type.
    List(Arc<Type<'s>>),
    /// A map with keys and values of these types.
    Map(Arc<Type<'s>>, Arc<Type<'s>>),
    /// An optional value of this type.
    Optional(Arc<Type<'s>>),
    /// An object of a schema; a root object also has metadata.
    Object {
        /// Its schema.
        schema: &'s Schema,
        /// True if it has apiVersion, kind and metadata.
        whole: bool,
    },
    /// The metadata of an object in rules, which contain only the name.
    Metadata,
    /// Fields with individually known types.
    Fields(Arc<Vec<(String, Type<'s>)>>),
}

pub(super) const BOOL: Type<'_> = Type::Plain("bool");
pub(super) const INT: Type<'_> = Type::Plain("int");
pub(super) const UINT: Type<'_> = Type::Plain("uint");
pub(super) const DOUBLE: Type<'_> = Type::Plain("double");
pub(super) const STRING: Type<'_> = Type::Plain("string");
pub(super) const BYTES: Type<'_> = Type::Plain("bytes");
pub(super) const TIMESTAMP: Type<'_> = Type::Plain("timestamp");
pub(super) const DURATION: Type<'_> = Type::Plain("duration");
pub(super) const TYPE: Type<'_> = Type::Plain("type");
pub(super) const NULL: Type<'_> = Type::Plain("null");

impl<'s> Type<'s> {
    pub(super) fn of(schema: &'s Schema, whole: bool) -> Self {
        let text = |name: &str| schema.get(name).and_then(Value::as_str).unwrap_or_default();
        let flag = |name: &str| schema.get(name).and_then(Value::as_bool).unwrap_or_default();
        if flag("x-kubernetes-int-or-string") {
            return Self::Dyn;
        }
        let inner = |name: &str| schema.get(name).and_then(Value::as_object);
        match (text("type"), text("format")) {
            ("array", _) => Self::List(inner("items").map_or(Self::Dyn, Self::part).into()),
            ("object", _) => match inner("additionalProperties") {
                Some(values) => Self::Map(STRING.into(), Self::part(values).into()),
                None => Self::Object { schema, whole },
            },
            ("string", "byte") => BYTES,
            ("string", "duration") => DURATION,
            ("string", "date" | "date-time") => TIMESTAMP,
            ("string", _) => STRING,
            ("boolean", _) => BOOL,
            ("number", _) => DOUBLE,
            ("integer", _) => INT,
            _ => Self::Dyn,
        }
    }

    pub(super) fn part(schema: &'s Schema) -> Self {
        Self::of(schema, schema.get("x-kubernetes-embedded-resource") == Some(&Value::Bool(true)))
    }

    /// Returns true if this is known to be a type with this name.
    pub fn is(&self, name: &str) -> bool {
        matches!(self, Self::Plain(known) if *known == name)
    }

    /// Returns true if the type is unknown.
    pub fn is_dyn(&self) -> bool {
        matches!(self, Self::Dyn)
    }

    /// Returns the name of the type in object literals, which differs from its name in overload errors.
    pub fn declared_name(&self) -> String {
        match self {
            Self::Plain("duration") => "google.protobuf.Duration".into(),
            Self::Plain("null") => "null_type".into(),
            Self::Plain("timestamp") => "google.protobuf.Timestamp".into(),
            Self::List(items) => format!("list({})", items.declared_name()),
            Self::Map(keys, values) => format!("map({}, {})", keys.declared_name(), values.declared_name()),
            Self::Optional(inner) => format!("optional_type({})", inner.declared_name()),
            known => known.to_string(),
        }
    }

    /// Returns true if one type is assignable to the other.
    pub(super) fn fits(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Dyn, _) | (_, Self::Dyn) => true,
            (null, other) | (other, null) if null.is("null") => other.takes_null(),
            (Self::Plain(a), Self::Plain(b)) => a == b,
            (Self::List(a), Self::List(b)) => a.fits(b),
            (Self::Map(a, b), Self::Map(c, d)) => a.fits(c) && b.fits(d),
            (Self::Optional(a), Self::Optional(b)) => a.fits(b),
            (Self::Object { .. } | Self::Map(..), Self::Object { .. } | Self::Map(..)) => true,
            _ => false,
        }
    }

    /// Returns true if the type includes null, which plain types do not.
    fn takes_null(&self) -> bool {
        match self {
            Self::Plain(name) => !["bool", "bytes", "double", "int", "string", "type", "uint"].contains(name),
            Self::List(_) | Self::Map(..) => false,
            Self::Object { .. } | Self::Metadata | Self::Fields(_) | Self::Optional(_) | Self::Dyn => true,
        }
    }

    /// Returns the optional type of this type.
    pub(super) fn optional(self) -> Self {
        if matches!(self, Self::Optional(_)) { self } else { Self::Optional(self.into()) }
    }

    pub(super) fn join(self, other: Self) -> Self {
        match (&self, &other) {
            (Self::Dyn, _) | (_, Self::Dyn) => Self::Dyn,
            // Empty list literals and absent values match any expected type.
            (Self::List(inner) | Self::Optional(inner), _) if inner.is_dyn() => other,
            _ => self,
        }
    }
}

impl fmt::Display for Type<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dyn => f.write_str("dyn"),
            Self::Plain(name) => f.write_str(name),
            Self::List(items) => write!(f, "list({items})"),
            Self::Map(keys, values) => write!(f, "map({keys}, {values})"),
            Self::Optional(inner) => write!(f, "optional_type({inner})"),
            Self::Object { schema, .. } => {
                f.write_str(schema.get(TYPE_NAME).and_then(Value::as_str).unwrap_or("object"))
            }
            Self::Metadata | Self::Fields(_) => f.write_str("object"),
        }
    }
}

pub(super) fn common(types: Vec<Type<'_>>) -> Type<'_> {
    let mut types = types.into_iter();
    let first = types.next().unwrap_or(Type::Dyn);
    types.fold(first, |known, next| if known.fits(&next) { known.join(next) } else { Type::Dyn })
}

/// Returns the type of a field, by its name in expressions.
pub(super) fn field<'s>(schema: &'s Schema, whole: bool, name: &str) -> Option<Type<'s>> {
    if whole && matches!(name, "apiVersion" | "kind") {
        return Some(STRING);
    }
    if whole && name == "metadata" {
        return Some(Type::Metadata);
    }
    property(schema, name).map(Type::part)
}

/// Returns the schema of a field, by its name in expressions.
pub(super) fn property<'s>(schema: &'s Schema, name: &str) -> Option<&'s Schema> {
    let properties = schema.get("properties").and_then(Value::as_object)?;
    let reserved =
        name.strip_prefix("__").and_then(|rest| rest.strip_suffix("__")).filter(|bare| super::RESERVED.contains(bare));
    let (_, found) = properties.iter().find(|(own, _)| super::escape(own) == name || reserved == Some(own.as_str()))?;
    found.as_object()
}
