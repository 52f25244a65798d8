//! Rules of admission policies and their bindings.

use super::Part;
use super::expression::{self, Made, Variables};
use super::field::Field;
use super::rules::label;
use super::webhook::{conditions, rule};
use flyball_core::field::FieldError;
use flyball_core::names::{dns_1035_label, dns_subdomain, path_segment, qualified_name};
use flyball_core::{GroupVersion, Object};
use flyball_schema::cel::{self, Type};
use serde_json::Value;
use std::collections::HashSet;

type Errors = Vec<FieldError>;

/// The most audit annotations of a policy.
const MAX_ANNOTATIONS: usize = 20;
/// The most bytes of the expression of one.
const MAX_ANNOTATION_EXPRESSION: usize = 5 << 10;

pub(super) fn validating(object: &Object, _: Option<&Object>, part: Part) -> Errors {
    if part == Part::Status {
        return Errors::new();
    }
    let root = Field::root(object);
    let spec = root.at("spec");
    let params = spec.at("paramKind").is_set();
    let mut errors = head(&spec);
    let names = variables(&spec, params, &mut errors);
    let (validations, annotations) = (spec.at("validations"), spec.at("auditAnnotations"));
    if validations.is_empty() && annotations.is_empty() {
        const NONE: &str = "validations or auditAnnotations must contain at least one item";
        errors.extend([validations.required(NONE), annotations.required(NONE)]);
        return errors;
    }
    errors.extend(validations.items().flat_map(|each| validation(&each, &names)));
    if annotations.len() > MAX_ANNOTATIONS {
        errors.push(annotations.invalid(format!("must not have more than {MAX_ANNOTATIONS} auditAnnotations")));
    }
    let mut seen: HashSet<&Value> = HashSet::new();
    for annotation in annotations.items() {
        let (key, value) = (annotation.at("key"), annotation.at("valueExpression"));
        let whole = format!("{}/{}", object.name(), key.text());
        if object.name().is_empty() {
            errors.push(key.invalid("requires metadata.name be non-empty"));
        } else {
            errors.extend(qualified_name(&whole).into_iter().map(|why| key.invalid_as(whole.as_str(), why)));
        }
        match value.text().trim() {
            "" => errors.push(value.required("valueExpression is not specified")),
            text if text.len() > MAX_ANNOTATION_EXPRESSION => {
                errors.push(value.required(format!("must not exceed {MAX_ANNOTATION_EXPRESSION} bytes in length")));
            }
            _ => errors.extend(expression::check(&value, &names, Made::TextOrNull)),
        }
        if !seen.insert(&annotation.value()["key"]) {
            errors.push(key.duplicate());
        }
    }
    errors
}

pub(super) fn mutating(object: &Object, _: Option<&Object>, _: Part) -> Errors {
    let root = Field::root(object);
    let spec = root.at("spec");
    let params = spec.at("paramKind").is_set();
    let mut errors = head(&spec);
    let names = variables(&spec, params, &mut errors);
    let mutations = spec.at("mutations");
    if mutations.is_empty() {
        errors.push(mutations.required("mutations must contain at least one item"));
    }
    errors.extend(mutations.items().flat_map(|each| mutation(&each, &names)));
    errors.extend(spec.at("reinvocationPolicy").must_be_one_of(&["IfNeeded", "Never"]));
    errors
}

pub(super) fn validating_binding(object: &Object, _: Option<&Object>, _: Part) -> Errors {
    let root = Field::root(object);
    let spec = root.at("spec");
    let mut errors = binding(&spec);
    let actions = spec.at("validationActions");
    let mut seen: HashSet<&Value> = HashSet::new();
    for action in actions.items() {
        errors.extend(action.must_be_in(&["Audit", "Deny", "Warn"]));
        if !seen.insert(action.value()) {
            errors.push(action.duplicate());
        }
    }
    let has = |wanted: &str| actions.texts().any(|action| action == wanted);
    if has("Deny") && has("Warn") {
        let why = "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)";
        errors.push(actions.invalid(why));
    }
    if actions.is_empty() {
        errors.push(actions.required("at least one validation action is required"));
    }
    errors
}

pub(super) fn mutating_binding(object: &Object, _: Option<&Object>, _: Part) -> Errors {
    let root = Field::root(object);
    let spec = root.at("spec");
    binding(&spec)
}

/// Validates the fields that policies of both sorts begin with.
fn head(spec: &Field<'_>) -> Errors {
    let mut errors: Errors = spec.at("failurePolicy").must_be_one_of(&["Fail", "Ignore"]).into_iter().collect();
    let (kind, constraints) = (spec.at("paramKind"), spec.at("matchConstraints"));
    if kind.is_set() {
        errors.extend(param_kind(&kind));
    }
    if constraints.is_set() {
        errors.extend(resources(&constraints));
        let rules = constraints.at("resourceRules");
        if rules.is_empty() {
            errors.push(rules.required(""));
        }
    } else {
        errors.push(constraints.required(""));
    }
    errors.extend(conditions(&spec.at("matchConditions"), kind.is_set()));
    errors
}

/// Reads the variables of a policy, each of which knows those before it; returns what its other expressions see.
fn variables(spec: &Field<'_>, params: bool, errors: &mut Errors) -> Variables<'static> {
    let mut known = expression::variables();
    known.push(("namespaceObject", cel::namespace()));
    known.extend(params.then_some(("params", Type::Dyn)));
    let mut own: Vec<(String, Type<'static>)> = Vec::new();
    for variable in spec.at("variables").items() {
        let (name, expression) = (variable.at("name"), variable.at("expression"));
        let text = name.text();
        let identifier = text.bytes().next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if text.trim().is_empty() {
            errors.push(name.required("name is not specified"));
        } else if !identifier || cel::is_reserved(text) {
            errors.push(name.invalid("must be a valid CEL identifier"));
        }
        let mut made = Type::Dyn;
        if expression.text().trim().is_empty() {
            errors.push(expression.required("expression is not specified"));
        } else {
            let mut known = known.clone();
            known.push(("variables", Type::Fields(own.clone().into())));
            match expression::made_of(&expression, &known) {
                Ok(found) => made = found,
                Err(error) => errors.push(error),
            }
        }
        own.push((text.to_owned(), made));
    }
    if !own.is_empty() {
        known.push(("variables", Type::Fields(own.into())));
    }
    known
}

fn validation(validation: &Field<'_>, names: &Variables<'_>) -> Errors {
    let (text, message) = (validation.at("expression"), validation.at("message"));
    let (made, reason) = (validation.at("messageExpression"), validation.at("reason"));
    let mut errors = Errors::new();
    if text.text().trim().is_empty() {
        errors.push(text.required("expression is not specified"));
    } else {
        errors.extend(expression::check(&text, names, Made::Bool));
    }
    if !made.text().is_empty() {
        if made.text().trim().is_empty() {
            errors.push(made.invalid("must be non-empty if specified"));
        } else {
            let known = names.iter().filter(|(name, _)| *name != "authorizer").cloned().collect();
            errors.extend(expression::check(&made, &known, Made::Text));
        }
    }
    if !message.text().is_empty() {
        if message.text().trim().is_empty() {
            errors.push(message.invalid("must be non-empty if specified"));
        } else if message.text().trim().contains(['\n', '\r']) {
            errors.push(message.invalid("must not contain line breaks"));
        }
    }
    if reason.is_set() {
        errors.extend(reason.must_be_in(&["Forbidden", "Invalid", "RequestEntityTooLarge"]));
    }
    errors
}

fn mutation(mutation: &Field<'_>, names: &Variables<'_>) -> Errors {
    let (ty, apply, patch) = (mutation.at("patchType"), mutation.at("applyConfiguration"), mutation.at("jsonPatch"));
    let body = |(wanted, made): (&Field<'_>, Made), (other, given): (&Field<'_>, &str), name: &str| {
        let mut errors = Errors::new();
        let text = wanted.at("expression");
        if !wanted.is_set() {
            errors.push(wanted.required(format!("must be specified when patchType is {name}")));
        } else if text.text().trim().is_empty() {
            errors.push(text.required(""));
        } else {
            errors.extend(expression::check_trimmed(&text, names, made));
        }
        if other.is_set() {
            errors.push(other.invalid_as(given, format!("must not be specified when patchType is {name}")));
        }
        errors
    };
    match ty.text() {
        "" => vec![ty.required("")],
        "ApplyConfiguration" => body((&apply, Made::Object), (&patch, "{jsonPatch}"), "ApplyConfiguration"),
        "JSONPatch" => body((&patch, Made::Patches), (&apply, "{applyConfiguration}"), "JSONPatch"),
        _ => ty.must_be_in(&["ApplyConfiguration", "JSONPatch"]).into_iter().collect(),
    }
}

fn binding(spec: &Field<'_>) -> Errors {
    let (policy, params, matched) = (spec.at("policyName"), spec.at("paramRef"), spec.at("matchResources"));
    let mut errors = policy.must_obey(dns_subdomain);
    if params.is_set() {
        errors.extend(param_ref(&params));
    }
    if matched.is_set() {
        errors.extend(resources(&matched));
    }
    errors
}

fn param_kind(kind: &Field<'_>) -> Errors {
    let (version, name) = (kind.at("apiVersion"), kind.at("kind"));
    let mut errors = Errors::new();
    match GroupVersion::parse(version.text()) {
        _ if version.is_empty() => errors.push(version.required("")),
        None => errors.push(version.invalid(format!("unexpected GroupVersion string: {}", version.text()))),
        Some(parsed) => {
            let told = |given: &str, wrong: Vec<String>| {
                (!wrong.is_empty()).then(|| version.invalid_as(given, wrong.join(",")))
            };
            if !parsed.group.is_empty() {
                errors.extend(told(&parsed.group, dns_subdomain(&parsed.group)));
            }
            errors.extend(told(&parsed.version, dns_1035_label(&parsed.version)));
        }
    }
    let wrong = dns_1035_label(&name.text().to_lowercase());
    if name.is_empty() {
        errors.push(name.required(""));
    } else if !wrong.is_empty() {
        let why = format!("may have mixed case, but should otherwise match: {}", wrong.join(","));
        errors.push(name.invalid(why));
    }
    errors
}

fn param_ref(params: &Field<'_>) -> Errors {
    const EITHER: &str = "name and selector are mutually exclusive";
    let (name, selector, action) = (params.at("name"), params.at("selector"), params.at("parameterNotFoundAction"));
    let mut errors = Errors::new();
    if !name.is_empty() {
        errors.extend(name.obeys(path_segment));
        errors.extend(selector.is_set().then(|| name.forbidden(EITHER)));
    }
    if selector.is_set() {
        errors.extend(label::selector(&selector));
        errors.extend((!name.is_empty()).then(|| selector.forbidden(EITHER)));
    } else if name.is_empty() {
        errors.push(params.required("one of name or selector must be specified"));
    }
    errors.extend(action.must_be_one_of(&["Deny", "Allow"]));
    errors
}

fn resources(matched: &Field<'_>) -> Errors {
    let mut errors: Errors = matched.at("matchPolicy").must_be_one_of(&["Equivalent", "Exact"]).into_iter().collect();
    errors.extend(label::selector(&matched.at("namespaceSelector")));
    errors.extend(label::selector(&matched.at("objectSelector")));
    for list in ["resourceRules", "excludeResourceRules"] {
        for each in matched.at(list).items() {
            let names = each.at("resourceNames");
            let mut seen: HashSet<&Value> = HashSet::new();
            for name in names.items() {
                errors.extend(name.obeys(path_segment));
                if !seen.insert(name.value()) {
                    errors.push(name.duplicate());
                }
            }
            errors.extend(rule(&each));
        }
    }
    errors
}
