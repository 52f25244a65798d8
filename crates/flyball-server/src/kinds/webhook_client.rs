//! Clients of webhooks, as webhook configurations and conversions of custom resources declare them.

use crate::kinds::field::{Errors, Field};
use crate::kinds::rules::url::Url;
use flyball_core::names::{dns_1035_label, dns_subdomain};
use std::collections::BTreeSet;

/// Validates the address of a webhook.
pub(super) fn check(client: &Field<'_>) -> Errors {
    let (url, service) = (client.at("url"), client.at("service"));
    match (url.is_set(), service.is_set()) {
        (true, false) => check_url(&url),
        (false, true) => check_service(&service),
        _ => vec![client.required("exactly one of url or service is required")],
    }
}

/// Validates the review versions of a webhook, which are required.
pub(super) fn review_versions(versions: &Field<'_>) -> Errors {
    let mut errors = Errors::new();
    let mut seen: BTreeSet<String> = BTreeSet::new();
    for version in versions.items() {
        if !seen.insert(version.text().to_owned()) {
            errors.push(version.invalid("duplicate version"));
            continue;
        }
        errors.extend(version.obeys(dns_1035_label));
    }
    if !seen.iter().any(|version| matches!(version.as_str(), "v1" | "v1beta1")) {
        errors.push(versions.invalid("must include at least one of v1, v1beta1"));
    }
    errors
}

/// Validates the URL of a webhook: it uses HTTPS and has only a host and a path.
fn check_url(url: &Field<'_>) -> Errors {
    const FORM: &str = "; desired format: https://host[/path]";
    let parts = match Url::parse(url.text()) {
        Ok(parts) => parts,
        Err(why) => return vec![url.required(format!("url must be a valid URL: {why}{FORM}"))],
    };
    let mut errors = Errors::new();
    if parts.scheme != "https" {
        errors.push(url.invalid_as(parts.scheme, format!("'https' is the only allowed URL scheme{FORM}")));
    }
    if parts.host.is_empty() {
        errors.push(url.invalid_as(parts.host, format!("host must be specified{FORM}")));
    }
    for (part, what) in [
        (parts.user, "user information is"),
        (Some(parts.fragment).filter(|part| !part.is_empty()), "fragments are"),
        (Some(parts.query).filter(|part| !part.is_empty()), "query parameters are"),
    ] {
        errors.extend(part.map(|part| url.invalid_as(part, format!("{what} not permitted in the URL"))));
    }
    errors
}

fn check_service(service: &Field<'_>) -> Errors {
    let mut errors = Errors::new();
    // kube-apiserver treats these as equivalent.
    for (field, other) in [("namespace", "name"), ("name", "namespace")] {
        if service.at(field).is_empty() {
            errors.push(service.at(other).required(""));
        }
    }
    let port = service.at("port");
    if !(1..=65_535).contains(&port.int()) {
        errors.push(port.invalid("port is not valid: must be between 1 and 65535, inclusive"));
    }
    let path = service.at("path");
    let text = path.text();
    if text.is_empty() || text == "/" {
        return errors;
    }
    if text == "//" {
        errors.push(path.invalid("segment[0] may not be empty"));
        return errors;
    }
    if !text.starts_with('/') {
        errors.push(path.invalid("must start with a '/'"));
    }
    let inner = text.get(1..).unwrap_or_default();
    for (i, step) in inner.strip_suffix('/').unwrap_or(inner).split('/').enumerate() {
        if step.is_empty() {
            errors.push(path.invalid(format!("segment[{i}] may not be empty")));
            continue;
        }
        errors.extend(dns_subdomain(step).into_iter().map(|wrong| path.invalid(format!("segment[{i}]: {wrong}"))));
    }
    errors
}
