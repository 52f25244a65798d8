//! Mounts of the volumes of a pod in its containers.

use super::super::field::Field;
use super::super::rules::path;
use super::surroundings::PodContext;
use flyball_core::field::FieldError;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

type Errors = Vec<FieldError>;

pub(super) fn mounts(container: &Field<'_>, around: &PodContext<'_>) -> Errors {
    let mut errors = Errors::new();
    let mut taken: BTreeSet<String> = BTreeSet::new();
    let (mounts, devices) = (container.at("volumeMounts"), container.at("volumeDevices"));
    let device_paths = last_paths(&devices, "devicePath");
    let device_names = names(devices.list());
    for mount in mounts.items() {
        let (name, at) = (mount.at("name"), mount.at("mountPath"));
        errors.extend(name.must_be_set());
        if !around.volumes.contains_key(name.text()) {
            errors.push(name.not_found());
        }
        errors.extend(at.must_be_set());
        if !taken.insert(at.text().to_owned()) {
            errors.push(at.invalid_as(at.text(), "must be unique"));
        }
        if device_names.contains(name.text()) {
            errors.push(name.invalid("must not already exist in volumeDevices"));
        }
        if device_paths.contains(at.text()) {
            errors.push(at.invalid("must not already exist as a path in volumeDevices"));
        }
        let (sub, expression) = (mount.at("subPath"), mount.at("subPathExpr"));
        let shown = |field: &str, value| path::descending(&Field::new(*mounts.at(field).path(), value));
        if !sub.is_empty() {
            errors.extend(shown("subPath", sub.value()));
        }
        if !expression.is_empty() {
            if !sub.is_empty() {
                errors.push(expression.invalid("subPathExpr and subPath are mutually exclusive"));
            }
            errors.extend(shown("subPathExpr", expression.value()));
        }
        let propagation = mount.at("mountPropagation");
        if propagation.is_set() {
            let field = mounts.at("mountPropagation");
            let field = Field::new(*field.path(), propagation.value());
            errors.extend(field.must_be_in(&["Bidirectional", "HostToContainer", "None"]));
            if propagation.text() == "Bidirectional" && !container.at("securityContext.privileged").flag() {
                errors.push(
                    field.forbidden("Bidirectional mount propagation is available only to privileged containers"),
                );
            }
        }
        errors.extend(recursive_read_only(&mounts, &mount));
    }
    errors
}

/// Returns the names of the items of a list.
fn names<'a>(list: impl IntoIterator<Item = &'a Value>) -> BTreeSet<&'a str> {
    list.into_iter().filter_map(|item| item["name"].as_str()).collect()
}

/// Returns the mount path of each volume; if there are several, the last one.
fn last_paths<'a>(list: &Field<'a>, path: &str) -> BTreeSet<&'a str> {
    let last: BTreeMap<Option<&str>, &Value> = list.list().iter().map(|item| (item["name"].as_str(), item)).collect();
    last.into_values().filter_map(|item| item[path].as_str()).collect()
}

fn recursive_read_only(mounts: &Field<'_>, mount: &Field<'_>) -> Errors {
    // kube-apiserver omits the index.
    let placed = mounts.at("recursiveReadOnly");
    let given = mount.at("recursiveReadOnly");
    let policy = Field::new(*placed.path(), given.value());
    let mut errors = Errors::new();
    match policy.text() {
        _ if !policy.is_set() => {}
        "Disabled" => {}
        "Enabled" | "IfPossible" => {
            if !mount.at("readOnly").flag() {
                errors.push(policy.forbidden("may only be specified when readOnly is true"));
            }
            if !matches!(mount.at("mountPropagation").text(), "" | "None") {
                errors.push(policy.forbidden("may only be specified when mountPropagation is None or not specified"));
            }
        }
        _ => errors.push(policy.not_supported(&["Disabled", "IfPossible", "Enabled"])),
    }
    errors
}

pub(super) fn devices(container: &Field<'_>, around: &PodContext<'_>) -> Errors {
    let mut errors = Errors::new();
    let mounts = container.at("volumeMounts");
    let (mut taken, mut paths): (BTreeSet<String>, BTreeSet<String>) = Default::default();
    let mount_paths = last_paths(&mounts, "mountPath");
    let mount_names = names(mounts.list());
    for device in container.at("volumeDevices").items() {
        let (name, at) = (device.at("name"), device.at("devicePath"));
        errors.extend(name.must_be_set());
        if taken.contains(name.text()) {
            errors.push(name.invalid_as(name.text(), "must be unique"));
        }
        match around.volumes.get(name.text()) {
            None => errors.push(name.not_found()),
            Some(volume) if volume["persistentVolumeClaim"].is_object() || volume["ephemeral"].is_object() => {}
            Some(_) => errors.push(
                name.invalid("can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"),
            ),
        }
        errors.extend(at.must_be_set());
        if paths.contains(at.text()) {
            errors.push(at.invalid_as(at.text(), "must be unique"));
        }
        if path::climbs(at.text()) {
            errors.push(at.invalid("can not contain backsteps ('..')"));
        } else {
            paths.insert(at.text().to_owned());
        }
        if mount_names.contains(name.text()) {
            errors.push(name.invalid("must not already exist in volumeMounts"));
        }
        if mount_paths.contains(at.text()) {
            errors.push(at.invalid("must not already exist as a path in volumeMounts"));
        }
        if !name.is_empty() {
            taken.insert(name.text().to_owned());
        }
    }
    errors
}
