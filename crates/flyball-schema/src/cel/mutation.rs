//! Conversion of the results of mutating expressions to JSON.

use super::error::Error;
use super::rewrite::TYPE_NAME;
use crate::extent::MAX_DEPTH;
use base64::Engine;
use kube_cel::cel::objects::{Key, Value as Cel};
use serde_json::{Map, Number, Value};

/// Approximate maximum size of the result of an expression in bytes: the same value may occur many times.
const MAX_BYTES: usize = 8 << 20;

/// Rejects values whose JSON would be too deep or too large.
fn measure(value: &Cel, levels: usize, room: &mut usize) -> Result<(), String> {
    let mut take = |bytes: usize| {
        *room = room.checked_sub(bytes).ok_or("the expression creates an object that is too large")?;
        Ok::<_, String>(())
    };
    match value {
        Cel::String(text) => take(text.len() + 2),
        Cel::Bytes(bytes) => take(bytes.len() * 4 / 3 + 2),
        Cel::List(_) | Cel::Map(_) if levels == 0 => {
            Err(format!("the expression nests an object more than {MAX_DEPTH} levels deep"))
        }
        Cel::List(items) => {
            take(2)?;
            items.iter().try_for_each(|item| measure(item, levels - 1, room))
        }
        Cel::Map(map) => {
            take(2)?;
            map.map.values().try_for_each(|value| measure(value, levels - 1, room))
        }
        _ => take(4),
    }
}

/// Converts the result of an expression into JSON; `Err` names a value without JSON form, or an object of the wrong
/// type.
pub fn to_json(value: &Cel) -> Result<Value, String> {
    measure(value, MAX_DEPTH, &mut { MAX_BYTES })?;
    let root = type_name(value).unwrap_or_default().to_owned();
    check_names(value, &root, &root)?;
    convert(value)
}

fn type_name(value: &Cel) -> Option<&str> {
    let Cel::Map(map) = value else { return None };
    match map.map.get(&Key::String(TYPE_NAME.clone())) {
        Some(Cel::String(name)) => Some(name),
        _ => None,
    }
}

fn check_names(value: &Cel, path: &str, root: &str) -> Result<(), String> {
    match value {
        Cel::List(items) => items.iter().try_for_each(|item| check_names(item, path, root)),
        Cel::Map(map) => {
            let Some(name) = type_name(value) else { return Ok(()) };
            if name != path {
                return Err(format!(
                    "type mismatch: unexpected type name {name:?}, expected {path:?}, which matches field name path from root {root} type"
                ));
            }
            let mut fields: Vec<(String, &Cel)> = map.map.iter().map(|(key, value)| (key.to_string(), value)).collect();
            fields.sort_by(|(a, _), (b, _)| a.cmp(b));
            fields.iter().try_for_each(|(key, value)| check_names(value, &format!("{path}.{key}"), root))
        }
        _ => Ok(()),
    }
}

fn convert(value: &Cel) -> Result<Value, String> {
    Ok(match value {
        Cel::Null => Value::Null,
        Cel::Bool(b) => Value::Bool(*b),
        Cel::Int(n) => (*n).into(),
        Cel::UInt(n) => (*n).into(),
        Cel::Float(n) => Number::from_f64(*n).map(Value::Number).ok_or("a number that JSON does not have")?,
        Cel::String(text) => Value::String((**text).clone()),
        Cel::Bytes(bytes) => base64::engine::general_purpose::STANDARD.encode(&**bytes).into(),
        Cel::Timestamp(at) => at.to_rfc3339_opts(chrono::SecondsFormat::AutoSi, true).into(),
        Cel::Duration(length) => format!("{}s", length.as_seconds_f64()).into(),
        Cel::List(items) => Value::Array(items.iter().map(convert).collect::<Result<_, _>>()?),
        Cel::Map(map) => {
            let fields = map.map.iter().filter(|(key, _)| **key != Key::String(TYPE_NAME.clone()));
            let fields = fields.map(|(key, value)| Ok((key.to_string(), convert(value)?)));
            Value::Object(fields.collect::<Result<Map<_, _>, String>>()?)
        }
        Cel::Function(..) | Cel::Opaque(_) => return Err(Error::NoSuchOverload.to_string()),
    })
}

#[cfg(test)]
mod tests {
    use super::super::{BASE, Budget, compile};
    use super::{Cel, MAX_DEPTH, to_json};
    use serde_json::{Value, json};

    fn evaluate(expression: &str) -> Result<Value, String> {
        to_json(&compile(expression)?.run(&BASE, &Budget::of_rules()).map_err(|error| error.to_string())?)
    }

    #[test]
    fn objects_convert_to_json() {
        assert_eq!(
            evaluate("Object{spec: Object.spec{a__dash__b: 1, l: [Object.spec.l{n: 'x'}], ?no: {'a': 1}.?b}}"),
            Ok(json!({"spec": {"a-b": 1, "l": [{"n": "x"}]}}))
        );
        assert_eq!(evaluate("{'a': [1.5, null, true, b'x']}"), Ok(json!({"a": [1.5, null, true, "eA=="]})));
    }

    #[test]
    fn converted_objects_are_bounded() {
        let pile = |levels: usize| (0..levels).fold(Cel::Null, |inner, _| Cel::List(vec![inner].into()));
        assert!(super::to_json(&pile(MAX_DEPTH)).is_ok());
        assert!(super::to_json(&pile(MAX_DEPTH + 1)).unwrap_err().contains("levels deep"));
        let doubled = (0..40).fold(Cel::Int(1), |inner, _| Cel::List(vec![inner.clone(), inner].into()));
        assert_eq!(super::to_json(&doubled), Err("the expression creates an object that is too large".to_owned()));
    }

    #[test]
    fn object_types_must_match_their_field_path() {
        let reason = "type mismatch: unexpected type name \"Object.spec\", expected \"Object.metadata\", which matches field name path from root Object type";
        assert_eq!(evaluate("Object{metadata: Object.spec{a: 1}}"), Err(reason.to_owned()));
    }
}
