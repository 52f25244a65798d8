//! Configuration and secrets.

use super::Part;
use super::field::Field;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flyball_core::Object;
use flyball_core::field::FieldError;
use flyball_core::names::config_key;
use serde_json::Value;

type Errors = Vec<FieldError>;

const MAX_SIZE: usize = 1024 * 1024;
const FIXED: &str = "field is immutable when `immutable` is set";

/// Reads bytes as they stand in JSON.
fn bytes(value: &Value) -> Vec<u8> {
    STANDARD.decode(value.as_str().unwrap_or_default()).unwrap_or_default()
}

fn keys(data: &Field<'_>) -> Errors {
    let wrong = |(key, field): (&str, Field<'_>)| {
        config_key(key).into_iter().map(|wrong| field.invalid_as(key, wrong)).collect::<Errors>()
    };
    data.entries().flat_map(wrong).collect()
}

/// Rejects a change of immutable data, and of the declaration that it is.
fn fixed(root: &Field<'_>, old: Option<&Object>, fields: &[&str]) -> Errors {
    let Some(old) = old.filter(|old| old.get("immutable") == Some(&Value::Bool(true))) else { return Errors::new() };
    let mut errors = Errors::new();
    if !root.at("immutable").flag() {
        errors.push(root.at("immutable").forbidden(FIXED));
    }
    for field in fields.iter().filter(|field| root.value().get(**field) != old.get(**field)) {
        errors.push(root.at(field).forbidden(FIXED));
    }
    errors
}

pub(super) fn config_map(object: &Object, old: Option<&Object>, _: Part) -> Errors {
    let root = Field::root(object);
    let mut errors = fixed(&root, old, &["data", "binaryData"]);
    let (texts, binary) = (root.at("data"), root.at("binaryData"));
    let mut size = 0;
    for (key, value) in texts.entries() {
        errors.extend(config_key(key).into_iter().map(|wrong| value.invalid_as(key, wrong)));
        if binary.value().get(key).is_some() {
            errors.push(value.invalid_as(key, "duplicate of key present in binaryData"));
        }
        size += value.text().len();
    }
    errors.extend(keys(&binary));
    size += binary.entries().map(|(_, value)| bytes(value.value()).len()).sum::<usize>();
    if size > MAX_SIZE {
        errors.push(FieldError::too_long("[]", MAX_SIZE as u64));
    }
    errors
}

/// The keys that secrets of some types must have.
const TYPES: &[(&str, &[&str])] = &[
    ("kubernetes.io/dockercfg", &[".dockercfg"]),
    ("kubernetes.io/dockerconfigjson", &[".dockerconfigjson"]),
    ("kubernetes.io/ssh-auth", &["ssh-privatekey"]),
    ("kubernetes.io/tls", &["tls.crt", "tls.key"]),
];

pub(super) fn secret(object: &Object, old: Option<&Object>, _: Part) -> Errors {
    let root = Field::root(object);
    let (ty, data) = (root.at("type"), root.at("data"));
    let mut errors = Errors::new();
    if let Some(old) = old {
        let before = Field::root(old);
        errors.extend(ty.unchanged_from(&before.at("type")));
    }
    errors.extend(fixed(&root, old, &["data"]));
    errors.extend(keys(&data));
    if data.entries().map(|(_, value)| bytes(value.value()).len()).sum::<usize>() > MAX_SIZE {
        errors.push(data.too_long(MAX_SIZE as u64));
    }
    match ty.text() {
        "kubernetes.io/service-account-token" => {
            const NAME: &str = "kubernetes.io/service-account.name";
            if object.annotation(NAME).unwrap_or_default().is_empty() {
                errors.push(FieldError::required(format!("metadata.annotations[{NAME}]"), ""));
            }
        }
        "kubernetes.io/basic-auth" => {
            let wanted = ["username", "password"].map(|key| data.key(key));
            if !wanted.iter().any(Field::is_set) {
                errors.extend(wanted.iter().map(|key| key.required("")));
            }
        }
        other => {
            let wanted = TYPES.iter().find(|(ty, _)| *ty == other).map_or(&[][..], |(_, keys)| keys);
            for key in wanted.iter().map(|key| data.key(key)) {
                let empty = other == "kubernetes.io/ssh-auth" && key.is_empty();
                if !key.is_set() || empty {
                    errors.push(key.required(""));
                } else if other.starts_with("kubernetes.io/docker")
                    && let Some(why) = wrong_json(&bytes(key.value()))
                {
                    errors.push(key.invalid_as("<secret contents redacted>", why));
                }
            }
        }
    }
    errors
}

/// Says what Go's parser finds wrong with what should be a JSON object.
fn wrong_json(text: &[u8]) -> Option<String> {
    match serde_json::from_slice::<Value>(text) {
        Ok(Value::Object(_) | Value::Null) => None,
        Ok(other) => {
            let kind = match other {
                Value::Array(_) => "array",
                Value::String(_) => "string",
                Value::Bool(_) => "bool",
                _ => "number",
            };
            Some(format!("json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}"))
        }
        Err(_) => Some(crate::request::syntax::json_error(text)),
    }
}

/// Says what Go finds wrong with a certificate and its key that are no PEM.
pub(super) fn warn_of_secret(object: &Object, _: Option<&Object>) -> Vec<String> {
    if object.get("type") != Some(&"kubernetes.io/tls".into()) {
        return Vec::new();
    }
    let is_pem = |key: &str| {
        bytes(object.at(&["data", key]).unwrap_or(&Value::Null)).windows(BEGIN.len()).any(|window| window == BEGIN)
    };
    let bad = [("tls.crt", "certificate"), ("tls.key", "key")].into_iter().find(|(key, _)| !is_pem(key));
    bad.map(|(_, what)| format!("tls: failed to find any PEM data in {what} input")).into_iter().collect()
}

const BEGIN: &[u8] = b"-----BEGIN ";

/// Says what a service account that names secrets leads to believe.
pub(super) fn warn_of_account(object: &Object, old: Option<&Object>) -> Vec<String> {
    const ENFORCED: &str = "kubernetes.io/enforce-mountable-secrets";
    let set = |object: &Object| object.annotation(ENFORCED).is_some();
    let new = set(object) && !old.is_some_and(set);
    let warning = "metadata.annotations[kubernetes.io/enforce-mountable-secrets]: deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets";
    new.then(|| warning.to_owned()).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(rule: fn(&Object, Option<&Object>, Part) -> Errors, new: Value, old: Option<Value>, expected: &[&str]) {
        let (new, old) = (Object::try_from(new).unwrap(), old.map(|old| Object::try_from(old).unwrap()));
        let errors: Vec<String> = rule(&new, old.as_ref(), Part::Whole).iter().map(ToString::to_string).collect();
        assert_eq!(errors, expected, "{new:?}");
    }

    #[test]
    fn what_is_fixed_stays() {
        let old = || Some(json!({"immutable": true, "data": {"a": "1"}}));
        check(config_map, json!({"immutable": true, "data": {"a": "1"}}), old(), &[]);
        check(
            config_map,
            json!({"data": {"a": "2"}}),
            old(),
            &[
                "immutable: Forbidden: field is immutable when `immutable` is set",
                "data: Forbidden: field is immutable when `immutable` is set",
            ],
        );
    }

    #[test]
    fn secrets_hold_what_their_type_says() {
        check(secret, json!({"type": "Opaque"}), None, &[]);
        check(
            secret,
            json!({"type": "kubernetes.io/tls", "data": {"tls.crt": "YQ=="}}),
            None,
            &["data[tls.key]: Required value"],
        );
        check(
            secret,
            json!({"type": "kubernetes.io/dockercfg", "data": {".dockercfg": "YQ=="}}),
            None,
            &[
                "data[.dockercfg]: Invalid value: \"<secret contents redacted>\": invalid character 'a' looking for beginning of value",
            ],
        );
        check(
            secret,
            json!({"type": "b"}),
            Some(json!({"type": "a"})),
            &["type: Invalid value: \"b\": field is immutable"],
        );
    }
}
