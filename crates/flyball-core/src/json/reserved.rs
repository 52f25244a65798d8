//! Keys that `serde_json` gives a meaning.
//!
//! With its features `raw_value` and `arbitrary_precision`, `serde_json` decodes a map whose first key is such a key as
//! something else. With `raw_value`, the value is a text that is parsed in turn, without a limit of nesting: a small
//! object of a user overflows the stack of any program that decodes it as a `Value`. This workspace enables neither
//! feature, but another dependency of a program may.

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use std::borrow::Cow;
use std::fmt;
use std::sync::LazyLock;

/// The prefix of all such keys.
const RESERVED: &str = "$serde_json::private::";

/// True if a dependency of this program enables one of the features.
static IS_ENABLED: LazyLock<bool> = LazyLock::new(|| {
    ["RawValue", "Number"].iter().any(|key| {
        let text = format!(r#"{{"{RESERVED}{key}":"1"}}"#);
        !matches!(serde_json::from_str(&text), Ok(Value::Object(_)))
    })
});

/// Returns true if keys of maps have a meaning in this program.
pub fn has_reserved_keys() -> bool {
    *IS_ENABLED
}

/// Rejects JSON with a key that has a meaning in this program, and invalid JSON; usually it does nothing.
///
/// Untrusted text has to pass this check before it is decoded as a `Value`.
pub fn check_keys(json: &[u8]) -> serde_json::Result<()> {
    if has_reserved_keys() { find_reserved(json) } else { Ok(()) }
}

fn find_reserved(json: &[u8]) -> serde_json::Result<()> {
    Keys.deserialize(&mut serde_json::Deserializer::from_slice(json))
}

/// Reads a value, and fails at a reserved key.
struct Keys;

impl<'de> DeserializeSeed<'de> for Keys {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

/// A key of a map.
struct Key;

impl<'de> DeserializeSeed<'de> for Key {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Cow<'de, str>, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Key {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_borrowed_str<E>(self, key: &'de str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Borrowed(key))
    }

    fn visit_str<E>(self, key: &str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Owned(key.to_owned()))
    }
}

impl<'de> Visitor<'de> for Keys {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<(), A::Error> {
        while access.next_element_seed(Self)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<(), A::Error> {
        while let Some(key) = access.next_key_seed(Key)? {
            if key.starts_with(RESERVED) {
                return Err(A::Error::custom(format_args!("the key {key:?} is reserved")));
            }
            access.next_value_seed(Self)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_workspace_has_no_reserved_keys() {
        assert!(!has_reserved_keys(), "a dependency enables raw_value or arbitrary_precision of serde_json");
    }

    #[test]
    fn reserved_keys_are_found_in_any_spelling() {
        let check = |json: &str| find_reserved(json.as_bytes());
        check(r#"{"a":[1,-2,1.5,null,true,"$serde_json::private::RawValue"],"b":{"c":{}}}"#).expect("no reserved key");
        for json in [
            r#"{"$serde_json::private::RawValue":"1"}"#,
            r#"[{"a":{"b":1,"\u0024serde_json::private::RawValue":"1"}}]"#,
            r#"{"$serde_json::private::Number":"1"}"#,
        ] {
            let error = check(json).expect_err(json);
            assert!(error.to_string().contains("is reserved"), "{error}");
        }
        assert!(check(r#"{"a":"#).is_err());
    }
}
