//! The memory usage of a JSON value, which can be much larger than its JSON text.
//!
//! [`of`] measures a value, [`of_text`] a JSON text before it is parsed, with the same weights.

use serde_json::Value;

/// Size of a value in a list, in bytes.
pub const ITEM: usize = size_of::<Value>();

/// Size of a node of a map in bytes: space for eleven keys and values.
pub const NODE: usize = 640;

/// Minimum number of entries of a node, if a map is filled in order.
const NODE_ENTRIES: usize = 6;

/// Nesting depth up to which maps are counted separately. `serde_json` rejects deeper JSON.
const MAX_DEPTH: usize = 128;

/// Returns the growth in bytes of a map with `count` entries when an entry is added, without the memory of the key and
/// the value.
pub fn entry(count: usize) -> usize {
    if count.is_multiple_of(NODE_ENTRIES) { NODE } else { 0 }
}

/// Returns the approximate heap size of a value, in bytes.
pub fn of(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(|item| ITEM + of(item)).sum(),
        Value::Object(fields) => {
            let own = fields.len().div_ceil(NODE_ENTRIES) * NODE;
            own + fields.iter().map(|(key, value)| key.len() + of(value)).sum::<usize>()
        }
    }
}

/// Returns the approximate size in bytes of a JSON text after parsing, including the text itself.
pub fn of_text(text: &[u8]) -> usize {
    let mut weight = ParsedSize::default();
    weight.add(text);
    weight.bytes()
}

/// The approximate size of a string after parsing, which is read in pieces.
#[derive(Clone, Debug, Default)]
pub struct ParsedSize {
    bytes: usize,
    in_string: bool,
    is_escaped: bool,
    /// The entries of each open map. Deeper maps count as part of the map above.
    maps: Vec<usize>,
}

impl ParsedSize {
    /// Reads the next piece.
    pub fn add(&mut self, text: &[u8]) {
        self.bytes += text.len();
        for byte in text {
            if self.in_string {
                self.in_string = self.is_escaped || *byte != b'"';
                self.is_escaped = !self.is_escaped && *byte == b'\\';
                continue;
            }
            match byte {
                b'"' => self.in_string = true,
                b'{' if self.maps.len() < MAX_DEPTH => self.maps.push(0),
                b'}' => drop(self.maps.pop()),
                b':' => {
                    if let Some(count) = self.maps.last_mut() {
                        self.bytes += entry(*count);
                        *count += 1;
                    }
                }
                b',' | b'[' => self.bytes += ITEM,
                _ => {}
            }
        }
    }

    /// Returns the size in bytes, including the text itself.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn json_text_is_estimated_by_its_decoded_size() {
        let many = |item: &str| format!("[{}0]", format!("{item},").repeat(1000));
        let per_item = |item: &str| of_text(many(item).as_bytes()) / 1000;
        assert!((30..50).contains(&per_item("0")) && (30..50).contains(&per_item("{ }")));
        assert!((640..700).contains(&per_item("{\"a\":1}")) && (1280..1400).contains(&per_item("{\"a\":{\"b\":{}}}")));
        assert!(per_item("\"{\\\"a\\\":{}}\"") < 60, "braces in a text are text");
        assert!((640..900).contains(&per_item("{\"a\":1,\"b\":2,\"c\":3,\"d\":4,\"e\":5}")));
        assert_eq!((0..12).map(entry).sum::<usize>(), 2 * NODE);
    }

    #[test]
    fn maps_are_charged_by_node() {
        assert_eq!((of(&json!(1)), of(&json!({})), of(&json!("abc"))), (0, 0, 3));
        assert_eq!(of(&json!([{"a": 1}, {"a": "b"}])), 2 * (ITEM + NODE + 1) + 1);
        let filled: Value = (0..12).map(|n| (format!("{n:02}"), json!(n))).collect::<serde_json::Map<_, _>>().into();
        assert_eq!(of(&filled), (0..12).map(|count| entry(count) + 2).sum::<usize>());
    }
}
