//! Claims of devices: requests and allocations.

use super::GROUP;
use super::configuration::{self, MAX_CONFIGURATIONS, RequestNames};
use super::{Errors, MAX_REQUESTS, allocation, by_name, list, name, selector, set, taint};
use crate::kinds::display::internal;
use crate::kinds::field::{Field, IMMUTABLE};
use crate::kinds::fill::Fields;
use crate::kinds::kind::{Checks, Kind};
use crate::kinds::printer::{Heading, Row, View};
use crate::kinds::subresource::{Part, Subresource as Sub};
use flyball_core::names::{dns_label, dns_subdomain};
use flyball_core::{Clock, Object};
use serde_json::{Map, Value};

pub(crate) static KIND: Kind = Kind::new(GROUP, "v1", "ResourceClaim", "resourceclaims")
    .printed(COLUMNS, row)
    .default(default)
    .prepare(prepare)
    .checks(Checks::Whole)
    .validate(validate)
    .deleted_as_object()
    .subresources(&[Sub::STATUS]);

const COLUMNS: &[Heading] = &[
    Heading::NAME,
    Heading::text("State", "A summary of the current state (allocated, pending, reserved, etc.)."),
    Heading::AGE,
];

const MAX_CONSTRAINTS: usize = 32;
const MAX_ALTERNATIVES: usize = 8;

fn default(claim: &mut Object) {
    if let Some(spec) = claim.inner("spec") {
        default_spec(spec);
    }
}

pub(super) fn default_spec(spec: &mut Map<String, Value>) {
    let Some(devices) = spec.inner("devices") else { return };
    for request in devices.each("requests") {
        if let Some(exactly) = request.inner("exactly") {
            default_request(exactly);
        }
        request.each("firstAvailable").for_each(default_request);
    }
}

fn default_request(request: &mut Map<String, Value>) {
    request.fill("allocationMode", "ExactCount");
    let none = request.get("count").and_then(Value::as_i64).unwrap_or_default() == 0;
    if none && request.text("allocationMode") == "ExactCount" {
        request.set("count", 1);
    }
}

/// Removes the status of devices together with their allocation.
fn prepare(claim: &mut Object, old: Option<&Object>, part: Part, _: &Clock) {
    if let (Part::Status, Some(old)) = (part, old) {
        allocation::reset_deallocated(claim, old);
    }
}

fn validate(object: &Object, old: Option<&Object>, part: Part) -> Errors {
    let root = Field::root(object);
    let spec = root.at("spec");
    match old {
        Some(old) if part == Part::Status => allocation::validate(object, old),
        Some(old) if old.get("spec") == object.get("spec") => Errors::new(),
        Some(_) => vec![spec.invalid_as(internal("ResourceClaimSpec", spec.value()), IMMUTABLE)],
        None => self::spec(&spec),
    }
}

/// Validates the requests of a new claim.
pub(super) fn spec(spec: &Field<'_>) -> Errors {
    let devices = spec.at("devices");
    let names = RequestNames::of(devices.value());
    let mut errors = set(&devices.at("requests"), MAX_REQUESTS, by_name, request);
    errors.extend(list(&devices.at("constraints"), MAX_CONSTRAINTS, |each| constraint(each, &names)));
    errors.extend(list(&devices.at("config"), MAX_CONFIGURATIONS, |config| {
        let mut errors = names.check_all(&config.at("requests"));
        errors.extend(configuration::check(config, false));
        errors
    }));
    errors
}

fn request(request: &Field<'_>) -> Errors {
    let (exactly, alternatives) = (request.at("exactly"), request.at("firstAvailable"));
    let mut errors = request.at("name").obeys(dns_label);
    match (exactly.is_set(), !alternatives.is_empty()) {
        (false, false) => {
            errors.push(request.required("exactly one of `exactly` or `firstAvailable` is required"));
        }
        (true, true) => {
            const BOTH: &str = "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set";
            errors.push(request.invalid_as(Value::Null, BOTH));
        }
        (true, false) => errors.extend(device_request(&exactly)),
        (false, true) => errors.extend(set(&alternatives, MAX_ALTERNATIVES, by_name, |alternative| {
            let mut errors = alternative.at("name").obeys(dns_label);
            errors.extend(device_request(alternative));
            errors
        })),
    }
    errors
}

/// Validates the common fields of a request and its alternatives.
fn device_request(request: &Field<'_>) -> Errors {
    let (mode, count) = (request.at("allocationMode"), request.at("count"));
    let mut errors = request.at("deviceClassName").must_obey(dns_subdomain);
    errors.extend(selector::check(&request.at("selectors"), false));
    match mode.text() {
        "All" if count.int() != 0 => {
            errors.push(count.invalid("must not be specified when allocationMode is 'All'"));
        }
        "All" => {}
        "ExactCount" => errors.extend(count.positive()),
        _ => errors.push(mode.not_supported(&["All", "ExactCount"])),
    }
    errors.extend(taint::tolerations(&request.at("tolerations")));
    errors
}

fn constraint(constraint: &Field<'_>, names: &RequestNames<'_>) -> Errors {
    let (same, distinct) = (constraint.at("matchAttribute"), constraint.at("distinctAttribute"));
    let mut errors = names.check_all(&constraint.at("requests"));
    if same.is_set() {
        errors.extend(name::fully_qualified(&same));
    } else if distinct.is_set() {
        errors.extend(name::fully_qualified(&distinct));
    } else {
        // The message is that of kube-apiserver, although no field is set.
        const NONE: &str =
            r#"exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set"#;
        errors.push(constraint.required(NONE));
    }
    errors
}

fn row(view: &View<'_>) -> Row {
    let allocated = view.at("status.allocation").is_object();
    let states = [
        (view.is_deleted(), "deleted"),
        (!allocated && !view.is_deleted(), "pending"),
        (allocated, "allocated"),
        (allocated && !view.list("status.reservedFor").is_empty(), "reserved"),
    ];
    let states: Vec<&str> = states.iter().filter(|(holds, _)| *holds).map(|(_, state)| *state).collect();
    Row::from([view.name(), states.join(",").into(), view.age()])
}
