//! API services: group versions that other servers have.

use super::GROUP;
use crate::kinds::field::{Errors, Field};
use crate::kinds::fill::Fields;
use crate::kinds::kind::{Checks, EXTENSIONS, Kind};
use crate::kinds::printer::{Heading, Row, View, text};
use crate::kinds::rules::port;
use crate::kinds::subresource::{Part, Subresource as Sub};
use flyball_core::names::{dns_1035_label, dns_subdomain};
use flyball_core::{Clock, Object};
use serde_json::json;

pub(crate) static KIND: Kind = Kind::new(GROUP, "v1", "APIService", "apiservices")
    .stored_as_json()
    .registry_path("apiregistration.k8s.io/apiservices")
    .printed(COLUMNS, row)
    .default(default)
    .prepare(prepare)
    .validate(validate)
    .checks(Checks::Whole)
    .category(EXTENSIONS)
    .cluster()
    .subresources(&[Sub::STATUS]);

const COLUMNS: &[Heading] = &[
    Heading::NAME,
    Heading::text("Service", "The reference to the service that hosts this API endpoint."),
    Heading::text("Available", "Whether this service is available."),
    Heading::AGE,
];

fn default(registration: &mut Object) {
    if let Some(service) = registration.inner_or_new("spec").inner("service") {
        service.fill("port", 443);
    }
}

/// Marks APIs without a service as available.
fn prepare(registration: &mut Object, old: Option<&Object>, _: Part, clock: &Clock) {
    if old.is_some() {
        return;
    }
    let local = registration.at(&["spec", "service"]).is_none_or(serde_json::Value::is_null);
    let status = if local {
        json!({"conditions": [{
            "type": "Available", "status": "True", "lastTransitionTime": clock.now_rfc3339(),
            "reason": "Local", "message": "Local APIServices are always available",
        }]})
    } else {
        json!({})
    };
    registration.insert("status".into(), status);
}

fn validate(object: &Object, _: Option<&Object>, part: Part) -> Errors {
    let root = Field::root(object);
    let (metadata, spec) = (root.at("metadata"), root.at("spec"));
    let mut errors = Errors::new();
    if part == Part::Status {
        return errors;
    }
    let (group, version) = (spec.at("group"), spec.at("version"));
    let expected = format!("{}.{}", version.text(), group.text());
    if object.name() != expected {
        let why = format!("must be `spec.version+\".\"+spec.group`: {expected:?}");
        errors.push(metadata.at("name").invalid_as(object.name(), why));
    }
    if !group.is_empty() {
        errors.extend(group.obeys(dns_subdomain));
    }
    errors.extend(dns_1035_label(version.text()).into_iter().map(|why| version.invalid_as(version.text(), why)));
    for (field, most) in [("groupPriorityMinimum", 20_000), ("versionPriority", 1_000)] {
        let priority = spec.at(field);
        if priority.int() <= 0 || priority.int() > most {
            errors.push(priority.invalid_as(priority.int(), format!("must be positive and less than {most}")));
        }
    }
    let (service, bundle, skips) = (spec.at("service"), spec.at("caBundle"), spec.at("insecureSkipTLSVerify"));
    if !service.is_set() {
        if !bundle.is_empty() {
            let bytes = bundle.text().len() / 4 * 3 - bundle.text().matches('=').count().min(2);
            errors.push(bundle.invalid_as(format!("{bytes} bytes"), "local APIServices may not have a caBundle"));
        }
        if skips.flag() {
            errors.push(skips.invalid("local APIServices may not have insecureSkipTLSVerify"));
        }
        return errors;
    }
    errors.extend(service.at("namespace").must_be_set());
    errors.extend(service.at("name").must_be_set());
    if let Some(wrong) = port::number(&service.at("port")) {
        let port = service.at("port");
        let why = wrong.detail;
        errors.push(port.invalid_as(port.int(), format!("port is not valid: {why}")));
    }
    if skips.flag() && !bundle.is_empty() {
        errors.push(skips.invalid("may not be true if caBundle is present"));
    }
    errors
}

fn row(view: &View<'_>) -> Row {
    let service = view.at("spec.service");
    let served = if service.is_null() {
        "Local".into()
    } else {
        format!("{}/{}", text(service, "namespace"), text(service, "name"))
    };
    let condition = view.list("status.conditions").iter().find(|condition| text(condition, "type") == "Available");
    let available = match condition {
        None => "Unknown".to_owned(),
        Some(condition) if text(condition, "status") == "True" => "True".to_owned(),
        Some(condition) => format!("{} ({})", text(condition, "status"), text(condition, "reason")),
    };
    Row::from([view.name(), served.into(), available.into(), view.age()])
}
