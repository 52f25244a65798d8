//! Flow schemas and priority levels: what the server would queue requests by.
//!
//! They are stored and checked; the server's own bounds are others. See
//! <https://kubernetes.io/docs/concepts/cluster-administration/flow-control/>.

mod bootstrap;

pub(crate) use bootstrap::objects;

use super::Part;
use super::field::Field;
use super::fill::Fields;
use flyball_core::Object;
use flyball_core::field::FieldError;
use flyball_core::names::{dns_label, dns_subdomain};
use serde_json::Value;
use std::collections::HashSet;

type Errors = Vec<FieldError>;

/// The name of the objects of both kinds that may not change.
const EXEMPT: &str = "exempt";

const VERBS: &[&str] = &["create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"];

/// Bits of a flow's hash by which hands of queues are dealt.
const MAX_HASH_BITS: f64 = 60.0;
const MAX_QUEUES: i64 = 10_000_000;

pub(super) fn default_schema(schema: &mut Object) {
    let spec = schema.inner_or_new("spec");
    if spec.get("matchingPrecedence").and_then(Value::as_i64).unwrap_or_default() == 0 {
        spec.set("matchingPrecedence", 1000);
    }
}

pub(super) fn default_level(level: &mut Object) {
    let spec = level.inner_or_new("spec");
    if let Some(exempt) = spec.inner("exempt") {
        exempt.fill("nominalConcurrencyShares", 0);
        exempt.fill("lendablePercent", 0);
    }
    let Some(limited) = spec.inner("limited") else { return };
    limited.fill("nominalConcurrencyShares", 30);
    limited.fill("lendablePercent", 0);
    if let Some(queuing) = limited.inner("limitResponse").and_then(|response| response.inner("queuing")) {
        for (field, value) in [("handSize", 8), ("queues", 64), ("queueLengthLimit", 50)] {
            if queuing.get(field).and_then(Value::as_i64).unwrap_or_default() == 0 {
                queuing.set(field, value);
            }
        }
    }
}

/// A status is checked the same way whatever it is of.
fn status(root: &Field<'_>) -> Errors {
    let status = root.at("status");
    let conditions = status.at("conditions");
    let mut errors = Errors::new();
    let mut types = HashSet::new();
    for (condition, value) in conditions.items().zip(conditions.list()) {
        let ty = condition.at("type");
        if !types.insert(&value["type"]) {
            errors.push(ty.duplicate());
        }
        if ty.is_empty() {
            errors.push(ty.required("must not be empty"));
        }
    }
    errors
}

/// Rejects to change what must stay as it is.
fn fixed(spec: &Field<'_>, name: &str, wanted: Option<Value>) -> Option<FieldError> {
    let differs = wanted.is_some_and(|wanted| wanted != *spec.value());
    differs.then(|| spec.invalid(format!("spec of '{name}' must equal the fixed value")))
}

pub(super) fn schema(object: &Object, _: Option<&Object>, part: Part) -> Errors {
    let root = Field::root(object);
    if part == Part::Status {
        return status(&root);
    }
    let spec = root.at("spec");
    let precedence = spec.at("matchingPrecedence");
    let mut errors = Errors::new();
    if precedence.int() <= 0 {
        errors.push(precedence.invalid("must be a positive value"));
    }
    if precedence.int() > 10_000 {
        errors.push(precedence.invalid("must not be greater than 10000"));
    }
    if precedence.int() == 1 && object.name() != EXEMPT {
        errors.push(precedence.invalid("only the schema named 'exempt' may have matchingPrecedence 1"));
    }
    let method = spec.at("distinguisherMethod");
    if method.is_set() {
        errors.extend(method.at("type").must_be_in(&["ByNamespace", "ByUser"]));
    }
    let level = spec.at("priorityLevelConfiguration");
    let level = level.at("name");
    if level.is_empty() {
        errors.push(level.required("must reference a priority level"));
    } else {
        errors.extend(level.obeys(dns_subdomain));
    }
    errors.extend(spec.at("rules").items().flat_map(|rule| policy_rule(&rule)));
    errors.extend(fixed(&spec, object.name(), bootstrap::mandatory_schema(object.name())));
    errors.extend(status(&root));
    errors
}

fn policy_rule(rule: &Field<'_>) -> Errors {
    let (subjects, resources, others) = (rule.at("subjects"), rule.at("resourceRules"), rule.at("nonResourceRules"));
    let mut errors: Errors = subjects.items().flat_map(|each| subject(&each)).collect();
    if subjects.is_empty() {
        errors.push(subjects.required("subjects must contain at least one value"));
    }
    if resources.is_empty() && others.is_empty() {
        errors.push(rule.required("at least one of resourceRules and nonResourceRules has to be non-empty"));
    }
    errors.extend(resources.items().flat_map(|each| resource_rule(&each)));
    errors.extend(others.items().flat_map(|each| non_resource_rule(&each)));
    errors
}

const SUBJECTS: [(&str, &str); 3] = [("ServiceAccount", "serviceAccount"), ("User", "user"), ("Group", "group")];

fn subject(subject: &Field<'_>) -> Errors {
    let kind = subject.at("kind");
    let Some((_, own)) = SUBJECTS.iter().find(|(known, _)| *known == kind.text()) else {
        return vec![kind.not_supported(&["Group", "ServiceAccount", "User"])];
    };
    let named = subject.at(own);
    let mut errors = Errors::new();
    if named.is_set() {
        let name = named.at("name");
        if name.is_empty() {
            errors.push(name.required(""));
        } else if kind.text() == "ServiceAccount" && name.text() != "*" {
            errors.extend(name.obeys(dns_subdomain));
        }
        let namespace = named.at("namespace");
        if kind.text() == "ServiceAccount" {
            match namespace.is_empty() {
                true => errors.push(namespace.required("must specify namespace for service account")),
                false => errors.extend(namespace.obeys(dns_label)),
            }
        }
    } else {
        errors.push(named.required(format!("{own} is required when subject kind is '{}'", kind.text())));
    }
    for (kind, other) in SUBJECTS.iter().filter(|(_, other)| other != own) {
        let other = subject.at(other);
        if other.is_set() {
            let field = other.path().to_string();
            let field = field.rsplit('.').next().unwrap_or_default().to_owned();
            errors.push(other.forbidden(format!("{field} is forbidden when subject kind is not '{kind}'")));
        }
    }
    errors
}

fn has_wildcard(list: &Field<'_>) -> bool {
    list.texts().any(|text| text == "*")
}

fn verbs(verbs: &Field<'_>) -> Errors {
    if verbs.is_empty() {
        return vec![verbs.required("verbs must contain at least one value")];
    }
    if has_wildcard(verbs) {
        let alone = (verbs.len() > 1).then(|| verbs.invalid("if '*' is present, must not specify other verbs"));
        return alone.into_iter().collect();
    }
    if verbs.texts().all(|verb| VERBS.contains(&verb)) { Errors::new() } else { vec![verbs.not_supported(VERBS)] }
}

fn resource_rule(rule: &Field<'_>) -> Errors {
    let mut errors = verbs(&rule.at("verbs"));
    for (list, one, what) in [("apiGroups", "api group", "api groups"), ("resources", "resource", "resources")] {
        let list = rule.at(list);
        if list.is_empty() {
            errors.push(list.required(format!("resource rules must supply at least one {one}")));
        } else if list.len() > 1 && has_wildcard(&list) {
            errors.push(list.invalid(format!("if '*' is present, must not specify other {what}")));
        }
    }
    let namespaces = rule.at("namespaces");
    if namespaces.is_empty() && !rule.at("clusterScope").flag() {
        let why = "resource rules that are not cluster scoped must supply at least one namespace";
        errors.push(namespaces.required(why));
    } else if has_wildcard(&namespaces) {
        if namespaces.len() > 1 {
            errors.push(namespaces.invalid("if '*' is present, must not specify other namespaces"));
        }
    } else {
        const INTRO: &str = "each member of this list must be '*' or a DNS-1123 label; ";
        for namespace in namespaces.items() {
            let wrong = dns_label(namespace.text()).into_iter();
            errors.extend(wrong.map(|why| namespace.invalid(format!("{INTRO}{why}"))));
        }
    }
    errors
}

fn non_resource_rule(rule: &Field<'_>) -> Errors {
    let mut errors = verbs(&rule.at("verbs"));
    let paths = rule.at("nonResourceURLs");
    if paths.is_empty() {
        errors.push(paths.required("nonResourceURLs must contain at least one value"));
    } else if has_wildcard(&paths) {
        if paths.len() > 1 {
            errors.push(paths.invalid("if '*' is present, must not specify other non-resource URLs"));
        }
    } else {
        errors.extend(paths.items().filter_map(|path| Some(path.invalid(wrong_path(path.text())?))));
    }
    errors
}

fn wrong_path(path: &str) -> Option<&'static str> {
    let stars = path.matches('*').count();
    match path {
        "" => Some("must not be empty"),
        "/" => None,
        _ if !path.starts_with('/') => Some("must start with slash"),
        _ if path.contains(' ') => Some("must not contain white-space"),
        _ if path.contains("//") => Some("must not contain double slash"),
        _ if stars > 1 || stars == 1 && !path.ends_with("/*") => Some("wildcard can only do suffix matching"),
        _ => None,
    }
}

pub(super) fn level(object: &Object, _: Option<&Object>, part: Part) -> Errors {
    let root = Field::root(object);
    if part == Part::Status {
        return status(&root);
    }
    let spec = root.at("spec");
    let (ty, limited, exempt) = (spec.at("type"), spec.at("limited"), spec.at("exempt"));
    let mut errors = Errors::new();
    if (object.name() == EXEMPT) != (ty.text() == "Exempt") {
        errors.push(ty.invalid_as(ty.text(), "type must be 'Exempt' if and only if name is 'exempt'"));
    }
    match ty.text() {
        "Exempt" => {
            if limited.is_set() {
                errors.push(limited.forbidden("must be nil if the type is not Limited"));
            }
            errors.extend(shares(&exempt));
        }
        "Limited" => {
            if exempt.is_set() {
                errors.push(exempt.forbidden("must be nil if the type is Limited"));
            }
            match limited.is_set() {
                true => errors.extend(limits(&limited)),
                false => errors.push(limited.required("must not be empty when type is Limited")),
            }
        }
        _ => errors.push(ty.not_supported(&["Exempt", "Limited"])),
    }
    let wanted = bootstrap::mandatory_level(object.name()).map(|mut wanted| {
        // How much others may borrow of the exempt level is for the administrator to say.
        if object.name() == EXEMPT {
            wanted["exempt"] = exempt.value().clone();
        }
        wanted
    });
    let wanted = wanted.map(|mut wanted| {
        wanted.as_object_mut().into_iter().for_each(|wanted| wanted.retain(|_, value| !value.is_null()));
        wanted
    });
    errors.extend(fixed(&spec, object.name(), wanted));
    errors.extend(status(&root));
    errors
}

/// Validates the shares of both types of levels.
fn shares(of: &Field<'_>) -> Errors {
    let (shares, lendable) = (of.at("nominalConcurrencyShares"), of.at("lendablePercent"));
    let mut errors = Errors::new();
    if shares.int() < 0 {
        errors.push(shares.invalid("must be a non-negative integer"));
    }
    if !(0..=100).contains(&lendable.int()) {
        errors.push(lendable.invalid("must be between 0 and 100, inclusive"));
    }
    errors
}

fn limits(limited: &Field<'_>) -> Errors {
    let mut errors = shares(limited);
    let borrowed = limited.at("borrowingLimitPercent");
    if borrowed.given_int().is_some_and(|percent| percent < 0) {
        errors.push(borrowed.invalid("if specified, must be a non-negative integer"));
    }
    let response = limited.at("limitResponse");
    let (ty, queuing) = (response.at("type"), response.at("queuing"));
    match (ty.text(), queuing.is_set()) {
        ("Reject", true) => {
            errors.push(queuing.forbidden("must be nil if limited.limitResponse.type is not Limited"));
        }
        ("Reject", false) => {}
        ("Queue", false) => {
            errors.push(queuing.required("must not be empty if limited.limitResponse.type is Limited"));
        }
        ("Queue", true) => errors.extend(queues(&queuing)),
        _ => errors.push(ty.not_supported(&["Queue", "Reject"])),
    }
    errors
}

fn queues(queuing: &Field<'_>) -> Errors {
    let (length, queues, hand) = (queuing.at("queueLengthLimit"), queuing.at("queues"), queuing.at("handSize"));
    let mut errors = Errors::new();
    if length.int() <= 0 {
        errors.push(length.invalid("must be positive"));
    }
    if queues.int() <= 0 {
        errors.push(queues.invalid("must be positive"));
    } else if queues.int() > MAX_QUEUES {
        errors.push(queues.invalid(format!("must not be greater than {MAX_QUEUES}")));
    }
    if hand.int() <= 0 {
        errors.push(hand.invalid("must be positive"));
    } else if hand.int() > queues.int() {
        errors.push(hand.invalid(format!("should not be greater than queues ({})", queues.int())));
    } else if !fits_hash(queues.int(), hand.int()) {
        let (deck, hand_size) = (queues.int(), hand.int());
        errors.push(hand.invalid(format!(
            "required entropy bits of deckSize {deck} and handSize {hand_size} should not be greater than {MAX_HASH_BITS}"
        )));
    }
    errors
}

/// Returns whether a hash is long enough to deal a hand of queues.
fn fits_hash(queues: i64, hand: i64) -> bool {
    let mut bits = 0.0;
    for dealt in 0..hand {
        bits += ((queues - dealt) as f64).log2();
        if bits.ceil() > MAX_HASH_BITS {
            return false;
        }
    }
    true
}
