//! The memory usage of a value, which can be much larger than its text.

use super::{Map, Value};
use indexmap::IndexMap;

/// Size of a value in a list, in bytes.
pub(crate) const ITEM: usize = size_of::<Value>();

/// Size of a map without fields, and that of one with up to three.
const HEAD: usize = size_of::<IndexMap<String, Value>>() + 16;
pub(crate) const NODE: usize = HEAD + MIN_SLOTS * SLOT;

/// A map has slots for its fields, whose number is a power of two. An eighth of them is free.
const MIN_SLOTS: usize = 4;
/// Size of a slot: a field with its hash in seven of eight slots, the index of the field, and a byte.
const SLOT: usize = (size_of::<String>() + ITEM + 8) / 8 * 7 + 8 + 1;

/// Returns the number of slots of a map with `count` fields.
fn slots(count: usize) -> usize {
    match count {
        0 => 0,
        1..=3 => MIN_SLOTS,
        // Seven of eight are usable.
        more => (more.div_ceil(7) * 8).next_power_of_two(),
    }
}

/// Returns the growth in bytes of a map with `count` fields when a field is added, without the memory of the name and
/// the value.
pub(crate) fn entry(count: usize) -> usize {
    let head = if count == 0 { HEAD } else { 0 };
    head + (slots(count + 1) - slots(count)) * SLOT
}

/// Returns the approximate heap size of a value, in bytes.
pub(crate) fn of(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(|item| ITEM + of(item)).sum(),
        Value::Object(fields) => of_map(fields),
    }
}

fn of_map(fields: &Map) -> usize {
    let own = HEAD + slots(fields.len()) * SLOT;
    own + fields.iter().map(|(name, field)| name.len() + of(field)).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::super::json;
    use super::*;

    #[test]
    fn maps_are_charged_by_their_capacity() {
        assert_eq!((of(&json!(1)), of(&json!({})), of(&json!("abc"))), (0, HEAD, 3));
        assert_eq!(of(&json!([{"a": 1}, {"a": "b"}])), 2 * (ITEM + NODE + 1) + 1);
        for count in [1, 3, 4, 7, 8, 14, 15, 28, 29, 1000] {
            let filled: Map = (0..count).map(|n| (format!("{n:04}"), json!(n))).collect();
            assert_eq!(of(&filled.clone().into()), (0..count).map(|count| entry(count) + 4).sum::<usize>());
            let allocated = filled.capacity() * (size_of::<String>() + ITEM + 8);
            assert!(of(&filled.into()) >= HEAD + allocated, "{count}");
        }
    }
}
