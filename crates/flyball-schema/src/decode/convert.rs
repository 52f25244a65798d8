//! Conversion of values to built-in types without decoding JSON text, as after strategic merge patches.

use super::{base64_error, json_type};
use crate::schema::{Node, Presence, Shape, Text};
use serde_json::{Number, Value};

/// Returns the first mismatch between a value and its type, in the order of the type's fields; `None` if only decoding
/// can detect it.
pub fn misfit(node: Node<'_>, value: &Value) -> Option<String> {
    let go = || node.get().go.as_deref().unwrap_or("interface {}");
    match (&node.get().shape, value) {
        (_, Value::Null) => None,
        (Shape::Struct(fields), Value::Object(given)) => {
            let mut fields: Vec<_> = fields.fields.iter().collect();
            fields.sort_by_key(|(_, field)| field.order);
            let given = fields.into_iter().filter_map(|(name, field)| Some((field, given.get(&**name)?)));
            given.into_iter().find_map(|(field, value)| misfit(node.at(field.schema), value))
        }
        (Shape::Struct(_), other) => Some(format!("cannot restore struct from: {}", kind(other))),
        (Shape::Map(map), Value::Object(given)) => {
            let values = node.at(map.values?);
            given.values().find_map(|value| misfit(values, value))
        }
        (Shape::Map(_), other) => Some(format!("cannot restore map from {}", kind(other))),
        (Shape::List(list), Value::Array(items)) => {
            let inner = node.at(list.items?);
            items.iter().find_map(|item| misfit(inner, item))
        }
        (Shape::List(_), other) => Some(format!("cannot restore slice from {}", kind(other))),
        (Shape::Text(Text::Bytes), Value::String(text)) => {
            base64_error(text).map(|at| format!("error decoding from json: illegal base64 data at input byte {at}"))
        }
        (Shape::Text(Text::Bytes), Value::Array(items)) => items.iter().find_map(|item| match item {
            Value::Null => None,
            Value::Number(n) if is_whole(n) => None,
            Value::Number(_) => Some("cannot convert float64 to uint8".into()),
            _ => Some("unrecognized type: uint8".into()),
        }),
        (Shape::Text(Text::Bytes), other) => Some(format!("cannot restore slice from {}", kind(other))),
        (Shape::Text(Text::Plain), Value::String(_)) => None,
        (Shape::Text(Text::Plain), Value::Number(n)) if !n.is_f64() => {
            Some(format!("cannot convert int64 to {}", go()))
        }
        (Shape::Text(Text::Plain), _) => Some("unrecognized type: string".into()),
        (Shape::Boolean, Value::Bool(_)) => None,
        (Shape::Boolean, _) => Some("unrecognized type: bool".into()),
        (Shape::Integer(bits), Value::Number(n)) => {
            (!is_whole(n)).then(|| format!("cannot convert float64 to int{bits}"))
        }
        (Shape::Integer(bits), _) => Some(format!("unrecognized type: int{bits}")),
        (Shape::Number, Value::Number(_)) => None,
        (Shape::Number, _) => Some("unrecognized type: float64".into()),
        // These types decode themselves from the value's JSON text.
        (Shape::IntOrString, Value::String(_)) => None,
        (Shape::IntOrString, Value::Number(n)) => {
            let fits = n.as_i64().is_some_and(|n| i32::try_from(n).is_ok());
            (!fits).then(|| format!("json: cannot unmarshal number {} into Go value of type int32", digits(n)))
        }
        (Shape::IntOrString, other) => {
            Some(format!("json: cannot unmarshal {} into Go value of type int32", json_type(other)))
        }
        (Shape::Text(Text::Time | Text::MicroTime | Text::Duration), Value::String(_)) => None,
        (Shape::Text(Text::Time | Text::MicroTime | Text::Duration), other) => {
            Some(format!("json: cannot unmarshal {} into Go value of type string", json_type(other)))
        }
        (Shape::Any | Shape::Open(_) | Shape::Text(Text::Quantity), _) => None,
    }
}

fn is_whole(n: &Number) -> bool {
    n.as_f64().is_none_or(|n| n.fract() == 0.0)
}

/// Formats a number like Go's JSON encoder: with the fewest digits that identify it.
fn digits(n: &Number) -> String {
    let Some(float) = n.as_f64().filter(|_| n.is_f64() && is_whole(n)) else { return n.to_string() };
    let short = format!("{float:e}");
    match short
        .split_once('e')
        .and_then(|(digits, power)| Some((digits.replace('.', ""), power.parse::<usize>().ok()?)))
    {
        Some((digits, power)) if power < 21 => {
            format!("{digits:0<width$}", width = power + 1 + usize::from(float < 0.0))
        }
        _ => short,
    }
}

/// Converts numbers to Go's types: a number that is not a 64-bit integer is a float.
pub fn as_go_numbers(value: &mut Value) {
    match value {
        Value::Number(n) if n.as_i64().is_none() => {
            if let Some(float) = n.as_f64().and_then(Number::from_f64) {
                *n = float;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(as_go_numbers),
        Value::Object(fields) => fields.values_mut().for_each(as_go_numbers),
        _ => {}
    }
}

/// Converts numbers to the types of their fields like Go: larger numbers lose their upper bits.
pub fn fit_numbers(node: Node<'_>, value: &mut Value) {
    match (&node.get().shape, value) {
        (Shape::Integer(bits), Value::Number(n)) => {
            #[expect(clippy::cast_possible_truncation, reason = "that is the rule")]
            let whole = match (n.as_i64(), n.as_f64()) {
                (Some(whole), _) => whole,
                // A number beyond 64 bits becomes the minimum.
                (None, Some(float)) if float.abs() >= 9_223_372_036_854_775_808.0 => i64::MIN,
                (None, float) => float.unwrap_or_default() as i64,
            };
            #[expect(clippy::cast_possible_truncation, reason = "that is the rule")]
            let fitted = if *bits == 32 { i64::from(whole as i32) } else { whole };
            *n = fitted.into();
        }
        (Shape::Text(Text::Bytes), Value::Array(items)) => {
            for item in items {
                let byte = item.as_i64().or_else(|| item.as_f64().map(|n| n as i64)).map(|n| n.rem_euclid(256));
                *item = byte.unwrap_or_default().into();
            }
        }
        (_, Value::Array(items)) => {
            let Some(inner) = node.items() else { return };
            items.iter_mut().for_each(|item| fit_numbers(inner, item));
        }
        (_, Value::Object(fields)) => {
            for (name, value) in fields {
                if let Some(inner) = node.field(name) {
                    fit_numbers(inner, value);
                }
            }
        }
        _ => {}
    }
}

/// Returns the kind of a value in Go's reflection.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "invalid",
        Value::Bool(_) => "bool",
        Value::Number(n) if n.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "slice",
        Value::Object(_) => "map",
    }
}

/// Replaces empty lists that are always written by null: stored objects do not distinguish them.
pub fn nullify_empty_lists(node: Node<'_>, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            let of = node.as_struct().map(|of| &of.fields);
            for (name, value) in fields {
                let Some(inner) = node.field(name) else { continue };
                let always = of
                    .and_then(|of| of.get(name.as_str()))
                    .is_some_and(|field| matches!(field.presence, Presence::Always | Presence::OrNull));
                if always && value.as_array().is_some_and(Vec::is_empty) {
                    *value = Value::Null;
                } else {
                    nullify_empty_lists(inner, value);
                }
            }
        }
        Value::Array(items) => {
            let Some(inner) = node.items() else { return };
            items.iter_mut().for_each(|item| nullify_empty_lists(inner, item));
        }
        _ => {}
    }
}
