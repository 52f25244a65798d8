//! YAML for people to read: what an object is comes first, then its name, then all else in the order of the alphabet.
//!
//! Texts that some reader of YAML takes for something else, as readers of YAML 1.1 do with `on` and `1:30`, are quoted.

use serde_json::{Map, Value};
use std::fmt::Write;

/// Keys that come first at every level.
const FIRST: [&str; 5] = ["apiVersion", "kind", "metadata", "name", "namespace"];
/// Words that mean something but themselves, in lower case.
const WORDS: [&str; 13] = ["", "null", "~", "true", "false", "yes", "no", "on", "off", "y", "n", ".nan", ".inf"];

/// Writes a value as a document. Equal values make equal texts.
pub(crate) fn write(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::Object(fields) if !fields.is_empty() => write_map(&mut out, fields, 0, true),
        Value::Array(items) if !items.is_empty() => write_list(&mut out, items, 0),
        other => {
            write_scalar(&mut out, other, 0);
            out.push('\n');
        }
    }
    out
}

fn write_map(out: &mut String, fields: &Map<String, Value>, depth: usize, indent_first: bool) {
    let rank = |key: &str| FIRST.iter().position(|first| *first == key).unwrap_or(FIRST.len());
    let mut keys: Vec<&String> = fields.keys().collect();
    keys.sort_by_key(|key| (rank(key), *key));
    for (at, key) in keys.into_iter().enumerate() {
        if at > 0 || indent_first {
            indent(out, depth);
        }
        out.push_str(&text(key));
        out.push(':');
        match &fields[key] {
            Value::Object(inner) if !inner.is_empty() => {
                out.push('\n');
                write_map(out, inner, depth + 1, true);
            }
            Value::Array(items) if !items.is_empty() => {
                out.push('\n');
                write_list(out, items, depth);
            }
            scalar => {
                out.push(' ');
                write_scalar(out, scalar, depth + 1);
                out.push('\n');
            }
        }
    }
}

fn write_list(out: &mut String, items: &[Value], depth: usize) {
    for item in items {
        indent(out, depth);
        out.push_str("- ");
        match item {
            Value::Object(fields) if !fields.is_empty() => write_map(out, fields, depth + 1, false),
            Value::Array(inner) if !inner.is_empty() => {
                out.push('\n');
                write_list(out, inner, depth + 1);
            }
            scalar => {
                write_scalar(out, scalar, depth + 1);
                out.push('\n');
            }
        }
    }
}

fn indent(out: &mut String, depth: usize) {
    out.extend(std::iter::repeat_n("  ", depth));
}

fn write_scalar(out: &mut String, value: &Value, depth: usize) {
    match value {
        Value::String(lines) if is_block(lines) => {
            let end = if lines.ends_with('\n') { "|" } else { "|-" };
            out.push_str(end);
            for line in lines.lines() {
                out.push('\n');
                if !line.is_empty() {
                    indent(out, depth);
                    out.push_str(line);
                }
            }
        }
        Value::String(line) => out.push_str(&text(line)),
        Value::Number(number) => match number.as_f64().filter(|_| number.is_f64()) {
            // 1.0 and 1 are the same number, and the latter is what people write.
            Some(float) if float.fract() == 0.0 && float.abs() < 1e15 => {
                let _ = write!(out, "{float:.0}");
            }
            _ => {
                let _ = write!(out, "{number}");
            }
        },
        // Null, booleans, and what is empty, are the same in JSON.
        other => {
            let _ = write!(out, "{other}");
        }
    }
}

/// Tells whether a text is written line by line.
fn is_block(text: &str) -> bool {
    let body = text.strip_suffix('\n').unwrap_or(text);
    let plain = |c: char| c == '\n' || !c.is_control();
    body.contains('\n')
        && body.chars().all(plain)
        && !body.starts_with([' ', '\n'])
        && !body.ends_with([' ', '\n'])
        && body.lines().all(|line| !line.ends_with(' '))
}

/// Writes a text within a line, in quotes if it needs them.
fn text(text: &str) -> String {
    if is_plain(text) { text.to_owned() } else { Value::from(text).to_string() }
}

fn is_plain(text: &str) -> bool {
    let starts = |c: char| c.is_ascii_alphabetic() || matches!(c, '/' | '_' | '.' | '$' | '(');
    let inside = |c: char| !c.is_control() && c.is_ascii() && c != '"';
    let first = text.chars().next().unwrap_or(' ');
    let is_text = match first {
        '0'..='9' => is_quantity(text),
        // A flag, which is neither an item of a list nor the mark between documents.
        '-' => text.trim_start_matches('-').starts_with(|c: char| c.is_ascii_alphabetic()),
        _ => starts(first),
    };
    let is_fraction = first == '.' && text[1..].starts_with(|c: char| c.is_ascii_digit());
    is_text
        && !is_fraction
        && text.chars().all(inside)
        && !WORDS.contains(&text.to_ascii_lowercase().as_str())
        && !text.contains(": ")
        && !text.contains(" #")
        && !text.ends_with([':', ' '])
}

/// Tells whether a text that begins with a digit is no number to any reader, such as `10m` and `32Mi`.
fn is_quantity(text: &str) -> bool {
    let digits = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let unit = !digits.is_empty() && digits.chars().all(|c| c.is_ascii_alphabetic());
    unit && !text.starts_with('0') && !digits.starts_with(['e', 'E'])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_object_reads_from_what_it_is_to_what_it_wants() {
        let object = json!({"spec": {"b": [1.0, {"z": true, "name": "on"}], "a": {}}, "kind": "Site",
            "metadata": {"labels": {"x": "1"}, "name": "web"}, "apiVersion": "v1", "data": {"page": "a:\n  b\n", "none": null}});
        let expected = "apiVersion: v1
kind: Site
metadata:
  name: web
  labels:
    x: \"1\"
data:
  none: null
  page: |
    a:
      b
spec:
  a: {}
  b:
  - 1
  - name: \"on\"
    z: true
";
        assert_eq!(write(&object), expected);
        let again: Value = serde_saphyr::from_str(expected).unwrap();
        assert_eq!(again["data"], object["data"]);
    }

    #[test]
    fn texts_stay_texts() {
        let texts = [
            "",
            "a",
            "on",
            "No",
            "1",
            "1.5",
            "10m",
            "1e3",
            "0x1f",
            "012",
            "1:30",
            "2001-01-01",
            ".5",
            "~",
            "- a",
            "a: b",
            "a #b",
            "*",
            "{}",
            "a\tb",
            "ü",
            " a",
            "a ",
            "a\n\nb",
            " a\nb",
            "a\nb\n",
            "a \nb",
            "'a'",
            "\"a\"",
            "null",
            "%",
            "@a",
            "[a",
            "!x",
            "|",
            ">",
            "key:",
            "--flag",
            "a\rb",
            "sha256:0a",
            "=",
            "<<",
            "1_000",
            ".inf",
            "+1",
            "?",
            "a, b",
        ];
        for text in texts {
            let written = write(&json!({"a": [text]}));
            let read: Value = serde_saphyr::from_str(&written).unwrap();
            assert_eq!(read, json!({"a": [text]}), "{written}");
        }
        for plain in ["10m", "32Mi", "apps/v1", "--", "/metrics", "--leader-elect", "-v"] {
            assert_eq!(is_plain(plain), plain != "--", "{plain}");
        }
    }
}
