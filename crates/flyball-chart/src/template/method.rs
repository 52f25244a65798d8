//! Methods of values: `.Files.Get`, `.Capabilities.APIVersions.Has`, methods of dates and versions.

use crate::context::RenderContext;
use crate::functions::{encoding, json};
use crate::glob::Glob;
use crate::message;
use crate::value::{Key, ListKind, Map, MapKind, Type, Value};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

type Call = Box<dyn Fn(&RenderContext<'_>, &Value, &[Value]) -> Result<Value, String>>;

/// Returns the method of a value, with its parameters.
pub(crate) fn find(value: &Value, name: &str) -> Option<(&'static [Type], Call)> {
    const TEXT: &[Type] = &[Type::Str];
    let text = |args: &[Value]| args.first().and_then(Value::text).unwrap_or_default().into_owned();
    match value {
        Value::Object(object) => {
            let method = object.method(name)?;
            let object = Rc::clone(object);
            Some((method.params, Box::new(move |_, _, args| (method.call)(&object, args))))
        }
        Value::List(list) if matches!(list.kind, ListKind::VersionSet(_)) && name == "Has" => {
            let list = list.clone();
            Some((
                TEXT,
                Box::new(move |_, _, args| {
                    let expected = text(args);
                    Ok(Value::Bool(list.items.iter().any(|item| item.text().as_deref() == Some(&expected))))
                }),
            ))
        }
        Value::Map(files) if files.kind == MapKind::Files => file_method(files.clone(), name),
        Value::Map(values) if matches!(values.kind, MapKind::Values(_)) => values_method(values.clone(), name),
        _ => None,
    }
}

fn bytes_of(files: &Map, name: &str) -> Arc<[u8]> {
    match files.get(name) {
        Some(Value::Bytes(bytes)) => bytes,
        _ => Arc::from([]),
    }
}

fn base(path: &str) -> String {
    path.rsplit('/').next().unwrap_or(path).to_owned()
}

fn file_method(files: Map, name: &str) -> Option<(&'static [Type], Call)> {
    const TEXT: &[Type] = &[Type::Str];
    let text = |args: &[Value]| args.first().and_then(Value::text).unwrap_or_default().into_owned();
    let contents = |files: &Map| -> Vec<(String, Arc<[u8]>)> {
        files.keys().into_iter().map(|key| (key.to_string(), bytes_of(files, &key))).collect()
    };
    Some(match name {
        "Get" => (TEXT, Box::new(move |_, _, args| Ok(Value::str(bytes_of(&files, &text(args)))))),
        "GetBytes" => (TEXT, Box::new(move |_, _, args| Ok(Value::Bytes(bytes_of(&files, &text(args)))))),
        "Lines" => (
            TEXT,
            Box::new(move |_, _, args| {
                let bytes = bytes_of(&files, &text(args));
                if bytes.is_empty() {
                    return Ok(Value::strings::<&str>([]));
                }
                let bytes = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
                Ok(Value::strings(bytes.split(|byte| *byte == b'\n')))
            }),
        ),
        "Glob" => (
            TEXT,
            Box::new(move |_, _, args| {
                let glob = Glob::new(&text(args)).unwrap_or_else(Glob::everything);
                let found: BTreeMap<Key, Value> = files
                    .entries
                    .borrow()
                    .iter()
                    .filter(|(path, _)| glob.matches(path))
                    .map(|(k, v)| (k.clone(), v.clone()))
                    .collect();
                Ok(Value::Map(Map::new(MapKind::Files, found)))
            }),
        ),
        "AsConfig" => (
            &[],
            Box::new(move |_, _, _| {
                let map = contents(&files).into_iter().map(|(path, bytes)| (base(&path), Value::str(bytes))).collect();
                Ok(encoding::to_yaml(&Value::Map(Map::new(MapKind::Strings, map))))
            }),
        ),
        "AsSecrets" => (
            &[],
            Box::new(move |_, _, _| {
                let encoded = |bytes: &[u8]| Value::str(json::base64(bytes));
                let map = contents(&files).into_iter().map(|(path, bytes)| (base(&path), encoded(&bytes))).collect();
                Ok(encoding::to_yaml(&Value::Map(Map::new(MapKind::Strings, map))))
            }),
        ),
        _ => return None,
    })
}

/// `chartutil.Values` has methods, which take precedence over keys of the same name.
fn values_method(values: Map, name: &str) -> Option<(&'static [Type], Call)> {
    const TEXT: &[Type] = &[Type::Str];
    Some(match name {
        "YAML" => (
            &[],
            Box::new(move |_, _, _| {
                let mut text = encoding::to_yaml(&Value::Map(values.clone())).text().unwrap_or_default().into_owned();
                text.push('\n');
                Ok(Value::str(text))
            }),
        ),
        "AsMap" => (
            &[],
            Box::new(move |_, _, _| Ok(Value::Map(Map { kind: MapKind::Any, entries: Rc::clone(&values.entries) }))),
        ),
        "Table" | "PathValue" => {
            let wants_table = name == "Table";
            (
                TEXT,
                Box::new(move |_, _, args| {
                    let path = args.first().and_then(Value::text).unwrap_or_default().into_owned();
                    let mut found = Value::Map(values.clone());
                    for key in path.split('.') {
                        let next = match &found {
                            Value::Map(map) => map.get(key),
                            _ => None,
                        };
                        let missing = || match wants_table {
                            true => format!("{} is not a table", message::quoted(key)),
                            false => format!("{} is not a value", message::quoted(key)),
                        };
                        found = next.ok_or_else(missing)?;
                    }
                    Ok(found)
                }),
            )
        }
        _ => return None,
    })
}
