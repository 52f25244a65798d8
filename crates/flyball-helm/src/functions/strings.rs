//! Texts: cutting, trimming, joining, quoting. Positions count bytes, as in Go.

use super::{ANY, INT, STR, Table, bounded, bytes, int, strslice, strval, text};
use crate::template::format::quote;
use crate::template::value::{Map, MapKind, Value};

pub(super) fn add(table: &mut Table) {
    table.add("hello", &[], |_, _| Ok(Value::str("Hello!")));
    table.add("abbrev", &[INT, STR], |_, args| Ok(abbreviate(bytes(&args[1]), 0, int(&args[0]))));
    table.add("abbrevboth", &[INT, INT, STR], |_, args| {
        let (left, right) = (int(&args[0]), int(&args[1]));
        if right < 4 || (left > 0 && right < 7) {
            return Ok(args[2].clone());
        }
        Ok(abbreviate(bytes(&args[2]), left, right))
    });
    table.add("trunc", &[INT, STR], |_, args| {
        let (count, text) = (int(&args[0]), bytes(&args[1]));
        let length = i64::try_from(text.len()).unwrap_or(i64::MAX);
        let at = |position: i64| usize::try_from(position).unwrap_or(0);
        Ok(match count {
            count if count < 0 && length + count > 0 => Value::str(&text[at(length + count)..]),
            count if count >= 0 && length > count => Value::str(&text[..at(count)]),
            _ => args[1].clone(),
        })
    });
    table.add("substr", &[INT, INT, STR], |_, args| substring(int(&args[0]), int(&args[1]), bytes(&args[2])));
    table.add("trim", &[STR], |_, args| Ok(Value::str(text(&args[0]).trim())));
    for name in ["trimall", "trimAll"] {
        table.add(name, &[STR, STR], |_, args| {
            let set = text(&args[0]).into_owned();
            Ok(Value::str(text(&args[1]).trim_matches(|c| set.contains(c))))
        });
    }
    table.add("trimSuffix", &[STR, STR], |_, args| {
        let text = bytes(&args[1]);
        Ok(Value::str(text.strip_suffix(bytes(&args[0])).unwrap_or(text)))
    });
    table.add("trimPrefix", &[STR, STR], |_, args| {
        let text = bytes(&args[1]);
        Ok(Value::str(text.strip_prefix(bytes(&args[0])).unwrap_or(text)))
    });
    table.add("nospace", &[STR], |_, args| {
        Ok(Value::str(text(&args[0]).chars().filter(|c| !c.is_whitespace()).collect::<String>()))
    });
    table.add("repeat", &[INT, STR], |_, args| {
        let (count, text) = (int(&args[0]), bytes(&args[1]));
        let Ok(count) = usize::try_from(count) else { return Err("strings: negative Repeat count".to_owned()) };
        if text.len().saturating_mul(count) > super::LARGEST_TEXT {
            return Err(format!("the text is larger than {} bytes", super::LARGEST_TEXT));
        }
        Ok(Value::str(text.repeat(count)))
    });
    table.add("contains", &[STR, STR], |_, args| Ok(Value::Bool(find(bytes(&args[1]), bytes(&args[0])).is_some())));
    table.add("hasPrefix", &[STR, STR], |_, args| Ok(Value::Bool(bytes(&args[1]).starts_with(bytes(&args[0])))));
    table.add("hasSuffix", &[STR, STR], |_, args| Ok(Value::Bool(bytes(&args[1]).ends_with(bytes(&args[0])))));
    table.variadic("quote", &[ANY], |_, args| {
        Ok(Value::str(present(args).map(|arg| quote(&strval(arg))).collect::<Vec<_>>().join(" ")))
    });
    table.variadic("squote", &[ANY], |_, args| {
        let quoted: Vec<Vec<u8>> = present(args).map(|arg| [b"'", &display(arg)[..], b"'"].concat()).collect();
        Ok(Value::str(quoted.join(&b' ')))
    });
    table.variadic("cat", &[ANY], |_, args| {
        let words: Vec<Vec<u8>> = present(args).map(display).collect();
        Ok(Value::str(text(&Value::str(words.join(&b' '))).trim()))
    });
    table.add("indent", &[INT, STR], |_, args| indent(int(&args[0]), bytes(&args[1])).and_then(bounded));
    table.add("nindent", &[INT, STR], |_, args| {
        let mut out = vec![b'\n'];
        out.extend(indent(int(&args[0]), bytes(&args[1]))?);
        bounded(out)
    });
    table.add("replace", &[STR, STR, STR], |_, args| {
        bounded(replace(bytes(&args[2]), bytes(&args[0]), bytes(&args[1])))
    });
    table.add("plural", &[STR, STR, INT], |_, args| Ok(args[usize::from(int(&args[2]) != 1)].clone()));
    table.add("toString", &[ANY], |_, args| Ok(Value::str(strval(&args[0]))));
    table.add("toStrings", &[ANY], |_, args| Ok(Value::strings(strslice(&args[0]))));
    table.add("join", &[STR, ANY], |_, args| bounded(strslice(&args[1]).join(bytes(&args[0]))));
    table.add("sortAlpha", &[ANY], |_, args| {
        let mut items = strslice(&args[0]);
        items.sort();
        Ok(Value::strings(items))
    });
    table.add("split", &[STR, STR], |_, args| Ok(numbered(split(bytes(&args[1]), bytes(&args[0]), None))));
    table.add("splitn", &[STR, INT, STR], |_, args| {
        let count = int(&args[1]);
        Ok(match usize::try_from(count) {
            Ok(0) => numbered(Vec::new()),
            Ok(count) => numbered(split(bytes(&args[2]), bytes(&args[0]), Some(count))),
            Err(_) => numbered(split(bytes(&args[2]), bytes(&args[0]), None)),
        })
    });
    table.add("splitList", &[STR, STR], |_, args| Ok(Value::strings(split(bytes(&args[1]), bytes(&args[0]), None))));
}

fn present(args: &[Value]) -> impl Iterator<Item = &Value> {
    args.iter().filter(|arg| !matches!(arg, Value::Nil))
}

fn display(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    crate::template::format::plain(&mut out, value);
    out
}

pub(super) fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    if part.is_empty() {
        return Some(0);
    }
    text.windows(part.len()).position(|window| window == part)
}

fn indent(columns: i64, text: &[u8]) -> Result<Vec<u8>, String> {
    let Ok(columns) = usize::try_from(columns) else { return Err("strings: negative Repeat count".to_owned()) };
    let lines = text.iter().filter(|byte| **byte == b'\n').count() + 1;
    if columns.saturating_mul(lines) > super::LARGEST_TEXT {
        return Err(format!("the text is larger than {} bytes", super::LARGEST_TEXT));
    }
    let pad = vec![b' '; columns];
    let mut out = pad.clone();
    for byte in text {
        out.push(*byte);
        if *byte == b'\n' {
            out.extend(&pad);
        }
    }
    Ok(out)
}

/// Where characters begin, and the end.
fn boundaries(text: &[u8]) -> Vec<usize> {
    let mut found = vec![0];
    let mut at = 0;
    for chunk in text.utf8_chunks() {
        for c in chunk.valid().chars() {
            at += c.len_utf8();
            found.push(at);
        }
        for _ in chunk.invalid() {
            at += 1;
            found.push(at);
        }
    }
    found
}

fn replace(text: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    if from.is_empty() {
        let mut out = to.to_vec();
        for pair in boundaries(text).windows(2) {
            out.extend(&text[pair[0]..pair[1]]);
            out.extend(to);
        }
        return out;
    }
    split(text, from, None).join(to)
}

fn split(text: &[u8], separator: &[u8], most: Option<usize>) -> Vec<Vec<u8>> {
    let mut parts = Vec::new();
    let is_full = |parts: &Vec<Vec<u8>>| most.is_some_and(|most| parts.len() + 1 >= most);
    if separator.is_empty() {
        let ends = boundaries(text);
        let mut at = 0;
        for end in &ends[1..] {
            if is_full(&parts) {
                break;
            }
            parts.push(text[at..*end].to_vec());
            at = *end;
        }
        if at < text.len() {
            parts.push(text[at..].to_vec());
        }
        return parts;
    }
    let mut rest = text;
    while !is_full(&parts) {
        let Some(at) = find(rest, separator) else { break };
        parts.push(rest[..at].to_vec());
        rest = &rest[at + separator.len()..];
    }
    parts.push(rest.to_vec());
    parts
}

/// `_0`, `_1` and so on.
fn numbered(parts: Vec<Vec<u8>>) -> Value {
    let entries = parts.into_iter().enumerate().map(|(at, part)| (format!("_{at}"), Value::str(part)));
    Value::Map(Map::new(MapKind::Strings, entries.collect()))
}

fn substring(start: i64, end: i64, text: &[u8]) -> Result<Value, String> {
    let length = i64::try_from(text.len()).unwrap_or(i64::MAX);
    let (from, to) = match (start, end) {
        (start, end) if start < 0 => (0, end),
        (start, end) if end < 0 || end > length => (start, length),
        (start, end) => (start, end),
    };
    if to < 0 || to > length {
        return Err(format!("runtime error: slice bounds out of range [:{to}] with length {length}"));
    }
    if from > to {
        let shown = if from > length { format!("[{from}:{length}]") } else { format!("[{from}:{to}]") };
        return Err(format!("runtime error: slice bounds out of range {shown}"));
    }
    let at = |position: i64| usize::try_from(position).unwrap_or(0);
    Ok(Value::str(&text[at(from)..at(to)]))
}

/// A text of at most so many bytes, with dots for what is left out before and behind.
fn abbreviate(text: &[u8], offset: i64, width: i64) -> Value {
    let length = i64::try_from(text.len()).unwrap_or(i64::MAX);
    if width < 4 || length <= width {
        return Value::str(text);
    }
    let at = |position: i64| usize::try_from(position.clamp(0, length)).unwrap_or(0);
    let mut offset = offset.min(length);
    if length - offset < width - 3 {
        offset = length - (width - 3);
    }
    if offset <= 4 {
        return Value::str([&text[..at(width - 3)], b"..."].concat());
    }
    if width < 7 {
        return Value::str("");
    }
    let rest = if offset + width - 3 < length {
        match abbreviate(&text[at(offset)..], 0, width - 3) {
            Value::Str(bytes) => bytes.to_vec(),
            _ => Vec::new(),
        }
    } else {
        text[at(length - (width - 3))..].to_vec()
    };
    Value::str([b"...", &rest[..]].concat())
}
