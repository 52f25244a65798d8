//! Types as values: `type(self.port) == int`, which the interpreter does not support.

use chrono::SecondsFormat;
use kube_cel::cel::extractors::{Arguments, This};
use kube_cel::cel::functions;
use kube_cel::cel::objects::{Opaque, Value as Cel};
use kube_cel::cel::{Context, ExecutionError, FunctionContext, ResolveResult};
use std::sync::Arc;

/// The type of a value, as a value.
#[derive(Debug, PartialEq, Eq)]
struct Type(String);

impl Opaque for Type {
    fn runtime_type_name(&self) -> &str {
        "type"
    }
}

/// The named types.
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

/// Converts a value to a string: the interpreter has no conversion of booleans, and another format of times.
fn text_of(call: &FunctionContext<'_, '_>, of: Cel) -> ResolveResult {
    match of {
        Cel::Bool(is) => Ok(is.to_string().into()),
        Cel::Timestamp(time) => Ok(time.to_rfc3339_opts(SecondsFormat::AutoSi, true).into()),
        of => functions::string(call, This(of)),
    }
}

/// Parses a boolean, with Go's spellings.
fn truth_of(of: Cel) -> ResolveResult {
    match of {
        Cel::Bool(is) => Ok(is.into()),
        Cel::String(text) => match text.as_str() {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true.into()),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false.into()),
            _ => Err(ExecutionError::function_error("bool", "type conversion error from 'string' to 'bool'")),
        },
        _ => Err(ExecutionError::NoSuchOverload),
    }
}

/// Converts a string or a number to a number; an invalid string fails with the message of kube-apiserver.
fn number_of(name: &'static str, call: &FunctionContext<'_, '_>, of: Cel) -> ResolveResult {
    let Cel::String(text) = &of else {
        return match name {
            "int" => functions::int(call, This(of)),
            "uint" => functions::uint(call, This(of)),
            _ => functions::double(call, This(of)),
        };
    };
    let read = match name {
        "int" => text.parse().map(Cel::Int).ok(),
        "uint" => text.parse().map(Cel::UInt).ok(),
        _ => text.parse().map(Cel::Float).ok(),
    };
    let reason = || format!("type conversion error from 'string' to '{name}'");
    read.ok_or_else(|| ExecutionError::function_error(name, reason()))
}

/// Adds `type`, the names of types and conversions.
pub(super) fn add(context: &mut Context<'_>) {
    context.add_function("type", |Arguments(of): Arguments| -> ResolveResult {
        Ok(of.first().map_or(Cel::Null, type_of))
    });
    context.add_function("string", |call: &FunctionContext<'_, '_>, Arguments(of): Arguments| {
        of.first().map_or(Err(ExecutionError::NoSuchOverload), |of| text_of(call, of.clone()))
    });
    context.add_function("bool", |Arguments(of): Arguments| {
        of.first().map_or(Err(ExecutionError::NoSuchOverload), |of| truth_of(of.clone()))
    });
    for name in ["int", "uint", "double"] {
        context.add_function(name, move |call: &FunctionContext<'_, '_>, Arguments(of): Arguments| {
            of.first().map_or(Err(ExecutionError::NoSuchOverload), |of| number_of(name, call, of.clone()))
        });
    }
    for name in NAMES {
        context.add_variable_from_value(name, value(name));
    }
}
