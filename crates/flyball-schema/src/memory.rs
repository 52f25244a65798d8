//! The memory that a JSON value takes: far more than its text if it consists of small maps.

use serde_json::Value;

/// What a value takes in a list.
pub const ITEM: usize = size_of::<Value>();

/// What a node of a map takes: room for eleven keys and values.
pub const NODE: usize = 640;

/// How many entries a node holds at the least, as maps are filled in order.
const NODE_ENTRIES: usize = 6;

/// Returns by how much a map of so many entries grows with another one, beside the key and the value's own.
pub fn entry(count: usize) -> usize {
    if count.is_multiple_of(NODE_ENTRIES) { NODE } else { 0 }
}

/// Returns about how many bytes a value takes, beside itself.
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn small_maps_take_most() {
        assert_eq!((of(&json!(1)), of(&json!({})), of(&json!("abc"))), (0, 0, 3));
        assert_eq!(of(&json!([{"a": 1}, {"a": "b"}])), 2 * (ITEM + NODE + 1) + 1);
        let filled: Value = (0..12).map(|n| (format!("{n:02}"), json!(n))).collect::<serde_json::Map<_, _>>().into();
        assert_eq!(of(&filled), (0..12).map(|count| entry(count) + 2).sum::<usize>());
    }
}
