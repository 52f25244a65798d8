//! Strings: slicing, trimming, joining, quoting. Positions count bytes, as in Go.

use super::{ANY, INT, STR, Table, bytes, cost, int, marked, strslice, strslice_marked, strval_marked, text, written};
use crate::context::Call;
use crate::format::write;
use crate::quote::quote;
use crate::text::{Text, Writer};
use crate::value::{Map, MapKind, Value};
use std::collections::BTreeSet;

/// Maximum number of bytes per character of a set.
const SET_BYTES: usize = 16;

pub(super) fn add(table: &mut Table) {
    table.add("hello", cost::deep, &[], |_, _| Ok(Value::str("Hello!")));
    table.add("abbrev", cost::deep, &[INT, STR], |_, args| Ok(abbreviate(bytes(&args[1]), 0, int(&args[0]))));
    table.add("abbrevboth", cost::deep, &[INT, INT, STR], |_, args| {
        let (left, right) = (int(&args[0]), int(&args[1]));
        if right < 4 || (left > 0 && right < 7) {
            return Ok(args[2].clone());
        }
        Ok(abbreviate(bytes(&args[2]), left, right))
    });
    table.add("trunc", cost::deep, &[INT, STR], |_, args| {
        let (count, text) = (int(&args[0]), bytes(&args[1]));
        let length = i64::try_from(text.len()).unwrap_or(i64::MAX);
        let at = |position: i64| usize::try_from(position).unwrap_or(0);
        Ok(match count {
            count if count < 0 && length.saturating_add(count) > 0 => {
                Value::Str(marked(&args[1]).part(at(length + count)..text.len()))
            }
            count if count >= 0 && length > count => Value::Str(marked(&args[1]).part(0..at(count))),
            _ => args[1].clone(),
        })
    });
    table.add("substr", cost::deep, &[INT, INT, STR], |_, args| {
        substring(int(&args[0]), int(&args[1]), bytes(&args[2]))
    });
    table.add("trim", cost::deep, &[STR], |_, args| Ok(trimmed(&args[0], str::trim)));
    for name in ["trimall", "trimAll"] {
        table.add(name, cost::deep, &[STR, STR], |call, args| {
            let length = bytes(&args[0]).len();
            call.context.charge((length + bytes(&args[1]).len()) / 4, length * SET_BYTES)?;
            let set: BTreeSet<char> = text(&args[0]).chars().collect();
            Ok(trimmed(&args[1], |text| text.trim_matches(|c| set.contains(&c))))
        });
    }
    table.add("trimSuffix", cost::deep, &[STR, STR], |_, args| {
        let text = marked(&args[1]);
        Ok(Value::Str(text.strip_suffix(bytes(&args[0])).map_or_else(|| text.clone(), |rest| text.found(rest))))
    });
    table.add("trimPrefix", cost::deep, &[STR, STR], |_, args| {
        let text = marked(&args[1]);
        Ok(Value::Str(text.strip_prefix(bytes(&args[0])).map_or_else(|| text.clone(), |rest| text.found(rest))))
    });
    table.add("nospace", cost::letters, &[STR], |_, args| {
        let has_space = super::byte_chars(&args[0]).any(char::is_whitespace);
        let without_spaces = || super::byte_chars(&args[0]).filter(|c| !c.is_whitespace()).collect::<String>();
        Ok(if has_space { Value::str(without_spaces()) } else { args[0].clone() })
    });
    table.add("repeat", cost::deep, &[INT, STR], |call, args| {
        let (count, text) = (int(&args[0]), bytes(&args[1]));
        let Ok(count) = usize::try_from(count) else { return Err("strings: negative Repeat count".to_owned()) };
        if text.len().saturating_mul(count) > super::MAX_TEXT_BYTES {
            return Err(format!("the text is larger than {} bytes", super::MAX_TEXT_BYTES));
        }
        let length = text.len() * count;
        call.context.charge(length / 64, length * 2)?;
        Ok(Value::str(text.repeat(count)))
    });
    table.add("contains", cost::deep, &[STR, STR], |call, args| {
        call.context.charge(search_steps(&args[1], &args[0]), 0)?;
        Ok(Value::Bool(find(bytes(&args[1]), bytes(&args[0])).is_some()))
    });
    table.add("hasPrefix", cost::deep, &[STR, STR], |_, args| {
        Ok(Value::Bool(bytes(&args[1]).starts_with(bytes(&args[0]))))
    });
    table.add("hasSuffix", cost::deep, &[STR, STR], |_, args| {
        Ok(Value::Bool(bytes(&args[1]).ends_with(bytes(&args[0]))))
    });
    table.variadic("quote", cost::letters, &[ANY], |_, args| {
        words(args, |out, arg| {
            let text = strval_marked(arg);
            out.written(text.is_data(), |bytes| bytes.extend(quote(&text).bytes()));
        })
    });
    table.variadic("squote", cost::letters, &[ANY], |_, args| {
        words(args, |out, arg| {
            out.add(b"'");
            write(out, arg);
            out.add(b"'");
        })
    });
    table.variadic("cat", cost::letters, &[ANY], |_, args| Ok(trimmed(&words(args, write)?, str::trim)));
    table.add("indent", cost::deep, &[INT, STR], |call, args| indent(call, "", int(&args[0]), &marked(&args[1])));
    table.add("nindent", cost::deep, &[INT, STR], |call, args| indent(call, "\n", int(&args[0]), &marked(&args[1])));
    table.add("replace", cost::deep, &[STR, STR, STR], |call, args| {
        replace(call, &marked(&args[2]), bytes(&args[0]), &marked(&args[1]))
    });
    table.add("plural", cost::deep, &[STR, STR, INT], |_, args| Ok(args[usize::from(int(&args[2]) != 1)].clone()));
    table.add("toString", cost::letters, &[ANY], |_, args| Ok(Value::Str(strval_marked(&args[0]))));
    table.add("toStrings", cost::letters, &[ANY], |_, args| Ok(Value::strings(strslice(&args[0]))));
    table.add("join", cost::letters, &[STR, ANY], |call, args| {
        let (joint, parts) = (marked(&args[0]), strslice_marked(&args[1]));
        let joints = joint.len().saturating_mul(parts.len());
        call.context.charge(joints / 64, joints.saturating_mul(2))?;
        let mut out = Writer::default();
        for (at, part) in parts.iter().enumerate() {
            if at > 0 {
                out.text_of(&joint);
            }
            out.text_of(part);
        }
        written(out)
    });
    table.add("sortAlpha", cost::deep, &[ANY], |_, args| {
        let mut items = strslice(&args[0]);
        items.sort();
        Ok(Value::strings(items))
    });
    table.add("split", cost::deep, &[STR, STR], |call, args| {
        take_split(call, &args[1], &args[0])?;
        Ok(numbered(split(bytes(&args[1]), bytes(&args[0]), None)))
    });
    table.add("splitn", cost::deep, &[STR, INT, STR], |call, args| {
        take_split(call, &args[2], &args[0])?;
        let count = int(&args[1]);
        Ok(match usize::try_from(count) {
            Ok(0) => numbered(Vec::new()),
            Ok(count) => numbered(split(bytes(&args[2]), bytes(&args[0]), Some(count))),
            Err(_) => numbered(split(bytes(&args[2]), bytes(&args[0]), None)),
        })
    });
    table.add("splitList", cost::deep, &[STR, STR], |call, args| {
        take_split(call, &args[1], &args[0])?;
        Ok(Value::strings(split(bytes(&args[1]), bytes(&args[0]), None)))
    });
}

fn present(args: &[Value]) -> impl Iterator<Item = &Value> {
    args.iter().filter(|arg| !matches!(arg, Value::Nil))
}

/// Joins the values that are not nil with spaces.
fn words(args: &[Value], word: impl Fn(&mut Writer, &Value)) -> Result<Value, String> {
    let mut out = Writer::default();
    for (at, arg) in present(args).enumerate() {
        if at > 0 {
            out.add(b" ");
        }
        word(&mut out, arg);
    }
    written(out)
}

/// Returns a substring, with its data marks if it is valid UTF-8.
fn trimmed(value: &Value, trim: impl Fn(&str) -> &str) -> Value {
    let text = marked(value);
    match std::str::from_utf8(&text) {
        Ok(readable) => Value::Str(text.found(trim(readable).as_bytes())),
        Err(_) => {
            let cut = Value::str(trim(&String::from_utf8_lossy(&text)));
            if text.is_data() { cut.to_data() } else { cut }
        }
    }
}

/// Returns the maximum number of steps of a string search.
fn search_steps(text: &Value, part: &Value) -> usize {
    let (length, part) = (bytes(text).len(), bytes(part).len());
    length.saturating_mul(part.min(length)) / 64
}

/// Charges splitting a string.
fn take_split(call: &Call<'_>, text: &Value, separator: &Value) -> Result<(), String> {
    // Each part has a separate entry.
    let parts = bytes(text).len() / bytes(separator).len().max(1);
    call.context.charge(search_steps(text, separator).saturating_add(parts), parts.saturating_mul(256))
}

pub(super) fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    if part.is_empty() {
        return Some(0);
    }
    text.windows(part.len()).position(|window| window == part)
}

fn indent(call: &Call<'_>, before: &str, columns: i64, text: &Text) -> Result<Value, String> {
    let Ok(columns) = usize::try_from(columns) else { return Err("strings: negative Repeat count".to_owned()) };
    let lines = text.iter().filter(|byte| **byte == b'\n').count() + 1;
    let length = columns.saturating_mul(lines);
    if length > super::MAX_TEXT_BYTES {
        return Err(format!("the text is larger than {} bytes", super::MAX_TEXT_BYTES));
    }
    call.context.charge(length / 64 + lines, length.saturating_mul(2))?;
    let pad = vec![b' '; columns];
    let mut out = Writer::default();
    out.add(before.as_bytes());
    let mut from = 0;
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        out.add(&pad);
        out.part(text, from..from + line.len());
        from += line.len();
    }
    if text.is_empty() || text.ends_with(b"\n") {
        out.add(&pad);
    }
    written(out)
}

/// Returns the positions of characters, and the end.
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

fn replace(call: &Call<'_>, text: &Text, from: &[u8], to: &Text) -> Result<Value, String> {
    let steps = text.len().saturating_mul(from.len().min(text.len())) / 64;
    call.context.charge(steps + text.len(), 0)?;
    let ends: Vec<usize> = match from.is_empty() {
        true => boundaries(text),
        false => {
            let (mut at, mut found) = (0, Vec::new());
            while let Some(next) = find(&text[at..], from) {
                found.push(at + next);
                at += next + from.len();
            }
            found
        }
    };
    let length = ends.len().saturating_mul(to.len());
    call.context.charge(length / 64, length.saturating_mul(2))?;
    let (mut out, mut at) = (Writer::default(), 0);
    for end in ends {
        out.part(text, at..end);
        out.text_of(to);
        at = end + from.len();
    }
    out.part(text, at..text.len());
    written(out)
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
        let range = if from > length { format!("[{from}:{length}]") } else { format!("[{from}:{to}]") };
        return Err(format!("runtime error: slice bounds out of range {range}"));
    }
    let at = |position: i64| usize::try_from(position).unwrap_or(0);
    Ok(Value::str(&text[at(from)..at(to)]))
}

/// Truncates a string to this number of bytes, with dots instead of omitted text at the start and end.
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
            Value::Str(text) => text.to_vec(),
            _ => Vec::new(),
        }
    } else {
        text[at(length - (width - 3))..].to_vec()
    };
    Value::str([b"...", &rest[..]].concat())
}
