//! Drivers of volumes, what they say of nodes, and volumes that are attached to nodes.

use super::Part;
use super::field::Field;
use flyball_core::Object;
use flyball_core::field::FieldError;
use flyball_core::names::dns_subdomain;
use std::collections::HashSet;

type Errors = Vec<FieldError>;

/// The shortest time for which a driver may have tokens, in seconds.
const SHORTEST: i64 = 600;

pub(super) fn driver(object: &Object, old: Option<&Object>, _: Part) -> Errors {
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

pub(super) fn node(object: &Object, _: Option<&Object>, _: Part) -> Errors {
    let root = Field::root(object);
    let spec = root.at("spec");
    let drivers = spec.at("drivers");
    let mut errors = Errors::new();
    let mut names = HashSet::new();
    for (driver, value) in drivers.items().zip(drivers.list()) {
        let (name, id, keys) = (driver.at("name"), driver.at("nodeID"), driver.at("topologyKeys"));
        errors.extend(name.must_be_set());
        errors.extend(id.must_be_set());
        errors.extend(driver.at("allocatable.count").not_negative());
        let mut seen = HashSet::new();
        let repeated = keys.list().iter().filter(|key| !seen.insert(*key));
        errors.extend(repeated.map(|key| driver.duplicate_of(key.clone())));
        if !name.is_empty() && !names.insert(&value["name"]) {
            errors.push(name.duplicate());
        }
    }
    errors
}

pub(super) fn attachment(object: &Object, old: Option<&Object>, part: Part) -> Errors {
    let mut errors = Errors::new();
    let root = Field::root(object);
    let spec = root.at("spec");
    if part == Part::Status {
        return errors;
    }
    if let Some(old) = old {
        let before = Field::root(old);
        errors.extend(spec.unchanged_from(&before.at("spec")));
        return errors;
    }
    let attacher = spec.at("attacher");
    errors.extend(attacher.must_obey(dns_subdomain));
    let node = spec.at("nodeName");
    errors.extend(dns_subdomain(node.text()).into_iter().map(|why| node.invalid_as(node.text(), why)));
    let source = spec.at("source");
    let (inline, volume) = (source.at("inlineVolumeSpec"), source.at("persistentVolumeName"));
    match (inline.is_set(), volume.given_text()) {
        (false, None) => {
            errors.push(source.required("must specify exactly one of inlineVolumeSpec and persistentVolumeName"))
        }
        (true, Some(_)) => {
            errors.push(source.required("must specify exactly one of inlineVolumeSpec and persistentVolumeName"))
        }
        (false, Some(name)) => {
            if name.is_empty() {
                errors.push(volume.required("must specify non empty persistentVolumeName"));
            }
            errors.extend(volume.obeys(dns_subdomain));
        }
        (true, None) => {}
    }
    errors
}
