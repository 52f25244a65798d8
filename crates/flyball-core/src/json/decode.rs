//! Decoding of long JSON texts.

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::fmt;

/// Lists of this many items grow by a quarter: doubled, they would take twice their counted memory.
const LONG_LIST_ITEMS: usize = 16 << 10;

/// Adds an item to a list. Long lists grow by a quarter.
pub fn push_item(items: &mut Vec<Value>, item: Value) {
    if items.len() == items.capacity() && items.len() >= LONG_LIST_ITEMS {
        items.reserve_exact(items.len() / 4);
    }
    items.push(item);
}

/// Decodes JSON as `serde_json` does, with lists that grow as [`push_item`] does.
pub fn decode(json: &[u8]) -> serde_json::Result<Value> {
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let value = (&mut deserializer).deserialize_any(Reader)?;
    deserializer.end().map(|()| value)
}

struct Reader;

impl<'de> DeserializeSeed<'de> for Reader {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reader {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, v: bool) -> Result<Value, E> {
        Ok(Value::Bool(v))
    }

    fn visit_i64<E>(self, v: i64) -> Result<Value, E> {
        Ok(Value::Number(v.into()))
    }

    fn visit_u64<E>(self, v: u64) -> Result<Value, E> {
        Ok(Value::Number(v.into()))
    }

    fn visit_f64<E>(self, v: f64) -> Result<Value, E> {
        Ok(Number::from_f64(v).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, v: &str) -> Result<Value, E> {
        Ok(Value::String(v.to_owned()))
    }

    fn visit_string<E>(self, v: String) -> Result<Value, E> {
        Ok(Value::String(v))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element_seed(Self)? {
            push_item(&mut items, item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            let value = access.next_value_seed(Self)?;
            fields.insert(key, value);
        }
        Ok(Value::Object(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_equal_those_of_serde_json() {
        let texts = [
            r#"{"a":[1,-1,18446744073709551615,1.5,1e400,-0.0,"x\n",true,null,{"b":{},"a":2,"b":3}],"c":[]}"#,
            "[1,2",
            "[] []",
            r#"{"a":1,}"#,
            "\"a\"",
        ];
        for text in texts {
            let [expected, found] = [serde_json::from_str(text), decode(text.as_bytes())]
                .map(|value: serde_json::Result<Value>| value.map_err(|error| error.to_string()));
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn long_lists_have_little_spare_room() {
        let text = format!("[{}0]", "0,".repeat(100_000));
        let Value::Array(items) = decode(text.as_bytes()).unwrap() else { panic!("it is a list") };
        assert_eq!(items.len(), 100_001);
        assert!(items.capacity() < 130_000, "{}", items.capacity());
    }
}
