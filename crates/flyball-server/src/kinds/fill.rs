//! Functions to set fields in defaulting and writes.

use serde_json::{Map, Value};

/// Extension of JSON objects to set fields.
pub(crate) trait Fields {
    /// Sets a field that is absent, null or an empty string.
    fn fill(&mut self, name: &str, value: impl Into<Value>);
    /// Sets a field that is absent or null: for fields in which an empty string is a value.
    fn fill_absent(&mut self, name: &str, value: impl Into<Value>);
    /// Sets a field.
    fn set(&mut self, name: &str, value: impl Into<Value>);
    /// Copies a field of another object, or removes it if the other object does not have it.
    fn keep(&mut self, name: &str, from: &Map<String, Value>);
    /// Returns the fields of an inner object, if there is one.
    fn inner(&mut self, name: &str) -> Option<&mut Map<String, Value>>;
    /// Returns the fields of an inner object, which is created if there is none.
    fn inner_or_new(&mut self, name: &str) -> &mut Map<String, Value>;
    /// Iterates over the objects in a list.
    fn each(&mut self, name: &str) -> impl Iterator<Item = &mut Map<String, Value>>;
    /// Returns a string, empty if there is none.
    fn text(&self, name: &str) -> &str;
    /// Returns true if a field has a value.
    fn has(&self, name: &str) -> bool;
}

impl Fields for Map<String, Value> {
    fn fill(&mut self, name: &str, value: impl Into<Value>) {
        if !self.has(name) || self.get(name).is_some_and(|value| value == "") {
            self.set(name, value);
        }
    }

    fn fill_absent(&mut self, name: &str, value: impl Into<Value>) {
        if !self.has(name) {
            self.set(name, value);
        }
    }

    fn set(&mut self, name: &str, value: impl Into<Value>) {
        self.insert(name.to_owned(), value.into());
    }

    fn keep(&mut self, name: &str, from: &Map<String, Value>) {
        match from.get(name) {
            Some(value) => self.insert(name.to_owned(), value.clone()),
            None => self.remove(name),
        };
    }

    fn inner(&mut self, name: &str) -> Option<&mut Map<String, Value>> {
        self.get_mut(name)?.as_object_mut()
    }

    fn inner_or_new(&mut self, name: &str) -> &mut Map<String, Value> {
        let inner = self.entry(name).or_insert(Value::Null);
        if !inner.is_object() {
            *inner = Value::Object(Map::new());
        }
        inner.as_object_mut().expect("just made one")
    }

    fn each(&mut self, name: &str) -> impl Iterator<Item = &mut Map<String, Value>> {
        self.get_mut(name).and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut)
    }

    fn text(&self, name: &str) -> &str {
        self.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    fn has(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| !value.is_null())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn present_fields_are_not_overwritten() {
        let Value::Object(mut fields) = json!({"a": 1, "n": null, "in": {"x": 1}, "l": [{"y": 1}, 5]}) else {
            unreachable!()
        };
        fields.fill("a", 2);
        fields.fill("n", 3);
        fields.inner_or_new("in").fill("z", "t");
        fields.inner_or_new("new").fill("z", true);
        fields.each("l").for_each(|item| item.fill("w", 0));
        fields.keep("a", &Map::new());
        let expected = json!({"n": 3, "in": {"x": 1, "z": "t"}, "new": {"z": true}, "l": [{"y": 1, "w": 0}, 5]});
        assert_eq!(Value::Object(fields), expected);
    }
}
