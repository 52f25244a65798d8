//! Go's built-in functions: comparison, `index`, `len`, `print` and escaping.

use super::{ANY, REFLECT, STR, Table, bytes, cost, text};
use crate::format::{display, sprint, sprintf, sprintln};
use crate::value::{IntKind, Value};
use std::cmp::Ordering;

pub(super) fn add(table: &mut Table) {
    // `and` and `or` are implemented in the argument evaluation, because they short-circuit.
    table
        .variadic("and", cost::constant, &[REFLECT, REFLECT], |_, args| Ok(args.last().cloned().unwrap_or(Value::Nil)));
    table.variadic("or", cost::constant, &[REFLECT, REFLECT], |_, args| Ok(args.last().cloned().unwrap_or(Value::Nil)));
    table.add("not", cost::constant, &[REFLECT], |_, args| Ok(Value::Bool(!args[0].truth())));
    table.add("len", cost::constant, &[REFLECT], |_, args| length(&args[0]));
    table.variadic("index", cost::constant, &[REFLECT, REFLECT], |_, args| index(args));
    table.variadic("print", cost::letters, &[ANY], |_, args| super::written(sprint(args)));
    table.variadic("println", cost::letters, &[ANY], |_, args| super::written(sprintln(args)));
    table.variadic("printf", cost::letters, &[STR, ANY], |call, args| {
        let format = super::marked(&args[0]);
        // An unclosed bracket is searched to the end, and verbs may repeat an argument.
        let brackets = format.iter().filter(|byte| **byte == b'[').count();
        call.context.charge(brackets.saturating_mul(format.len()) / 64, 0)?;
        let mut out = sprintf(&format, &args[1..], crate::memory::Scope::room() / 4);
        if format.is_data() {
            out.mark_all();
        }
        call.context.charge(out.len() / 64, out.len() * 2)?;
        super::written(out)
    });
    table.variadic("html", cost::escapes, &[ANY], |_, args| Ok(Value::str(html(&joined(args)))));
    table.variadic("js", cost::escapes, &[ANY], |_, args| Ok(Value::str(js(&joined(args)))));
    table.variadic("urlquery", cost::escapes, &[ANY], |_, args| {
        Ok(Value::str(super::urls::query_escape(joined(args).as_bytes())))
    });
    table.variadic("call", cost::constant, &[REFLECT, REFLECT], |_, args| match &args[1] {
        Value::Nil => Err("call of nil".to_owned()),
        other => Err(format!("non-function {} of type {}", text(&args[0]), other.type_name())),
    });
    table.variadic("eq", cost::letters, &[REFLECT, REFLECT], |_, args| equal(args).map(Value::Bool));
    table.add("ne", cost::letters, &[REFLECT, REFLECT], |_, args| equal(args).map(|is| Value::Bool(!is)));
    table.add("lt", cost::deep, &[REFLECT, REFLECT], |_, args| Ok(Value::Bool(compare(args)? == Some(Ordering::Less))));
    table.add("le", cost::deep, &[REFLECT, REFLECT], |_, args| {
        Ok(Value::Bool(matches!(compare(args)?, Some(Ordering::Less | Ordering::Equal))))
    });
    // As in Go, NaN is greater than everything, because it is not less.
    table.add("gt", cost::deep, &[REFLECT, REFLECT], |_, args| {
        Ok(Value::Bool(!matches!(compare(args)?, Some(Ordering::Less | Ordering::Equal))))
    });
    table.add("ge", cost::deep, &[REFLECT, REFLECT], |_, args| Ok(Value::Bool(compare(args)? != Some(Ordering::Less))));
}

fn length(value: &Value) -> Result<Value, String> {
    let length = match value {
        Value::Str(text) => text.len(),
        Value::Bytes(bytes) => bytes.len(),
        Value::List(list) => list.items.len(),
        Value::Map(map) => map.entries.borrow().len(),
        Value::Nil => return Err("len of nil pointer".to_owned()),
        other => return Err(format!("len of type {}", other.type_name())),
    };
    Ok(Value::int(i64::try_from(length).unwrap_or(i64::MAX)))
}

fn index(args: &[Value]) -> Result<Value, String> {
    let mut item = args[0].clone();
    if matches!(item, Value::Nil) {
        return Err("index of untyped nil".to_owned());
    }
    for index in &args[1..] {
        let at = |length: usize, what: &str| match index {
            Value::Int(_, at) => match usize::try_from(*at) {
                Ok(at) if at < length => Ok(at),
                // Go accepts an index equal to the length in its first check.
                Ok(at) if at == length => Err(format!("reflect: {what} index out of range")),
                _ => Err(format!("index out of range: {at}")),
            },
            Value::Nil => Err("cannot index slice/array with nil".to_owned()),
            other => Err(format!("cannot index slice/array with type {}", other.type_name())),
        };
        item = match &item {
            Value::Nil => return Err("index of nil pointer".to_owned()),
            Value::List(list) => list.items[at(list.items.len(), "slice")?].clone(),
            Value::Bytes(bytes) => byte(bytes[at(bytes.len(), "slice")?]),
            Value::Str(bytes) => byte(bytes[at(bytes.len(), "string")?]),
            Value::Map(map) => match index {
                Value::Str(_) => map.get(&text(index)).unwrap_or_else(|| match map.kind.holds_any() {
                    true => Value::Nil,
                    false => Value::str(""),
                }),
                Value::Nil => return Err("value is nil; should be of type string".to_owned()),
                other => return Err(format!("value has type {}; should be string", other.type_name())),
            },
            other => return Err(format!("can't index item of type {}", other.type_name())),
        };
    }
    Ok(item)
}

fn byte(byte: u8) -> Value {
    Value::Int(IntKind::Uint8, i64::from(byte))
}

/// Go's basic kinds for comparisons.
#[derive(PartialEq, Clone, Copy)]
enum BasicKind {
    Bool,
    Float,
    Int,
    Str,
    Uint,
    None,
}

fn basic(value: &Value) -> BasicKind {
    match value {
        Value::Bool(_) => BasicKind::Bool,
        Value::Float(_) => BasicKind::Float,
        Value::Int(IntKind::Uint8 | IntKind::Uint64, _) => BasicKind::Uint,
        Value::Int(..) => BasicKind::Int,
        Value::Str(_) => BasicKind::Str,
        Value::Object(object) if object.as_int().is_some() => BasicKind::Int,
        _ => BasicKind::None,
    }
}

fn number(value: &Value) -> i128 {
    match value {
        Value::Int(IntKind::Uint64, number) => i128::from(u64::from_ne_bytes(number.to_ne_bytes())),
        Value::Int(_, number) => i128::from(*number),
        Value::Object(object) => i128::from(object.as_int().unwrap_or(0)),
        _ => 0,
    }
}

fn equal(args: &[Value]) -> Result<bool, String> {
    let [first, others @ ..] = args else { return Ok(false) };
    if others.is_empty() {
        return Err("missing argument for comparison".to_owned());
    }
    for other in others {
        let (one, two) = (basic(first), basic(other));
        let is = match (one, two) {
            (BasicKind::Int | BasicKind::Uint, BasicKind::Int | BasicKind::Uint) => number(first) == number(other),
            _ if one != two => {
                if !matches!(first, Value::Nil) && !matches!(other, Value::Nil) {
                    return Err(incompatible(first, other));
                }
                false
            }
            (BasicKind::None, _) => equal_others(first, other)?,
            (BasicKind::Float, _) => matches!((first, other), (Value::Float(a), Value::Float(b)) if a == b),
            _ => first.deep_equal(other),
        };
        if is {
            return Ok(true);
        }
    }
    Ok(false)
}

fn incompatible(first: &Value, second: &Value) -> String {
    format!("incompatible types for comparison: {} and {}", first.type_name(), second.type_name())
}

/// Compares values that are neither numbers nor text, as Go compares pointers, structs and nil.
fn equal_others(first: &Value, other: &Value) -> Result<bool, String> {
    let is_nil = |value: &Value| matches!(value, Value::Nil);
    if is_nil(first) || is_nil(other) {
        return Ok(is_nil(first) && is_nil(other));
    }
    if first.kind() != other.kind() {
        let show = |value: &Value| {
            let text = sprintf(b"%s", std::slice::from_ref(value), usize::MAX).text();
            String::from_utf8_lossy(&text).into_owned()
        };
        return Err(format!(
            "non-comparable types {}: {}, {}: {}",
            show(first),
            first.type_name(),
            other.type_name(),
            display(other)
        ));
    }
    match other {
        Value::Object(_) => Ok(first.deep_equal(other)),
        _ => {
            let text = sprintf(b"%s", std::slice::from_ref(other), usize::MAX).text();
            Err(format!("non-comparable type {}: {}", String::from_utf8_lossy(&text), other.type_name()))
        }
    }
}

fn compare(args: &[Value]) -> Result<Option<Ordering>, String> {
    let (first, second) = (&args[0], &args[1]);
    let (one, two) = (basic(first), basic(second));
    if one == BasicKind::None || two == BasicKind::None {
        return Err("invalid type for comparison".to_owned());
    }
    match (one, two) {
        (BasicKind::Int | BasicKind::Uint, BasicKind::Int | BasicKind::Uint) => {
            Ok(Some(number(first).cmp(&number(second))))
        }
        _ if one != two => Err(incompatible(first, second)),
        (BasicKind::Float, _) => Ok(super::float(first).partial_cmp(&super::float(second))),
        (BasicKind::Str, _) => Ok(Some(bytes(first).cmp(bytes(second)))),
        _ => Err("invalid type for comparison".to_owned()),
    }
}

/// Joins the arguments to a string; missing ones are `<no value>`.
fn joined(args: &[Value]) -> String {
    if let [Value::Str(bytes)] = args {
        return String::from_utf8_lossy(bytes).into_owned();
    }
    let values: Vec<Value> =
        args.iter().map(|arg| if matches!(arg, Value::Nil) { Value::str("<no value>") } else { arg.clone() }).collect();
    String::from_utf8_lossy(&sprint(&values).text()).into_owned()
}

fn html(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\0' => out.push('\u{fffd}'),
            '"' => out.push_str("&#34;"),
            '\'' => out.push_str("&#39;"),
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            c => out.push(c),
        }
    }
    out
}

fn js(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\'' => out.push_str("\\'"),
            '"' => out.push_str("\\\""),
            '<' | '>' | '&' | '=' => out.push_str(&format!("\\u{:04X}", u32::from(c))),
            c if c < ' ' => out.push_str(&format!("\\u{:04X}", u32::from(c))),
            c if c.is_ascii() || crate::quote::is_print(c) => out.push(c),
            c => out.push_str(&format!("\\u{:04X}", u32::from(c))),
        }
    }
    out
}
