//! Why a value does not convert to a built-in type, where no text is decoded: strategic merge patches make values.

use crate::schema::{Node, Presence, Shape, Text};
use serde_json::Value;

/// Says what of a value does not fit its type, first in the order in which the type declares its fields; `None` where
/// only decoding can tell.
pub fn misfit(node: Node<'_>, value: &Value) -> Option<String> {
    let go = || node.get().go.as_deref().unwrap_or("interface {}");
    match (&node.get().shape, value) {
        (_, Value::Null) => None,
        (Shape::Struct(fields), Value::Object(given)) => {
            let mut fields: Vec<_> = fields.fields.iter().collect();
            fields.sort_by_key(|(_, field)| field.place);
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
        (Shape::Text(Text::Bytes), Value::String(_)) => None,
        (Shape::Text(Text::Bytes), other) => Some(format!("cannot restore slice from {}", kind(other))),
        (Shape::Text(Text::Plain), Value::String(_)) => None,
        (Shape::Text(Text::Plain), Value::Number(n)) if !n.is_f64() => {
            Some(format!("cannot convert int64 to {}", go()))
        }
        (Shape::Text(Text::Plain), _) => Some("unrecognized type: string".into()),
        (Shape::Boolean, Value::Bool(_)) => None,
        (Shape::Boolean, _) => Some("unrecognized type: bool".into()),
        (Shape::Integer(bits), Value::Number(n)) => {
            let whole = n.as_f64().is_none_or(|n| n.fract() == 0.0);
            (!whole).then(|| format!("cannot convert float64 to int{bits}"))
        }
        (Shape::Integer(bits), _) => Some(format!("unrecognized type: int{bits}")),
        (Shape::Number, Value::Number(_)) => None,
        (Shape::Number, _) => Some("unrecognized type: float64".into()),
        (Shape::Any | Shape::Open(_) | Shape::IntOrString | Shape::Text(_), _) => None,
    }
}

/// Names the sort of a value as Go's reflection does.
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

/// Makes null of empty lists that are written always: what is stored does not tell them apart.
pub fn forget_empty_lists(node: Node<'_>, value: &mut Value) {
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
                    forget_empty_lists(inner, value);
                }
            }
        }
        Value::Array(items) => {
            let Some(inner) = node.items() else { return };
            items.iter_mut().for_each(|item| forget_empty_lists(inner, item));
        }
        _ => {}
    }
}
