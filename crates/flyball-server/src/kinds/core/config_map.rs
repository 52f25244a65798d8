//! Config maps: limited in size, and optionally immutable.

use super::GROUP;
use super::data::{self, MAX_SIZE};
use crate::kinds::field::{Errors, Field};
use crate::kinds::kind::{Checks, Kind};
use crate::kinds::printer::{Heading, Row, View};
use crate::kinds::subresource::Part;
use crate::kinds::usage;
use flyball_core::Object;
use flyball_core::field::FieldError;
use flyball_core::names::config_key;

pub(crate) static KIND: Kind = Kind::new(GROUP, "v1", "ConfigMap", "configmaps")
    .printed(COLUMNS, row)
    .checks(Checks::Whole)
    .quota_usage(usage::counted)
    .validate(validate)
    .short(&["cm"]);

const COLUMNS: &[Heading] = &[
    Heading::NAME,
    Heading::text(
        "Data",
        "Data contains the configuration data. Each key must consist of alphanumeric characters, '-', '_' or '.'. \
         Values with non-UTF-8 byte sequences must use the BinaryData field. The keys stored in Data must not \
         overlap with the keys in the BinaryData field, this is enforced during validation process.",
    ),
    Heading::AGE,
];

fn validate(object: &Object, old: Option<&Object>, _: Part) -> Errors {
    let root = Field::root(object);
    let mut errors = data::fixed(&root, old, &["data", "binaryData"]);
    let (texts, binary) = (root.at("data"), root.at("binaryData"));
    let mut size = 0;
    for (key, value) in texts.entries() {
        errors.extend(config_key(key).into_iter().map(|wrong| value.invalid_as(key, wrong)));
        if binary.value().get(key).is_some() {
            errors.push(value.invalid_as(key, "duplicate of key present in binaryData"));
        }
        size += value.text().len();
    }
    errors.extend(data::keys(&binary));
    size += binary.entries().map(|(_, value)| data::bytes(value.value()).len()).sum::<usize>();
    if size > MAX_SIZE {
        errors.push(FieldError::too_long("[]", MAX_SIZE as u64));
    }
    errors
}

fn row(view: &View<'_>) -> Row {
    Row::from([view.name(), (data::count(view.at("data")) + data::count(view.at("binaryData"))).into(), view.age()])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn check(new: Value, old: Option<Value>, expected: &[&str]) {
        let (new, old) = (Object::try_from(new).unwrap(), old.map(|old| Object::try_from(old).unwrap()));
        let errors: Vec<String> = validate(&new, old.as_ref(), Part::Whole).iter().map(ToString::to_string).collect();
        assert_eq!(errors, expected, "{new:?}");
    }

    #[test]
    fn immutable_config_maps_reject_changes() {
        let old = || Some(json!({"immutable": true, "data": {"a": "1"}}));
        check(json!({"immutable": true, "data": {"a": "1"}}), old(), &[]);
        check(
            json!({"data": {"a": "2"}}),
            old(),
            &[
                "immutable: Forbidden: field is immutable when `immutable` is set",
                "data: Forbidden: field is immutable when `immutable` is set",
            ],
        );
    }
}
