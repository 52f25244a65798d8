//! Types as values: `type(self.port) == int`, which the interpreter does not know.

use kube_cel::cel::extractors::Arguments;
use kube_cel::cel::objects::{Opaque, Value as Cel};
use kube_cel::cel::{Context, ResolveResult};
use std::sync::Arc;

/// The type of a value, as an expression sees it.
#[derive(Debug, PartialEq, Eq)]
struct Type(String);

impl Opaque for Type {
    fn runtime_type_name(&self) -> &str {
        "type"
    }
}

/// The types that have a name of their own.
pub(super) const NAMES: [&str; 10] =
    ["bool", "bytes", "double", "int", "list", "map", "null_type", "string", "type", "uint"];

fn value(name: &str) -> Cel {
    Cel::Opaque(Arc::new(Type(name.to_owned())))
}

fn type_of(of: &Cel) -> Cel {
    match of {
        Cel::List(_) => value("list"),
        Cel::Map(_) => value("map"),
        Cel::Function(..) => value("function"),
        Cel::Int(_) => value("int"),
        Cel::UInt(_) => value("uint"),
        Cel::Float(_) => value("double"),
        Cel::String(_) => value("string"),
        Cel::Bytes(_) => value("bytes"),
        Cel::Bool(_) => value("bool"),
        Cel::Duration(_) => value("google.protobuf.Duration"),
        Cel::Timestamp(_) => value("google.protobuf.Timestamp"),
        Cel::Opaque(opaque) => value(opaque.runtime_type_name()),
        Cel::Null => value("null_type"),
    }
}

/// Adds `type` and the names of types to what expressions may use.
pub(super) fn add(context: &mut Context<'_>) {
    context.add_function("type", |Arguments(of): Arguments| -> ResolveResult {
        Ok(of.first().map_or(Cel::Null, type_of))
    });
    for name in NAMES {
        context.add_variable_from_value(name, value(name));
    }
}
