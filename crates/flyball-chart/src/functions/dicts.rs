//! Maps. `set`, `unset` and `merge` modify the given map.

use super::{ANY, DICT, STR, Table, cost, dict, marked, strval_marked, text};
use crate::value::{Key, List, ListKind, Map, MapKind, Value};
use std::collections::BTreeMap;
use std::rc::Rc;

/// Nesting limit of maps that are merged or copied.
const DEPTH: usize = 1_000;

pub(super) fn add(table: &mut Table) {
    table.variadic("dict", cost::constant, &[ANY], |call, args| {
        let mut entries = BTreeMap::new();
        for pair in args.chunks(2) {
            call.context.weigh(&pair[..1])?;
            let key = strval_marked(&pair[0]);
            let key = Key::new(String::from_utf8_lossy(&key), key.is_data());
            entries.insert(key, pair.get(1).cloned().unwrap_or(Value::str("")));
        }
        Ok(Value::map(entries))
    });
    table.add("get", cost::constant, &[DICT, STR], |_, args| {
        Ok(dict(&args[0]).get(&text(&args[1])).unwrap_or(Value::str("")))
    });
    table.add("set", cost::constant, &[DICT, STR, ANY], |_, args| {
        let Value::Map(map) = &args[0] else { return Err("assignment to entry in nil map".to_owned()) };
        map.set(key(&args[1]), args[2].clone());
        Ok(args[0].clone())
    });
    table.add("unset", cost::constant, &[DICT, STR], |_, args| {
        dict(&args[0]).entries.borrow_mut().remove(&text(&args[1]));
        Ok(args[0].clone())
    });
    table.add("hasKey", cost::constant, &[DICT, STR], |_, args| {
        Ok(Value::Bool(dict(&args[0]).get(&text(&args[1])).is_some()))
    });
    table.variadic("pluck", cost::shallow, &[STR, DICT], |_, args| {
        Ok(Value::list(args[1..].iter().filter_map(|map| dict(map).get(&text(&args[0]))).collect()))
    });
    table.variadic("keys", cost::shallow, &[DICT], |_, args| {
        let keys = args.iter().flat_map(|map| dict(map).keys()).map(|key| key.to_value()).collect();
        Ok(Value::List(List::new(ListKind::Strings, keys)))
    });
    table.add("values", cost::shallow, &[DICT], |_, args| {
        Ok(Value::list(dict(&args[0]).entries.borrow().values().cloned().collect()))
    });
    table.variadic("pick", cost::shallow, &[DICT, STR], |_, args| {
        let map = dict(&args[0]);
        let picked = args[1..].iter().filter_map(|name| Some((key(name), map.get(&text(name))?)));
        Ok(Value::map(picked.collect()))
    });
    table.variadic("omit", cost::shallow, &[DICT, STR], |_, args| {
        let mut entries = BTreeMap::clone(&dict(&args[0]).entries.borrow());
        args[1..].iter().for_each(|key| _ = entries.remove(&*text(key)));
        Ok(Value::map(entries))
    });
    for name in ["merge", "mustMerge"] {
        table.variadic(name, cost::letters, &[DICT, DICT], |_, args| merge_all(args, false));
    }
    for name in ["mergeOverwrite", "mustMergeOverwrite"] {
        table.variadic(name, cost::letters, &[DICT, DICT], |_, args| merge_all(args, true));
    }
    table.both("deepCopy", "mustDeepCopy", cost::letters, &[ANY], |_, args| {
        if args[0].is_deeper_than(DEPTH) {
            return Err(format!("the value is nested deeper than {DEPTH}"));
        }
        Ok(args[0].deep_copy())
    });
    table.variadic("dig", cost::shallow, &[ANY], |_, args| dig(args));
}

/// Converts a string to a map key.
fn key(value: &Value) -> Key {
    let text = marked(value);
    Key::new(String::from_utf8_lossy(&text), text.is_data())
}

fn merge_all(args: &[Value], overwrites: bool) -> Result<Value, String> {
    let Value::Map(into) = &args[0] else { return Err("assignment to entry in nil map".to_owned()) };
    for source in &args[1..] {
        if source.is_deeper_than(DEPTH) {
            return Err(format!("the value is nested deeper than {DEPTH}"));
        }
        merge(into, &dict(source), overwrites);
    }
    Ok(args[0].clone())
}

/// Merges as dario.cat/mergo does: empty values are filled, or existing values are replaced; maps are merged.
fn merge(into: &Map, source: &Map, overwrites: bool) {
    if Rc::ptr_eq(&into.entries, &source.entries) {
        return;
    }
    let entries: BTreeMap<Key, Value> = BTreeMap::clone(&source.entries.borrow());
    for (key, value) in entries {
        let is_nil = match &value {
            Value::Nil => true,
            Value::List(list) => list.is_nil,
            _ => false,
        };
        let present = into.get(&key);
        if is_nil && !overwrites {
            continue;
        }
        match (&present, &value) {
            (Some(Value::Map(below)), Value::Map(above)) if !below.entries.borrow().is_empty() => {
                merge(below, above, overwrites);
            }
            (Some(present), _) if !overwrites && !super::is_empty(present) => {}
            _ => into.set(key, value),
        }
    }
}

fn dig(args: &[Value]) -> Result<Value, String> {
    let [keys @ .., otherwise, first] = args else { return Err("dig needs at least three arguments".to_owned()) };
    if keys.is_empty() {
        return Err("dig needs at least three arguments".to_owned());
    }
    let conversion = |value: &Value, expected: &str| {
        let is = if matches!(value, Value::Nil) { "nil".to_owned() } else { value.type_name() };
        format!("interface conversion: interface {{}} is {is}, not {expected}")
    };
    let as_map = |value: &Value| match value {
        Value::Map(map) if map.kind == MapKind::Any => Ok(map.clone()),
        other => Err(conversion(other, "map[string]interface {}")),
    };
    as_map(first)?;
    let texts: Vec<String> = keys
        .iter()
        .map(|key| key.text().map(std::borrow::Cow::into_owned).ok_or_else(|| conversion(key, "string")))
        .collect::<Result<_, _>>()?;
    let mut value = first.clone();
    for key in texts {
        match as_map(&value)?.get(&key) {
            Some(next) => value = next,
            None => return Ok(otherwise.clone()),
        }
    }
    Ok(value)
}
