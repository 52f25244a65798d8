//! Secrets, with rules for their types and for immutable secrets.

use super::GROUP;
use super::data::{self, MAX_SIZE};
use crate::kinds::field::{Errors, Field};
use crate::kinds::fill::Fields;
use crate::kinds::kind::{Checks, Kind};
use crate::kinds::printer::{Heading, Row, View};
use crate::kinds::subresource::Part;
use crate::kinds::usage;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flyball_core::Object;
use flyball_core::field::FieldError;
use serde_json::Value;

pub(crate) static KIND: Kind = Kind::new(GROUP, "v1", "Secret", "secrets")
    .printed(COLUMNS, row)
    .default(default)
    .quota_usage(usage::counted)
    .warn(warn)
    .checks(Checks::Whole)
    .validate(validate)
    .paths(&["type"]);

const COLUMNS: &[Heading] = &[
    Heading::NAME,
    Heading::text(
        "Type",
        "Used to facilitate programmatic handling of secret data. More info: \
         https://kubernetes.io/docs/concepts/configuration/secret/#secret-types",
    ),
    Heading::text(
        "Data",
        "Data contains the secret data. Each key must consist of alphanumeric characters, '-', '_' or '.'. The \
         serialized form of the secret data is a base64 encoded string, representing the arbitrary (possibly \
         non-string) data value here. Described in https://tools.ietf.org/html/rfc4648#section-4",
    ),
    Heading::AGE,
];

fn default(secret: &mut Object) {
    // `stringData` is merged into `data` and overrides it.
    if let Some(Value::Object(texts)) = secret.remove("stringData") {
        let data = secret.inner_or_new("data");
        for (key, text) in texts {
            data.insert(key, STANDARD.encode(text.as_str().unwrap_or_default()).into());
        }
    }
    secret.fill("type", "Opaque");
}

/// Required keys of secrets of some types.
const TYPES: &[(&str, &[&str])] = &[
    ("kubernetes.io/dockercfg", &[".dockercfg"]),
    ("kubernetes.io/dockerconfigjson", &[".dockerconfigjson"]),
    ("kubernetes.io/ssh-auth", &["ssh-privatekey"]),
    ("kubernetes.io/tls", &["tls.crt", "tls.key"]),
];

pub(super) fn validate(object: &Object, old: Option<&Object>, _: Part) -> Errors {
    let root = Field::root(object);
    let (ty, data) = (root.at("type"), root.at("data"));
    let mut errors = Errors::new();
    if let Some(old) = old {
        let before = Field::root(old);
        errors.extend(ty.unchanged_from(&before.at("type")));
    }
    errors.extend(data::fixed(&root, old, &["data"]));
    errors.extend(data::keys(&data));
    if data.entries().map(|(_, value)| data::bytes(value.value()).len()).sum::<usize>() > MAX_SIZE {
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
            let required_keys = ["username", "password"].map(|key| data.key(key));
            if !required_keys.iter().any(Field::is_set) {
                errors.extend(required_keys.iter().map(|key| key.required("")));
            }
        }
        other => {
            let required_keys = TYPES.iter().find(|(ty, _)| *ty == other).map_or(&[][..], |(_, keys)| keys);
            for key in required_keys.iter().map(|key| data.key(key)) {
                let empty = other == "kubernetes.io/ssh-auth" && key.is_empty();
                if !key.is_set() || empty {
                    errors.push(key.required(""));
                } else if other.starts_with("kubernetes.io/docker")
                    && let Some(why) = wrong_json(&data::bytes(key.value()))
                {
                    errors.push(key.invalid_as("<secret contents redacted>", why));
                }
            }
        }
    }
    errors
}

/// Returns the error of Go's parser for a string that is not a JSON object.
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

/// Warns about a certificate and key that are not PEM, with Go's message.
fn warn(object: &Object, _: Option<&Object>) -> Vec<String> {
    if object.get("type") != Some(&"kubernetes.io/tls".into()) {
        return Vec::new();
    }
    let is_pem = |key: &str| {
        data::bytes(object.at(&["data", key]).unwrap_or(&Value::Null))
            .windows(BEGIN.len())
            .any(|window| window == BEGIN)
    };
    let bad = [("tls.crt", "certificate"), ("tls.key", "key")].into_iter().find(|(key, _)| !is_pem(key));
    bad.map(|(_, what)| format!("tls: failed to find any PEM data in {what} input")).into_iter().collect()
}

const BEGIN: &[u8] = b"-----BEGIN ";

fn row(view: &View<'_>) -> Row {
    Row::from([view.name(), view.text("type").into(), data::count(view.at("data")).into(), view.age()])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(new: Value, old: Option<Value>, expected: &[&str]) {
        let (new, old) = (Object::try_from(new).unwrap(), old.map(|old| Object::try_from(old).unwrap()));
        let errors: Vec<String> = validate(&new, old.as_ref(), Part::Whole).iter().map(ToString::to_string).collect();
        assert_eq!(errors, expected, "{new:?}");
    }

    #[test]
    fn secrets_require_the_data_of_their_type() {
        check(json!({"type": "Opaque"}), None, &[]);
        check(
            json!({"type": "kubernetes.io/tls", "data": {"tls.crt": "YQ=="}}),
            None,
            &["data[tls.key]: Required value"],
        );
        check(
            json!({"type": "kubernetes.io/dockercfg", "data": {".dockercfg": "YQ=="}}),
            None,
            &[
                "data[.dockercfg]: Invalid value: \"<secret contents redacted>\": invalid character 'a' looking for beginning of value",
            ],
        );
        check(json!({"type": "b"}), Some(json!({"type": "a"})), &["type: Invalid value: \"b\": field is immutable"]);
    }
}
