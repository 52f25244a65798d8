//! Outlines: documents with placeholders where data stand.
//!
//! Data that a template writes without quotes can be read as more than a scalar, and can cut off what the chart writes
//! behind them. So an object is compared with its outline: it may differ from it in scalars with placeholders only, and
//! in these it must keep the chart's text.

use serde_json::Value;

/// Delimiters of placeholders: private characters, which no chart writes, so that nothing else is taken for one.
const BEGIN: char = '\u{e0d0}';
const END: char = '\u{e0d1}';

/// Returns what stands for data; each has another number, so that keys remain apart.
pub(super) fn placeholder(number: usize) -> String {
    format!("{BEGIN}{number}{END}")
}

/// Finds a field of an object that is not what its outline says, besides data in scalars. Returns its path, such as
/// `.rules[0].verbs`.
pub fn difference(outline: &Value, object: &Value) -> Option<String> {
    difference_within(outline, object).map(|path| if path.is_empty() { ".".to_owned() } else { path })
}

fn difference_within(outline: &Value, object: &Value) -> Option<String> {
    let here = || Some(String::new());
    match (outline, object) {
        (Value::Object(outlines), Value::Object(fields)) => {
            // A key with a placeholder is data, whatever it is.
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

/// Returns true if a scalar is an outline with data in the place of its placeholders.
fn is_filled<'o>(outline: &'o str, scalar: &Value) -> bool {
    let mut pieces = outline.split(BEGIN);
    let first = pieces.next().unwrap_or_default();
    // Lines of a text that a template indents are data each, with nothing but space between them, which YAML reads in
    // several ways.
    let chart_text =
        |piece: &'o str| piece.split_once(END).map_or("", |(_, text)| if text.trim().is_empty() { "" } else { text });
    let mut pieces: Vec<&str> = pieces.map(chart_text).collect();
    let last = pieces.pop().unwrap_or_default();
    let text = match scalar {
        Value::String(text) => text,
        // What is nothing but data may be of any type, but not as if the field were not there.
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

    /// Reads a document whose data stand between `«` and `»`, and compares it with its outline.
    fn check(document: &str, expected: Option<&str>) {
        let (mut text, mut marks) = (String::new(), Marks::new());
        for c in document.chars() {
            match c {
                '«' => marks.push(text.len()..text.len()),
                '»' => marks.last_mut().expect("data have a beginning").end = text.len(),
                c => text.push(c),
            }
        }
        let text = Text::new(text.as_bytes(), marks);
        let read = |text: &[u8]| yaml::read(text).map_or(Value::Null, Data::into_json);
        let outline = read(&super::super::manifests::outlined(&text));
        assert_eq!(difference(&outline, &read(&text)).as_deref(), expected, "{document}");
    }

    #[test]
    fn data_are_scalars_and_nothing_else() {
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
    fn data_change_nothing_of_the_chart() {
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
