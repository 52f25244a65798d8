//! The key that `serde_json` gives a meaning.
//!
//! With its feature `raw_value`, `serde_json` decodes a map whose first key is this one as the JSON in its value,
//! without a limit of nesting: a small object of a user overflows the stack of any program that decodes it as a
//! `Value`. This workspace does not enable the feature, but another dependency of a program may.

use super::containers::{ContainerVisitor, Containers};
use serde::de::{DeserializeSeed, Error as _, MapAccess, SeqAccess};
use serde_json::Value;
use std::sync::LazyLock;

const RESERVED: &str = "$serde_json::private::RawValue";

/// True if a dependency of this program enables the feature.
static IS_ENABLED: LazyLock<bool> = LazyLock::new(|| !is_map(RESERVED));

/// Returns true if a map with this key is decoded as a map.
fn is_map(key: &str) -> bool {
    matches!(serde_json::from_str(&format!(r#"{{"{key}":"1"}}"#)), Ok(Value::Object(_)))
}

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
    Containers(Keys).deserialize(&mut serde_json::Deserializer::from_slice(json))
}

/// Fails at a reserved key.
struct Keys;

impl<'de> ContainerVisitor<'de> for Keys {
    fn visit_list<A: SeqAccess<'de>>(self, mut access: A) -> Result<(), A::Error> {
        while access.next_element_seed(Containers(Self))?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<(), A::Error> {
        while let Some(key) = access.next_key::<String>()? {
            if key == RESERVED {
                return Err(A::Error::custom(format_args!("the key {key:?} is reserved")));
            }
            access.next_value_seed(Containers(Self))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_workspace_has_no_reserved_keys() {
        assert!(!has_reserved_keys(), "a dependency enables raw_value of serde_json");
        assert!(is_map("$serde_json::private::Number"), "a dependency enables arbitrary_precision of serde_json");
    }

    #[test]
    fn reserved_keys_are_found_in_any_spelling() {
        let check = |json: &str| find_reserved(json.as_bytes());
        check(r#"{"a":[1,-2,1.5,null,true,"$serde_json::private::RawValue"],"b":{"c":{}}}"#).expect("no reserved key");
        // With `arbitrary_precision`, every number is such a map.
        check(r#"{"$serde_json::private::Number":"1"}"#).expect("a number");
        for json in [
            r#"{"$serde_json::private::RawValue":"1"}"#,
            r#"[{"a":{"b":1,"\u0024serde_json::private::RawValue":"1"}}]"#,
        ] {
            let error = check(json).expect_err(json);
            assert!(error.to_string().contains("is reserved"), "{error}");
        }
        assert!(check(r#"{"a":"#).is_err());
    }
}
