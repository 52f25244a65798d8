//! Outlines: documents with placeholders for data.
//!
//! Data that a template inserts without quotes may be parsed as more than a scalar, and may hide text of the chart
//! after it. An object is therefore compared with its outline: it may differ only in scalars with placeholders, and
//! these must preserve the chart's text.

use serde_json::Value;

/// Delimiters of placeholders: private-use characters, which charts do not contain.
const BEGIN: char = '\u{e0d0}';
const END: char = '\u{e0d1}';

/// Returns a placeholder for data; each has a different number, so that keys stay distinct.
pub(super) fn placeholder(number: usize) -> String {
    format!("{BEGIN}{number}{END}")
}

/// Finds a field of an object that differs from its outline in other ways than data in scalars. Returns its path, such
/// as `.rules[0].verbs`.
pub fn difference(outline: &Value, object: &Value) -> Option<String> {
    difference_within(outline, object).map(|path| if path.is_empty() { ".".to_owned() } else { path })
}

fn difference_within(outline: &Value, object: &Value) -> Option<String> {
    let here = || Some(String::new());
    match (outline, object) {
        (Value::Object(outlines), Value::Object(fields)) => {
            // A key with a placeholder is data.
            if outlines.len() != fields.len() || outlines.keys().any(|key| key.contains(BEGIN)) {
                return here();
            }
            outlines.iter().find_map(|(key, outline)| match fields.get(key) {
                Some(field) => difference_within(outline, field).map(|path| format!(".{key}{path}")),
                None => here(),
            })
        }
        (Value::Array(outlines), Value::Array(items)) if outlines.len() == items.len() => {
            let mut pairs = outlines.iter().zip(items).enumerate();
            pairs.find_map(|(at, (outline, item))| difference_within(outline, item).map(|path| format!("[{at}]{path}")))
        }
        (Value::String(outline), scalar) if outline.contains(BEGIN) && is_filled(outline, scalar) => None,
        _ if outline == object => None,
        _ => here(),
    }
}

/// Returns true if a scalar equals its outline with data instead of placeholders.
fn is_filled<'o>(outline: &'o str, scalar: &Value) -> bool {
    let mut pieces = outline.split(BEGIN);
    let first = pieces.next().unwrap_or_default();
    // With `indent`, each line of a string is a separate range of data, with only white space between them, which YAML
    // parses in several ways.
    let chart_text =
        |piece: &'o str| piece.split_once(END).map_or("", |(_, text)| if text.trim().is_empty() { "" } else { text });
    let mut pieces: Vec<&str> = pieces.map(chart_text).collect();
    let last = pieces.pop().unwrap_or_default();
    let text = match scalar {
        Value::String(text) => text,
        // A field that is only data may have any type, but may not be missing.
        Value::Bool(_) | Value::Number(_) if first.is_empty() && last.is_empty() => return true,
        Value::Number(number) => &number.to_string(),
        _ => return false,
    };
    let inner = text.strip_prefix(first).and_then(|text| text.strip_suffix(last));
    let filled = inner
        .and_then(|inner| pieces.iter().try_fold(inner, |rest, piece| rest.split_once(piece).map(|(_, rest)| rest)));
    filled.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::{Marks, Text};
    use crate::yaml::{self, Data};

    /// Parses a document with data between `«` and `»`, and compares it with its outline.
    fn check(document: &str, expected: Option<&str>) {
        let (mut text, mut marks) = (String::new(), Marks::new());
        for c in document.chars() {
            match c {
                '«' => marks.push(text.len()..text.len()),
                '»' => marks.last_mut().expect("the range of data has been started").end = text.len(),
                c => text.push(c),
            }
        }
        let text = Text::new(text.as_bytes(), marks);
        let read = |text: &[u8]| yaml::read(text).map_or(Value::Null, Data::into_json);
        let outline = read(&super::super::manifests::outlined(&text));
        assert_eq!(difference(&outline, &read(&text)).as_deref(), expected, "{document}");
    }

    #[test]
    fn data_must_be_scalars() {
        check("a: «b»\nc: [«1», «true», '«x»-y']\nd: |\n  «e»\n  «f»\n", None);
        check("a: x-«b»-«c»-y\nb: «5»Gi\nc: 1", None);
        check("a: \"«x\\\"y»\"\nb: '«it''s»'\nc: >-\n  «a»\n  «b»\n", None);
        check("a: «x\nb: y»", Some("."));
        check("a:\n  b: «x\n  b2: y»\nc: 1", Some(".a"));
        check("a: «{b: c}»", Some(".a"));
        check("a: [«b, c»]", Some(".a"));
        check("a:\n- b: «c\n- b: d»\n", Some(".a"));
        check("a:\n- b: «c\n  d: e»\n", Some(".a[0]"));
        check("a:\n- [{b: «[c]»}]\n", Some(".a[0][0].b"));
        check("# «x\na: b»\nc: d", Some("."));
        check("«a»: b", Some("."));
        check("a: |-\n  «e»\n  «f»\nb: «|-»\n  «e»\n  «f»", None);
        check("a: «~»", Some(".a"));
        check("a: {x: «'», y: «'»}", Some(".a"));
    }

    #[test]
    fn data_must_not_affect_surrounding_text() {
        check("a: «x #»-y", Some(".a"));
        check("a: «x-y #»-y", None);
        check("a: '«x'' # »-y'", None);
        check("a: \"«x\\»n-y\"", Some(".a"));
        check("a: «1.1»0", Some(".a"));
        check("a: b\nc: «d\na: e»", Some(".a"));
        check("a: x«b»y«c»z", None);
        check("a: '«b'' #»y«c»z'", None);
        check("a: \"«b\\\" # »y«c»z\"", None);
        check("a: \"x«b\" #»y«c»z\"", Some(".a"));
    }
}
