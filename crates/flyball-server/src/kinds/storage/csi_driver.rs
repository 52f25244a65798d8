//! CSI drivers.

use super::GROUP;
use crate::kinds::field::{Errors, Field};
use crate::kinds::fill::Fields;
use crate::kinds::kind::{Kind, Part};
use crate::kinds::printer::{NONE, Row, UNSET, View, text};
use flyball_core::Object;
use flyball_core::field::FieldError;
use serde_json::{Value, json};
use std::collections::HashSet;

pub(super) static KIND: Kind = Kind::new(GROUP, "v1", "CSIDriver", "csidrivers")
    .printed(row)
    .default(default)
    .validate(validate)
    .cluster()
    .versioned_updates()
    .deleted_as_object();

fn default(driver: &mut Object) {
    let spec = driver.inner_or_new("spec");
    spec.fill("attachRequired", true);
    spec.fill("podInfoOnMount", false);
    spec.fill("storageCapacity", false);
    spec.fill("fsGroupPolicy", "ReadWriteOnceWithFSType");
    spec.fill("volumeLifecycleModes", json!(["Persistent"]));
    spec.fill("requiresRepublish", false);
    spec.fill("seLinuxMount", false);
}

/// The shortest time for which a driver may have tokens, in seconds.
const SHORTEST: i64 = 600;

fn validate(object: &Object, old: Option<&Object>, _: Part) -> Errors {
    let root = Field::root(object);
    let spec = root.at("spec");
    let mut errors = Errors::new();
    errors.extend(spec.at("fsGroupPolicy").may_be_one_of(&["File", "None", "ReadWriteOnceWithFSType"]));
    let modes = spec.at("volumeLifecycleModes");
    for mode in modes.texts().filter(|mode| !matches!(*mode, "Persistent" | "Ephemeral")) {
        errors.push(FieldError::not_supported(modes.path(), mode, ["Persistent", "Ephemeral"]));
    }
    let tokens = spec.at("tokenRequests");
    let mut audiences = HashSet::new();
    for (token, value) in tokens.items().zip(tokens.list()) {
        let (audience, seconds) = (token.at("audience"), token.at("expirationSeconds"));
        if !audiences.insert(&value["audience"]) {
            errors.push(audience.duplicate());
        }
        match seconds.given_int() {
            Some(given) if given < SHORTEST => {
                errors.push(seconds.invalid("may not specify a duration less than 10 minutes"));
            }
            Some(given) if given > 1 << 32 => {
                errors.push(seconds.invalid("may not specify a duration larger than 2^32 seconds"));
            }
            _ => {}
        }
    }
    let Some(old) = old else { return errors };
    let before = Field::root(old);
    for field in ["attachRequired", "volumeLifecycleModes"] {
        errors.extend(spec.at(field).unchanged_from(&before.at("spec").at(field)));
    }
    errors
}

fn row(view: &View<'_>) -> Row {
    let texts =
        |values: &[Value]| values.iter().filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>().join(",");
    let modes = texts(view.list("spec.volumeLifecycleModes"));
    let requests = view.at("spec.tokenRequests");
    let audiences: Vec<&str> =
        view.list("spec.tokenRequests").iter().map(|request| text(request, "audience")).collect();
    Row::from([
        view.name(),
        view.at("spec.attachRequired").as_bool().unwrap_or(true).into(),
        view.flag("spec.podInfoOnMount").into(),
        view.flag("spec.storageCapacity").into(),
        if requests.is_null() { UNSET.into() } else { audiences.join(",").into() },
        view.flag("spec.requiresRepublish").into(),
        if modes.is_empty() { NONE.into() } else { modes.into() },
        view.age(),
    ])
}
