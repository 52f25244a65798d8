//! The status of a claim: its devices, their users, and the reports of drivers.

use super::configuration::{self, MAX_CONFIGURATIONS, RequestNames};
use super::{Errors, MAX_REQUESTS, by_text, condition, list, name, set, taint};
use crate::kinds::field::{Field, IMMUTABLE};
use crate::kinds::fill::Fields;
use crate::kinds::rules::{address, affinity, text};
use flyball_core::Object;
use flyball_core::field::BadValue;
use flyball_core::names::dns_label;
use serde_json::Value;
use std::collections::BTreeSet;

const MAX_CONSUMERS: usize = 256;
const MAX_CONDITIONS: usize = 8;
const MAX_DATA: usize = 10 * 1024;
const MAX_ADDRESSES: usize = 16;
const MAX_INTERFACE: usize = 256;
const MAX_HARDWARE_ADDRESS: usize = 128;

/// Returns the unique name of a device.
fn id(of: &Value, parts: &[&str]) -> String {
    let parts = parts.iter().map(|part| of[*part].as_str().unwrap_or_default());
    parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/")
}

const DEVICE: &[&str] = &["driver", "pool", "device"];
const SHARE: &[&str] = &["driver", "pool", "device", "shareID"];

fn allocated(claim: &Object, parts: &[&str]) -> BTreeSet<String> {
    let results = claim.at(&["status", "allocation", "devices", "results"]).and_then(Value::as_array);
    results.into_iter().flatten().map(|result| id(result, parts)).collect()
}

/// Removes the status of devices that a write deallocates.
pub(super) fn reset_deallocated(claim: &mut Object, old: &Object) {
    let allocated_devices = allocated(claim, DEVICE);
    let deallocated: BTreeSet<String> = allocated(old, DEVICE).difference(&allocated_devices).cloned().collect();
    let Some(status) = claim.inner("status") else { return };
    let Some(devices) = status.get_mut("devices").and_then(Value::as_array_mut) else { return };
    devices.retain(|device| !deallocated.contains(&id(device, DEVICE)));
    if devices.is_empty() {
        status.remove("devices");
    }
}

pub(super) fn validate(claim: &Object, old: &Object) -> Errors {
    let (root, before) = (Field::root(claim), Field::root(old));
    let (status, before) = (root.at("status"), before.at("status"));
    let (consumers, allocation) = (status.at("reservedFor"), status.at("allocation"));
    let spec = root.at("spec");
    let devices = spec.at("devices");
    let names = RequestNames::of(devices.value());
    let mut errors = set(&consumers, MAX_CONSUMERS, |each| each.at("uid").text().to_owned(), consumer);
    let known = allocated(claim, SHARE);
    errors.extend(set(&status.at("devices"), usize::MAX, |each| id(each.value(), SHARE), |each| device(each, &known)));
    if !consumers.is_empty() {
        let before = before.at("reservedFor");
        if !allocation.is_set() {
            errors.push(consumers.forbidden("may not be specified when `allocated` is not set"));
        } else if claim.deletion_timestamp().is_some()
            && consumers.list().iter().any(|each| !before.list().contains(each))
        {
            const DELETED: &str =
                "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set";
            errors.push(consumers.forbidden(DELETED));
        }
    }
    let before = before.at("allocation");
    match (allocation.is_set(), before.is_set()) {
        (true, true) if allocation.value() != before.value() => errors.push(allocation.invalid(IMMUTABLE)),
        (true, false) => errors.extend(result(&allocation, &names)),
        _ => {}
    }
    errors
}

fn consumer(consumer: &Field<'_>) -> Errors {
    ["resource", "name", "uid"].into_iter().filter_map(|field| consumer.at(field).must_be_set()).collect()
}

fn result(allocation: &Field<'_>, names: &RequestNames<'_>) -> Errors {
    let (devices, nodes) = (allocation.at("devices"), allocation.at("nodeSelector"));
    let mut errors = list(&devices.at("results"), MAX_REQUESTS, |result| allocated_device(result, names));
    errors.extend(list(&devices.at("config"), 2 * MAX_CONFIGURATIONS, |config| {
        let mut errors: Errors = config.at("source").must_be_one_of(&["FromClaim", "FromClass"]).into_iter().collect();
        errors.extend(names.check_all(&config.at("requests")));
        errors.extend(configuration::check(config, false));
        errors
    }));
    if nodes.is_set() {
        errors.extend(affinity::node_selector(&nodes, true));
    }
    errors
}

fn allocated_device(result: &Field<'_>, names: &RequestNames<'_>) -> Errors {
    let share = result.at("shareID");
    let mut errors = names.check(&result.at("request"));
    errors.extend(text::csi_driver(&result.at("driver")));
    errors.extend(name::pool(&result.at("pool")));
    errors.extend(result.at("device").obeys(dns_label));
    errors.extend(taint::binding_conditions(result));
    errors.extend(taint::tolerations(&result.at("tolerations")));
    if share.is_set() {
        errors.extend(name::uid(&share));
    }
    errors
}

fn device(device: &Field<'_>, allocated: &BTreeSet<String>) -> Errors {
    let (share, conditions, data) = (device.at("shareID"), device.at("conditions"), device.at("data"));
    let mut errors = text::csi_driver(&device.at("driver"));
    errors.extend(name::pool(&device.at("pool")));
    errors.extend(device.at("device").obeys(dns_label));
    if share.is_set() {
        errors.extend(name::uid(&share));
    }
    let id = id(device.value(), SHARE);
    if !allocated.contains(&id) {
        errors.push(device.invalid_as(BadValue::Raw(id), "must be an allocated device in the claim"));
    }
    if conditions.len() > MAX_CONDITIONS {
        errors.push(conditions.too_many(MAX_CONDITIONS as u64));
    }
    errors.extend(condition::check(&conditions));
    if data.is_set() {
        errors.extend(configuration::object(&data, MAX_DATA));
    }
    errors.extend(network(&device.at("networkData")));
    errors
}

fn network(data: &Field<'_>) -> Errors {
    let mut errors = Errors::new();
    for (field, max) in [("interfaceName", MAX_INTERFACE), ("hardwareAddress", MAX_HARDWARE_ADDRESS)] {
        let field = data.at(field);
        if field.text().len() > max {
            errors.push(field.too_long(max as u64));
        }
    }
    errors.extend(set(&data.at("ips"), MAX_ADDRESSES, by_text, interface_address));
    errors
}

/// Validates the address of an interface: in canonical form, with the prefix length of its network.
fn interface_address(field: &Field<'_>) -> Errors {
    const INVALID_ADDRESS: &str = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)";
    let text = field.text();
    let parsed = text.split_once('/').and_then(|(address, prefix)| {
        let length: u8 = prefix.parse().ok()?;
        let address = address::parse(address)?;
        (length <= if address.is_ipv4() { 32 } else { 128 }).then_some((address, length))
    });
    let Some((parsed, length)) = parsed else { return vec![field.invalid(INVALID_ADDRESS)] };
    let canonical = format!("{}/{length}", address::canonical(parsed));
    if canonical == text {
        Errors::new()
    } else {
        vec![field.invalid(format!("must be in canonical form (\"{canonical}\")"))]
    }
}
