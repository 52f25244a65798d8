//! Conversion of objects to CEL values.

use crate::cel::{Cel, RESERVED, escape};
use crate::schema::{ListKind, Node, Shape};
use flyball_core::time;
use kube_cel::cel::objects::{Key, Map as CelMap};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;

/// Converts JSON to a CEL value: typed by the schema, with escaped field names, without nulls.
pub fn to_cel(node: Option<Node<'_>>, value: &Value) -> Cel {
    match value {
        Value::Null => Cel::Null,
        Value::Bool(b) => Cel::Bool(*b),
        Value::Number(n) => match n.as_i64() {
            Some(n) if !node.is_some_and(|node| matches!(node.get().shape, Shape::Number)) => Cel::Int(n),
            _ => Cel::Float(n.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => text_to_cel(node, text),
        Value::Array(items) => {
            let inner = node.and_then(Node::items);
            let mut items: Vec<&Value> = items.iter().collect();
            // Equality of sets and maps ignores the order, so their items are sorted.
            match node.map(|node| &node.get().shape) {
                Some(Shape::List(list)) if list.kind == ListKind::Set => items.sort_by_key(|item| item.to_string()),
                Some(Shape::List(list)) => {
                    if let ListKind::Map(keys) = &list.kind {
                        items.sort_by_key(|item| {
                            keys.iter().map(|key| item.get(&**key).map(Value::to_string)).collect::<Vec<_>>()
                        });
                    }
                }
                _ => {}
            }
            Cel::List(Arc::new(items.into_iter().map(|item| to_cel(inner, item)).collect()))
        }
        Value::Object(fields) => {
            let named = node.is_some_and(|node| node.as_struct().is_some());
            let mut map = HashMap::with_capacity(fields.len());
            for (name, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
                let value = to_cel(node.and_then(|node| node.field(name)), value);
                if named && RESERVED.contains(&name.as_str()) {
                    map.insert(Key::String(Arc::new(format!("__{name}__"))), value.clone());
                }
                let name = if named { escape(name) } else { name.clone() };
                map.insert(Key::String(Arc::new(name)), value);
            }
            Cel::Map(CelMap { map: Arc::new(map) })
        }
    }
}

fn text_to_cel(node: Option<Node<'_>>, text: &str) -> Cel {
    let plain = || Cel::String(Arc::new(text.to_owned()));
    let format = node.and_then(|node| node.get().constraints.as_deref()).and_then(|demands| demands.format.as_deref());
    match format {
        Some("date-time") => time::parse_rfc3339(text)
            .and_then(|time| {
                chrono::DateTime::from_timestamp(time.as_second(), time.subsec_nanosecond().unsigned_abs())
            })
            .map_or_else(plain, |time| Cel::Timestamp(time.fixed_offset())),
        Some("duration") => time::parse_duration(text)
            .map_or_else(|_| plain(), |nanos| Cel::Duration(chrono::Duration::nanoseconds(nanos))),
        _ => plain(),
    }
}
