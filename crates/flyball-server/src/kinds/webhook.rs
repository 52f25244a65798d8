//! Rules of webhook configurations.

use super::Part;
use super::expression::{self, Made};
use super::field::Field;
use super::rules::url::Url;
use super::rules::{label, text};
use flyball_core::Object;
use flyball_core::field::FieldError;
use flyball_core::names::{dns_1035_label, dns_subdomain, qualified_name};
use flyball_schema::cel::Type;
use std::collections::BTreeSet;

type Errors = Vec<FieldError>;

pub(super) fn validating(object: &Object, _: Option<&Object>, _: Part) -> Errors {
    all(object, false)
}

pub(super) fn mutating(object: &Object, _: Option<&Object>, _: Part) -> Errors {
    all(object, true)
}

fn all(object: &Object, mutates: bool) -> Errors {
    let root = Field::root(object);
    let mut errors = Errors::new();
    let mut names: BTreeSet<String> = BTreeSet::new();
    for hook in root.at("webhooks").items() {
        errors.extend(webhook(&hook, mutates));
        errors.extend(versions(&hook.at("admissionReviewVersions")));
        let name = hook.at("name");
        if !name.is_empty() && names.contains(name.text()) {
            errors.push(name.duplicate());
        }
        names.insert(name.text().to_owned());
    }
    errors
}

fn webhook(hook: &Field<'_>, mutates: bool) -> Errors {
    let mut errors: Errors = text::fully_qualified(&hook.at("name"), 3).into_iter().collect();
    errors.extend(hook.at("rules").items().flat_map(|each| rule(&each)));
    errors.extend(hook.at("failurePolicy").may_be_one_of(&["Fail", "Ignore"]));
    errors.extend(hook.at("matchPolicy").may_be_one_of(&["Equivalent", "Exact"]));
    let effects = hook.at("sideEffects");
    if effects.is_set() {
        errors.extend(effects.must_be_in(&["None", "NoneOnDryRun"]));
    } else {
        errors.push(effects.required("must specify one of None, NoneOnDryRun"));
    }
    let seconds = hook.at("timeoutSeconds");
    if seconds.is_set() && !(1..=30).contains(&seconds.int()) {
        errors.push(seconds.invalid("the timeout value must be between 1 and 30 seconds"));
    }
    errors.extend(label::selector(&hook.at("namespaceSelector")));
    errors.extend(label::selector(&hook.at("objectSelector")));
    if mutates {
        errors.extend(hook.at("reinvocationPolicy").may_be_one_of(&["IfNeeded", "Never"]));
    }
    errors.extend(webhook_client(&hook.at("clientConfig")));
    errors.extend(conditions(&hook.at("matchConditions"), false));
    errors
}

/// Rules of where to reach a webhook.
pub(crate) fn webhook_client(client: &Field<'_>) -> Errors {
    let (url, service) = (client.at("url"), client.at("service"));
    match (url.is_set(), service.is_set()) {
        (true, false) => check_url(&url),
        (false, true) => check_service(&service),
        _ => vec![client.required("exactly one of url or service is required")],
    }
}

pub(super) fn conditions(conditions: &Field<'_>, params: bool) -> Errors {
    let mut errors = Errors::new();
    let mut known = expression::variables();
    known.extend(params.then_some(("params", Type::Dyn)));
    if conditions.len() > 64 {
        errors.push(conditions.too_many(64));
    }
    let mut names: BTreeSet<String> = BTreeSet::new();
    for condition in conditions.items() {
        let (name, text) = (condition.at("name"), condition.at("expression"));
        if text.text().trim().is_empty() {
            errors.push(text.required(""));
        } else {
            errors.extend(expression::check_trimmed(&text, &known, Made::Bool));
        }
        errors.extend(name.must_obey(qualified_name));
        if !name.is_empty() && names.contains(name.text()) {
            errors.push(name.duplicate());
        }
        names.insert(name.text().to_owned());
    }
    errors
}

const OPERATIONS: &[&str] = &["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];

/// A wildcard stands alone.
fn alone(field: &Field<'_>, what: &str) -> Option<FieldError> {
    let wild = field.len() > 1 && field.texts().any(|text| text == "*");
    wild.then(|| field.invalid(format!("if '*' is present, must not specify other {what}")))
}

pub(super) fn rule(rule: &Field<'_>) -> Errors {
    let (operations, groups, versions) = (rule.at("operations"), rule.at("apiGroups"), rule.at("apiVersions"));
    let mut errors: Errors = operations.must_be_set().into_iter().collect();
    errors.extend(alone(&operations, "operations"));
    errors.extend(operations.items().filter_map(|operation| operation.must_be_in(OPERATIONS)));
    errors.extend(groups.must_be_set());
    errors.extend(alone(&groups, "API groups"));
    errors.extend(versions.must_be_set());
    errors.extend(alone(&versions, "API versions"));
    errors.extend(versions.items().filter(Field::is_empty).map(|version| version.required("")));
    errors.extend(resources(&rule.at("resources")));
    errors.extend(rule.at("scope").may_be_one_of(&["*", "Cluster", "Namespaced"]));
    errors
}

fn resources(resources: &Field<'_>) -> Errors {
    let mut errors: Errors = resources.must_be_set().into_iter().collect();
    let (mut whole, mut subs): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    let mut plain = false;
    for item in resources.items() {
        let text = item.text();
        if text.is_empty() {
            errors.push(item.required(""));
            continue;
        }
        let Some((resource, sub)) = text.split_once('/') else {
            plain = text != "*";
            continue;
        };
        if whole.iter().any(|known| known == resource) {
            errors.push(item.invalid(format!("if '{resource}/*' is present, must not specify {text}")));
        }
        if subs.iter().any(|known| known == sub) {
            errors.push(item.invalid(format!("if '*/{sub}' is present, must not specify {text}")));
        }
        if sub == "*" {
            whole.push(resource.to_owned());
        }
        if resource == "*" {
            subs.push(sub.to_owned());
        }
    }
    if resources.len() > 1 && resources.texts().any(|text| text == "*/*") {
        errors.push(resources.invalid("if '*/*' is present, must not specify other resources"));
    }
    if plain && resources.texts().any(|text| text == "*") {
        errors.push(resources.invalid("if '*' is present, must not specify other resources without subresources"));
    }
    errors
}

fn versions(versions: &Field<'_>) -> Errors {
    if versions.is_empty() {
        return vec![versions.required("must specify one of v1, v1beta1")];
    }
    review_versions(versions)
}

/// Rules of the versions of reviews that a webhook takes, of which there are some.
pub(crate) fn review_versions(versions: &Field<'_>) -> Errors {
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

/// Webhooks are called by TLS, by nothing but a host and a path.
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
    for (given, what) in [
        (parts.user, "user information is"),
        (Some(parts.fragment).filter(|given| !given.is_empty()), "fragments are"),
        (Some(parts.query).filter(|given| !given.is_empty()), "query parameters are"),
    ] {
        errors.extend(given.map(|given| url.invalid_as(given, format!("{what} not permitted in the URL"))));
    }
    errors
}

fn check_service(service: &Field<'_>) -> Errors {
    let mut errors = Errors::new();
    // The real server takes each of these for the other.
    for (given, told) in [("namespace", "name"), ("name", "namespace")] {
        if service.at(given).is_empty() {
            errors.push(service.at(told).required(""));
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
