//! Slices, which are the published devices of a pool.

use super::GROUP;
use super::{Errors, by_name, capacity, list, name, set, taint};
use crate::kinds::field::Field;
use crate::kinds::fill::Fields;
use crate::kinds::kind::Kind;
use crate::kinds::printer::{Heading, Row, View};
use crate::kinds::rules::{affinity, text};
use crate::kinds::subresource::Part;
use flyball_core::field::{BadValue, go_quote};
use flyball_core::names::{dns_label, dns_subdomain};
use flyball_core::{Clock, Object};
use serde_json::Value;

pub(crate) static KIND: Kind = Kind::new(GROUP, "v1", "ResourceSlice", "resourceslices")
    .printed(COLUMNS, row)
    .prepare(prepare)
    .warn(warn)
    .validate(validate)
    .cluster()
    .generation()
    .deleted_as_object()
    .paths(&["spec.driver", "spec.nodeName"]);

const COLUMNS: &[Heading] = &[
    Heading::NAME,
    Heading::text(
        "Node",
        "NodeName identifies the node which provides the resources in this pool. A field selector can be used to \
         list only ResourceSlice objects belonging to a certain node.  This field can be used to limit access from \
         nodes to ResourceSlices with the same node name. It also indicates to autoscalers that adding new nodes of \
         the same type as some old node might also make new resources available.  Exactly one of NodeName, \
         NodeSelector, AllNodes, and PerDeviceNodeSelection must be set. This field is immutable.",
    ),
    Heading::text(
        "Driver",
        "Driver identifies the DRA driver providing the capacity information. A field selector can be used to list \
         only ResourceSlice objects with a certain driver name.  Must be a DNS subdomain and should end with a DNS \
         domain owned by the vendor of the driver. It should use only lower case characters. This field is \
         immutable.",
    ),
    Heading::text(
        "Pool",
        "Name is used to identify the pool. For node-local devices, this is often the node name, but this is not \
         required.  It must not be longer than 253 characters and must consist of one or more DNS sub-domains \
         separated by slashes. This field is immutable.",
    ),
    Heading::AGE,
];

const MAX_DEVICES: usize = 128;
/// Maximum number of devices if any of them has taints, counters or lists of values.
const MAX_ADVANCED_DEVICES: usize = 64;
const MAX_COUNTER_SETS: usize = 8;
const MAX_COUNTERS: usize = 32;
const MAX_CONSUMPTIONS: usize = 2;
const MAX_ATTRIBUTES: usize = 32;
const MAX_VALUE: usize = 64;
const MAX_TAINTS: usize = 16;

/// Fields of attributes that a feature gate of kube-apiserver drops.
const LISTS: [&str; 4] = ["bools", "ints", "strings", "versions"];

/// Drops fields of features that are disabled by default, and sets the times of taints.
fn prepare(slice: &mut Object, _: Option<&Object>, _: Part, clock: &Clock) {
    let Some(spec) = slice.inner("spec") else { return };
    for device in spec.each("devices") {
        device.remove("nodeAllocatableResourceMappings");
        device.each("taints").for_each(|taint| taint.fill("timeAdded", clock.now_rfc3339()));
        let attributes = device.inner("attributes").into_iter().flat_map(|all| all.values_mut());
        for attribute in attributes.filter_map(Value::as_object_mut) {
            LISTS.iter().for_each(|list| drop(attribute.remove(*list)));
        }
    }
}

fn warn(slice: &Object, _: Option<&Object>) -> Vec<String> {
    let driver = slice.at(&["spec", "driver"]).and_then(Value::as_str).unwrap_or_default();
    let capital = driver.to_lowercase() != driver;
    let driver = go_quote(driver);
    let warning = || format!("spec.driver: driver names should be lowercase; {driver} contains uppercase characters");
    capital.then(warning).into_iter().collect()
}

fn validate(object: &Object, old: Option<&Object>, _: Part) -> Errors {
    let root = Field::root(object);
    let spec = root.at("spec");
    let (driver, pool, counters) = (spec.at("driver"), spec.at("pool"), spec.at("sharedCounters"));
    let mut errors = text::csi_driver(&driver);
    errors.extend(self::pool(&pool));
    if let Some(old) = old {
        let before = Field::root(old);
        let before = before.at("spec");
        errors.extend(pool.at("name").unchanged_from(&before.at("pool").at("name")));
        errors.extend(driver.unchanged_from(&before.at("driver")));
        errors.extend(spec.at("nodeName").unchanged_from(&before.at("nodeName")));
    }
    errors.extend(nodes(&spec));
    let devices = spec.at("devices");
    if counters.is_set() && devices.is_set() {
        errors.push(spec.invalid_as("", "only one of `sharedCounters` or `devices` is allowed"));
    }
    let advanced = devices.list().iter().any(|device| {
        let some = |field: &str| device[field].as_array().is_some_and(|list| !list.is_empty());
        some("taints") || some("consumesCounters")
    });
    let max = if advanced { MAX_ADVANCED_DEVICES } else { MAX_DEVICES };
    let per_device = spec.at("perDeviceNodeSelection").flag();
    let before = old.and_then(|old| old.at(&["spec", "devices"])).and_then(Value::as_array);
    errors.extend(set(&devices, max, by_name, |device| {
        let before = before.and_then(|all| all.iter().find(|old| old["name"] == device.value()["name"]));
        self::device(device, before, per_device)
    }));
    errors.extend(set(&counters, MAX_COUNTER_SETS, by_name, |counters| counted(counters, "name")));
    errors
}

fn pool(pool: &Field<'_>) -> Errors {
    let (slices, generation) = (pool.at("resourceSliceCount"), pool.at("generation"));
    let mut errors = name::pool(&pool.at("name"));
    errors.extend(slices.positive());
    if generation.int() < 0 {
        errors.push(generation.invalid("must be greater than or equal to zero"));
    }
    errors
}

/// Formats mutually exclusive fields.
fn go_fields(fields: &[&str]) -> BadValue {
    let fields: Vec<String> = fields.iter().map(|field| format!("`{field}`")).collect();
    format!("{{{}}}", fields.join(", ")).into()
}

/// Requires a flag to be absent or true.
fn raised(flag: &Field<'_>) -> Errors {
    let lowered = flag.value() == &Value::Bool(false);
    lowered.then(|| flag.invalid("must be either unset or set to true")).into_iter().collect()
}

/// Validates the name of a node and the selector of nodes; returns the names of the fields that are set as well.
/// `empty` is the error of an empty name.
fn node_and_selector(of: &Field<'_>, empty: &str) -> (Errors, Vec<&'static str>) {
    let (node, selector) = (of.at("nodeName"), of.at("nodeSelector"));
    let (mut errors, mut placements) = (Errors::new(), Vec::new());
    match node.text_if_set() {
        Some("") => errors.push(node.invalid(empty)),
        Some(_) => {
            placements.push("nodeName");
            errors.extend(node.obeys(dns_subdomain));
        }
        None => {}
    }
    if selector.is_set() {
        placements.push("nodeSelector");
        errors.extend(affinity::node_selector(&selector, true));
    }
    (errors, placements)
}

/// Validates that exactly one field selects the nodes of the devices.
fn nodes(spec: &Field<'_>) -> Errors {
    const EXACTLY_ONE_NODE_FIELD: &str =
        "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
    let selector = spec.at("nodeSelector");
    let (mut errors, mut placements) = node_and_selector(spec, "must be either unset or set to a non-empty string");
    if selector.is_set() {
        let terms = selector.at("nodeSelectorTerms");
        if terms.len() != 1 {
            let label = selector.at_as("nodeSelectorTerms", "nodeSelectorTerms");
            errors.push(label.invalid("must have exactly one node selector term"));
        }
    }
    for flag in ["allNodes", "perDeviceNodeSelection"] {
        errors.extend(raised(&spec.at(flag)));
        placements.extend(spec.at(flag).flag().then_some(flag));
    }
    match placements.len() {
        0 => errors.push(spec.required(EXACTLY_ONE_NODE_FIELD)),
        1 => {}
        _ => errors.push(
            spec.invalid_as(go_fields(&placements), format!("{EXACTLY_ONE_NODE_FIELD}, but multiple fields are set")),
        ),
    }
    errors
}

/// Validates the nodes of a single device, if the slice delegates them to its devices.
fn nodes_of_device(device: &Field<'_>, per_device: bool) -> Errors {
    let (node, selector, all) = (device.at("nodeName"), device.at("nodeSelector"), device.at("allNodes"));
    if !per_device {
        const NOT_PER_DEVICE: &str = "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
        let is_placed = node.is_set() || selector.is_set() || all.is_set();
        return is_placed.then(|| device.invalid_as(Value::Null, NOT_PER_DEVICE)).into_iter().collect();
    }
    const EXACTLY_ONE_DEVICE_FIELD: &str = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
    let (mut errors, mut placements) = node_and_selector(device, "must not be empty");
    errors.extend(raised(&all));
    placements.extend(all.flag().then_some("allNodes"));
    match placements.len() {
        0 => errors.push(device.required(EXACTLY_ONE_DEVICE_FIELD)),
        1 => {}
        _ => errors.push(device.invalid_as(go_fields(&placements), EXACTLY_ONE_DEVICE_FIELD)),
    }
    errors
}

fn device(device: &Field<'_>, before: Option<&Value>, per_device: bool) -> Errors {
    let (attributes, capacities, taints) = (device.at("attributes"), device.at("capacity"), device.at("taints"));
    let mut errors = device.at("name").obeys(dns_label);
    let count = attributes.len() + capacities.len();
    if count > MAX_ATTRIBUTES {
        let why = format!("the total number of attributes and capacities must not exceed {MAX_ATTRIBUTES}");
        errors.push(device.invalid_as(count as u64, why));
    }
    errors.extend(name::entries(&attributes, attribute));
    // Unchanged stored values are valid.
    let stored = |field: &Field<'_>, key: &str| before.is_some_and(|before| before[key] == *field.value());
    if !stored(&capacities, "capacity") {
        let shared = device.at("allowMultipleAllocations").flag();
        errors.extend(name::entries(&capacities, |each| capacity::check(each, shared)));
    }
    if !stored(&taints, "taints") {
        errors.extend(list(&taints, MAX_TAINTS, taint::check));
    }
    let consumed = device.at("consumesCounters");
    let by_set = |each: &Field<'_>| each.at("counterSet").text().to_owned();
    errors.extend(set(&consumed, MAX_CONSUMPTIONS, by_set, |each| counted(each, "counterSet")));
    errors.extend(nodes_of_device(device, per_device));
    errors.extend(taint::binding_conditions(device));
    errors
}

/// Validates the counters of a named set.
fn counted(of: &Field<'_>, name: &str) -> Errors {
    let counters = of.at("counters");
    let mut errors = of.at(name).must_obey(dns_label);
    if counters.is_empty() {
        errors.push(counters.required(""));
    } else if counters.len() > MAX_COUNTERS {
        errors.push(counters.too_many(MAX_COUNTERS as u64));
    } else {
        for (key, _) in counters.entries() {
            errors.extend(dns_label(key).into_iter().map(|why| counters.invalid_as(key, why)));
        }
    }
    errors
}

fn attribute(attribute: &Field<'_>) -> Errors {
    let mut errors = Errors::new();
    for field in ["string", "version"] {
        let field = attribute.at(field);
        if field.text_if_set().is_some() && field.path().to_string().ends_with(".version") && !is_version(field.text())
        {
            errors.push(field.invalid("must be a string compatible with semver.org spec 2.0.0"));
        }
        if field.text().len() > MAX_VALUE {
            errors.push(field.too_long(MAX_VALUE as u64));
        }
    }
    const EXACTLY_ONE_VALUE: &str = "exactly one value must be specified";
    match ["bool", "int", "string", "version"].iter().filter(|field| attribute.at(field).is_set()).count() {
        0 => errors.push(attribute.invalid_as("", EXACTLY_ONE_VALUE)),
        1 => {}
        _ => errors.push(attribute.invalid(EXACTLY_ONE_VALUE)),
    }
    errors
}

/// Returns true if a string is a version according to <https://semver.org>.
fn is_version(text: &str) -> bool {
    let (rest, build) = text.split_once('+').map_or((text, None), |(rest, build)| (rest, Some(build)));
    let (core, before) = rest.split_once('-').map_or((rest, None), |(core, before)| (core, Some(before)));
    let number = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()) && (part == "0" || !part.starts_with('0'))
    };
    let word = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    core.split('.').count() == 3
        && core.split('.').all(number)
        && before.is_none_or(|before| before.split('.').all(|part| word(part) && (!digits(part) || number(part))))
        && build.is_none_or(|build| build.split('.').all(word))
}

fn row(view: &View<'_>) -> Row {
    let text = |path: &str| view.text(path).into();
    Row::from([view.name(), text("spec.nodeName"), text("spec.driver"), text("spec.pool.name"), view.age()])
}

#[cfg(test)]
mod tests {
    use super::is_version;

    #[test]
    fn versions_have_three_numbers() {
        for good in ["1.2.3", "0.0.0", "1.2.3-alpha.1", "1.2.3-0a", "1.2.3+build.007", "1.2.3-x-y+z-1"] {
            assert!(is_version(good), "{good}");
        }
        for bad in ["", "1", "1.2", "01.2.3", "1.2.3-01", "1.2.3-", "1.2.3+", "1.2.3-a..b", "v1.2.3", "1.2.3+a+b"] {
            assert!(!is_version(bad), "{bad}");
        }
    }
}
