//! JSON as text, in which the order of keys stays as written.

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Number, Value};
use std::fmt;

/// JSON as text.
pub(crate) struct JsonText(pub(crate) String);

impl<'de> Deserialize<'de> for JsonText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(JsonVisitor)
    }
}

struct JsonVisitor;

impl<'de> Visitor<'de> for JsonVisitor {
    type Value = JsonText;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<JsonText, E> {
        Ok(JsonText(value.to_string()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<JsonText, E> {
        Ok(JsonText(value.to_string()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<JsonText, E> {
        Ok(JsonText(value.to_string()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<JsonText, E> {
        Ok(JsonText(Number::from_f64(value).map_or("null".to_owned(), |number| number.to_string())))
    }

    fn visit_str<E>(self, value: &str) -> Result<JsonText, E> {
        Ok(JsonText(Value::from(value).to_string()))
    }

    fn visit_unit<E>(self) -> Result<JsonText, E> {
        Ok(JsonText("null".to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<JsonText, A::Error> {
        let mut items = Vec::new();
        while let Some(JsonText(item)) = access.next_element()? {
            items.push(item);
        }
        Ok(JsonText(format!("[{}]", items.join(","))))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<JsonText, A::Error> {
        let mut fields = Vec::new();
        while let Some((key, JsonText(value))) = access.next_entry::<String, JsonText>()? {
            fields.push(format!("{}:{value}", Value::from(key)));
        }
        Ok(JsonText(format!("{{{}}}", fields.join(","))))
    }
}
