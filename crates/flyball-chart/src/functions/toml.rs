//! TOML as BurntSushi/toml encodes and decodes it.

mod read;
mod scan;

pub(super) use read::read;

use crate::format::display;
use crate::value::Value;

/// Nesting limit of tables.
const DEPTH: usize = 1_000;

/// Encodes a map: simple entries first, then tables, both sorted by name.
///
/// # Errors
///
/// Fails if the value is not a map, or has a part without a TOML form.
pub(super) fn write(value: &Value) -> Result<String, String> {
    if value.is_deeper_than(DEPTH) {
        return Err(format!("the value is nested deeper than {DEPTH}"));
    }
    if matches!(value, Value::Nil) {
        return Err("reflect: call of reflect.Value.Type on zero Value".to_owned());
    }
    if is_table_list(value) {
        return Err("toml: top-level values must be Go maps or structs".to_owned());
    }
    if !is_table(value) {
        return inline(value);
    }
    let mut out = String::new();
    table(&mut out, value, &[])?;
    Ok(out)
}

fn is_table(value: &Value) -> bool {
    matches!(value, Value::Map(_))
}

fn is_table_list(value: &Value) -> bool {
    match value {
        Value::List(list) => !list.items.is_empty() && list.items.iter().all(is_table),
        _ => false,
    }
}

fn key(name: &str) -> String {
    let is_bare = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if is_bare { name.to_owned() } else { string(name) }
}

fn pad(out: &mut String, depth: usize) {
    out.extend(std::iter::repeat_n("  ", depth));
}

fn table(out: &mut String, value: &Value, path: &[String]) -> Result<(), String> {
    let Value::Map(map) = value else { return Ok(()) };
    let entries = map.entries.borrow();
    let present = entries.iter().filter(|(_, value)| !matches!(value, Value::Nil));
    let (tables, simple): (Vec<_>, Vec<_>) = present.partition(|(_, value)| is_table(value) || is_table_list(value));
    for (name, value) in simple {
        pad(out, path.len().saturating_sub(1));
        if !path.is_empty() {
            out.push_str("  ");
        }
        out.push_str(&format!("{} = {}\n", key(name), inline(value)?));
    }
    for (name, value) in tables {
        let mut inner = path.to_vec();
        inner.push(key(name));
        let items = match value {
            Value::List(list) => list.items.to_vec(),
            other => vec![other.clone()],
        };
        for item in items {
            if (path.is_empty() || !is_table(value)) && !out.is_empty() {
                out.push('\n');
            }
            pad(out, path.len());
            let head = inner.join(".");
            out.push_str(&if is_table(value) { format!("[{head}]\n") } else { format!("[[{head}]]\n") });
            table(out, &item, &inner)?;
        }
    }
    Ok(())
}

fn inline(value: &Value) -> Result<String, String> {
    Ok(match value {
        Value::Float(number) => {
            let text = display(&Value::Float(*number));
            match text.as_str() {
                "NaN" => "nan".to_owned(),
                "+Inf" => "inf".to_owned(),
                "-Inf" => "-inf".to_owned(),
                _ if text.contains(['.', 'e']) => text,
                _ => format!("{text}.0"),
            }
        }
        Value::Str(_) => string(&value.text().unwrap_or_default()),
        Value::List(list) => {
            let items: Vec<String> = list.items.iter().map(inline).collect::<Result<_, _>>()?;
            format!("[{}]", items.join(", "))
        }
        Value::Map(map) => {
            let entries = map.entries.borrow();
            let items: Vec<String> = entries
                .iter()
                .map(|(name, value)| Ok(format!("{} = {}", key(name), inline(value)?)))
                .collect::<Result<_, String>>()?;
            format!("{{{}}}", items.join(", "))
        }
        Value::Nil => return Err("toml: cannot encode array with nil element".to_owned()),
        other => display(other),
    })
}

fn string(text: &str) -> String {
    let mut out = String::from('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\x08' => out.push_str("\\b"),
            '\x0c' => out.push_str("\\f"),
            c if c < ' ' || c == '\x7f' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
