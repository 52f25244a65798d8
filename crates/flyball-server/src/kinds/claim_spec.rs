//! The spec of a persistent volume claim, in claims and in templates.

use super::field::{Errors, Field};
use super::rules::{label, resource};
use flyball_core::field::{FieldError, Path};
use flyball_core::names::dns_subdomain;
use serde_json::Value;

const ACCESS_MODES: &[&str] = &["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
pub(super) const VOLUME_MODES: &[&str] = &["Block", "Filesystem"];

pub(super) fn access_modes(modes: &Field<'_>, missing: &str) -> Errors {
    let mut errors = Errors::new();
    if modes.is_empty() {
        errors.push(modes.required(missing));
    }
    for mode in modes.texts().filter(|mode| !ACCESS_MODES.contains(mode)) {
        errors.push(FieldError::not_supported(modes.path(), mode, ACCESS_MODES));
    }
    let alone = |mode: &str| mode == "ReadWriteOncePod";
    if modes.texts().any(alone) && modes.texts().any(|mode| !alone(mode) && ACCESS_MODES.contains(&mode)) {
        errors.push(modes.forbidden("may not use ReadWriteOncePod with other access modes"));
    }
    errors
}

/// Validates the spec of a claim.
pub(super) fn claim_spec(spec: &Field<'_>) -> Errors {
    let mut errors = access_modes(&spec.at("accessModes"), "at least 1 access mode is required");
    errors.extend(label::selector(&spec.at("selector")));
    let requests = spec.at("resources.requests");
    let resources = spec.at("resources");
    let storage = requests.key("storage");
    let shown = resources.key("storage");
    let shown = Field::new(*shown.path(), storage.value());
    if storage.is_set() {
        match resource::positive_amount(&shown) {
            Some(wrong) => errors.push(wrong),
            None => errors.extend(resource::amount_for(&shown, "storage")),
        }
    } else {
        errors.push(shown.required(""));
    }
    errors.extend(spec.at("storageClassName").may_obey(dns_subdomain));
    errors.extend(spec.at("volumeMode").may_be_one_of(VOLUME_MODES));
    let (from, reference) = (spec.at("dataSource"), spec.at("dataSourceRef"));
    for source in [&from, &reference].into_iter().filter(|source| source.is_set()) {
        errors.extend(data_source(source));
    }
    if from.is_set() && reference.is_set() {
        if !reference.at("namespace").is_empty() {
            errors.push(
                spec.invalid_as(
                    from.path().to_string(),
                    "may not be specified when dataSourceRef.namespace is specified",
                ),
            );
        } else if ["apiGroup", "kind", "name"].iter().any(|part| from.at(part).value() != reference.at(part).value()) {
            errors.push(spec.invalid_as(from.path().to_string(), "must match dataSourceRef"));
        }
    }
    errors.extend(spec.at("volumeAttributesClassName").may_obey(dns_subdomain));
    errors
}

fn data_source(source: &Field<'_>) -> Errors {
    let mut errors: Errors = ["name", "kind"].iter().filter_map(|part| source.at(part).must_be_set()).collect();
    let group = source.at("apiGroup").text();
    if group.is_empty() && source.at("kind").text() != "PersistentVolumeClaim" {
        errors.push(source.invalid_as(
            source.at("kind").text(),
            "must be 'PersistentVolumeClaim' when referencing the default apiGroup",
        ));
    }
    if !group.is_empty() {
        errors.extend(source.at("apiGroup").obeys(dns_subdomain));
    }
    errors
}

/// Returns a field of a spec, with a path without `spec` in errors.
pub(super) fn at_root<'a>(name: &'a str, spec: &'a Value) -> Field<'a> {
    Field::new(Path::new(name), &spec[name])
}
