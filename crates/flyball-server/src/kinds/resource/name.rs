//! Names of attributes, capacities, pools and shares.

use super::Errors;
use crate::kinds::field::Field;
use crate::kinds::rules::text;
use flyball_core::field::{FieldError, Path};
use flyball_core::names::{dns_subdomain, pattern_error};
use serde_json::Value;

const MAX_IDENTIFIER: usize = 32;
const MAX_POOL: usize = 253;

/// Maximum length of an attribute's key that errors contain completely: a domain, a slash and an identifier.
const MAX_SHOWN_KEY: usize = 63 + 1 + MAX_IDENTIFIER;

/// The field must be the name of a pool: DNS subdomains separated by slashes.
pub(super) fn pool(field: &Field<'_>) -> Errors {
    let name = field.text();
    if name.is_empty() {
        return vec![field.required("")];
    }
    let long = (name.len() > MAX_POOL).then(|| field.too_long(MAX_POOL as u64));
    let parts = name.split('/').flat_map(|part| dns_subdomain(part).into_iter().map(move |why| (part, why)));
    long.into_iter().chain(parts.map(|(part, why)| field.invalid_as(part, why))).collect()
}

/// Validates the name of an attribute or a capacity, with or without a domain.
pub(super) fn qualified(path: &Path<'_>, name: &str) -> Errors {
    let parts: Vec<&str> = name.split('/').collect();
    match parts[..] {
        [identifier] => c_identifier(path, identifier),
        [domain, identifier] => {
            let mut errors = match domain {
                "" => vec![FieldError::invalid(path, "", "the domain must not be empty")],
                domain => text::csi_driver(&Field::new(*path, &Value::from(domain))),
            };
            match identifier {
                "" => errors.push(FieldError::invalid(path, "", "the name must not be empty")),
                identifier => errors.extend(c_identifier(path, identifier)),
            }
            errors
        }
        _ => vec![FieldError::invalid(path, name, "must not contain more than one slash")],
    }
}

/// The field must be the name of an attribute with its domain.
pub(super) fn fully_qualified(field: &Field<'_>) -> Errors {
    let name = field.text();
    let mut errors = qualified(field.path(), name);
    if !name.contains('/') {
        const BARE: &str = "a fully qualified name must be a domain and a name separated by a slash";
        errors.push(field.invalid_as(name, BARE));
    }
    errors
}

fn c_identifier(path: &Path<'_>, text: &str) -> Errors {
    let bytes = text.as_bytes();
    let begins = bytes.first().is_some_and(|byte| byte.is_ascii_alphabetic() || *byte == b'_');
    let mut errors = Errors::new();
    if bytes.len() > MAX_IDENTIFIER {
        errors.push(FieldError::too_long(path, MAX_IDENTIFIER as u64));
    }
    if !begins || !bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_') {
        let what = "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters or '_'";
        let why = pattern_error(what, "[A-Za-z_][A-Za-z0-9_]*", &["my_name", "MY_NAME", "MyName"]);
        errors.push(FieldError::invalid(path, text, why));
    }
    errors
}

/// Validates the entries of a map of attributes or capacities; errors truncate long keys in the middle.
pub(super) fn entries(map: &Field<'_>, check: impl Fn(&Field<'_>) -> Errors) -> Errors {
    let mut errors = Errors::new();
    for (key, entry) in map.entries() {
        errors.extend(qualified(map.path(), key));
        let shown = shortened(key);
        errors.extend(check(&Field::new(map.path().key(&shown), entry.value())));
    }
    errors
}

fn shortened(key: &str) -> String {
    const DOTS: &str = "...";
    if key.len() <= MAX_SHOWN_KEY {
        return key.to_owned();
    }
    let remaining = MAX_SHOWN_KEY - DOTS.len();
    let head = &key.as_bytes()[..remaining.div_ceil(2)];
    let tail = &key.as_bytes()[key.len() - remaining / 2..];
    String::from_utf8_lossy(&[head, DOTS.as_bytes(), tail].concat()).into_owned()
}

/// The field must be a UUID in the format of Kubernetes.
pub(super) fn uid(field: &Field<'_>) -> Option<FieldError> {
    let text = field.text();
    let digits = match text.len() {
        36 => text,
        45 if text.get(..9).is_some_and(|urn| urn.eq_ignore_ascii_case("urn:uuid:")) => {
            text.get(9..).unwrap_or_default()
        }
        45 => {
            let prefix = flyball_core::field::go_quote(text.get(..9).unwrap_or_default());
            return Some(field.invalid(format!("error validating uid: invalid urn prefix: {prefix}")));
        }
        38 if text.starts_with('{') && text.ends_with('}') => text.get(1..37).unwrap_or_default(),
        38 => return Some(field.invalid("error validating uid: invalid bracketed UUID format")),
        32 => text,
        length => return Some(field.invalid(format!("error validating uid: invalid UUID length: {length}"))),
    };
    let is_dash = |at: usize| digits.len() == 36 && matches!(at, 8 | 13 | 18 | 23);
    let fits = |(at, byte): (usize, u8)| if is_dash(at) { byte == b'-' } else { byte.is_ascii_hexdigit() };
    if !digits.bytes().enumerate().all(fits) {
        return Some(field.invalid("error validating uid: invalid UUID format"));
    }
    let normal = text.len() == 36 && !text.bytes().any(|byte| byte.is_ascii_uppercase());
    (!normal).then(|| {
        field.invalid(
            "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase hexadecimal characters",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_an_optional_domain() {
        let messages = |name: &str| {
            let errors = qualified(&Path::new("a"), name);
            errors.into_iter().map(|error| error.to_string()).collect::<Vec<String>>().join("; ")
        };
        assert_eq!(messages("model"), "");
        assert_eq!(messages("Gpu.example.com/model_2"), "");
        assert_eq!(messages("/x"), "a: Invalid value: \"\": the domain must not be empty");
        assert_eq!(messages("example.com/"), "a: Invalid value: \"\": the name must not be empty");
        assert_eq!(messages("a/b/c"), "a: Invalid value: \"a/b/c\": must not contain more than one slash");
        assert!(messages("2x").starts_with("a: Invalid value: \"2x\": a valid C identifier must start with"));
        assert_eq!(messages(&"x".repeat(33)), "a: Too long: may not be more than 32 bytes");
    }

    #[test]
    fn long_keys_are_shortened_in_the_middle() {
        assert_eq!(shortened("a/b"), "a/b");
        let shown = shortened(&format!("{}{}", "a".repeat(60), "b".repeat(60)));
        assert_eq!((shown.len(), shown.contains("aaa...bbb")), (96, true));
    }

    #[test]
    fn uids_must_be_in_canonical_form() {
        let message = |uid: &str| {
            let value = Value::from(uid);
            super::uid(&Field::new(Path::new("u"), &value)).map(|error| error.detail).unwrap_or_default()
        };
        assert_eq!(message("6ba7b810-9dad-11d1-80b4-00c04fd430c8"), "");
        assert_eq!(message("x"), "error validating uid: invalid UUID length: 1");
        assert_eq!(message("6ba7b810-9dad-11d1-80b4-00c04fd430cz"), "error validating uid: invalid UUID format");
        assert!(message("6BA7B810-9dad-11d1-80b4-00c04fd430c8").starts_with("uid must be in RFC 4122 normalized form"));
    }
}
