//! Estimates the memory of values.
//!
//! A short text can become a large value: each entry of a map takes the memory of several words, and a map of one
//! entry that of a node for eleven. So values that users determine are limited by these estimates, not by the length
//! of their texts.

use serde_json::Value;

/// Bytes of a value in a list, with spare capacity of the list.
pub(crate) const ITEM: usize = 48;
/// Bytes of a map, which allocates a node for several entries.
pub(crate) const MAP: usize = 640;
/// Bytes of an entry of a map, besides its key and value.
pub(crate) const ENTRY: usize = 32;

/// Estimates the size of a value in bytes.
pub(crate) fn size(value: &Value) -> usize {
    match value {
        Value::String(text) => ITEM + text.len(),
        Value::Array(items) => ITEM + items.iter().map(size).sum::<usize>(),
        Value::Object(fields) if fields.is_empty() => ITEM,
        Value::Object(fields) => {
            ITEM + MAP + fields.iter().map(|(key, field)| ENTRY + key.len() + size(field)).sum::<usize>()
        }
        _ => ITEM,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn maps_weigh_more_than_their_text() {
        assert_eq!(size(&json!([1, true])), 3 * ITEM);
        assert_eq!(size(&json!({})), ITEM);
        assert_eq!(size(&json!({"ab": "cde"})), 2 * ITEM + MAP + ENTRY + 5);
    }
}
