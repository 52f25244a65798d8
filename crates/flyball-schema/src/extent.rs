//! Sizes of JSON values, and their limits.

use serde_json::Value;

/// Maximum nesting depth of a document that a patch or an expression creates: the limit of JSON parsers.
pub(crate) const MAX_DEPTH: usize = 127;

/// The size of a value.
#[derive(Clone, Copy)]
pub(crate) struct Extent {
    /// Depth of nested objects and lists; 0 for other values.
    pub(crate) depth: usize,
    /// Number of values, including the value itself.
    pub(crate) values: usize,
    /// Size as JSON in bytes, without escapes.
    pub(crate) bytes: usize,
}

impl Extent {
    /// Measures a value.
    pub(crate) fn of(value: &Value) -> Self {
        let mut extent = Self { depth: 0, values: 1, bytes: 2 };
        let mut within = |inner: Self| {
            extent.depth = extent.depth.max(inner.depth);
            extent.values += inner.values;
            extent.bytes += inner.bytes + 1;
        };
        match value {
            Value::Array(items) => items.iter().for_each(|item| within(Self::of(item))),
            Value::Object(fields) => fields.iter().for_each(|(name, value)| {
                let inner = Self::of(value);
                within(Self { bytes: inner.bytes + name.len() + 3, ..inner });
            }),
            Value::String(text) => return Self { bytes: text.len() + 2, ..extent },
            Value::Number(number) => return Self { bytes: number.to_string().len(), ..extent },
            Value::Null | Value::Bool(_) => return Self { bytes: 4, ..extent },
        }
        Self { depth: extent.depth + 1, ..extent }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn extent_matches_the_serialized_value() {
        for value in [json!(null), json!(-12.5), json!("text"), json!([]), json!({"a": [1, {"b": []}], "c": "d"})] {
            let extent = Extent::of(&value);
            assert!(extent.bytes.abs_diff(value.to_string().len()) <= 1 + extent.depth, "{value}: {}", extent.bytes);
        }
        let extent = Extent::of(&json!({"a": [1, {"b": []}]}));
        assert_eq!((extent.depth, extent.values), (4, 5));
        assert_eq!(Extent::of(&json!(1)).depth, 0);
    }
}
