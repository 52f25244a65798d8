//! Opaque parameters of drivers.

use super::{Errors, MAX_REQUESTS, by_text, set};
use crate::kinds::field::Field;
use crate::kinds::rules::text;
use flyball_core::names::dns_label;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of configurations of a claim, and of a class.
pub(super) const MAX_CONFIGURATIONS: usize = 32;
const MAX_PARAMETERS: usize = 10 * 1024;

pub(super) fn check(configuration: &Field<'_>, stored: bool) -> Errors {
    let opaque = configuration.at("opaque");
    if !opaque.is_set() {
        return vec![opaque.required("")];
    }
    let mut errors = text::csi_driver(&opaque.at("driver"));
    let max = if stored { usize::MAX } else { MAX_PARAMETERS };
    errors.extend(object(&opaque.at("parameters"), max));
    errors
}

/// The field must be a JSON object of limited size.
pub(super) fn object(field: &Field<'_>, max: usize) -> Errors {
    match field.value() {
        Value::Null => vec![field.required("")],
        value if value.to_string().len() > max => vec![field.too_long(max as u64)],
        Value::Object(_) => Errors::new(),
        _ => vec![field.invalid_as("<value omitted>", "must be a valid JSON object")],
    }
}

/// The requests of a claim by name, each with its subrequests.
pub(super) struct RequestNames<'a>(BTreeMap<&'a str, BTreeSet<&'a str>>);

impl<'a> RequestNames<'a> {
    /// Parses the requests of `spec.devices`.
    pub(super) fn of(devices: &'a Value) -> Self {
        let name = |request: &'a Value| request["name"].as_str().unwrap_or_default();
        let list = |value: &'a Value| value.as_array().map_or(&[][..], Vec::as_slice).iter();
        let requests = list(&devices["requests"]);
        Self(requests.map(|request| (name(request), list(&request["firstAvailable"]).map(name).collect())).collect())
    }

    fn has(&self, reference: &str) -> bool {
        match reference.split_once('/') {
            None => self.0.contains_key(reference),
            Some((request, inner)) => self.0.get(request).is_some_and(|known| known.contains(inner)),
        }
    }

    /// The field must name a request or subrequest.
    pub(super) fn check(&self, field: &Field<'_>) -> Errors {
        const UNKNOWN: &str =
            "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";
        let name = field.text();
        if name.matches('/').count() > 1 {
            return vec![field.invalid_as(name, UNKNOWN)];
        }
        let wrong = name.split('/').flat_map(|part| dns_label(part).into_iter().map(move |why| (part, why)));
        let mut errors: Errors = wrong.map(|(part, why)| field.invalid_as(part, why)).collect();
        if !self.has(name) {
            errors.push(field.invalid_as(name, UNKNOWN));
        }
        errors
    }

    /// The field must be a list of requests or subrequests.
    pub(super) fn check_all(&self, names: &Field<'_>) -> Errors {
        set(names, MAX_REQUESTS, by_text, |name| self.check(name))
    }
}
